"""Builds from source, with sources that are built in a moment and no server."""

from __future__ import annotations

import functools
import http.server
import json
import os
import tarfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fake_sources import configured, git, write_clone, write_sources
from pgdyno.errors import BuildError, FetchError, UsageError
from pgdyno.features.builds.source import (
    CLONE_VARIABLE,
    Directory,
    SourceBuilds,
    build_system,
    git_commit,
    opened_source,
    parse_git_server,
    split_options,
    sweep,
    unfinished,
)
from pgdyno.features.own_data.source import installed_clients
from pgdyno.interruption import stopping
from pgdyno.server.build_store import Store, resolve_all, resolve_build
from pgdyno.server.builds import parse_version_spec
from pgdyno.server.cache_directory import Cache, items, prune
from pgdyno.server.directories import server_account


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return write_clone(tmp_path / "postgres", ("18.1", "19devel"))


@pytest.fixture
def builds(tmp_path: Path) -> SourceBuilds:
    return SourceBuilds(tmp_path / "cache" / "builds", print)


def visible(builds: SourceBuilds) -> list[str]:
    """Return the names in the directory, without locks, which stay."""
    return sorted(path.name for path in builds.builds_dir.iterdir() if path.suffix != ".lock")


def test_a_commit_is_built_once_with_each_options_and_the_clone_is_only_read(
    clone: Path, builds: SourceBuilds
) -> None:
    before = git(clone, "status", "--porcelain=v2", "--branch"), sorted((clone / ".git").iterdir())
    spec = f"git:{clone}@v18.1"
    assert builds.known(parse_git_server(spec)) is None
    build = builds.of_spec(spec)
    assert (str(build.version), build.label) == ("18.1", "18.1 (source)")
    assert f"commit {git(clone, 'rev-parse', 'v18.1')[:12]} of {clone}" in build.origin
    assert builds.of_spec(spec) == builds.known(parse_git_server(spec)) == build
    assert configured(clone) == 1
    options = ("@v18.1,build_options=--with-lz4", "@v18.1,build_options=CC=cc", "@v19devel")
    made = [build, *(builds.of_spec(f"git:{clone}{others}") for others in options)]
    assert len({one.bin_dir for one in made}) == configured(clone) == 4
    assert "--with-lz4" in made[1].origin
    facts = json.loads((made[1].bin_dir.parent / "build.json").read_text())
    assert facts["options"] == ["--with-lz4"]
    assert "compiling" in (build.bin_dir.parent / "build.log").read_text()
    assert (git(clone, "status", "--porcelain=v2", "--branch"), sorted((clone / ".git").iterdir())) == before
    assert git(clone, "worktree", "list").count("\n") == 0


def test_programs_of_a_build_from_a_bare_clone_can_be_run_by_every_user(
    clone: Path, builds: SourceBuilds, tmp_path: Path
) -> None:
    git(clone, "clone", "--quiet", "--bare", str(clone), str(tmp_path / "bare.git"))
    before = os.umask(0o077)
    try:
        build = builds.of_spec(f"git:{tmp_path / 'bare.git'}@master")
    finally:
        os.umask(before)
    assert build.program("postgres").stat().st_mode & 0o777 == 0o755
    assert build.bin_dir.parent.stat().st_mode & 0o777 == 0o755
    clients = installed_clients(Store(builds.builds_dir, tmp_path / "lists"))
    assert str(build.version) == "19devel" and clients[0] == build  # the newest reads data of its version


def test_a_failed_build_shows_the_end_of_its_log_and_leaves_only_the_log(
    clone: Path, builds: SourceBuilds
) -> None:
    with pytest.raises(BuildError, match=r"library 'missing' is required") as caught:
        builds.of_spec(f"git:{clone},build_options=--with-missing")
    (log,) = visible(builds)
    assert log.endswith(".log")
    assert str(builds.builds_dir / log) in str(caught.value)
    sweep(builds.builds_dir)
    assert visible(builds) == []


