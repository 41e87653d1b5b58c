"""Arms built from commits, whose programs are those of the installed server, and extensions of arms, built
for the installed server with its own headers, or with those of its package.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path

import pytest
from program import TINY, Program

from fake_sources import git, write_clone
from pgdyno.server.builds import Build

DOWNLOAD_S = 60.0

FILES = {
    "Makefile": """
MODULES = pgdyno_test
EXTENSION = pgdyno_test
DATA = pgdyno_test--1.0.sql
PG_CONFIG = pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)
""",
    "pgdyno_test.control": "default_version = '1.0'\nmodule_pathname = '$libdir/pgdyno_test'\n",
    "pgdyno_test--1.0.sql": """
CREATE FUNCTION pgdyno_test(integer) RETURNS integer AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
""",
    "pgdyno_test.c": """
#include "postgres.h"
#include "fmgr.h"
#include "miscadmin.h"
PG_MODULE_MAGIC;
PG_FUNCTION_INFO_V1(pgdyno_test);
static bool preloaded = false;
void _PG_init(void);
void _PG_init(void) { preloaded = process_shared_preload_libraries_in_progress; }
Datum pgdyno_test(PG_FUNCTION_ARGS)
{
    if (!preloaded)
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("not preloaded")));
    PG_RETURN_INT32(PG_GETARG_INT32(0) + INCREMENT);
}
""",
}


def has_headers(bin_dir: Path) -> bool:
    if not (bin_dir / "pg_config").is_file():
        return False
    done = subprocess.run(
        [bin_dir / "pg_config", "--includedir-server", "--pgxs"], capture_output=True, text=True, check=False
    )
    headers, _, pgxs = done.stdout.strip().partition("\n")
    return done.returncode == 0 and Path(headers, "postgres.h").is_file() and Path(pgxs).is_file()


def add_headers(build: Build, folder: Path) -> Path:
    """Copy the installation of Debian below ``folder``, and unpack the package of its headers there. Return
    the directory of its programs; it has no headers if the package cannot be downloaded.
    """
    for path in (
        build.bin_dir,
        build.bin_dir.parent / "lib",
        Path("/usr/share/postgresql", build.bin_dir.parent.name),
    ):
        if path.is_dir():
            shutil.copytree(path, folder / path.relative_to("/"))
    package = f"postgresql-server-dev-{build.version.major}"
    for command in (["apt-get", "download", "-q", package], ["sh", "-c", f"dpkg -x {package}_*.deb ."]):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=DOWNLOAD_S)
    return folder / build.bin_dir.relative_to("/")


@pytest.fixture(scope="module")
def server(build: Build, session_dir: Path) -> str:
    """The installed server if it has headers, else a copy of it with those of its package."""
    if has_headers(build.bin_dir):
        return str(build.bin_dir)
    folder = session_dir / "with-headers"
    folder.mkdir()
    bin_dir = add_headers(build, folder)
    if not has_headers(bin_dir):
        pytest.skip("NO HEADERS: the server has none, and postgresql-server-dev cannot be downloaded")
    return str(bin_dir)


@pytest.fixture
def clone(server_dir: Path) -> Path:
    """A clone with two commits; the second one does not compile."""
    folder = server_dir / "extension"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text.replace("INCREMENT", "1"))
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "works")
    (folder / "pgdyno_test.c").write_text(FILES["pgdyno_test.c"].replace("INCREMENT", "missing_name"))
    git(folder, "commit", "--quiet", "--all", "--message", "does not compile")
    return folder


def test_an_extension_without_its_library_and_one_that_does_not_compile_are_errors_before_a_measurement(
    program: Program, clone: Path, tmp_path: Path, server: str
) -> None:
    script = tmp_path / "call.sql"
    script.write_text("SELECT pgdyno_test(1);\n")
    extended = f"{server},extension=git:{clone}@main~1"
    off = f"{extended},shared_preload_libraries="
    refused = program.run("compare", *TINY, extended, off, "-f", str(script))
    assert refused.status == 1 and "not preloaded" in refused.err
    ended = program.run("compare", *TINY, *[f"{server},extension=git:{clone}@main"] * 2)
    assert ended.status == 1
    assert "missing_name" in ended.err and "the build failed (make" in " ".join(ended.err.split())


@pytest.mark.long  # the facts of a build with an extension: features/builds/tests/test_build_extensions.py
def test_an_arm_with_an_extension_is_compared_with_one_without_it(
    program: Program, clone: Path, server: str
) -> None:
    ended = program.succeed("compare", *TINY, server, f"{server},extension=git:{clone}@main~1")
    without, with_it = (of["arm"]["server"] for of in ended.case["arms"])
    assert "extensions" not in without
    (extension,) = with_it["extensions"]
    assert (extension["name"], extension["version"]) == ("pgdyno_test", "1.0")
    assert extension["libraries"] == ["pgdyno_test"]
    assert git(clone, "rev-parse", "main~1")[:12] in extension["source"]
    assert "-O2" in with_it["origin"]


def test_two_commits_are_built_and_compared(program: Program, server_dir: Path, build: Build) -> None:
    clone = write_clone(server_dir / "postgres", (str(build.version), "19devel"), build.bin_dir)
    old, new = (f"git:{clone}@{ref},build_options=--with-lz4" for ref in ("master~1", "master"))
    ended = program.succeed("compare", *TINY, old, new)
    arms = [of["arm"] for of in ended.case["arms"]]
    assert [arm["server"]["version"] for arm in arms] == [str(build.version), "19devel"]
    assert [arm["name"] for arm in arms] == ["git:master~1", "git:master"]
    assert ended.trials == [{"ok": 1}] * 2
    (untested,) = [one["sentence"] for one in ended.json()["caveats"] if one["code"] == "untested-version"]
    assert "PostgreSQL 19devel" in untested
    assert arms[0]["spec"] == old
    commit = git(clone, "rev-parse", "master")
    assert f"commit {commit[:12]} of {clone}; configure" in arms[1]["server"]["origin"]
    listed = program.run("servers", "list", "--json").json()["here"]
    origins = [one["origin"] for one in listed if one["provider"] == "source"]
    assert any(commit[:12] in origin and "--with-lz4" in origin for origin in origins)
