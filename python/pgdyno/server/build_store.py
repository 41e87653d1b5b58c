"""Store of embedded builds: lists of cached and available builds, and atomic downloads.

Builds are packages, downloaded with their ordinary clients: npm, then Maven, then pip as a last resort. A
major version means the newest minor version of the first source that has it. A build appears in the cache
only after it was verified, unpacked, run once and synced to disk. Two processes that need the same build
share one download. The next download removes the files of an interrupted one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pgdyno.errors import FetchError, ServerError
from pgdyno.hooks import Hooks
from pgdyno.server.builds import MARK, Build, Version, VersionSpec, read_build
from pgdyno.server.directories import locked, open_to_all, publish
from pgdyno.server.packages import PYPI_17, Maven, Npm, PackageSource, Pypi

LIST_AGE_MAX_S = 86_400.0  # new minor versions come four times a year

Progress = Callable[[str], None]


class ServerSource(Protocol):
    """Servers that a feature makes, in the directory of the embedded builds."""

    def cached(self) -> Sequence[Build]:
        """Return the builds from source in the cache, newest first."""

    def for_versions(self) -> Sequence[Build]:
        """Return those for arms that only name their version, newest first."""

    def of_spec(self, spec: str) -> Build:
        """Return the server ``git:…``; make it if it is not cached. Raises UsageError, BuildError."""

    def of_version(self, version: VersionSpec, source: str, options: str) -> Build:
        """Return the build of this version from its sources. Raises UsageError, BuildError, Interrupted."""

    def with_extensions(self, base: Build, extensions: Sequence[str]) -> Build:
        """Return a server with these extensions. Raises UsageError, BuildError, Interrupted."""


OpenSource = Callable[[Path, Progress], ServerSource]

SERVER_SOURCES: Hooks[OpenSource] = Hooks("servers")


def _silent(_: str) -> None:
    """Ignore progress."""


@dataclass
class Store:
    """The embedded builds in ``builds_dir``; version lists in ``lists_dir``. ``progress`` receives
    messages."""

    builds_dir: Path
    lists_dir: Path
    sources: Sequence[PackageSource] = field(default_factory=lambda: (Npm(), Maven(), Pypi(), PYPI_17))
    progress: Progress = _silent

    def cached(self) -> list[Build]:
        """Return the builds in the cache, newest first, without those that no longer run."""
        builds = []
        for mark in self.builds_dir.glob(f"*/{MARK}"):
            try:
                facts = json.loads(mark.read_text())
                origin = f"{facts['source']} {facts['package']} {facts['package_version']}".rstrip()
                builds.append(read_build(mark.parent / facts["bin_dir"], "embedded", origin))
            except (OSError, ValueError, KeyError, ServerError):
                continue
        return sorted(builds, key=lambda build: build.version, reverse=True)

    @property
    def made(self) -> Sequence[ServerSource]:
        """The sources of servers that features make in the same directory."""
        return [source(self.builds_dir, self.progress) for source in SERVER_SOURCES]

    def available(self) -> list[Version]:
        """Return the versions that the sources list, newest first. Raises FetchError if no source answers."""
        listed, complaints = self._listed()
        if not listed:
            raise FetchError("no provider could list its versions: " + "; ".join(complaints))
        return sorted({version for _, versions in listed for version in versions}, reverse=True)

    def listed_lately(self) -> list[Version]:
        """Return the versions in the lists of the last day, newest first, without network requests."""
        lists = (_read_list(self._list(source)) or {} for source in self.sources)
        return sorted({version for listed in lists for version in listed}, reverse=True)

    def obtain(self, wanted: VersionSpec, source_name: str | None = None) -> Build:
        """Return the newest matching cached build; download one if none is cached. Raises FetchError.

        ``source_name``: the only source for it.
        """
        found = [
            build
            for build in self.cached()
            if wanted.matches(build.version) and source_name in (None, _source_of(build))
        ]
        if not found:
            return self.install(wanted, source_name)
        # Builds with all programs may be there only for pg_upgrade.
        has_programs = {source.name for source in self.sources if source.has_programs}
        chosen = min(found, key=lambda build: _source_of(build) in has_programs)
        self._touch(chosen)
        return chosen

    def common_source(self, wanted: Sequence[VersionSpec]) -> str | None:
        """Return the name of the first source with all of these versions; None if there is none.

        Builds of one source have the same compiler and optimization. Cached builds come before downloads.
        """
        cached = self.cached()
        for source in self.sources:
            versions = [build.version for build in cached if _source_of(build) == source.name]
            if all(any(map(spec.matches, versions)) for spec in wanted):
                return source.name
        for source in self.sources:
            with contextlib.suppress(FetchError):
                versions = list(self._versions(source))
                if all(any(map(spec.matches, versions)) for spec in wanted):
                    return source.name
        return None

    def with_programs(self, wanted: VersionSpec) -> Build:
        """Return a build from a source whose builds have all programs; download one if none is cached. Raises
        FetchError.
        """
        sources = [one.name for one in self.sources if one.has_programs and wanted.major in one.unlisted]
        if not sources:
            raise FetchError(f"no source has PostgreSQL {wanted} with all its programs")
        return self.obtain(wanted, sources[0])

    def _touch(self, build: Build) -> None:
        """Record the last use for `cache list` and `prune`."""
        folder = next(path for path in build.bin_dir.parents if (path / MARK).is_file())
        with contextlib.suppress(OSError):
            os.utime(folder / MARK)

    def install(self, wanted: VersionSpec, source_name: str | None = None) -> Build:
        """Download the newest matching build, unless it is cached. Raises FetchError with the error of every
        source.
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
                self.progress(f"downloaded {build.version} with {source.name} ({'; '.join(complaints)})")
            return build
        raise FetchError(
            f"PostgreSQL {wanted} could not be downloaded: {'; '.join(complaints) or 'no such provider'}. "
            f"Try again, {wanted.remedy}"
        )

    def _install_from(self, source: PackageSource, wanted: VersionSpec) -> Build:
        versions = self._versions(source)
        matching = [version for version in versions if wanted.matches(version)]
        if matching:
            version = max(matching)
            return self._fetch(source, versions[version], VersionSpec(version.major, version.minor))
        if wanted.major in source.unlisted and wanted.minor is not None:
            raise FetchError(f"does not list the minor version of its {wanted.major}: use {wanted.major}")
        if wanted.major in source.unlisted:
            return self._fetch(source, "", wanted)
        raise FetchError(f"has no {wanted}")

    def _fetch(self, source: PackageSource, package_version: str, wanted: VersionSpec) -> Build:
        name = f"{wanted}-{source.name.lower()}"
        self.builds_dir.mkdir(parents=True, exist_ok=True)
        with locked(self.builds_dir / f".{name}.lock"):
            final = self.builds_dir / name
            if (final / MARK).is_file():
                return self._installed(final, wanted)
            self.progress(f"downloading PostgreSQL {wanted} with {source.name}")
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
                open_to_all(download.tree)
                shutil.rmtree(final, ignore_errors=True)
                publish(download.tree, final)
            finally:
                shutil.rmtree(part, ignore_errors=True)
            return self._installed(final, wanted)

    def _installed(self, folder: Path, wanted: VersionSpec) -> Build:
        for build in self.cached():
            if build.bin_dir.is_relative_to(folder.resolve()) and wanted.matches(build.version):
                return build
        raise FetchError(f"the build in {folder} no longer runs: delete that directory and try again")

    def _listed(self) -> tuple[list[tuple[PackageSource, dict[Version, str]]], list[str]]:
        listed, complaints = [], []
        for source in self.sources:
            try:
                listed.append((source, self._versions(source)))
            except FetchError as error:
                complaints.append(f"{source.name}: {error}")
        return listed, complaints

    def _list(self, source: PackageSource) -> Path:
        return self.lists_dir / f"{source.name.lower()}.json"

    def _versions(self, source: PackageSource) -> dict[Version, str]:
        cached = self._list(source)
        fresh = _read_list(cached)
        if fresh is not None:
            return fresh
        self.progress(f"listing the versions of {source.name}")
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


def _source_of(build: Build) -> str:
    """Return the name of the source of an embedded build."""
    return build.origin.partition(" ")[0]


def _read_list(path: Path) -> dict[Version, str] | None:
    try:
        facts = json.loads(path.read_text())
        if not 0 <= time.time() - facts["listed_at_unix_s"] <= LIST_AGE_MAX_S:
            return None
        listed = ((text.partition("."), package) for text, package in facts["versions"].items())
        return {Version(int(major), int(minor)): package for (major, _, minor), package in listed}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _check(tree: Path, wanted: VersionSpec, announced: object) -> Build:
    """Return the build in the tree with the requested version, as reported by the binary, which must run."""
    found = []
    for binary in sorted(tree.glob("**/bin/postgres")):
        for program in binary.parent.iterdir():
            program.chmod(0o755)  # zip files and some packages lose the mode
        try:
            found.append(read_build(binary.parent, "embedded", "fetched"))
        except ServerError as error:
            raise FetchError(f"the download of {announced} does not run on this machine: {error}") from error
    for build in found:
        if wanted.matches(build.version):
            return build
    there = ", ".join(str(build.version) for build in found) or "no server"
    raise FetchError(f"the download of {announced} contains {there}, not {wanted}")
