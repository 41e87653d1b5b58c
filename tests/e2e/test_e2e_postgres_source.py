"""PostgreSQL itself, built from the clone in PGDYNO_CLONE: make build-test."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from program import TINY, Program

from pgdyno.server.source_trees import CLONE_VARIABLE

CLONE = os.environ.get(CLONE_VARIABLE)

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(4 * 3600),
    pytest.mark.skipif(CLONE is None, reason=f"{CLONE_VARIABLE} names no clone of PostgreSQL"),
]


def test_a_commit_of_postgresql_is_built_with_contrib_and_measured(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("program.END_S", 4 * 3600.0)
    arm = f"git:{CLONE}"
    ended = program.run("compare", *TINY, arm, f"{arm},jit=off")
    assert ended.status == 0, ended.err
    server = ended.json()["arms"][0]["server"]
    assert server["provider"] == "source"
    assert server["compiled"]["CC"].endswith(("gcc", "cc"))
    bin_dir = Path(program.run("servers", "path", arm).out.strip())  # from the cache
    assert (bin_dir / "pgbench").is_file()
    contrib = subprocess.run(
        [bin_dir / "pg_config", "--sharedir"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert Path(contrib, "extension", "pg_stat_statements.control").is_file()


@pytest.mark.skipif(shutil.which("meson") is None, reason="meson is not installed")
def test_the_same_commit_is_built_with_meson(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("program.END_S", 4 * 3600.0)
    arm = f"git:{CLONE},build_options=-Dreadline=disabled"
    ended = program.run("servers", "path", arm)
    if "do not suit these sources (configure)" in ended.err:
        pytest.skip("the commit has no meson.build")
    assert ended.status == 0, ended.err
    assert (Path(ended.out.strip()) / "postgres").is_file()
