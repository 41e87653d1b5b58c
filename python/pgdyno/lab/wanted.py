"""What a study wants of each arm on a build of ours: the build, and the settings it will be started with.

All that can be wrong with a request for a server or its settings is found here, before anything is loaded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pgdyno.caveats import Caveat, Code
from pgdyno.errors import UsageError
from pgdyno.lab.progress import Step, Warned, Watch
from pgdyno.probe.server import EXTENSIONS, NEEDS_PRELOAD
from pgdyno.server.build import Build
from pgdyno.server.build_catalogue import Catalogue, catalogue, compiled_differences
from pgdyno.server.cache_directory import Cache
from pgdyno.server.find_build import resolve_all
from pgdyno.server.settings.machine_resources import Machine
from pgdyno.server.settings.settings_profile import Fit, Requested, request
from pgdyno.server.version import parse_wanted
from pgdyno.study.arm_spec import ArmSpec
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Schedule
from pgdyno.units import format_size, parse_size_bytes

SPARE_CONNECTIONS = 10
"""Beside the clients: ours for checks and probes, and the three that PostgreSQL keeps for superusers."""

SHARED_MEMORY_SHARE_MAX = 0.6
"""Of the memory, for the shared buffers of all servers that are up at once: the rest is for backends and for
the operating system's cache, without which nothing that is measured resembles a real server."""


@dataclass(frozen=True)
class Wanted:
    """An arm on a build of ours, before its data are there."""

    spec: ArmSpec
    build: Build
    catalogue: Catalogue
    requested: Requested


def resolve(
    study: Study, cache: Cache, machine: Machine, watch: Watch, caveats: list[Caveat]
) -> dict[int, Wanted]:
    """The builds and their checked settings, by arm; caveats on builds that are not what was asked for."""
    ours = [(index, arm) for index, arm in enumerate(study.arms) if not arm.is_dsn]
    store = cache.store(progress=lambda text: watch(Step(text)))
    watch(Step("find the servers"))
    resolved = resolve_all([arm.server for _, arm in ours], store=store, nearest=study.nearest)
    for text in resolved.substitutions:
        watch(Warned(text))
    labels = labels_of(resolved.builds)
    catalogues = {label: catalogue(build, cache) for build, label in labels.items()}
    differences = [*resolved.differences, *compiled_differences(catalogues)]
    if differences:
        caveats.append(Caveat(Code.BUILDS_DIFFER, {"difference": "; ".join(differences)}))
    found = {}
    for (index, arm), build in zip(ours, resolved.builds, strict=True):
        study.driving(index).workload.require_major(build.version.major, arm.name)
        watch(Step(f"check the settings of {arm.name}"))
        known = catalogues[labels[build]]
        requested = request_of(study, index, build, known, machine)
        found[index] = Wanted(arm, build, known, requested)
        if resolved.substitutions and not _is_what_was_asked(arm.server, build):
            names = {"requested": arm.server, "resolved": str(build.version)}
            caveats.append(Caveat(Code.NEAREST_VERSION, names))
    return found


def labels_of(builds: Sequence[Build]) -> dict[Build, str]:
    """Return a label of its own for each build: two of one version are told apart by their directories."""
    counts = Counter(build.label for build in set(builds))
    return {
        build: build.label if counts[build.label] == 1 else f"{build.label} in {build.bin_dir}"
        for build in builds
    }


def _is_what_was_asked(server: str, build: Build) -> bool:
    try:
        return parse_wanted(server).matches(build.version)
    except UsageError:
        return True  # a directory or `system`: whatever is there


def request_of(study: Study, index: int, build: Build, known: Catalogue, machine: Machine) -> Requested:
    """The settings of one arm, checked, with what its clients and its probes need."""
    arm = study.arms[index]
    at_once = len(study.arms) if study.is_together else 1
    if study.schedule == "duet":
        machine = replace(machine, cores=max(1, machine.cores // 2))
    clients = max(study.driving(i).clients for i in range(len(study.arms)))
    connections = max(100, clients + SPARE_CONNECTIONS)
    fit = Fit(machine, build.version, known.definitions, at_once, connections)
    requested = request(arm.profiles, arm.settings, fit, arm.optional)
    needed = {}
    if connections > 100 and "max_connections" not in requested.settings:
        # The default of 100 connections would refuse the clients: all arms get the room they need.
        needed["max_connections"] = str(connections)
    if libraries := [EXTENSIONS[probe] for probe in study.probes if probe in NEEDS_PRELOAD]:
        loaded = requested.settings.get("shared_preload_libraries", "")
        names = [name.strip() for name in loaded.split(",") if name.strip()]
        needed["shared_preload_libraries"] = ",".join(dict.fromkeys([*names, *libraries]))
    return request(arm.profiles, {**arm.settings, **needed}, fit, arm.optional) if needed else requested


def fit_schedule(
    study: Study, wanted: Mapping[int, Wanted], machine: Machine, watch: Watch, caveats: list[Caveat]
) -> Study:
    """Slices and duets need all servers up at once; where their shared buffers do not fit, one arm runs at a
    time.
    """
    shared = sum(
        parse_size_bytes(
            arm.requested.settings.get("shared_buffers", arm.catalogue.initial["shared_buffers"])
        )
        for arm in wanted.values()
    )
    if study.is_together and shared > SHARED_MEMORY_SHARE_MAX * machine.memory_bytes:
        watch(
            Warned(
                f"the servers' shared buffers ({format_size(shared)}) do not fit into this machine together: "
                "one arm runs at a time (--schedule blocks)"
            )
        )
        caveats.append(Caveat(Code.SCHEDULE_CHANGED, {"size": format_size(shared)}))
        return study.model_copy(update={"schedule": Schedule.BLOCKS, "halves": None})
    return study
