"""Builds from source: trees, configuration, and the store.

- Source trees of PostgreSQL: a commit of a local clone, an archive, or an extracted directory.
- Builds from source, with configure and make or with meson, kept in the cache.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgdyno.errors import BuildError, FetchError, ServerError, UsageError, in_one_line
from pgdyno.interruption import stopping
from pgdyno.server.builds import MARK, Build, VersionSpec, check_major, output_of, read_build
from pgdyno.server.cache_directory import Leftovers
from pgdyno.server.directories import OURSELVES, discard, locked, locked_if_free, open_to_all, publish, renew
from pgdyno.server.package_sources import unpack
from pgdyno.server.processes import end_tree, launch_tree
from pgdyno.study.arm_spec import BUILD_OPTIONS, GIT_PREFIX, PATH_AT_REF

# ----------------------------------------------------------------------
# Source trees of PostgreSQL: a commit of a local clone, an archive, or an extracted directory.
#
# A tree has an identity (a commit, or a digest of the content) that is known before it is extracted. A clone
# is only read: its files are checked out elsewhere, so a clone may be bare, read-only or in use.
# ----------------------------------------------------------------------

CLONE_VARIABLE = "PGDYNO_CLONE"
"""Environment variable with the clone of the arms ``git:REF``."""

GIT_TIMEOUT_S = 600.0
"""Timeout of one git command. A checkout of PostgreSQL takes seconds, on a busy disk a minute."""

URL_TIMEOUT_S = 60.0
"""Timeout for each answer of a server that an archive is downloaded from."""

ARCHIVE_BYTES_MAX = 2**29
"""Maximum size of a downloaded archive. Those of PostgreSQL have 20 to 30 MB."""


@dataclass(frozen=True)
class GitCommit:
    """A commit of a clone; bare repositories and mirrors are clones, too."""

    clone: Path
    commit: str

    @property
    def name(self) -> str:
        """The first 12 digits of the commit."""
        return self.commit[:12]

    @property
    def identity(self) -> str:
        """The commit."""
        return self.commit

    @property
    def origin(self) -> str:
        """Commit and clone."""
        return f"commit {self.name} of {self.clone}"

    def extract(self, into: Path) -> None:
        """Check the files out with an index outside of the clone, which stays unchanged."""
        into.mkdir()
        index = into.with_name(f"{into.name}.index")
        try:
            for command in (["read-tree", self.commit], ["checkout-index", "--all"]):
                run_git(self.clone, ["--work-tree", str(into), *command], {"GIT_INDEX_FILE": str(index)})
        finally:
            index.unlink(missing_ok=True)


@dataclass(frozen=True)
class Archive:
    """A tar file of any compression. ``origin`` is its path or URL."""

    path: Path
    origin: str
    identity: str

    @classmethod
    def of(cls, path: Path, origin: str) -> Archive:
        """Read the archive's digest. Raises UsageError."""
        try:
            with path.open("rb") as content:
                digest = hashlib.file_digest(content, "sha256").hexdigest()
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from None
        return cls(path, f"{origin} (SHA-256 {digest[:12]})", digest)

    @property
    def name(self) -> str:
        """The name of the file without its endings: ``postgresql-18.1``."""
        return _file_name(re.sub(r"(\.orig)?\.(tar(\.\w+)?|t[bgx]z2?)$", "", self.path.name))

    def extract(self, into: Path) -> None:
        """Unpack the archive, without its only top directory."""
        part = into.with_name(f"{into.name}.unpacked")
        unpack(self.path, part)
        inner = list(part.iterdir())
        root = inner[0] if len(inner) == 1 and inner[0].is_dir() else part
        root.rename(into)
        shutil.rmtree(part, ignore_errors=True)


