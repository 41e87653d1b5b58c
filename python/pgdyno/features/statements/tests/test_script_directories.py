"""Directories of scripts with weights: what is written is read, and files of others stay."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from pgdyno.errors import UsageError
from pgdyno.features.statements.command import require_directory, write_directory
from pgdyno.workloads.pgbench.parameters import LIST, STUB, PgbenchParameters, Script, scripts_of

SCRIPTS = (
    Script(name="001_select_shop", weight=7, text="SELECT 1;\n", share=0.75),
    Script(name="002_insert_shop", weight=0, text="SELECT 'é';\n", share=0.25),
)


def test_a_written_directory_is_one_file_option(tmp_path: Path) -> None:
    write_directory(tmp_path / "load", SCRIPTS, ["about = [", "é"])
    assert scripts_of((), [str(tmp_path / "load")]) == SCRIPTS
    with pytest.raises(UsageError, match=r"has weights in its workload\.toml: remove @3"):
        scripts_of((), [f"{tmp_path / 'load'}@3"])


def test_equal_names_of_several_directories_have_the_directory_before_them(tmp_path: Path) -> None:
    day, night = tmp_path / "day-load", tmp_path / "night-load"
    write_directory(day, SCRIPTS, [])
    write_directory(night, SCRIPTS[:1], [])
    scripts = scripts_of((), [f"{day}/", str(night)])
    assert [script.name for script in scripts] == [
        f"{day}/001_select_shop",
        "002_insert_shop",
        f"{night}/001_select_shop",
    ]
    assert PgbenchParameters(scale=1, scripts=scripts).kinds() == [script.name for script in scripts]
    with pytest.raises(ValidationError, match="001_select_shop is given twice"):
        PgbenchParameters(scale=1, scripts=scripts_of((), [str(day), str(day)]))


def test_a_file_in_a_directory_with_an_at_sign_has_the_weight_one(tmp_path: Path) -> None:
    path = tmp_path / "ann@corp" / "x.sql"
    path.parent.mkdir()
    path.write_text("SELECT 1")
    assert scripts_of((), [str(path)]) == (Script(name=str(path), text="SELECT 1"),)
    assert scripts_of((), [f"{path}@2"])[0].weight == 2


def test_a_script_with_a_stub_is_refused_until_its_mark_is_removed(tmp_path: Path) -> None:
    stub = Script(name="001_report", text=f"{STUB} $1 integer: edit p1\n{STUB} $2\n\\set p1 random(1, 30)\n")
    write_directory(tmp_path / "load", [stub], [])
    path = tmp_path / "load" / "001_report.sql"
    for given in (tmp_path / "load", path):
        with pytest.raises(
            UsageError,
            match=r"report\.sql contains an unedited stub \(and 1 more in this file\): \$1 integer",
        ):
            scripts_of((), [str(given)])
    path.write_text("\\set p1 random(1, 7)\n")
    assert scripts_of((), [str(tmp_path / "load")])[0].text == path.read_text()


def test_coverage_is_that_of_the_scripts_that_run(tmp_path: Path) -> None:
    def coverage(*files: Path) -> float | None:
        scripts = scripts_of((), map(str, files))
        return PgbenchParameters(scale=1, scripts=scripts).coverage

    first, second, alone = tmp_path / "first", tmp_path / "second", tmp_path / "alone.sql"
    shares = {"a": 0.5, "b": 0.25}
    write_directory(first, [Script(name=name, text="SELECT 1", share=of) for name, of in shares.items()], [])
    write_directory(second, [Script(name="c", text="SELECT 1", share=0.25)], [], coverage_min=0.2)
    alone.write_text("SELECT 2")
    assert coverage(first, alone) == 0.75
    assert coverage(first, second) == 0.5  # the mean of two recordings
    assert coverage(alone) is None
    listed = (first / LIST).read_text()
    (first / LIST).write_text(listed.replace("weight = 1", "weight = 0", 1))
    (first / LIST).write_text("coverage_min = 0.25\n" + listed.replace("weight = 1", "weight = 0", 1))
    assert coverage(first) == 0.25


def test_a_recording_of_which_less_than_half_is_left_is_refused_unless_its_list_accepts_it(
    tmp_path: Path,
) -> None:
    shares = {"a": 0.3, "b": 0.25, "c": 0.1}
    scripts = [Script(name=name, text="SELECT 1", share=share) for name, share in shares.items()]
    write_directory(tmp_path, scripts, [])
    written = (tmp_path / LIST).read_text()
    for edited in (
        "\n".join(part for part in written.split("\n\n") if '"a.sql"' not in part),
        written.replace("weight = 1", "weight = 0", 1),
    ):
        (tmp_path / LIST).write_text(edited)
        with pytest.raises(
            UsageError, match=r"cover 35.0% of the recorded time.* coverage_min = 0\.35 before"
        ):
            scripts_of((), [str(tmp_path)])
        (tmp_path / LIST).write_text(edited.replace("[[scripts]]", "coverage_min = 0.35\n[[scripts]]", 1))
        assert len(scripts_of((), [str(tmp_path)])) == edited.count("[[scripts]]")
    write_directory(tmp_path, scripts[2:], [], coverage_min=0.1)
    assert scripts_of((), [str(tmp_path)])[0].share == 0.1


def test_a_directory_is_replaced_only_on_request_and_if_pgdyno_wrote_it(tmp_path: Path) -> None:
    load = tmp_path / "load"
    require_directory(load, replace=False)
    load.mkdir()
    write_directory(load, SCRIPTS, [])
    (load / "mine.sql").write_text("SELECT 2;")
    with pytest.raises(UsageError, match="--overwrite"):
        require_directory(load, replace=False)
    write_directory(load, SCRIPTS[:1], [])
    assert sorted(path.name for path in load.iterdir()) == ["001_select_shop.sql", "mine.sql", LIST]
    (load / LIST).write_text("[[scripts]]\nfile = 'mine.sql'\n")
    with pytest.raises(UsageError, match="was not written by pgdyno"):
        require_directory(load, replace=True)
    (tmp_path / "link").symlink_to(load)
    for path, message in (
        (tmp_path / "link", "not a directory"),
        (load / "mine.sql", "not a directory"),
        (tmp_path / "none" / "load", "create it first"),
    ):
        with pytest.raises(UsageError, match=message):
            require_directory(path, replace=True)