def test_an_interrupted_build_ends_its_processes_and_leaves_nothing_half(
    clone: Path, builds: SourceBuilds, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids: list[int] = []

    def interrupt() -> None:
        while not pids:
            for found in builds.builds_dir.glob(".*.part/source/pid"):
                pids.extend(map(int, found.read_text().split()))
            time.sleep(0.01)
        monkeypatch.setattr(stopping, "since_s", 0.0)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        builds.of_spec(f"git:{clone},build_options=--with-delay")
    thread.join()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
    assert not [name for name in visible(builds) if not name.endswith(".log")]


def test_remains_of_a_killed_build_and_old_builds_are_removed_by_the_next_one_and_by_prune(
    clone: Path, tmp_path: Path
) -> None:
    cache = Cache.at(tmp_path / "cache", server_account())
    builds = SourceBuilds(cache.builds, print)
    build = builds.of_spec(f"git:{clone}")
    name = build.bin_dir.parent.name
    build.bin_dir.parent.rename(builds.builds_dir / f".{name}.part")
    assert [(item.kind, item.name) for item in items(cache)] == [("incomplete", f".{name}.part")]
    assert builds.of_spec(f"git:{clone}") == build
    left = [".18.4-npm.part", ".source-other.part", ".source-other.part.1234.gone", "source-other.log"]
    for one in left:
        (builds.builds_dir / one).mkdir()
    assert {lock.name for lock in unfinished(builds.builds_dir).values()} == {
        ".18.4-npm.lock",
        ".source-other.lock",
    }
    assert sorted(item.name for item in prune(cache)) == left
    assert visible(builds) == [name]
    assert prune(cache, older_than_s=3600.0) == []
    os.utime(build.bin_dir.parent / "build.json", (0, 0))
    (gone,) = prune(cache, older_than_s=3600.0)
    assert (gone.kind, gone.path) == ("build", build.bin_dir.parent)
    assert builds.cached() == []


def test_two_requests_for_the_same_build_share_it(clone: Path, builds: SourceBuilds, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: builds.of_spec(f"git:{clone}"), range(4)))
    assert len(set(made)) == configured(clone) == 1
    # The programs contain their path: a build that was moved is made again.
    builds.builds_dir.rename(tmp_path / "moved")
    moved = SourceBuilds(tmp_path / "moved", print)
    assert moved.cached() == []
    assert [moved.of_spec(f"git:{clone}")] == moved.cached()


def archive_of(tree: Path, path: Path) -> Path:
    with tarfile.open(path, "w:bz2") as tar:
        tar.add(tree, tree.name)
    return path


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The URL of a server of files of the temporary directory."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_archive_directory_clone_and_url_are_sources(
    clone: Path, builds: SourceBuilds, tmp_path: Path, served: str
) -> None:
    tree = write_sources(tmp_path / "postgresql-18.1", "18.1")
    archive = archive_of(tree, tmp_path / "postgresql-18_18.1.orig.tar.bz2")
    made = []
    for source in (f"{served}/{archive.name}", str(archive), str(tree), f"{clone}@v18.1"):
        with opened_source(source) as opened:
            made.append(builds.build(opened, (), parse_version_spec("18")))
    assert made[0] == made[1]  # the same bytes
    assert len(builds.for_versions()) == len(set(made)) == 3
    assert [served in made[0].origin, str(tree) in made[2].origin, str(clone) in made[3].origin] == [True] * 3
    with pytest.raises(FetchError, match="could not be downloaded"), opened_source(f"{served}/nothing"):
        pass
    before = Directory.of(tree).identity
    assert Directory.of(tree).identity == before
    (tree / "configure").rename(tree / "configure.old")
    assert Directory.of(tree).identity != before


def test_a_version_resolves_to_its_build_but_not_to_that_of_a_commit(clone: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "builds", tmp_path / "lists", sources=())
    named = resolve_build(f"git:{clone}@v18.1", store=store)
    with pytest.raises(FetchError, match="servers build 18"):
        resolve_all(["18"], store=store, installed=[])
    with opened_source(f"{clone}@v18.1") as tree:
        SourceBuilds(store.builds_dir, print).build(tree, (), parse_version_spec("18"))
    with opened_source(str(clone)) as tree:
        SourceBuilds(store.builds_dir, print).build(tree, (), parse_version_spec("devel"))
    with pytest.raises(UsageError, match="is PostgreSQL 19devel, not 18"):
        SourceBuilds(store.builds_dir, print).build(git_commit(clone, "HEAD"), (), parse_version_spec("18"))
    found = resolve_all(["18", "18.1", "19", "devel"], store=store, installed=[]).builds
    assert [str(build.version) for build in found] == ["18.1", "18.1", "19devel", "19devel"]
    assert found[0] == named  # made once
    assert configured(clone) == 2


