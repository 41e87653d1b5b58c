"""No report or summary overwrites a results file."""

import contextlib
import os
import resource
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic_study import Synthetic, write_anew, write_study

from pgdyno.cli.console import MARK, require_writable_page, write_text
from pgdyno.cli.main import run_command
from pgdyno.errors import EvidenceError, EvidenceExistsError, PgdynoError, UsageError
from pgdyno.features.demo import command as demo_command
from pgdyno.measure import study_runner
from pgdyno.results import writer

MADE = Synthetic(blocks=5)
"""A small results file with arbitrary contents."""


@pytest.mark.parametrize(
    "words",
    [
        "report e.sqlite --html e.sqlite",
        "report e.sqlite --html link",
        "report e.sqlite --summary e.sqlite",
        "report e.sqlite --md --summary other.sqlite",
        "history . --html e.sqlite",
        "compare 17 18 --html e.sqlite",
        "compare 17 18 --summary e.sqlite",
        "compare --resume e.sqlite --html e.sqlite",
    ],
)
def test_evidence_that_is_there_is_not_written_over(
    words: str, place: Path, refusal: Callable[..., str]
) -> None:
    for name in ("e.sqlite", "other.sqlite"):
        write_study(place / name, MADE)
    Path("link").symlink_to("e.sqlite")
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    assert "is a results file, which is never overwritten: name another file" in refusal(words)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before


@pytest.mark.parametrize(
    "words",
    [
        "compare 17 18 --evidence e.html",  # its page would have the same name
        "compare 17 18 --evidence e --html ./e",
        "compare 17 18 --evidence e --summary e",
    ],
)
@pytest.mark.usefixtures("place")
def test_a_new_results_file_has_a_unique_name(words: str, refusal: Callable[..., str]) -> None:
    assert "never overwritten" in refusal(words)


PAGE = f"<!doctype html>{MARK}"
SOMEBODYS = "what took somebody a year"
FILE_BYTES_MAX = 4096


def test_a_page_that_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_text(page, PAGE)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, before[1]))
    try:
        with pytest.raises(PgdynoError, match=r"cannot write .*page\.html: File too large"):
            write_text(page, PAGE + "x" * 2 * FILE_BYTES_MAX)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert page.read_text() == PAGE
    assert list(tmp_path.iterdir()) == [page]


