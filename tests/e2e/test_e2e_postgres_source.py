"""PostgreSQL itself, built from the clone in PGDYNO_CLONE: make build-test."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from program import TINY, Program

from fake_sources import git
from pgdyno.features.builds.source import CLONE_VARIABLE, git_commit

CLONE = os.environ.get(CLONE_VARIABLE)

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(4 * 3600),
    pytest.mark.skipif(CLONE is None, reason=f"{CLONE_VARIABLE} names no clone of PostgreSQL"),
]


def test_a_commit_of_postgresql_is_built_with_contrib_and_measured(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("program.END_S", 4 * 3600.0)
    arm = f"git:{CLONE}"
    ended = program.succeed("compare", *TINY, arm, f"{arm},jit=off")
    server = ended.case["arms"][0]["arm"]["server"]
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


PLANTED = 3
COUNT = "\tpgstat_count_index_tuples(scan->indexRelation, 1);\n"
SLOW = "\tfor (volatile int i = 0; i < 200000; i++)\n\t\t;\n"
"""About 0.1 ms, as much as the whole transaction takes without it."""


@pytest.fixture
def commits(tmp_path: Path) -> Path:
    """A repository with the files of the clone's HEAD, whose commit 3 slows every index fetch down."""
    repository = tmp_path / "postgres"
    assert CLONE is not None
    git_commit(Path(CLONE).expanduser().resolve(), "HEAD").extract(repository)
    git(repository, "init", "--quiet", "--initial-branch", "master")
    fetch = repository / "src/backend/access/index/indexam.c"
    for number in range(6):
        (repository / "NUMBER").write_text(str(number))
        if number == PLANTED:
            text = fetch.read_text()
            assert text.count(COUNT) == 1
            fetch.write_text(text.replace(COUNT, SLOW + COUNT))
        git(repository, "add", "--all", "--force")
        git(repository, "commit", "--quiet", "--message", f"commit {number}")
        git(repository, "tag", f"v{number}")
    return repository


def test_a_slowdown_planted_in_the_source_is_bisected(
    program: Program, commits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("program.END_S", 4 * 3600.0)
    sizes = ("--workload", "pgbench", "--scale", "2", "-b", "select-only", "--clients", "2", "--seed", "7")
    times = ("--schedule", "slices", "--slice", "0.2s", "--warmup", "0.3s", "--window", "1.6s")
    ended = program.succeed(
        *("bisect", "v0", "v5", "--repository", commits, "--directory", "found", "--json"),
        *("--margin", "10%", *sizes, *times),
    )
    assert (ended.json()["found"]["subject"], ended.json()["direction"]) == (f"commit {PLANTED}", "slower")


def test_an_extension_is_built_for_the_server_of_the_same_commit(
    program: Program, commits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("program.END_S", 4 * 3600.0)
    arm = f"git:{commits}@v0"
    extension = f"git:{commits / 'contrib/pg_stat_statements'}@v5"
    ended = program.succeed("compare", *TINY, arm, f"{arm},extension={extension}")
    (built,) = ended.case["arms"][1]["arm"]["server"]["extensions"]
    assert (built["name"], built["libraries"]) == ("pg_stat_statements", ["pg_stat_statements"])
