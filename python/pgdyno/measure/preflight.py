"""Checks before a study: servers, settings, disk space, scripts.

- Preflight checks before anything is loaded: builds, settings, connections, one start of each server.
- Preflight check of custom scripts: each runs once on minimal data, before the dataset of a study is loaded.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from psycopg import sql

from pgdyno.caveats import Caveat
from pgdyno.errors import ServerError, StartError, UsageError, WorkloadError
from pgdyno.hooks import Hooks
from pgdyno.interruption import Interruption
from pgdyno.measure.arms import running_servers
from pgdyno.measure.dataset_loading import (
    data_kind,
    dataset_key,
    init_options,
    load_new_database,
    load_settings,
)
from pgdyno.measure.engine_runs import drive_specification, run_drive
from pgdyno.measure.progress import PreparationStep, Warned, Watch
from pgdyno.measure.server_probes import EXTENSIONS, NEEDS_PRELOAD
from pgdyno.server.build_store import resolve_all
from pgdyno.server.builds import PRELOAD_SETTING, Build, create_extensions, parse_version_spec
from pgdyno.server.cache_directory import Cache
from pgdyno.server.processes import Cluster, InitOptions, LiveDirectory
from pgdyno.server.settings import MachineResources, ProfileInput, Requested, request, unit_factor
from pgdyno.server.settings_catalogue import (
    Catalogue,
    catalogue,
    compiled_differences,
    empty_cluster,
    lacks_jit,
)
from pgdyno.server.snapshots import Snapshot, restore, take
from pgdyno.study.arm_spec import ArmSpec
from pgdyno.study.defaults import SHARED_MEMORY_SHARE_MAX, Schedule
from pgdyno.study.plan import Driving, Study
from pgdyno.study.schedule import PlannedSlice, Role
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.units import format_size

# ----------------------------------------------------------------------
# Preflight checks before anything is loaded: builds, settings, connections, one start of each server.
#
# The catalogue has the range of each setting. Only a start of the server shows conflicts between settings,
# errors of libraries, and a lack of memory.
# ----------------------------------------------------------------------

OWN_CONNECTIONS = 2
"""Connections of pgdyno per arm: the crash detector, and one for the sampler or, before and after it, for the
probes."""


def require_connections(study: Study, wanted: Mapping[int, ArmRequest]) -> None:
    """Raise UsageError with every arm whose server has too few connections. Raises ConnectError."""
    few = _of_builds(study, wanted)
    for servers in running_servers(study):
        few |= servers.few_connections(study)
    if not few:
        return
    least = max(needed for needed, _ in few.values())
    shown = ", ".join(f"{study.arms[index].name} ({most})" for index, (_, most) in sorted(few.items()))
    raise UsageError(
        f"--clients: {least} connections are needed, including those of pgdyno, more than max_connections "
        f"of {shown}: set it to {least} or more, or reduce --clients"
    )


def _of_builds(study: Study, wanted: Mapping[int, ArmRequest]) -> dict[int, tuple[int, int]]:
    """Return by arm the needed connections and max_connections. The clients are superusers on these servers,
    so they can use the reserved connections, too.
    """
    found = {}
    for index, arm in wanted.items():
        most = number_of(arm, "max_connections")
        needed = study.driving(index).clients + OWN_CONNECTIONS
        if needed > most:
            found[index] = (needed, most)
    return found


SPARE_CONNECTIONS = 10
"""Connections in addition to the clients: for checks and probes, and three reserved for superusers."""


@dataclass(frozen=True)
class ArmRequest:
    """An arm on a build, before its data are loaded."""

    spec: ArmSpec
    build: Build
    catalogue: Catalogue
    requested: Requested
    data_builds: Sequence[Build] = ()
    """Further builds that make its data, if it does not load them itself."""
    certain: Collection[str] = ()
    """Requested settings that need no test."""


def number_of(arm: ArmRequest, setting: str) -> int:
    """Return the number that a setting of an arm has: a size in bytes, others in the unit of the setting."""
    text, definition = arm.requested.settings.get(setting), arm.catalogue.definitions[setting]
    found = definition.parse(text or arm.catalogue.initial[setting], arm.build.version)
    kind, factor = unit_factor(definition.unit) or ("", 1.0)
    return round(float(found) * factor) if kind == "size" else int(found)


ARM_REQUESTS = Hooks[Callable[[Study, dict[int, ArmRequest]], dict[int, ArmRequest]]]("arm_requests")
"""Settings that a feature adds to the requests of all arms that pgdyno starts."""


def resolve_arms(
    study: Study, cache: Cache, machine: MachineResources, watch: Watch, caveats: list[Caveat]
) -> dict[int, ArmRequest]:
    """Return the builds and their validated settings by arm. Adds caveats for substituted builds."""
    ours = [(index, arm) for index, arm in enumerate(study.arms) if not arm.is_dsn]
    store = cache.store(progress=lambda text: watch(PreparationStep(text, may_last=True)))
    watch(PreparationStep("finding the servers"))
    resolved = resolve_all([arm.build for _, arm in ours], store=store, nearest=study.nearest)
    for text in resolved.substitutions:
        watch(Warned(text))
    labels = labels_of(resolved.builds)
    catalogues = {label: catalogue(build, cache) for build, label in labels.items()}
    differences = [*resolved.differences, *compiled_differences(catalogues)]
    if differences:
        caveats.append(Caveat.of("builds-differ", difference="; ".join(differences)))
    found = {}
    for (index, arm), build in zip(ours, resolved.builds, strict=True):
        study.driving(index).workload.require_major(build.version.major, arm.name)
        watch(PreparationStep(f"checking the settings of {arm.name}"))
        known = catalogues[labels[build]]
        requested = settings_request(study, index, build, known, machine)
        for file, skipped in requested.skipped.items():
            settings = ", ".join(skipped)
            caveats.append(Caveat.of("settings-skipped", arm=arm.name, file=file, settings=settings))
        workload = study.driving(index).workload
        more = data_kind(workload).more_builds(workload, arm.name, build, resolved.builds, store, watch)
        found[index] = ArmRequest(arm, build, known, requested, more)
        if lacks_jit(requested.settings, known):
            caveats.append(Caveat.of("jit-unavailable", arm=arm.name))
        if resolved.substitutions and not _is_as_requested(arm.server, build):
            version = str(build.version)
            caveats.append(Caveat.of("nearest-version", requested=arm.server, resolved=version))
    for complete in ARM_REQUESTS:
        found = complete(study, found)
    return found


def labels_of(builds: Sequence[Build]) -> dict[Build, str]:
    """Return a unique label for each build: builds of the same version have their directory added."""
    counts = Counter(build.label for build in set(builds))
    return {
        build: build.label if counts[build.label] == 1 else f"{build.label} in {build.bin_dir}"
        for build in builds
    }


def _is_as_requested(server: str, build: Build) -> bool:
    try:
        return parse_version_spec(server).matches(build.version)
    except UsageError:
        return True  # a directory or `system`: whatever is there


def settings_request(
    study: Study, index: int, build: Build, known: Catalogue, machine: MachineResources
) -> Requested:
    """Return the validated settings of one arm, including those that its clients and probes need."""
    arm = study.arms[index]
    at_once = len(study.arms) if study.is_together else 1
    if study.schedule == "duet":
        machine = replace(machine, cores=max(1, machine.cores // 2))
    limit_bytes = at_once * (study.memory_limit_bytes or machine.memory_bytes)
    machine = replace(machine, memory_bytes=min(machine.memory_bytes, limit_bytes))
    clients = max(study.driving(i).clients for i in range(len(study.arms)))
    connections = max(100, clients + SPARE_CONNECTIONS)
    fit = ProfileInput(machine, build.version, known.definitions, at_once, connections, known.library_dir)
    requested = request(arm.profiles, arm.settings, fit, arm.optional, arm.files)
    needed = {}
    if connections > 100 and "max_connections" not in requested.settings:
        # The default of 100 connections is too low for the clients.
        needed["max_connections"] = str(connections)
    libraries = [EXTENSIONS[probe] for probe in study.probes if probe in NEEDS_PRELOAD]
    if libraries or build.libraries:
        # A value of the user decides whether the libraries of his extensions are preloaded.
        loaded = requested.settings.get(PRELOAD_SETTING, ",".join(build.libraries))
        names = [name.strip() for name in loaded.split(",") if name.strip()]
        needed[PRELOAD_SETTING] = ",".join(dict.fromkeys([*names, *libraries]))
    if not needed:
        return requested
    complete = request(arm.profiles, {**arm.settings, **needed}, fit, arm.optional, arm.files)
    return replace(complete, skipped=requested.skipped)


def fit_schedule(
    study: Study,
    wanted: Mapping[int, ArmRequest],
    machine: MachineResources,
    watch: Watch,
    caveats: list[Caveat],
) -> Study:
    """Return the study, with the schedule ``blocks`` if the shared buffers of all servers do not fit
    together.

    Slices and duets run all servers at the same time.
    """
    shared = sum(number_of(arm, "shared_buffers") for arm in wanted.values())
    if study.is_together and shared > SHARED_MEMORY_SHARE_MAX * machine.memory_bytes:
        watch(
            Warned(
                f"the shared buffers of all servers ({format_size(shared)}) do not fit into memory together: "
                "running one arm at a time (--schedule blocks)"
            )
        )
        caveats.append(Caveat.of("schedule-changed", size=format_size(shared)))
        return study.model_copy(update={"schedule": Schedule.BLOCKS, "cpu_partition": None})
    return study


@dataclass(frozen=True)
class EmptyClusters:
    """Empty clusters of the preflight checks, one for each build and set of options of initdb.

    initdb takes most of the time of a check, so that all checks share them.
    """

    cache: Cache
    stack: contextlib.ExitStack
    made: dict[tuple[Build, InitOptions], Cluster] = field(default_factory=dict)

    def of(self, build: Build, init: InitOptions) -> Cluster:
        """Return the cluster, which is stopped. Raises StartError."""
        where = (build, init)
        if where not in self.made:
            self.made[where] = self.stack.enter_context(empty_cluster(build, self.cache, "try", init))
        return self.made[where]


@contextlib.contextmanager
def empty_clusters(cache: Cache) -> Iterator[EmptyClusters]:
    """Provide the clusters of the checks, removed at the end of the block."""
    with contextlib.ExitStack() as stack:
        yield EmptyClusters(cache, stack)


def require_starts(
    asked: Iterable[tuple[Study, Mapping[int, ArmRequest]]],
    clusters: EmptyClusters,
    watch: Watch,
    interruption: Interruption,
) -> list[dict[int, Mapping[str, str]]]:
    """Start each build once with each set of settings. Default settings were started for the catalogue.

    Returns for each study, by arm, all settings in effect as ``SHOW`` prints them. Raises StartError with the
    arm and the error of the server, and Interrupted.
    """
    tried: dict[object, Mapping[str, str]] = {}
    in_effect: list[dict[int, Mapping[str, str]]] = []
    for study, wanted in asked:
        init = init_options(study)
        in_effect.append({})
        for index, arm in wanted.items():
            settings = arm.requested.settings
            what = (arm.build, init, frozenset(settings.items()), arm.requested.optional)
            if not settings.keys() - {*arm.certain} and not arm.build.extensions:
                in_effect[-1][index] = {**arm.catalogue.initial, **settings}
                continue
            if what not in tried:
                interruption.check()
                watch(PreparationStep(f"testing the settings of {arm.spec.name}", may_last=True))
                tried[what] = _try(clusters.of(arm.build, init), arm)
            in_effect[-1][index] = tried[what]
    return in_effect


def _try(cluster: Cluster, arm: ArmRequest) -> Mapping[str, str]:
    try:
        with cluster.start(arm.requested.settings, optional=arm.requested.optional) as server:
            with server.connect() as connection:
                create_extensions(connection, arm.build)
            return dict(server.effective)
    except ServerError as error:
        raise StartError(f"{arm.spec.name}: {error}") from error


# ----------------------------------------------------------------------
# Preflight check of custom scripts: each runs once on minimal data, before the dataset of a study is loaded.
#
# Only errors that do not depend on the data count, such as an unknown column. Other errors end the study
# after its first block (``block.require_working_kinds``).
# ----------------------------------------------------------------------

CERTAIN = ("42", "0A", "25006")
"""SQLSTATEs, or their first digits, that do not depend on rows: syntax, unknown objects and types, missing
features, a read-only transaction."""

MADE_BY_OTHERS = ("42P01", "42883", "42704")
"""SQLSTATEs of unknown tables, functions and types. With several scripts, another one may create them."""

SCRIPT_TIMEOUT_S = 5.0
"""Maximum time of a script. It is canceled after twice this time. Errors before the cancellation count."""

Request = tuple[Study, Mapping[int, ArmRequest]]


def require_working_scripts(
    requests: Iterable[Request], clusters: EmptyClusters, watch: Watch, interruption: Interruption
) -> None:
    """Run each custom script of the data that are still to be loaded, with the settings of its arm.

    Raises WorkloadError with the script, the arm and the server's message; StartError, Interrupted.
    """
    tried = set()
    cached = clusters.cache.cached_datasets().names()
    with contextlib.ExitStack() as stack:
        trials = _MinimalData(clusters, stack, interruption)
        for study, wanted in requests:
            init = init_options(study)
            for index, arm in wanted.items():
                driving = study.driving(index)
                minimal = driving.workload.minimal()
                if minimal is None:
                    continue
                settings = frozenset(arm.requested.settings.items())
                what = (arm.build, init, minimal.model_dump_json(), settings)
                key = dataset_key(arm.build, driving.workload, init, arm.data_builds)
                if what in tried or key.name in cached:
                    continue
                tried.add(what)
                interruption.check()
                watch(PreparationStep(f"testing the scripts on {arm.spec.name}", may_last=True))
                cluster, asked = trials.restored(arm.build, minimal, init), arm.requested
                with cluster.start(asked.settings, optional=asked.optional) as server:
                    target = (arm.spec.name, server.conninfo(minimal.kind))
                    failure = first_failure(minimal, target, interruption)
                if failure:
                    raise WorkloadError(f"{failure}; correct the script or the arm. Nothing was loaded")


@dataclass
class _MinimalData:
    """Minimal data of scripts, loaded once for all arms with the same data, and restored for each of them:
    scripts change the data.
    """

    clusters: EmptyClusters
    stack: contextlib.ExitStack
    interruption: Interruption
    loaded: dict[Path, tuple[object, Snapshot]] = field(default_factory=dict)
    copies: dict[Path, LiveDirectory] = field(default_factory=dict)

    def restored(self, build: Build, workload: WorkloadParameters, init: InitOptions) -> Cluster:
        """Return a stopped cluster with the data of the workload. Raises ServerError, DatasetError."""
        cluster = self.clusters.of(build, init)
        place, data = cluster.data_dir, (workload.kind, dict(workload.shape()))
        if place not in self.loaded or self.loaded[place][0] != data:
            with cluster.start(load_settings(build)) as server:
                with server.connect() as connection:
                    name = sql.Identifier(workload.kind)
                    connection.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(name))
                load_new_database(server, workload, self.interruption, lambda *_: None, lambda _: None)
            self.loaded[place] = data, take(place)
        if place not in self.copies:
            runs = self.clusters.cache.live_runs()
            self.copies[place] = self.stack.enter_context(runs.open("try"))
        run, account = self.copies[place], self.clusters.cache.account
        restore(self.loaded[place][1], run.data_dir, account, sync=False)
        return Cluster(build, run.data_dir, account, run.log_path)


def first_failure(workload: WorkloadParameters, target: tuple[str, str], interruption: Interruption) -> str:
    """Run each script once. Return script, arm and message of the first certain failure; empty without one.

    ``target``: name and connection string of the arm.
    """
    scripts = workload.single_scripts()
    ignored = MADE_BY_OTHERS if len(scripts) > 1 else ()
    for name, one in scripts.items():
        for message in _failures_of(one, target, ignored, interruption):
            return f"{name} fails on {target[0]}: {message}"
    return ""


def _failures_of(
    workload: WorkloadParameters, target: tuple[str, str], ignored: Sequence[str], interruption: Interruption
) -> Sequence[str]:
    """Run one transaction of one client. Return the messages of its certain failures, except ``ignored``."""
    driving = Driving.model_validate({"workload": workload, "clients": 1, "retries_max": 0})
    once = PlannedSlice(0, Role.MEASURE, SCRIPT_TIMEOUT_S, 0, transactions=1)
    specification: dict[str, Any] = drive_specification(driving, 1, [once], [target])
    specification |= {"drain_timeout_s": SCRIPT_TIMEOUT_S}
    run = run_drive(specification, interruption, lambda _: None)
    interruption.check()
    if run.failure is not None:
        raise ServerError(f"{target[0]}: {run.failure.message}")
    found = [(str(one["sqlstate"]), str(one["message"])) for one in run.errors]
    return [text for state, text in found if state.startswith(CERTAIN) and state not in ignored]
