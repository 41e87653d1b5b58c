"""No report or summary takes the place of evidence."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_study import Synthetic, write_study

from pgdyno.cli import measuring
from pgdyno.cli.main import run
from pgdyno.cli.place import require_place_of_text, write_text
from pgdyno.errors import PgdynoError

MADE = Synthetic(blocks=5)
"""Small evidence; what it says does not matter."""


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
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("e.sqlite", "other.sqlite"):
        write_study(tmp_path / name, MADE)
    Path("link").symlink_to("e.sqlite")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for study in ("start_study", "resume_study"):
        monkeypatch.setattr(measuring, study, lambda *_: pytest.fail("it measured"))
    assert run(words.split()) == 2
    assert "is evidence, which is never overwritten: name another file" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "words",
    [
        "compare 17 18 --evidence e.html",  # its page would be of the same name
        "compare 17 18 --evidence e --html ./e",
        "compare 17 18 --evidence e --summary e",
    ],
)
def test_evidence_to_be_made_has_a_name_of_its_own(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measuring, "start_study", lambda *_: pytest.fail("it measured"))
    assert run(words.split()) == 2
    assert "never overwritten" in capsys.readouterr().err


def test_a_page_that_cannot_be_written_leaves_the_one_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    write_text(page, "first")
    whole = Path.write_text

    def half(path: Path, text: str, **how: str) -> int:
        whole(path, text[:3], **how)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(PgdynoError, match=r"cannot write the report to .*page\.html: No space left"):
        write_text(page, "second")
    assert page.read_text() == "first"
    assert list(tmp_path.iterdir()) == [page]


def test_a_page_goes_to_a_stream_as_it_is_and_keeps_the_mode_of_a_file(tmp_path: Path) -> None:
    page, pipe = tmp_path / "page.html", tmp_path / "pipe"
    page.touch(mode=0o600)
    write_text(page, "whole")
    assert (page.read_text(), page.stat().st_mode & 0o777) == ("whole", 0o600)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    require_place_of_text(pipe)
    write_text(pipe, "through")
    assert os.read(reader, 99) == b"through"
    os.close(reader)
    require_place_of_text(Path("/dev/stdout"))
    assert pipe.is_fifo()


def test_what_a_killed_pgdyno_left_of_this_page_goes_when_it_is_written_again(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    dead = tmp_path / f".e.html.{ended.pid}.part"
    others = tmp_path / f".other.html.{ended.pid}.part"
    being_written = tmp_path / f".e.html.{os.getppid()}.part"
    for path in (dead, others, being_written):
        path.write_text("half a page")
    write_text(tmp_path / "e.html", "a page")
    assert sorted(tmp_path.iterdir()) == sorted([others, being_written, tmp_path / "e.html"])
