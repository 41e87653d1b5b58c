"""Directories of scripts with weights: wrong ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.errors import UsageError
from pgdyno.workloads.pgbench.parameters import LIST, scripts_of


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "scripts: is missing"),
        ("scripts = []", "scripts: must not be empty"),
        ("[[scripts]]\nfile = '../a.sql'", r"scripts\.0\.file: must match"),
        ("[[scripts]]\nfile = 'a.sql'\nweight = -1", r"scripts\.0\.weight"),
        ("[[scripts]]\nfile = 'a.sql'\nshare = 1.5", r"scripts\.0\.share"),
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
