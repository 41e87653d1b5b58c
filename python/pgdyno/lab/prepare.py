"""Makes the arms of a study ready: finds servers, checks settings, makes or finds datasets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgdyno.caveats import Caveat, Code
from pgdyno.drive.scripts import examine
from pgdyno.errors import UsageError
from pgdyno.evidence import records
from pgdyno.interruption import Interruption
from pgdyno.lab.arm import LabArm
from pgdyno.lab.build_arm import BuildArm
from pgdyno.lab.dataset import Maker, dataset_key
from pgdyno.lab.dsn_arm import open_dsn_arm, require_usable
from pgdyno.lab.progress import Doubt, Step, Watch
from pgdyno.server.build import Build
from pgdyno.server.cache import Cache
from pgdyno.server.catalogue import Catalogue, catalogue, compiled_differences
from pgdyno.server.find import resolve_all
from pgdyno.server.settings.machine import Machine, this_machine
from pgdyno.server.settings.profile import Fit, Requested, request
from pgdyno.server.version import parse_wanted
from pgdyno.study.arm import ArmSpec
from pgdyno.study.plan import Study
from pgdyno.units import format_size, parse_size_bytes

SPARE_CONNECTIONS = 10
"""Beside the clients: ours for checks, and the three that PostgreSQL keeps for superusers."""

SHARED_MEMORY_SHARE_MAX = 0.6
"""Of the memory, for the shared buffers of all servers that are up at once: the rest is for backends and for
the operating system's cache, without which nothing that is measured resembles a real server."""


@dataclass(frozen=True)
class Prepared:
    """Arms that can be run. ``study`` is the one asked for, or the same with the schedule that fits."""

    study: Study
    arms: Sequence[LabArm]
    records: Sequence[records.Arm]
    caveats: Sequence[Caveat]
    data_path: Path


@dataclass(frozen=True)
class _Wanted:
    """An arm on a build of ours, before its data are there."""

    spec: ArmSpec
    build: Build
    catalogue: Catalogue
    requested: Requested


@contextlib.contextmanager
def prepare(study: Study, watch: Watch, interruption: Interruption) -> Iterator[Prepared]:
    """The arms, made ready; on leaving, their servers are stopped and their live directories removed.

    Everything that can be wrong with the request is found before anything is loaded. Raises UsageError,
    ServerError, DiskFullError, DatasetError, Interrupted.
    """
    cache = Cache.open()
    cache.sweep()
    machine = this_machine(cache.root)
    caveats = _examined(study, watch)
    wanted = _resolve(study, cache, machine, watch, caveats)
    study = _fit_schedule(study, wanted, machine, watch, caveats)
    require_usable(study, watch)
    copies = sum(not arm.is_dsn for arm in study.arms)
    maker = Maker(cache.account, copies, watch, interruption)
    with contextlib.ExitStack() as stack:
        arms: list[LabArm] = []
        described: list[records.Arm] = []
        for index, spec in enumerate(study.arms):
            interruption.check()
            if spec.is_dsn:
                dsn_arm = stack.enter_context(open_dsn_arm(index, spec, study, watch, interruption))
                arms.append(dsn_arm)
                described.append(_record(index, spec, study, dsn_arm.facts, {}, dsn_arm.dataset))
                caveats.append(Caveat(Code.SERVER_NOT_RESTARTED, {"arm": spec.name}))
                if study.into_existing:
                    caveats.append(Caveat(Code.DATA_NOT_RESTORED, {"arm": spec.name}))
            else:
                arm, facts = _build_arm(index, wanted[index], study, cache, maker, stack)
                arms.append(arm)
                server = _server_facts(wanted[index])
                described.append(_record(index, spec, study, server, wanted[index].requested.settings, facts))
        for arm_to_stop in arms:
            stack.callback(arm_to_stop.stop)
        if any(arm.is_local() for arm in arms):
            caveats.append(Caveat(Code.SHARED_MACHINE, {"cores": machine.cores}))
        yield Prepared(study, arms, described, caveats, cache.root)


def _examined(study: Study, watch: Watch) -> list[Caveat]:
    """The scripts, before anything that takes time."""
    found = examine(study.workload)
    for caveat in found:
        watch(Doubt(caveat.sentence))
    return found