def test_a_page_keeps_the_file_mode_and_is_written_through_open_descriptors(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.touch(mode=0o600)
    write_text(page, PAGE)
    assert (page.read_text(), page.stat().st_mode & 0o777) == (PAGE, 0o600)
    reader, writer = os.pipe()
    through = Path(f"/dev/fd/{writer}")
    require_writable_page(through)
    write_text(through, "through")
    assert os.read(reader, 99) == b"through"
    os.close(reader)
    os.close(writer)
    with pytest.raises(UsageError, match="Bad file descriptor"):
        require_writable_page(through)
    require_writable_page(Path("/dev/stdout"))


def test_remains_of_a_killed_page_write_are_removed_by_the_next_one(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    dead = tmp_path / f".e.html.{ended.pid}.{16 * '0'}.part"
    others = tmp_path / f".other.html.{ended.pid}.{16 * '0'}.part"
    being_written = tmp_path / f".e.html.{os.getppid()}.{16 * '0'}.part"
    for path in (dead, others, being_written):
        path.write_text("half a page")
    write_text(tmp_path / "e.html", "a page")
    assert sorted(tmp_path.iterdir()) == sorted([others, being_written, tmp_path / "e.html"])


def test_writing_to_standard_output_does_not_truncate_its_file(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        log.write("before ")
        log.flush()
        write_text(Path(f"/dev/fd/{log.fileno()}"), "page ")
        log.write("after")
    assert (tmp_path / "log").read_text() == "before page after"


def is_a_file(path: Path) -> None:
    path.write_text(SOMEBODYS)


def is_a_link(path: Path) -> None:
    path.with_name("target").write_text(PAGE)
    path.symlink_to("target")


def is_a_dangling_link(path: Path) -> None:
    path.symlink_to("elsewhere")


def is_a_pipe(path: Path) -> None:
    os.mkfifo(path)


def is_a_socket(path: Path) -> None:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as one:
        one.bind(str(path))


def is_a_device(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("ROOT: only root makes devices")
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))


def is_protected(path: Path) -> None:
    path.write_text(PAGE)
    path.chmod(0o444)


NEVER = {
    is_a_link: "it is a symbolic link",
    is_a_dangling_link: "it is a symbolic link",
    Path.mkdir: "it is a directory",
    is_a_pipe: "it is not a regular file",
    is_a_socket: "it is not a regular file",
    is_a_device: "it is not a regular file",
    is_protected: "it is write-protected",
}
"""Not even with --force, and nothing is appended to it either."""

WRITING = ("report e.sqlite", "compare 17 18")
COMMANDS = tuple(
    f"{words} --html there" for words in (*WRITING, "history .", "compare --resume e.sqlite", "run mine.toml")
)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    for study in ("start_study", "resume_study"):
        monkeypatch.setattr(study_runner, study, lambda *_: pytest.fail("it measured"))
    return tmp_path


def state_of(folder: Path) -> dict[str, tuple[int, object]]:
    return {
        path.name: (path.lstat().st_mode, path.read_bytes() if path.is_file() else path.lstat().st_ino)
        for path in folder.iterdir()
    }


@pytest.mark.parametrize(
    ("make", "words"),
    [
        *((make, COMMANDS[0]) for make in NEVER),
        *((is_a_link, words) for words in (*COMMANDS[1:], *(f"{of} --summary there" for of in WRITING))),
    ],
)
def test_a_file_that_is_not_regular_is_never_replaced_or_appended_to(
    words: str, make: Callable[[Path], None], place: Path, refusal: Callable[..., str]
) -> None:
    write_study(place / "e.sqlite", MADE)
    make(place / "there")
    before = state_of(place)
    for force in ([], ["--force"]) if "--html" in words else ([],):
        assert f"cannot write there: {NEVER[make]}" in refusal([*words.split(), *force])
    assert state_of(place) == before


@pytest.mark.parametrize("words", COMMANDS)
def test_a_file_that_pgdyno_did_not_write_is_not_replaced(
    words: str, place: Path, refusal: Callable[..., str]
) -> None:
    write_study(place / "e.sqlite", MADE)
    is_a_file(place / "there")
    told = "pgdyno: there exists and was not written by pgdyno: name another file, or add --force"
    assert refusal(words) == told
    assert (place / "there").read_text() == SOMEBODYS


def test_the_page_next_to_the_results_file_may_be_replaced(place: Path, refusal: Callable[..., str]) -> None:
    is_a_file(place / "e.html")
    told = refusal("compare 17 18 --evidence e.sqlite")
    assert "e.html exists and was not written by pgdyno" in told


@pytest.mark.parametrize("words", ["report e.sqlite --html p.html", "history . --html p.html"])
def test_a_page_by_pgdyno_is_replaced_and_others_with_force(
    words: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_study(place / "e.sqlite", MADE)
    page = place / "p.html"
    for content, force in (("", []), (PAGE, []), (SOMEBODYS, ["--force"])):
        page.write_text(content)
        assert run_command([*words.split(), *force]) == 0
        assert run_command(words.split()) == 0  # the page that it wrote is its own
    assert page.read_text().startswith("<!doctype html>") and MARK in page.read_text()
    capsys.readouterr()


def test_a_summary_is_appended_to_the_file(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_study(place / "e.sqlite", MADE)
    is_a_file(place / "there")
    assert run_command(["report", "e.sqlite", "--summary", "there"]) == 0
    assert (place / "there").read_text().startswith(SOMEBODYS)
    assert len((place / "there").read_text()) > len(SOMEBODYS)
    assert run_command(["report", "e.sqlite", "--summary", "/dev/stdout"]) in (0, 2)  # pytest's own stream
    capsys.readouterr()


@pytest.mark.parametrize("left", ["e.sqlite-wal", "e.sqlite-shm", "e.sqlite-journal"])
def test_a_new_results_file_is_not_created_next_to_a_foreign_wal_file(
    left: str, place: Path, refusal: Callable[..., str]
) -> None:
    (place / left).write_text(SOMEBODYS)
    assert f"{left} as part of it: remove" in refusal("compare 17 18 --evidence e.sqlite")
    assert (place / left).read_text() == SOMEBODYS


def test_a_lock_path_with_a_users_file_is_not_changed(place: Path) -> None:
    (place / "Cargo.lock").write_text(SOMEBODYS)
    with pytest.raises(EvidenceError, match=r"Cargo\.lock is not a lock file of pgdyno"):
        write_anew(place / "Cargo", MADE)
    assert {path.name: path.read_text() for path in place.iterdir()} == {"Cargo.lock": SOMEBODYS}


def test_files_next_to_a_new_results_file_are_unchanged_but_the_lock_of_a_dead_process(place: Path) -> None:
    (place / "e.new").write_text(SOMEBODYS)
    (place / "e.lock").write_text("123\n")
    write_anew(place / "e", MADE)
    assert (place / "e.new").read_text() == SOMEBODYS
    assert sorted(path.name for path in place.iterdir()) == ["e", "e.new"]


def test_a_results_file_created_meanwhile_is_not_replaced(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = writer.Writer._make

    def slow(*values: object) -> None:
        whole(*values)  # type: ignore[arg-type]
        is_a_file(place / "e")

    monkeypatch.setattr(writer.Writer, "_make", slow)
    with pytest.raises(EvidenceExistsError):
        write_anew(place / "e", MADE)
    assert {path.name: path.read_text() for path in place.iterdir()} == {"e": SOMEBODYS}


@pytest.mark.parametrize("words", ["demo there", "demo there/below"])
def test_a_demo_finds_out_before_it_fetches_servers(
    words: str, place: Path, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., str]
) -> None:
    monkeypatch.setattr(demo_command, "choose_arms", lambda: pytest.fail("it fetched"))
    is_a_file(place / "there")
    assert "cannot create the directory there" in refusal(words)
    assert (place / "there").read_text() == SOMEBODYS
