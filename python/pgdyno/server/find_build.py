"""Selection of the build for a server specification.

A specification is a version (``18``: the newest 18 available; ``17.5``, ``19beta1``: exactly that one),
``system`` (the newest release installed on this machine, else a pre-release), a directory of binaries, or a
commit (``git:REF``) to build. ``,extension=…`` after it adds extensions to a copy of the server. The rule for
versions:

1. If all requested versions are installed on the system, use the installed builds.
2. Else, if `servers build` made all of them, use these builds.
3. Else, if all are available as embedded builds (cached or downloadable), use the embedded builds.
4. Else use the installed build of each version if it exists, then the one from source, then the embedded one.
   The builds of the arms then differ in origin; ``Resolved.differences`` reports this, and the lab adds a
   caveat.

A cached major version causes no network request, so that a study can be repeated with the same build. Use
``pgdyno servers install 18`` to download a newer minor version.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pgdyno.errors import FetchError, ServerError, UsageError
from pgdyno.server.build_store import ServerSource, Store
from pgdyno.server.builds import (
    OLDEST_MAJOR,
    Build,
    Version,
    VersionSpec,
    check_major,
    parse_version_spec,
    read_build,
)
from pgdyno.study.arm_spec import EXTENSION, GIT_PREFIX, extension_sources

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


def resolve_build(spec: str, *, store: Store, nearest: bool = False) -> Build:
    """Return the build of one specification; see ``resolve_all``."""
    return resolve_all([spec], store=store, nearest=nearest).builds[0]


def resolve_all(
    specs: Sequence[str],
    *,
    store: Store,
    nearest: bool = False,
    installed: Sequence[Build] | None = None,
) -> Resolved:
    """Return the builds of the specifications, of one provider for all versions if possible.

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
        maker(store, EXTENSION).with_extensions(found[server], extensions) if extensions else found[server]
        for server, extensions in parts
    )
    return Resolved(builds, tuple(provider_differences(builds)), tuple(substitutions))


def maker(store: Store, asked: str) -> ServerSource:
    """Return the source that makes servers. Raises UsageError without one."""
    for source in store.made:
        return source
    raise UsageError(f"{asked} needs a feature that makes servers, which this pgdyno lacks")


def split_extensions(spec: str) -> tuple[str, list[str]]:
    """Return the server of a specification, and the sources of its extensions."""
    server, _, extensions = spec.partition(f",{EXTENSION}=")
    return server, extension_sources(extensions)


def _is_fixed(spec: str) -> bool:
    return spec == "system" or "/" in spec or spec.startswith((".", "~", GIT_PREFIX))


def _fixed(spec: str, system: Sequence[Build], store: Store) -> Build:
    if spec.startswith(GIT_PREFIX):
        return maker(store, spec).of_spec(spec)
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
            f"PostgreSQL {wanted} is not available; the nearest version is {near}: use it, add --nearest, or "
            + wanted.remedy
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
    origins = {build.provider for build in builds}
    if len(origins) < 2:
        return []
    parts = ", ".join(dict.fromkeys(build.label for build in builds))
    return [
        f"the servers of the arms come from different builders ({parts}): compilers and options differ too"
    ]
