"""Directories of scripts with weights: what is written is read, and files of others stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.cli.workload_options import scripts_of
from pgdyno.errors import UsageError
from pgdyno.study.pgbench_parameters import Script
from pgdyno.study.script_files import LIST, require_directory, write_directory

SCRIPTS = (
    Script(name="001_select_shop", weight=7, text="SELECT 1;\n"),
    Script(name="002_insert_shop", weight=0, text="SELECT 'é';\n"),
)


def test_a_written_directory_is_one_file_option(tmp_path: Path) -> None:
    write_directory(tmp_path / "load", SCRIPTS, ["about = [", "é"])
    assert scripts_of((), [str(tmp_path / "load")]) == SCRIPTS
    with pytest.raises(UsageError, match=r"has weights in its workload\.toml: remove @3"):
        scripts_of((), [f"{tmp_path / 'load'}@3"])


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "scripts: Field required"),
        ("scripts = []", "scripts: Tuple should have at least 1 item"),
        ("[[scripts]]\nfile = '../a.sql'", r"scripts\.0\.file: String should match"),
        ("[[scripts]]\nfile = 'a.sql'\nweight = -1", r"scripts\.0\.weight"),
        ("[[scripts]]\nfile = 'a.sql'", "cannot read the script .*a.sql: No such file"),
        ("scripts = [", "is not valid TOML"),
    ],
)
def test_a_wrong_list_is_refused_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / LIST).write_text(text)
    with pytest.raises(UsageError, match=message):
        scripts_of((), [str(tmp_path)])


def test_a_directory_without_list_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no workload\.toml"):
        scripts_of((), [str(tmp_path)])
