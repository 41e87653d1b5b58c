"""Extensions of one arm: a private copy of a server's installation, with extensions built into it.

The copy has the programs of the server, because PostgreSQL finds its other files relative to the program that
runs. Links stand for these files. An extension is built with make and the pg_config of the server. A wrapper
of pg_config names the directories of the copy instead, so that nothing is installed elsewhere.

The copy is identified by the sources of the extensions, the server and the compiler. It gets its name in the
cache only after it was installed and run once.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from pgdyno.errors import BuildError, ServerError, UsageError
from pgdyno.features.builds.source import (
    Progress,
    SourceBuilds,
    SourceTree,
    extension_tree,
    jobs,
    made_once,
    program,
    read_facts,
    require_makefile,
    run_step,
)
from pgdyno.server.builds import Build, Extension, output_of, read_build
from pgdyno.server.directories import locked

PREFIX = "extended-"
LAYOUT = 2
"""Version of the steps below, part of the identity of a copy."""

PLACES = ("bindir", "sharedir", "pkglibdir")
"""Directories that PostgreSQL finds relative to its programs, as pg_config names them."""

PRELOADED = b"process_shared_preload_libraries_in_progress"
"""A library that refers to this variable of the server asks to be in shared_preload_libraries."""


@dataclass(frozen=True)
class Source:
    """The sources of one extension. ``inner``: directory of its Makefile in the tree."""

    tree: SourceTree
    inner: str

    @property
    def identity(self) -> str:
        """Text that is equal for equal sources only."""
        return f"{self.tree.identity} {self.inner}"

    @property
    def origin(self) -> str:
        """Description for reports."""
        return self.tree.origin if self.inner == "." else f"{self.inner.rstrip('/')} in {self.tree.origin}"


@dataclass(frozen=True)
class ExtendedBuilds:
    """The copies of servers in ``builds_dir``. ``progress`` receives messages."""

    builds_dir: Path
    progress: Progress

    def of(self, base: Build, extensions: Sequence[str]) -> Build:
        """Return the server with these extensions; build them if they are not cached.

        Raises UsageError (no such directory, or a server without its headers), BuildError, Interrupted.
        """
        sources = [Source(*extension_tree(text)) for text in extensions]
        server = BaseServer.of(base)
        final = self.builds_dir / server.name_with(sources)
        with locked(self.builds_dir / f".{final.name}.lock"):
            return made_once(final, "copy", partial(self._read, base), partial(self._make, server, sources))

    def known(self, base: Build, extensions: Sequence[str]) -> Build | None:
        """Return the server with these extensions if they are cached. Raises UsageError."""
        sources = [Source(*extension_tree(text)) for text in extensions]
        return self._read(base, self.builds_dir / BaseServer.of(base).name_with(sources))

    def _read(self, base: Build, folder: Path) -> Build | None:
        """Return the server in that directory; None if it is incomplete or broken."""
        try:
            facts = read_facts(folder)
            found = read_build(folder / str(facts["bin_dir"]), base.provider, str(facts["origin"]))
            listed = facts["extensions"]
            assert isinstance(listed, list)
            extensions = tuple(Extension(**{**one, "libraries": tuple(one["libraries"])}) for one in listed)
            return replace(found, extensions=extensions, extensions_digest=folder.name.rpartition("-")[2])
        except (OSError, ValueError, KeyError, TypeError, AssertionError, ServerError):
            return None

    def _make(
        self, server: BaseServer, sources: Sequence[Source], part: Path, log: Path
    ) -> tuple[Path, Mapping[str, object]]:
        copy = PrivateCopy.make(server, part)
        extensions = []
        for number, source in enumerate(sources):
            self.progress(
                f"building the extension in {source.origin} for {server.build.label}; the log is {log}"
            )
            source.tree.extract(part / f"source-{number}")
            inner, stage = part / f"source-{number}" / source.inner, part / f"stage-{number}"
            steps = Steps(copy, inner, stage, log, with_bitcode=not server.missing_clang)
            extensions += steps.extensions(source)
        names = [one.name for one in extensions if one.name]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"two sources install the extension {twice[0]}: name one of them")
        return copy.root, {
            "bin_dir": str(copy.places["bindir"].relative_to(copy.root)),
            "origin": server.origin_with(extensions),
            "extensions": [asdict(one) for one in extensions],
        }


@dataclass(frozen=True)
class BaseServer:
    """A server that extensions can be built for. ``places``: by name in pg_config. ``flags``: its CFLAGS.

    ``missing_clang``: the compiler of its bitcode if it is not installed, else empty. The extension then has
    no bitcode, with which JIT compilation could inline its functions.
    """

    build: Build
    places: Mapping[str, Path]
    compiler: str
    flags: str
    missing_clang: str = ""

    @classmethod
    def of(cls, build: Build) -> BaseServer:
        """Ask the pg_config of the server. Raises UsageError if it or the headers are missing."""
        major = build.version.major
        from_source = f"build the version (pgdyno servers build {major} --source …)"
        if not build.has("pg_config"):
            raise UsageError(
                f"{build.label} in {build.bin_dir} has no pg_config, so extensions cannot be built for it: "
                f"use an installed server with its development files, or {from_source}"
            )
        pgxs, headers, cc, flags, *places = (
            _asked(build.program("pg_config"), name)
            for name in ("pgxs", "includedir-server", "cc", "cflags", *PLACES)
        )
        for needed in (Path(pgxs), Path(headers) / "postgres.h"):
            if not needed.is_file():
                raise UsageError(
                    f"{build.label} has no headers for extensions ({needed} is missing): install them "
                    f"(Debian: postgresql-server-dev-{major}; Fedora, RHEL: postgresql{major}-devel), "
                    f"or {from_source}"
                )
        compiler = _first_line([*shlex.split(cc), "--version"])
        found = dict(zip(PLACES, map(Path, places), strict=True))
        return cls(build, found, compiler, flags, _missing_clang(Path(pgxs)))

    def name_with(self, sources: Sequence[Source]) -> str:
        """Return the name of the copy in the cache: a readable part, and a digest of its identity."""
        identities = [source.identity for source in sources]
        identity = json.dumps(
            [
                *(LAYOUT, self.build.build_id, str(self.build.bin_dir), identities),
                *(self.compiler, self.flags, self.missing_clang),
            ]
        )
        digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
        return f"{PREFIX}{self.build.version}-{sources[0].tree.name}-{digest}"

    def origin_with(self, extensions: Sequence[Extension]) -> str:
        """Return the origin of the server, its extensions, and how these were compiled."""
        listed = "; ".join(f"{one.label} from {one.source}" for one in extensions)
        bitcode = (
            f"; without LLVM bitcode ({self.missing_clang} is not installed)" if self.missing_clang else ""
        )
        return f"{self.build.origin}; with {listed}; {self.compiler}; {self.flags}{bitcode}"


def _missing_clang(pgxs: Path) -> str:
    """Return the clang that a server with LLVM was built with, if it is not installed; else an empty text."""
    settings = pgxs.parents[1] / "Makefile.global"
    text = settings.read_text(errors="replace") if settings.is_file() else ""
    found = re.search(r"^CLANG\s*=\s*(\S+)", text, re.MULTILINE)
    has_llvm = re.search(r"^with_llvm\s*=\s*yes", text, re.MULTILINE)
    return found[1] if has_llvm and found and shutil.which(found[1]) is None else ""


def _asked(pg_config: Path, name: str) -> str:
    """Return one value of pg_config. Raises UsageError."""
    return _first_line([str(pg_config), f"--{name}"])


def _first_line(command: Sequence[str]) -> str:
    if (text := output_of(command)) is None:
        raise UsageError(f"`{' '.join(command)}` does not work: the server needs it to build extensions")
    return text.partition("\n")[0].strip()


@dataclass(frozen=True)
class PrivateCopy:
    """A copy of an installation in ``root``: copied programs, and links to all other files.

    ``pg_config``: a wrapper of that of the server, which names the directories of the copy.
    """

    root: Path
    places: Mapping[str, Path]
    pg_config: Path

    @classmethod
    def make(cls, server: BaseServer, part: Path) -> PrivateCopy:
        """Copy the installation. Raises BuildError if its programs do not run from another directory."""
        root, old = part.resolve() / "root", server.places
        common = os.path.commonpath(old.values())
        places = {name: root / path.relative_to(common) for name, path in old.items()}
        shutil.copytree(old["bindir"], places["bindir"], symlinks=True)
        for name in PLACES[1:]:
            _link_tree(old[name], places[name])
        # PostgreSQL finds a file relative to its program only if the directories have the compiled names.
        found = {name: Path(_asked(places["bindir"] / "pg_config", name)) for name in PLACES}
        if found != places:
            raise BuildError(
                f"{server.build.label} in {server.build.bin_dir} cannot be copied, as its programs look for "
                f"their files in {found['sharedir']}: use another build of this version"
            )
        pg_config = part / "pg_config"
        ours = "".join(f"--{name}) echo {shlex.quote(str(path))} ;;\n" for name, path in places.items())
        real = shlex.quote(str(server.build.program("pg_config")))
        pg_config.write_text(f'#!/bin/sh\ncase "$1" in\n{ours}*) exec {real} "$@" ;;\nesac\n')
        pg_config.chmod(0o755)
        return cls(root, places, pg_config)


def _link_tree(old: Path, new: Path) -> None:
    """Make the directories of a tree, with links to its files."""
    for folder, directories, files in os.walk(old):
        here = new / Path(folder).relative_to(old)
        here.mkdir(parents=True, exist_ok=True)
        linked = [name for name in directories if Path(folder, name).is_symlink()]
        for name in (*files, *linked):
            (here / name).symlink_to(Path(folder, name))


@dataclass(frozen=True)
class Steps:
    """The commands that build one extension in ``source`` and install it to ``stage``, then to the copy."""

    copy: PrivateCopy
    source: Path
    stage: Path
    log: Path
    with_bitcode: bool

    def extensions(self, source: Source) -> list[Extension]:
        """Build and install the extension. Return what its control files name. Raises BuildError."""
        require_makefile(self.source, source.origin)
        given = [f"PG_CONFIG={self.copy.pg_config}", "USE_PGXS=1"]
        if not self.with_bitcode:
            given.append("with_llvm=no")
        run_step(self.log, self.source, [program("make"), f"-j{jobs()}", *given])
        run_step(self.log, self.source, [program("make"), "install", f"DESTDIR={self.stage}", *given])
        installed = list(self._moved())
        controls = [path for path in installed if path.suffix == ".control"]
        libraries = [path for path in installed if path.suffix == ".so"]
        if not controls and not libraries:
            raise BuildError(
                f"`make install` in {source.origin} installed no control file and no library: is it the "
                "directory of an extension?"
            )
        preloaded = tuple(path.stem for path in libraries if PRELOADED in path.read_bytes())
        if not controls:
            names = tuple(path.stem for path in libraries)
            return [Extension("", "", f"{', '.join(names)} of {source.origin}", names)]
        for control in controls:
            self._require_library(control)
        found = [Extension(path.stem, _value(path, "default_version"), source.origin) for path in controls]
        return [replace(found[0], libraries=preloaded), *found[1:]]

    def _moved(self) -> Iterator[Path]:
        """Move the installed files to the copy, in the place of links to files of the server."""
        for name, place in self.copy.places.items():
            staged = self.stage / place.relative_to("/")
            for path in sorted(found for found in staged.rglob("*") if not found.is_dir()):
                target = place / path.relative_to(staged)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.replace(target)
                if name != "bindir":
                    yield target

    def _require_library(self, control: Path) -> None:
        """Raise BuildError if the control file names a library that was not installed."""
        library = _value(control, "module_pathname")
        name = library.removeprefix("$libdir/")
        if name != library and not (self.copy.places["pkglibdir"] / f"{name}.so").exists():
            raise BuildError(
                f"{control.name} names the library {library}, which was not installed: use the same name in "
                "MODULES or MODULE_big of the Makefile"
            )


def _value(control: Path, name: str) -> str:
    """Return a value of a control file; empty if it has none."""
    found = re.search(rf"^\s*{name}\s*=\s*'([^']*)'", control.read_text(errors="replace"), re.MULTILINE)
    return found[1] if found else ""


class MadeServers(SourceBuilds):
    """Builds from source, and copies of servers with extensions, as the core asks for them."""

    def with_extensions(self, base: Build, extensions: Sequence[str]) -> Build:
        """Return the server with these extensions; build them if they are not cached."""
        return ExtendedBuilds(self.builds_dir, self.progress).of(base, extensions)
