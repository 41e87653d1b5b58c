"""A server newer than all tested versions: programs that report 19devel and execute installed ones."""

from __future__ import annotations

from pathlib import Path

from program import Program

from pgdyno.server.build import Build

WRAPPER = """#!/bin/sh
case "$1" in --version|-V) echo "{name} (PostgreSQL) 19devel" ;; *) exec "{real}" "$@" ;; esac
"""


def wrapped(build: Build, folder: Path) -> Path:
    """Return a directory of programs that say they are of 19devel and are otherwise the build's."""
    folder.mkdir(mode=0o755)
    for real in build.bin_dir.iterdir():
        program = folder / real.name
        program.write_text(WRAPPER.format(name=real.name, real=real))
        program.chmod(0o755)
    return folder


def test_a_development_build_is_measured_with_a_caveat(
    program: Program, server: str, build: Build, server_dir: Path
) -> None:
    devel = wrapped(build, server_dir / "devel")
    ended = program.compare(server, str(devel), "--blocks", "1", "--json")
    assert ended.status == 0, ended.err
    found = ended.json()
    assert [arm["server"]["version"] for arm in found["arms"]] == [str(build.version), "19devel"]
    assert [arm["trials"] for arm in found["arms"]] == [{"ok": 1}] * 2
    (told,) = [caveat for caveat in found["caveats"] if caveat["code"] == "untested-version"]
    assert "PostgreSQL 19devel" in told["sentence"]


def test_a_pre_release_is_not_fetched(program: Program) -> None:
    ended = program.run("servers", "install", "19devel")
    assert ended.status == 1
    (complaint,) = ended.complaints
    assert "PostgreSQL 19devel is not installed, and pre-releases cannot be downloaded" in complaint
