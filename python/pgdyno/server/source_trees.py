"""Source trees of PostgreSQL: a commit of a local clone, an archive, or an extracted directory.

A tree has an identity (a commit, or a digest of the content) that is known before it is extracted. A clone is
only read: its files are checked out elsewhere, so a clone may be bare, read-only or in use.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pgdyno.errors import BuildError, FetchError, UsageError, in_one_line
from pgdyno.server.package_sources import unpack
from pgdyno.study.arm_spec import BUILD_OPTIONS, GIT_PREFIX, PATH_AT_REF

CLONE_VARIABLE = "PGDYNO_CLONE"
"""Environment variable with the clone of the arms ``git:REF``."""

GIT_TIMEOUT_S = 600.0
"""Timeout of one git command. A checkout of PostgreSQL takes seconds, on a busy disk a minute."""

URL_TIMEOUT_S = 60.0
"""Timeout for each answer of a server that an archive is downloaded from."""

ARCHIVE_BYTES_MAX = 2**29
"""Maximum size of a downloaded archive. Those of PostgreSQL have 20 to 30 MB."""


class SourceTree(Protocol):
    """The sources of one version. ``name`` is part of a file name, ``origin`` a description for reports."""

    @property
    def name(self) -> str:
        """Short name, as part of a file name."""
        ...

    @property
    def identity(self) -> str:
        """Text that is equal for equal sources only."""
        ...

    @property
    def origin(self) -> str:
        """Description for reports."""
        ...

    def extract(self, into: Path) -> None:
        """Write the files into a new directory. Raises BuildError, FetchError."""
        ...


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
    """Return the tree of ``--extension``, ``DIR`` or ``git:DIR@REF``, and the directory of the extension
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
