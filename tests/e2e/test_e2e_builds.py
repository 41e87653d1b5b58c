"""Arms built from commits: sources whose programs are those of the installed server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from program import TINY, Program

from fake_sources import git, write_clone
from pgdyno.server.builds import Build


@pytest.fixture
def clone(build: Build, server_dir: Path) -> Iterator[Path]:
    yield write_clone(server_dir / "postgres", (str(build.version), "19devel"), build.bin_dir)


def test_two_commits_are_built_and_compared(program: Program, clone: Path, build: Build) -> None:
    old = f"git:{clone}@master~1"
    ended = program.succeed("compare", *TINY, old, f"git:{clone}@master", "--build-options=--with-lz4")
    arms = [of["arm"] for of in ended.case["arms"]]
    assert [arm["server"]["version"] for arm in arms] == [str(build.version), "19devel"]
    assert [arm["name"] for arm in arms] == ["git:master~1", "git:master"]
    assert ended.trials == [{"ok": 1}] * 2
    (untested,) = [one["sentence"] for one in ended.json()["caveats"] if one["code"] == "untested-version"]
    assert "PostgreSQL 19devel" in untested
    assert arms[0]["spec"] == f"{old},build_options=--with-lz4"
    commit = git(clone, "rev-parse", "master")
    assert f"commit {commit[:12]} of {clone}; configure" in arms[1]["server"]["origin"]
    listed = program.run("servers", "list", "--json").json()["here"]
    origins = [one["origin"] for one in listed if one["provider"] == "source"]
    assert any(commit[:12] in origin and "--with-lz4" in origin for origin in origins)


def test_a_built_version_is_used_by_arms_that_name_it(program: Program, clone: Path) -> None:
    built = program.succeed("servers", "build", "devel", "--source", str(clone), "--json")
    assert program.run("servers", "path", "19devel").out.strip() == built.json()["bin_dir"]


def test_a_failed_build_ends_the_study_with_the_end_of_its_log(program: Program, clone: Path) -> None:
    ended = program.run("compare", f"git:{clone}@master", f"git:{clone}", "--build-options=--with-missing")
    assert ended.status == 1
    assert "library 'missing' is required" in ended.err