@pytest.mark.parametrize(
    ("spec", "clone", "ref", "options"),
    [
        ("git:/src/pg@master", "/src/pg", "master", ()),
        ("git:/src/pg", "/src/pg", "HEAD", ()),
        ("git:/src/pg@HEAD@{1}", "/src/pg", "HEAD@{1}", ()),
        ("git:/home/me@corp/pg@origin/master", "/home/me@corp/pg", "origin/master", ()),
        ("git:/pg@a1,build_options=--with-lz4 'CFLAGS=-O3 -g'", "/pg", "a1", ("--with-lz4", "CFLAGS=-O3 -g")),
        ("git:origin/master", "/my/clone", "origin/master", ()),
        ("git:REL_18_STABLE,build_options=-Dlz4=enabled", "/my/clone", "REL_18_STABLE", ("-Dlz4=enabled",)),
    ],
)  # fmt: skip
def test_a_server_from_git_names_clone_commit_and_options(
    spec: str, clone: str, ref: str, options: tuple[str, ...]
) -> None:
    found = parse_git_server(spec, {CLONE_VARIABLE: "/my/clone"})
    assert (str(found.clone), found.ref, found.options) == (clone, ref, options)


def test_errors_about_a_clone_have_a_remedy(clone: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"set {CLONE_VARIABLE} to the path of a clone"):
        parse_git_server("git:master", {})
    for path, ref, words in (
        (tmp_path / "none", "HEAD", "is not a directory"),
        (tmp_path, "HEAD", "not a usable clone"),
        (clone, "nonsense", "has no commit 'nonsense'.*git fetch"),
        (clone, "--all", "has no commit"),
    ):
        with pytest.raises(UsageError, match=words):
            git_commit(path, ref)
    with pytest.raises(UsageError, match="quotation"):
        split_options("'--with-lz4")
    with pytest.raises(UsageError, match="does not exist"), opened_source(str(tmp_path / "none.tar.gz")):
        pass


@pytest.mark.parametrize(
    ("files", "options", "expected"),
    [
        (("configure", "meson.build"), (), "configure"),
        (("configure", "meson.build"), ("-Dlz4=enabled",), "meson"),
        (("configure", "meson.build"), ("--with-lz4",), "configure"),
        (("meson.build",), ("--buildtype=release", "CFLAGS=-O3"), "meson"),
        (("meson.build",), ("--with-lz4",), "-Dlz4=enabled"),
        (("configure",), ("-Dlz4=enabled",), "--with-lz4"),
        (("configure", "meson.build"), ("-Dlz4=enabled", "--with-zstd"), "do not suit"),
        (("README",), (), "neither configure nor meson"),
        (("configure", "config.status"), (), "make distclean"),
    ],
)
def test_the_options_choose_between_configure_and_meson(
    tmp_path: Path, files: tuple[str, ...], options: tuple[str, ...], expected: str
) -> None:
    for name in files:
        (tmp_path / name).touch()
    if expected in ("configure", "meson"):
        assert build_system(tmp_path, options) == expected
    else:
        with pytest.raises(BuildError, match=expected):
            build_system(tmp_path, options)


MESON = """#!/bin/sh
# setup build source --prefix=P OPTIONS…, or: install --no-rebuild
if [ "$1" = setup ]; then
  mkdir "$2" && cp -r "$3" "$2/tree" && echo "$4" | cut -d= -f2 > "$2/prefix"
  echo "options: $5 CFLAGS: $CFLAGS CC: $CC"
else
  root="$DESTDIR$(cat prefix)" && mkdir -p "$root/bin" && cp tree/programs/* "$root/bin"
fi
"""


def test_meson_builds_beside_the_sources_with_variables_in_the_environment(
    tmp_path: Path, builds: SourceBuilds, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (("meson", MESON), ("ninja", "#!/bin/sh\necho compiling\n")):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    tree = write_sources(tmp_path / "sources" / "pg", "18.1")
    (tree / "meson.build").touch()
    build = builds.build(Directory.of(tree), ("-Dlz4=enabled", "CFLAGS=-O3"))
    log = (build.bin_dir.parent / "build.log").read_text()
    assert "options: -Dlz4=enabled CFLAGS: -O3 CC: " in log
    assert "; meson -Dlz4=enabled CFLAGS=-O3; " in build.origin
