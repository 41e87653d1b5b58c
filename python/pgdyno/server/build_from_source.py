"""Builds from source, with configure and make or with meson, kept in the cache.

A build is identified by its sources, options and compiler. It gets its name in the cache only after it was
installed, run once and synced to disk. Two processes that need the same build make it once. The next build
of that name removes the files of an interrupted one, and so does ``cache prune``.

The environment has no influence, except PATH and HOME: CFLAGS and other variables are given as options
(``CFLAGS=-O3``), which are part of the identity.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgdyno.errors import BuildError, ServerError, UsageError
from pgdyno.interruption import stopping
from pgdyno.server.build import MARK, Build, read_build
from pgdyno.server.file_system import locked, locked_if_free, open_to_all, publish
from pgdyno.server.server_account import OURSELVES
from pgdyno.server.server_process import end_tree, launch_tree
from pgdyno.server.source_trees import GitServer, SourceTree
from pgdyno.server.version import VersionSpec, check_major

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
            done = subprocess.run(
                [*words, "--version"], capture_output=True, text=True, timeout=60, check=False
            )
            version = (done.stdout or done.stderr).partition("\n")[0].strip()
            return Toolchain(compiler, version, "" if "ccache" in words[0] else shutil.which("ccache") or "")
    raise BuildError(f"no C compiler was found ({(named or ['gcc, cc'])[-1]}): install one")


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

    def of_server(self, server: GitServer) -> Build:
        """Return the build of an arm; make it if it is not cached. Raises UsageError, BuildError."""
        return self.build(server.tree(), server.options)

    def build(
        self, tree: SourceTree, options: Sequence[str], for_version: VersionSpec | None = None
    ) -> Build:
        """Return the build of these sources and options; make it if it is not cached.

        ``for_version``: the version that it must have; arms that name the version can use it from now on.
        Raises BuildError, UsageError (another version), Interrupted.
        """
        toolchain = find_toolchain(options)
        name = build_name(tree, options, toolchain)
        final = self.builds_dir / name
        self.builds_dir.mkdir(parents=True, exist_ok=True)
        lock = self.builds_dir / f".{name}.lock"
        with locked_if_free(lock) as free:
            if not free:
                self.progress(f"waiting for another pgdyno that builds {tree.origin}")
        with locked(lock):
            build = self._read(final)
            if build is None:
                self._make(tree, options, toolchain, final, for_version)
                build = self._read(final)
                if build is None:
                    raise BuildError(
                        f"the build in {final} does not run: delete that directory and try again"
                    )
            if for_version is not None:
                _require_version(build, for_version, tree)
                write_facts(final, {**read_facts(final), "for_version": True})
            os.utime(final / MARK)  # records the last use for `cache list` and `prune`
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

    def _make(
        self,
        tree: SourceTree,
        options: Sequence[str],
        toolchain: Toolchain,
        final: Path,
        for_version: VersionSpec | None,
    ) -> None:
        part, log = self.builds_dir / f".{final.name}.part", self.builds_dir / f"{final.name}.log"
        discard(part)
        discard(final)
        log.unlink(missing_ok=True)
        part.mkdir()
        self.progress(f"building PostgreSQL from {tree.origin}; the log is {log}")
        try:
            tree.extract(part / "source")
            system = build_system(part / "source", options)
            steps = Steps(part, final, options, toolchain, log)
            installed = steps.with_configure() if system == "configure" else steps.with_meson()
            build = read_build(installed / "bin", "source", "")
            check_major(build.version.major, f"{build.version} of {tree.origin}")
            if for_version is not None:
                _require_version(build, for_version, tree)
            words = " ".join([system, *(CONFIGURE_DEFAULTS if system == "configure" else ()), *options])
            with_ccache = ", ccache" if toolchain.ccache else ""
            facts = {
                "origin": f"{tree.origin}; {words}; {toolchain.version}{with_ccache}",
                "directory": str(final),
                "identity": tree.identity,
                "options": list(options),
                "compiler": toolchain.version,
                "for_version": False,
            }
            write_facts(installed, facts)
            log.rename(installed / "build.log")
            open_to_all(installed)
            publish(installed, final)
        finally:
            discard(part)

    def sweep(self) -> list[Path]:
        """Remove the files of builds whose process has ended, and the logs of failed ones. Return them."""
        return [
            path for path, name in unfinished(self.builds_dir).items() if self._remove_if_free(path, name)
        ]

    def _remove_if_free(self, path: Path, name: str) -> bool:
        with locked_if_free(self.builds_dir / f".{name}.lock") as free:
            if free:
                discard(path)
            return free and not path.exists()


def unfinished(builds_dir: Path) -> dict[Path, str]:
    """Return directories of builds and downloads in progress or under deletion, and logs of failed builds,
    each with the name of its build.
    """
    left = [path for pattern in (".*.part", ".*.gone", "*.log") for path in sorted(builds_dir.glob(pattern))]
    return {path: UNFINISHED.sub("", path.name.removeprefix(".")) for path in left}


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
    part = folder / f".{MARK}.part"
    part.write_text(json.dumps(facts, indent=1) + "\n")
    part.replace(folder / MARK)


def discard(path: Path) -> None:
    """Delete a directory or file. The last step of a killed build may still write into its directory, which
    is therefore renamed first. What it writes meanwhile remains for the next cleanup.
    """
    if path.is_dir():
        gone = path.with_name(f".{path.name.removeprefix('.')}.{time.time_ns()}.gone")
        shutil.rmtree(path.rename(gone), ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
