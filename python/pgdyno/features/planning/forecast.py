"""Forecast of a study before it runs: trials, time, disk space, servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgdyno.errors import FetchError, ServerError, UsageError
from pgdyno.features.builds.extensions import ExtendedBuilds
from pgdyno.features.builds.source import SourceBuilds, parse_git_server
from pgdyno.features.planning.cost import (
    aa_share,
    costs_of,
    disk_bytes,
    driven_s,
    load_s,
    pass_s,
    search_s,
    window_s,
)
from pgdyno.measure.machine import machine_resources
from pgdyno.measure.preflight import settings_request
from pgdyno.server.build_store import Store, nearest_version, system_builds
from pgdyno.server.builds import Build, Version, VersionSpec, is_version, parse_version_spec, read_build
from pgdyno.server.cache_directory import Cache
from pgdyno.server.directories import free_bytes
from pgdyno.server.settings_catalogue import known_catalogue
from pgdyno.study.arm_spec import ArmSpec, extension_sources
from pgdyno.study.cases import Case, cases_of
from pgdyno.study.defaults import MachineSize
from pgdyno.study.schedule import aa_arm_after, why_no_aa
from pgdyno.study.study_file import StudyFile

AT_RUN_TIME = "determined at run time"


@dataclass(frozen=True)
class StudyForecast:
    """Forecast of a study.

    ``total_s``: measurement with restores and checks, without ``load_s``, the one-time load before it.
    ``window_s``: shortest and longest. ``search_s``: longest capacity search of a trial, 0 without one.
    ``aa_blocks``: hidden blocks in addition to ``blocks``; they take ``aa_s`` of ``total_s``. ``why_no_aa``:
    the reason if there are none. ``servers``: the build for each specification. ``settings``: sentences on
    settings that versions lack.
    """

    cases: tuple[Case, ...]
    blocks: int
    trials: int
    window_s: tuple[float, float]
    search_s: float
    pass_s: float
    total_s: float
    aa_blocks: int
    aa_s: float
    why_no_aa: str
    load_s: float
    disk_bytes: int
    disk_free_bytes: int
    servers: dict[str, str]
    settings: tuple[str, ...]

    @property
    def fits_the_disk(self) -> bool:
        """Return whether the free space is sufficient."""
        return self.disk_bytes <= self.disk_free_bytes


def study_forecast(file: StudyFile, cache: Cache, machine: MachineSize) -> StudyForecast:
    """Return the forecast, without starting a server. Raises StudyFileError."""
    cases = cases_of(file)
    costs = costs_of(cases)
    windows_s = [window_s(case.study, machine) for case in cases]
    one_pass_s = pass_s(cases, machine)
    without_aa_s = one_pass_s / (1 + aa_share(cases))
    run = file.run
    limits = (run.repeats, None if run.budget_s is None else max(1, int(run.budget_s / one_pass_s)))
    blocks = min(limit for limit in limits if limit is not None)
    aa_blocks = [
        case.study for case in cases for block in range(blocks) if aa_arm_after(case.study, block) is not None
    ]
    aa_s = without_aa_s / len(cases) * sum(2 / len(study.arms) for study in aa_blocks)
    by_repeats_s = blocks * without_aa_s + aa_s if blocks == run.repeats else None
    total_s = min(limit for limit in (by_repeats_s, run.budget_s) if limit is not None)
    builds, servers = _expected({arm.build: arm for case in cases for arm in case.study.arms}, cache)
    return StudyForecast(
        cases=cases,
        blocks=blocks,
        trials=blocks * sum(len(case.arms) for case in cases),
        window_s=(min(windows_s), max(windows_s)),
        search_s=max(search_s(case.study, machine) for case in cases),
        pass_s=one_pass_s,
        total_s=total_s,
        aa_blocks=len(aa_blocks),
        aa_s=aa_s,
        why_no_aa="; ".join(dict.fromkeys(filter(None, (why_no_aa(case.study) for case in cases)))),
        load_s=load_s(costs),
        disk_bytes=disk_bytes(costs, max(driven_s(case.study, machine) for case in cases), machine.cores),
        disk_free_bytes=free_bytes(cache.root),
        servers=servers,
        settings=tuple(dict.fromkeys(_lacking(cases, builds, cache))),
    )


def _expected(arms: Mapping[str, ArmSpec], cache: Cache) -> tuple[dict[str, Build | None], dict[str, str]]:
    """Return by specification the build, if it is installed or cached, and a description of the build."""
    system, store = system_builds(), cache.store()
    made = SourceBuilds(store.builds_dir, store.progress).for_versions()
    embedded, listed = store.cached(), store.listed_lately()
    versions = [parse_version_spec(arm.server) for arm in arms.values() if is_version(arm.server)]
    if all(_newest(system, wanted) for wanted in versions):
        embedded, listed = [], []
    elif all(_newest(made, wanted) for wanted in versions):
        embedded, listed = made, []
    builds: dict[str, Build | None] = {}
    words: dict[str, str] = {}
    for whole, arm in arms.items():
        shown, server = arm.without_password().build, arm.model_copy(update={"extension": ""}).build
        if arm.is_dsn:
            builds[whole], words[shown] = None, "a running server"
        elif is_version(server):
            builds[whole], words[shown] = would_get(
                parse_version_spec(server), [*system, *made], embedded, listed
            )
        elif arm.is_git:
            builds[whole], words[shown] = _commit(server, store)
        elif server == "system":
            builds[whole] = system[0] if system else None
            words[shown] = system[0].label if system else "not installed"
        else:
            builds[whole], words[shown] = _directory(server)
        if arm.extension:
            builds[whole], words[shown] = _extended(builds[whole], words[shown], arm, store)
    return builds, words


def would_get(
    wanted: VersionSpec, system: Sequence[Build], embedded: Sequence[Build], listed: Sequence[Version]
) -> tuple[Build | None, str]:
    """Return the build for a version if it is installed or cached, and a description.

    ``embedded`` are cached, ``listed`` can be downloaded.
    """
    if found := _newest(embedded, wanted):
        return found, f"{found.label}, cached"
    if fetchable := [version for version in listed if wanted.matches(version)]:
        return None, f"{max(fetchable)}, to be downloaded"
    if found := _newest(system, wanted):
        return found, f"{found.label}, installed"
    try:
        wanted.require_fetchable()
    except FetchError as error:
        return None, str(error)
    here = {build.version: build for build in (*embedded, *system)}
    near = nearest_version(wanted, [*listed, *here]) if listed else None
    if near is None:
        return None, AT_RUN_TIME
    return here.get(near), f"{near}, the nearest available" + (
        ", installed or cached" if near in here else ""
    )


def _newest(builds: Sequence[Build], wanted: VersionSpec) -> Build | None:
    matching = [build for build in builds if wanted.matches(build.version)]
    return max(matching, key=lambda build: build.version, default=None)


def _commit(server: str, store: Store) -> tuple[Build | None, str]:
    try:
        build = SourceBuilds(store.builds_dir, store.progress).known(parse_git_server(server))
    except UsageError as error:
        return None, str(error)
    return build, "to be built" if build is None else f"{build.label}, cached"


def _extended(base: Build | None, words: str, arm: ArmSpec, store: Store) -> tuple[Build | None, str]:
    """Return the server of an arm with its extensions if it is cached, and a description."""
    to_be_built = f"{words}; {arm.extension} to be built"
    try:
        build = base and ExtendedBuilds(store.builds_dir, store.progress).known(
            base, extension_sources(arm.extension)
        )
    except UsageError as error:
        return None, str(error)
    return (build, f"{build.label}, cached") if build else (None, to_be_built)


def _directory(server: str) -> tuple[Build | None, str]:
    directory = Path(server).expanduser()
    inner = directory / "bin"
    try:
        build = read_build(inner if (inner / "postgres").is_file() else directory, "directory", server)
    except ServerError as error:
        return None, str(error)
    return build, build.label


def _lacking(cases: Sequence[Case], builds: Mapping[str, Build | None], cache: Cache) -> list[str]:
    """Return sentences on settings that the builds lack, for all builds with a cached catalogue."""
    machine = machine_resources(cache.root)
    sentences = []
    for case in cases:
        for index, arm in enumerate(case.study.arms):
            build = builds[arm.build]
            known = None if build is None else known_catalogue(build, cache)
            if build is None or known is None:
                continue
            try:
                asked = settings_request(case.study, index, build, known, machine)
            except UsageError as error:
                sentences.append(f"{arm.server}: {error}")
                continue
            sentences += [f"{arm.server}: {note}" for note in asked.notes]
            lacking = sorted(name for name in asked.optional if name.lower() not in known.definitions)
            sentences += [f"{arm.server} has no setting {name}, which is ignored" for name in lacking]
    return sentences