@dataclass(frozen=True)
class Directory:
    """An extracted archive, or another directory with sources. ``left_out``: patterns of names of files and
    directories that are no sources.
    """

    path: Path
    identity: str
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(cls, path: Path, left_out: tuple[str, ...] = ()) -> Directory:
        """Read the digest of all sources. Raises UsageError."""
        digest = hashlib.sha256()
        try:
            for found in sorted(path.rglob("*")):
                if found.is_file() and not _is_left_out(found.relative_to(path), left_out):
                    with found.open("rb") as content:
                        of_file = hashlib.file_digest(content, "sha256").hexdigest()
                    digest.update(f"{found.relative_to(path)} {of_file}\n".encode(errors="surrogateescape"))
        except OSError as error:
            raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from None
        return cls(path, digest.hexdigest(), left_out)

    @property
    def name(self) -> str:
        """The name of the directory."""
        return _file_name(self.path.name)

    @property
    def origin(self) -> str:
        """The path."""
        return f"{self.path} (SHA-256 {self.identity[:12]})"

    def extract(self, into: Path) -> None:
        """Copy the sources."""
        shutil.copytree(self.path, into, symlinks=True, ignore=shutil.ignore_patterns(*self.left_out))


SourceTree = GitCommit | Archive | Directory
"""The sources of one version. ``name`` is part of a file name, ``identity`` equal for equal sources only,
``origin`` a description for reports. ``extract`` writes the files into a new directory."""


def _is_left_out(path: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(part, pattern) for part in path.parts for pattern in patterns)


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)[:40] or "source"


@dataclass(frozen=True)
class GitServer:
    """The server ``git:REF`` or ``git:/path/to/clone@REF``, with ``,build_options=…`` after it."""

    clone: Path
    ref: str
    options: tuple[str, ...]

    def tree(self) -> GitCommit:
        """Return the commit that REF names now. Raises UsageError."""
        return git_commit(self.clone, self.ref)


def parse_git_server(spec: str, environ: Mapping[str, str] = os.environ) -> GitServer:
    """Parse the specification of a server built from a clone. Raises UsageError."""
    place, _, options = spec.removeprefix(GIT_PREFIX).partition(f",{BUILD_OPTIONS}=")
    if place.startswith(("/", ".", "~")):
        path, ref = _at_ref(place)
        return GitServer(Path(path).expanduser().resolve(), ref, split_options(options))
    clone = environ.get(CLONE_VARIABLE)
    if not clone:
        raise UsageError(
            f"{spec} names no clone of PostgreSQL: set {CLONE_VARIABLE} to the path of a clone, or write "
            f"{GIT_PREFIX}/path/to/postgres@{place or 'REF'}"
        )
    return GitServer(Path(clone).expanduser().resolve(), place or "HEAD", split_options(options))


def _at_ref(text: str) -> tuple[str, str]:
    """Split ``PATH@REF``; without REF it is HEAD. An existing path may contain @."""
    found = PATH_AT_REF.fullmatch(text)
    if found is None or Path(text).expanduser().exists():
        return text, "HEAD"
    return found[1], found[2] or "HEAD"