def _resolve(
    study: Study, cache: Cache, machine: Machine, watch: Watch, caveats: list[Caveat]
) -> dict[int, _Wanted]:
    """The builds and their checked settings, by arm; caveats on builds that are not what was asked for."""
    ours = [(index, arm) for index, arm in enumerate(study.arms) if not arm.is_dsn]
    store = cache.store(progress=lambda text: watch(Step(text)))
    watch(Step("find the servers"))
    resolved = resolve_all([arm.server for _, arm in ours], store=store, nearest=study.nearest)
    for text in resolved.substitutions:
        watch(Doubt(text))
    catalogues = {build.label: catalogue(build, cache) for build in resolved.builds}
    differences = [*resolved.differences, *compiled_differences(catalogues)]
    if differences:
        caveats.append(Caveat(Code.BUILDS_DIFFER, {"difference": "; ".join(differences)}))
    found = {}
    for (index, arm), build in zip(ours, resolved.builds, strict=True):
        study.workload.require_major(build.version.major, arm.name)
        watch(Step(f"check the settings of {arm.name}"))
        known = catalogues[build.label]
        requested = _request(study, arm, build, known, machine)
        found[index] = _Wanted(arm, build, known, requested)
        if resolved.substitutions and not _is_what_was_asked(arm.server, build):
            names = {"requested": arm.server, "resolved": str(build.version)}
            caveats.append(Caveat(Code.NEAREST_VERSION, names))
    return found


def _is_what_was_asked(server: str, build: Build) -> bool:
    try:
        return parse_wanted(server).matches(build.version)
    except UsageError:
        return True  # a directory or `system`: whatever is there


def _request(study: Study, arm: ArmSpec, build: Build, known: Catalogue, machine: Machine) -> Requested:
    at_once = len(study.arms) if study.schedule == "slices" else 1
    connections = max(100, study.clients + SPARE_CONNECTIONS)
    fit = Fit(machine, build.version, known.definitions, at_once, connections)
    requested = request(arm.profiles, arm.settings, fit, arm.optional)
    if connections > 100 and "max_connections" not in requested.settings:
        # The default of 100 connections would refuse the clients: all arms get the room they need.
        own = {"max_connections": str(connections), **arm.settings}
        return request(arm.profiles, own, fit, arm.optional)
    return requested


def _fit_schedule(
    study: Study, wanted: Mapping[int, _Wanted], machine: Machine, watch: Watch, caveats: list[Caveat]
) -> Study:
    """Slices need all servers up at once; where their shared buffers do not fit, one runs at a time."""
    shared = sum(
        parse_size_bytes(
            arm.requested.settings.get("shared_buffers", arm.catalogue.initial["shared_buffers"])
        )
        for arm in wanted.values()
    )
    if study.schedule == "slices" and shared > SHARED_MEMORY_SHARE_MAX * machine.memory_bytes:
        watch(
            Doubt(
                f"the servers' shared buffers ({format_size(shared)}) do not fit into this machine together: "
                "one arm runs at a time (--schedule blocks)"
            )
        )
        caveats.append(Caveat(Code.SCHEDULE_CHANGED, {"size": format_size(shared)}))
        return study.model_copy(update={"schedule": "blocks"})
    return study


def _build_arm(
    index: int, wanted: _Wanted, study: Study, cache: Cache, maker: Maker, stack: contextlib.ExitStack
) -> tuple[BuildArm, Mapping[str, object]]:
    key = dataset_key(wanted.build, study.workload)
    dataset = stack.enter_context(cache.dataset_room().hold(key, maker.make(wanted.build, study.workload)))
    run = stack.enter_context(cache.run_room().open(f"arm-{index}"))
    arm = BuildArm(
        index=index,
        name=wanted.spec.name,
        build=wanted.build,
        database=study.workload.kind,
        settings=wanted.requested.settings,
        optional=wanted.requested.optional,
        snapshot=dataset.snapshot,
        run=run,
        account=cache.account,
    )
    return arm, {**dataset.facts, "name": dataset.name, "size_bytes": dataset.snapshot.size_bytes}


def _server_facts(wanted: _Wanted) -> dict[str, object]:
    build = wanted.build
    return {
        "provider": build.provider,
        "version": str(build.version),
        "label": build.label,
        "build_id": build.build_id,
        "bin_dir": str(build.bin_dir),
        "version_text": wanted.catalogue.version_text,
        "compiled": dict(wanted.catalogue.compiled),
    }


def _record(
    index: int,
    spec: ArmSpec,
    study: Study,
    server: Mapping[str, object],
    settings: Mapping[str, str],
    dataset: Mapping[str, object],
) -> records.Arm:
    return records.Arm(
        arm=index,
        name=spec.name,
        spec=spec.without_password().server if spec.is_dsn else spec.name,
        server=server,
        settings_requested=settings,
        safety=(),
        workload=study.workload.model_dump(),
        clients=study.clients,
        dataset=dataset,
    )
