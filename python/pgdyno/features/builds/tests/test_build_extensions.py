"""Extensions of one arm, with a server whose programs are scripts and extensions that need no compiler."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_sources import git
from pgdyno.errors import BuildError, UsageError
from pgdyno.features.builds.extensions import PRELOADED, ExtendedBuilds
from pgdyno.server.build_store import Store, split_extensions
from pgdyno.server.builds import Build, read_build
from pgdyno.server.cache_directory import Cache, items
from pgdyno.server.directories import server_account

PG_CONFIG = """#!/bin/sh
bin=$(cd "$(dirname "$0")" && pwd)
case "$1" in
  --bindir) echo "$bin" ;;
  --sharedir) echo "{share}" ;;
  --pkglibdir) echo "${{bin%/bin}}/lib" ;;
  --pgxs) echo "{pgxs}" ;;
  --includedir-server) echo "{headers}" ;;
  --cc) echo "sh -c 'echo cc 1.0' --" ;;
  --cflags) echo "-O2 -g" ;;
esac
"""
SHARE = "${bin%/lib/pg/18/bin}/share/pg/18"

MAKEFILE = """
all:
\ttest -f $(shell $(PG_CONFIG) --pgxs) -a "$(USE_PGXS)" = 1
\ttest ! -f broken || { echo "demo.c:1: error: it does not compile"; exit 1; }
install:
\tmkdir -p $(DESTDIR)$(shell $(PG_CONFIG) --sharedir)/extension $(DESTDIR)$(shell $(PG_CONFIG) --pkglibdir)
\tcp *.control $(DESTDIR)$(shell $(PG_CONFIG) --sharedir)/extension || true
\tcp *.lib $(DESTDIR)$(shell $(PG_CONFIG) --pkglibdir)/demo.so || true
"""
CONTROL = "default_version = '1.2'\nmodule_pathname = '$libdir/demo'\n"


def write_server(prefix: Path, share: str = SHARE) -> Build:
    """Write an installed server: programs, a library and a file that extensions must not replace."""
    bin_dir = prefix / "lib/pg/18/bin"
    bin_dir.mkdir(parents=True)
    for folder in ("lib/pg/18/lib", "share/pg/18/extension"):
        (prefix / folder).mkdir(parents=True)
    for name in ("postgres", "initdb"):
        (bin_dir / name).write_text(f'#!/bin/sh\necho "{name} (PostgreSQL) 18.1"\n')
    pgxs, headers = prefix / "lib/pg/18/lib/pgxs/src/makefiles/pgxs.mk", prefix / "include"
    for folder in (pgxs.parent, headers):
        folder.mkdir(parents=True)
    pgxs.touch()
    (headers / "postgres.h").touch()
    (bin_dir / "pg_config").write_text(PG_CONFIG.format(share=share, pgxs=pgxs, headers=headers))
    for program in bin_dir.iterdir():
        program.chmod(0o755)
    (prefix / "lib/pg/18/lib/demo.so").write_text("of the server")
    return read_build(bin_dir, "system", "installed")


def write_extension(folder: Path, library: bytes = b"demo") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / "demo.control").write_text(CONTROL)
    (folder / "demo.lib").write_bytes(library)
    return folder


@pytest.fixture
def server(tmp_path: Path) -> Build:
    return write_server(tmp_path / "usr")


@pytest.fixture
def extension(tmp_path: Path) -> Path:
    return write_extension(tmp_path / "demo")


@pytest.fixture
def builds(tmp_path: Path) -> ExtendedBuilds:
    (tmp_path / "cache" / "builds").mkdir(parents=True)
    return ExtendedBuilds(tmp_path / "cache" / "builds", print)


Make = Callable[..., Build]


@pytest.fixture
def make(server: Build, builds: ExtendedBuilds) -> Make:
    """Make the server with extensions from these sources."""
    return lambda *sources: builds.of(server, [str(source) for source in sources])


def test_an_extension_is_installed_into_a_copy_of_the_server_only(
    server: Build, extension: Path, builds: ExtendedBuilds, tmp_path: Path
) -> None:
    before = sorted((path, path.lstat().st_mtime_ns) for path in (tmp_path / "usr").rglob("*"))
    sources = sorted((path, path.lstat().st_mtime_ns) for path in extension.rglob("*"))
    assert builds.known(server, [str(extension)]) is None
    build = builds.of(server, [str(extension)])
    assert sorted((path, path.lstat().st_mtime_ns) for path in (tmp_path / "usr").rglob("*")) == before
    assert sorted((path, path.lstat().st_mtime_ns) for path in extension.rglob("*")) == sources
    assert (build.label, build.libraries) == ("18.1 (system) with demo 1.2", ())
    assert str(extension) in build.origin
    assert "cc 1.0; -O2 -g" in build.origin
    assert (build.bin_dir.parent / "lib/demo.so").read_text() == "demo"
    assert not build.program("postgres").is_symlink()
    assert build.build_id != server.build_id
    assert builds.of(server, [str(extension)]) == builds.known(server, [str(extension)]) == build
    assert Store(builds.builds_dir, tmp_path / "lists").cached() == [], "an arm that names its version"
    assert not list(builds.builds_dir.glob("*.log"))
    assert [item.kind for item in items(Cache.at(tmp_path / "cache", server_account()))] == ["build"]


def test_other_sources_are_another_server_and_files_of_other_builds_are_no_sources(
    extension: Path, make: Make
) -> None:
    first = make(extension)
    (extension / "demo.o").touch()
    (extension / "pgdyno-20261125.sqlite").touch()
    assert make(extension) == first
    (extension / "demo.lib").write_text("changed")
    assert make(extension).build_id != first.build_id


def test_commits_of_a_clone_and_a_subdirectory_of_it_are_extensions(make: Make, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    inner = write_extension(clone / "contrib" / "demo")
    git(clone, "init", "--quiet", "--initial-branch", "main")
    for content in ("base", "head"):
        (inner / "demo.lib").write_text(content)
        git(clone, "add", "--all")
        git(clone, "commit", "--quiet", "--message", content)
    found = [make(f"git:{inner}@{ref}") for ref in ("main~1", "main")]
    assert [(of.bin_dir.parent / "lib/demo.so").read_text() for of in found] == ["base", "head"]
    commit = git(clone, "rev-parse", "main")[:12]
    assert f"contrib/demo in commit {commit} of {clone}" in found[1].origin
    assert git(clone, "status", "--porcelain") == ""


def test_a_library_that_asks_for_it_is_preloaded(extension: Path, make: Make) -> None:
    write_extension(extension, b"\0" + PRELOADED + b"\0")
    assert make(extension).libraries == ("demo",)
    (extension / "demo.control").unlink()
    alone = make(extension)
    assert (alone.libraries, alone.extensions[0].name) == (("demo",), "")


def test_several_extensions_are_in_one_copy(extension: Path, make: Make, tmp_path: Path) -> None:
    other = write_extension(tmp_path / "other")
    (other / "demo.control").rename(other / "other.control")
    both = make(extension, other)
    assert [one.name for one in both.extensions] == ["demo", "other"]
    with pytest.raises(UsageError, match="two sources install the extension demo"):
        make(extension, write_extension(tmp_path / "copy"))


@pytest.mark.parametrize(("clang", "is_there"), [("sh", True), ("clang-of-another-version", False)])
def test_without_the_clang_of_the_server_an_extension_has_no_bitcode(
    server: Build, extension: Path, make: Make, clang: str, is_there: bool
) -> None:
    settings = server.bin_dir.parent / "lib/pgxs/src/Makefile.global"
    settings.write_text(f"with_llvm\t= yes\nCLANG = {clang}\n")
    (extension / "Makefile").write_text(
        f"with_llvm ?= yes\n{MAKEFILE}\techo $(with_llvm) > {extension}/said\n"
    )
    build = make(extension)
    assert (extension / "said").read_text() == ("yes\n" if is_there else "no\n")
    assert (f"without LLVM bitcode ({clang} is not installed)" in build.origin) != is_there


def test_a_failed_build_shows_the_end_of_its_log_and_leaves_nothing_else(
    extension: Path, make: Make, builds: ExtendedBuilds
) -> None:
    (extension / "broken").touch()
    with pytest.raises(BuildError, match="error: it does not compile"):
        make(extension)
    assert {path.suffix for path in builds.builds_dir.iterdir()} == {".lock", ".log"}


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("Makefile", None, "has no Makefile, only meson.build: pgdyno builds extensions with make"),
        ("demo.control", "module_pathname = '$libdir/other'\n", "names the library $libdir/other"),
        ("Makefile", "all:\ninstall:\n", "installed no control file and no library"),
    ],
)
def test_sources_that_are_no_extension_have_a_remedy(
    extension: Path, make: Make, file: str, content: str | None, words: str
) -> None:
    (extension / "meson.build").touch()
    if content is None:
        (extension / file).unlink()
    else:
        (extension / file).write_text(content)
    with pytest.raises((BuildError, UsageError), match=re.escape(words)):
        make(extension)


def test_a_place_without_an_extension_is_refused(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for source, words in (
        ("nonexistent", "is not a directory"),
        ("git:main", "names no clone"),
        ("git:./@main", "is not a usable clone"),
    ):
        with pytest.raises(UsageError, match=words):
            make(source)


def test_a_server_for_which_no_extension_can_be_built_is_refused(
    server: Build, extension: Path, make: Make, builds: ExtendedBuilds, tmp_path: Path
) -> None:
    pgxs = server.bin_dir.parent / "lib/pgxs/src/makefiles/pgxs.mk"
    for missing in (tmp_path / "usr/include/postgres.h", pgxs):
        missing.unlink()
        with pytest.raises(UsageError, match=f"{missing} is missing.*Debian: postgresql-server-dev-18"):
            make(extension)
    server.program("pg_config").unlink()
    with pytest.raises(UsageError, match="has no pg_config"):
        make(extension)
    fixed = write_server(tmp_path / "opt", share=os.fspath(tmp_path / "opt/share/pg/18"))
    with pytest.raises(BuildError, match="cannot be copied"):
        builds.of(fixed, [str(extension)])


def test_the_extensions_of_a_specification_follow_the_server() -> None:
    assert split_extensions("18") == ("18", [])
    assert split_extensions("git:/pg@v1,build_options=-Dlz4=enabled,extension=a,git:b@v2") == (
        "git:/pg@v1,build_options=-Dlz4=enabled",
        ["a", "git:b@v2"],
    )