def split_options(text: str) -> tuple[str, ...]:
    """Split options of configure or meson like a shell. Raises UsageError for an unclosed quote."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"build options {text!r}: {error}") from None


def git_commit(clone: Path, ref: str) -> GitCommit:
    """Return the commit that ``ref`` names in the clone. Raises UsageError."""
    if not clone.is_dir():
        raise UsageError(f"{clone} is not a directory: name a clone of PostgreSQL")
    try:
        run_git(clone, ["rev-parse", "--git-dir"])
    except BuildError as error:
        raise UsageError(f"{clone} is not a usable clone of PostgreSQL: {error}") from None
    try:
        found = run_git(clone, ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"])
    except BuildError:
        raise UsageError(
            f"{clone} has no commit {ref!r}: name a branch, tag or commit of it, or run `git fetch` there"
        ) from None
    return GitCommit(clone, found.strip())


def run_git(clone: Path, arguments: Sequence[str], variables: Mapping[str, str] | None = None) -> str:
    """Return the output of git on this clone, with no influence of GIT_* variables. Hooks of the clone do not
    run, and no daemon watches its files. Raises BuildError.
    """
    program = shutil.which("git")
    if program is None:
        raise BuildError("git is not installed: install it")
    ours = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    where = ["--git-dir", str(clone)] if (clone / "HEAD").is_file() else ["-C", str(clone)]
    try:
        done = subprocess.run(
            [program, *where, "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", *arguments],
            env={**ours, **(variables or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"git timed out after {GIT_TIMEOUT_S:g} s on {clone}") from None
    if done.returncode != 0:
        raise BuildError(f"git failed on {clone}: {in_one_line(done.stderr or 'no message')}")
    return done.stdout


MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
OTHER_SYSTEMS = ("meson.build", "Cargo.toml", "CMakeLists.txt", "configure")
NOT_OF_EXTENSION = (".git", "*.o", "*.so", "*.bc", "*.sqlite", "*.sqlite-*", "*.sqlite.lock", "pgdyno-*")
"""Files in the directory of an extension that are no sources: of builds for another server, and of pgdyno."""


def extension_tree(source: str) -> tuple[SourceTree, str]:
    """Return the tree of ``extension=``, ``DIR`` or ``git:DIR@REF``, and the directory of the extension
    in it, which is not the root if DIR is a subdirectory of a clone. Raises UsageError.
    """
    place = source.removeprefix(GIT_PREFIX)
    if place == source:
        path = Path(source).expanduser().resolve()
        if not path.is_dir():
            raise UsageError(f"the extension {source} is not a directory: name the one of its sources")
        require_makefile(path, str(path))  # before a digest of all files: it may be any directory
        return Directory.of(path, NOT_OF_EXTENSION), "."
    name, ref = _at_ref(place)
    path = Path(name).expanduser().resolve()
    if not name.startswith(("/", ".", "~")) or not path.is_dir():
        raise UsageError(
            f"the extension {source} names no clone: write {GIT_PREFIX}/path/to/clone@{ref}, or a directory"
        )
    inner = ""
    with contextlib.suppress(BuildError):  # git_commit reports a directory that is no clone
        inner = run_git(path, ["rev-parse", "--show-prefix"]).strip()
    clone = path.parents[len(Path(inner).parts) - 1] if inner else path
    return git_commit(clone, ref), inner or "."


def require_makefile(folder: Path, origin: str) -> None:
    """Raise UsageError if the directory of an extension is missing, or has no Makefile."""
    if not folder.is_dir():
        raise UsageError(f"the extension {origin} does not exist in that commit: name another")
    if not any((folder / name).is_file() for name in MAKEFILES):
        other = next((name for name in OTHER_SYSTEMS if (folder / name).is_file()), "")
        raise UsageError(
            f"the extension in {origin} has no Makefile{other and f', only {other}'}: pgdyno builds "
            "extensions with make and PGXS; install others into a server of your own, and name its "
            "directory as SERVER"
        )


@contextlib.contextmanager
def opened_source(text: str) -> Iterator[SourceTree]:
    """Provide the tree of ``--source``: an archive, a directory, a clone (with ``@REF``) or a URL.

    A download exists during the block. Raises UsageError, FetchError.
    """
    if re.match(r"https?://", text):
        with tempfile.TemporaryDirectory(prefix="pgdyno-source-") as folder:
            yield Archive.of(_downloaded(text, Path(folder)), text)
    else:
        yield _local_source(text)


def _local_source(text: str) -> SourceTree:
    name, ref = _at_ref(text)
    path = Path(name).expanduser().resolve()
    if path.is_file():
        return Archive.of(path, str(path))
    if not path.is_dir():
        raise UsageError(f"--source {text} does not exist: name an archive, a directory, a clone or a URL")
    is_clone = (path / ".git").exists() or ((path / "HEAD").is_file() and (path / "objects").is_dir())
    return git_commit(path, ref) if is_clone or name != text else Directory.of(path)


def _downloaded(url: str, folder: Path) -> Path:
    """Return the path of the downloaded archive. Raises FetchError."""
    path = folder / _file_name(url.partition("?")[0].rstrip("/").rpartition("/")[2])
    size_bytes = 0
    try:
        with urllib.request.urlopen(url, timeout=URL_TIMEOUT_S) as answer, path.open("wb") as archive:
            while piece := answer.read(1 << 20):
                size_bytes += len(piece)
                if size_bytes > ARCHIVE_BYTES_MAX:
                    raise FetchError(f"{url} is larger than any archive of PostgreSQL: name another one")
                archive.write(piece)
    except (OSError, ValueError, urllib.error.URLError) as error:
        raise FetchError(f"{url} could not be downloaded: {error}") from None
    return path


# ----------------------------------------------------------------------
# Builds from source, with configure and make or with meson, kept in the cache.
#
# A build is identified by its sources, options and compiler. It gets its name in the cache only after it was
# installed, run once and synced to disk. Two processes that need the same build make it once. The next build
# of that name removes the files of an interrupted one, and so does ``cache prune``.
#
# The environment has no influence, except PATH and HOME: CFLAGS and other variables are given as options
# (``CFLAGS=-O3``), which are part of the identity.
# ----------------------------------------------------------------------

PREFIX = "source-"
LAYOUT = 1
"""Version of the steps and default options below, part of the identity of a build."""

BUILD_TIMEOUT_S = 4 * 3600.0
"""Timeout of one step. A build takes 2 to 20 minutes; a slow machine with LLVM an hour."""

UNFINISHED = re.compile(r"(\.part|\.log)?(\.\d+\.gone)?$")
"""End of the names of unfinished builds, and of those under deletion."""

POLL_S = 0.2
LOG_LINES = 12
"""Number of lines of a failed build in the error message; the log has the others."""

CONFIGURE_DEFAULTS = ("--without-readline",)
"""Options before those of the user, which override them. Only psql uses readline."""

CONTRIB = "contrib"  # pg_stat_statements, pgstattuple, amcheck

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Toolchain:
    """The compiler (``gcc``), the first line of its version, and the path of ccache, empty without it."""

    compiler: str
    version: str
    ccache: str

    @property
    def command(self) -> str:
        """Value of CC."""
        return f"{self.ccache} {self.compiler}".strip()


def find_toolchain(options: Sequence[str]) -> Toolchain:
    """Return the compiler of the option ``CC=…``, else gcc, else cc. Raises BuildError without one."""
    named = [option.removeprefix("CC=") for option in options if option.startswith("CC=")]
    for compiler in named[-1:] or ("gcc", "cc"):
        words = compiler.split()
        if words and shutil.which(words[0]):
            version = (output_of([*words, "--version"]) or "").partition("\n")[0].strip()
            return Toolchain(compiler, version, "" if "ccache" in words[0] else shutil.which("ccache") or "")
    raise BuildError(f"no C compiler was found ({(named or ['gcc, cc'])[-1]}): install one")


LLVM_OPTIONS = ("--with-llvm", "-Dllvm=enabled")
LLVM_PROGRAMS = {"llvm-config": "LLVM_CONFIG", "clang": "CLANG"}
"""Programs that a build with LLVM needs, with the variable that names another."""

LLVM_MAJORS = range(30, 2, -1)
"""Versions in the names of these programs, such as clang-14."""


def require_llvm(options: Sequence[str]) -> None:
    """Raise BuildError if the options ask for LLVM and its programs are not installed."""
    if not {*LLVM_OPTIONS} & {*options}:
        return
    for name, variable in LLVM_PROGRAMS.items():
        named = any(option.startswith(f"{variable}=") for option in options)
        if not named and not any(map(shutil.which, (name, *(f"{name}-{n}" for n in LLVM_MAJORS)))):
            raise BuildError(
                f"{name} is not installed, which a build with LLVM (for jit = on) needs: install it (Debian: "
                "apt-get install llvm-dev clang; Fedora: dnf install llvm-devel clang), or add "
                "build_options=--without-llvm"
            )


@dataclass(frozen=True)
class SourceBuilds:
    """The builds from source in ``builds_dir``. ``progress`` receives messages."""

    builds_dir: Path
    progress: Progress

    def cached(self) -> list[Build]:
        """Return the builds in the cache, newest first, without those that no longer run."""
        return [build for build, _ in self._cached()]

    def for_versions(self) -> list[Build]:
        """Return those that `servers build` made for a version, newest first."""
        return [build for build, facts in self._cached() if facts["for_version"]]

    def known(self, server: GitServer) -> Build | None:
        """Return the build of an arm if it is cached. Raises UsageError for an unknown commit."""
        try:
            name = build_name(server.tree(), server.options, find_toolchain(server.options))
        except BuildError:
            return None
        return self._read(self.builds_dir / name)

    def of_spec(self, spec: str) -> Build:
        """Return the server ``git:…``; make it if it is not cached. Raises UsageError, BuildError."""
        server = parse_git_server(spec)
        return self.build(server.tree(), server.options)

    def of_version(self, version: VersionSpec, source: str, options: str) -> Build:
        """Return the build of these sources, which must have this version, for arms that name it."""
        with opened_source(source) as tree:
            return self.build(tree, split_options(options), version)

    def build(
        self, tree: SourceTree, options: Sequence[str], for_version: VersionSpec | None = None
    ) -> Build:
        """Return the build of these sources and options; make it if it is not cached.

        ``for_version``: the version that it must have; arms that name the version can use it from now on.
        Raises BuildError, UsageError (another version), Interrupted.
        """
        require_llvm(options)
        toolchain = find_toolchain(options)
        name = build_name(tree, options, toolchain)
        final = self.builds_dir / name
        self.builds_dir.mkdir(parents=True, exist_ok=True)
        lock = self.builds_dir / f".{name}.lock"
        with locked_if_free(lock) as free:
            if not free:
                self.progress(f"waiting for another pgdyno that builds {tree.origin}")
        with locked(lock):

            def make(part: Path, log: Path) -> tuple[Path, Mapping[str, object]]:
                self.progress(f"building PostgreSQL from {tree.origin}; the log is {log}")
                return _made(tree, Steps(part, final, options, toolchain, log), for_version)

            build = made_once(final, "build", self._read, make)
            if for_version is not None:
                _require_version(build, for_version, tree)
                write_facts(final, {**read_facts(final), "for_version": True})
        return build

    def _cached(self) -> list[tuple[Build, Mapping[str, object]]]:
        folders = sorted(self.builds_dir.glob(f"{PREFIX}*"))
        found = [(build, read_facts(folder)) for folder in folders if (build := self._read(folder))]
        return sorted(found, key=lambda of: of[0].version, reverse=True)

    def _read(self, folder: Path) -> Build | None:
        """Return the build in that directory; None if it is incomplete, broken or was moved."""
        try:
            facts = read_facts(folder)
            if facts["directory"] != str(folder):  # the programs contain the path of their libraries
                return None
            return read_build(folder / "bin", "source", str(facts["origin"]))
        except (OSError, ValueError, KeyError, ServerError):
            return None


def _made(
    tree: SourceTree, steps: Steps, for_version: VersionSpec | None
) -> tuple[Path, Mapping[str, object]]:
    """Build the sources. Return the installed directory, and the facts about it."""
    tree.extract(steps.part / "source")
    system = build_system(steps.part / "source", steps.options)
    installed = steps.with_configure() if system == "configure" else steps.with_meson()
    build = read_build(installed / "bin", "source", "")
    check_major(build.version.major, f"{build.version} of {tree.origin}")
    if for_version is not None:
        _require_version(build, for_version, tree)
    words = " ".join([system, *(CONFIGURE_DEFAULTS if system == "configure" else ()), *steps.options])
    compiler = steps.toolchain.version
    return installed, {
        "origin": f"{tree.origin}; {words}; {compiler}{', ccache' if steps.toolchain.ccache else ''}",
        "directory": str(steps.final),
        "identity": tree.identity,
        "options": list(steps.options),
        "compiler": compiler,
        "for_version": False,
    }


def made_once(
    final: Path,
    what: str,
    read: Callable[[Path], Build | None],
    make: Callable[[Path, Path], tuple[Path, Mapping[str, object]]],
) -> Build:
    """Return the build in a directory of the cache; make it if it is not there. The caller holds its lock.

    ``make`` gets a new directory and the path of a log, and returns the installed directory with the facts
    about the build. After an error only the log is left.
    """
    build = read(final)
    if build is None:
        part, log = final.with_name(f".{final.name}.part"), final.with_name(f"{final.name}.log")
        discard(part)
        discard(final)
        log.unlink(missing_ok=True)
        part.mkdir(parents=True)
        try:
            installed, facts = make(part, log)
            write_facts(installed, facts)
            log.rename(installed / "build.log")
            open_to_all(installed)
            publish(installed, final)
        finally:
            discard(part)
        build = read(final)
        if build is None:
            raise BuildError(f"the {what} in {final} does not run: delete that directory and try again")
    os.utime(final / MARK)  # records the last use for `cache list` and `prune`
    return build


def unfinished(builds_dir: Path) -> dict[Path, Path]:
    """Return directories of builds and downloads in progress or under deletion, and logs of failed builds,
    each with the lock of its build.
    """
    left = [path for pattern in (".*.part", ".*.gone", "*.log") for path in sorted(builds_dir.glob(pattern))]
    names = {path: UNFINISHED.sub("", path.name.removeprefix(".")) for path in left}
    return {path: builds_dir / f".{name}.lock" for path, name in names.items()}


def sweep(builds_dir: Path) -> None:
    """Remove the files of builds whose process has ended, and the logs of failed ones."""
    for path, lock in unfinished(builds_dir).items():
        with locked_if_free(lock) as free:
            if free:
                discard(path)


def build_name(tree: SourceTree, options: Sequence[str], toolchain: Toolchain) -> str:
    """Return the name of the build in the cache: a readable part, and a digest of its identity."""
    identity = json.dumps([LAYOUT, tree.identity, list(options), toolchain.compiler, toolchain.version])
    return f"{PREFIX}{tree.name}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"


def build_system(source: Path, options: Sequence[str]) -> str:
    """Return ``configure`` or ``meson``: configure if the tree has both, unless an option is one of meson.

    Raises BuildError if the tree has neither, or not the one of the options.
    """
    there = [
        name
        for name, file in (("configure", "configure"), ("meson", "meson.build"))
        if (source / file).is_file()
    ]
    if not there:
        raise BuildError("the sources contain neither configure nor meson.build: they are not of PostgreSQL")
    if (source / "config.status").exists():
        raise BuildError("the directory was configured in place: run `make distclean` there and try again")
    wanted = "meson" if any(option.startswith("-D") for option in options) else there[0]
    foreign = [option for option in options if option.startswith("--with" if wanted == "meson" else "-D")]
    if wanted not in there or foreign:
        example = "-Dlz4=enabled" if there == ["meson"] else "--with-lz4"
        raise BuildError(
            f"the build options {' '.join(options)!r} do not suit these sources ({' or '.join(there)}): use "
            f"options of one of them, such as {example}"
        )
    return wanted


@dataclass(frozen=True)
class Steps:
    """The commands of a build in ``part``, whose programs will be in ``final``. Output goes to ``log``."""

    part: Path
    final: Path
    options: Sequence[str]
    toolchain: Toolchain
    log: Path

    def with_configure(self) -> Path:
        """Build in the source directory, where all paths are relative, so that ccache knows them again.

        Returns the installed directory.
        """
        source, parallel = self.part / "source", f"-j{jobs()}"
        ours = [option for option in self.options if not option.startswith("CC=")]
        compiler = f"CC={self.toolchain.command}"
        prefix = f"--prefix={self.final}"
        self._run(source, ["./configure", prefix, *CONFIGURE_DEFAULTS, compiler, *ours])
        make, install = program("make"), [f"DESTDIR={self.part / 'root'}", "install"]
        for directory in (source, source / CONTRIB):
            if directory.is_dir():
                self._run(directory, [make, parallel])
                self._run(directory, [make, *install])
        return self._installed()

    def with_meson(self) -> Path:
        """Build in a directory beside the sources. Variables among the options are in the environment."""
        meson, ninja, build = program("meson"), program("ninja"), self.part / "build"
        is_variable = re.compile(r"[A-Z][A-Z0-9_]*=").match
        variables = [option for option in self.options if is_variable(option) and option[:3] != "CC="]
        ours = [option for option in self.options if not is_variable(option)]
        variables.append(f"CC={self.toolchain.command}")
        setup = [meson, "setup", "build", "source", f"--prefix={self.final}", *ours]
        self._run(self.part, setup, variables)
        self._run(build, [ninja, f"-j{jobs()}"])
        self._run(build, [meson, "install", "--no-rebuild"], [f"DESTDIR={self.part / 'root'}"])
        return self._installed()

    def _installed(self) -> Path:
        return self.part / "root" / self.final.relative_to("/")

    def _run(self, directory: Path, command: Sequence[str], variables: Sequence[str] = ()) -> None:
        run_step(self.log, directory, command, [f"CCACHE_BASEDIR={self.part}", *variables])


def run_step(log: Path, directory: Path, command: Sequence[str], variables: Sequence[str] = ()) -> None:
    """Run one command of a build, whose output is appended to the log. After an error, a timeout or a signal,
    end it with all its children.

    Raises BuildError, Interrupted.
    """
    environment = [f"HOME={Path('~').expanduser()}", "CCACHE_NOHASHDIR=1"]
    whole = [program("env"), *environment, *variables, *command]
    with log.open("ab", buffering=0) as said:
        said.write(os.fsencode(f"$ {' '.join(command)}\n"))
        begun_s = time.monotonic()
        process = launch_tree(whole, OURSELVES, output=said, directory=directory)
    try:
        while process.poll() is None:
            if stopping.is_over(begun_s):
                raise KeyboardInterrupt
            if time.monotonic() - begun_s > BUILD_TIMEOUT_S:
                raise BuildError(f"the build timed out after {BUILD_TIMEOUT_S:g} s; its log is {log}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
    finally:
        end_tree(process)
    if process.returncode != 0:
        name = Path(command[0]).name
        raise BuildError(
            f"the build failed ({name}, exit status {process.returncode}); the end of {log}:\n" + _end_of(log)
        )


def jobs() -> int:
    """Return the number of commands that make and ninja run at the same time."""
    return len(os.sched_getaffinity(0))


def program(name: str) -> str:
    """Return the path of a program that a build needs. Raises BuildError if it is not installed."""
    found = shutil.which(name)
    if found is None:
        raise BuildError(f"{name} is not installed, which this build needs: install it")
    return found


def _end_of(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return "\n".join(f"  {line[:300]}" for line in lines[-LOG_LINES:])


def _require_version(build: Build, wanted: VersionSpec, tree: SourceTree) -> None:
    if not wanted.matches(build.version):
        raise UsageError(
            f"{tree.origin} is PostgreSQL {build.version}, not {wanted}: name its version, or other sources"
        )


def read_facts(folder: Path) -> dict[str, object]:
    """Return the facts about a build in the cache. Raises OSError, ValueError."""
    facts = json.loads((folder / MARK).read_text())
    return facts if isinstance(facts, dict) else {}


def write_facts(folder: Path, facts: Mapping[str, object]) -> None:
    """Store the facts about a build in its directory."""
    renew(folder / MARK, json.dumps(facts, indent=1) + "\n")


LEFTOVERS = Leftovers("builds", unfinished, sweep)
