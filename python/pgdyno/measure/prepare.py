"""Preparation of the arms of all cases: checks of the requests, then creation or reuse of datasets."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

from pgdyno.caveats import Caveat
from pgdyno.errors import UsageError
from pgdyno.hooks import Hooks
from pgdyno.interruption import Interruption
from pgdyno.measure.arms import (
    RUNNING_SERVERS,
    BuildArm,
    LabArm,
    Placement,
    Prepared,
    Redaction,
    RunningArm,
    running_servers,
)
from pgdyno.measure.dataset_loading import WAL_RESERVE_BYTES, Maker, dataset_key, init_options, require_space
from pgdyno.measure.engine_runs import examine_scripts
from pgdyno.measure.machine import machine_resources
from pgdyno.measure.preflight import (
    ArmRequest,
    empty_clusters,
    fit_schedule,
    require_connections,
    require_starts,
    require_working_scripts,
    resolve_arms,
)
from pgdyno.measure.progress import Warned, Watch
from pgdyno.measure.trial import untested_version
from pgdyno.results import records
from pgdyno.server.cache_directory import Cache
from pgdyno.server.directories import free_bytes
from pgdyno.server.settings import usable_cores
from pgdyno.server.snapshots import Dataset
from pgdyno.study.defaults import partition_of
from pgdyno.study.plan import Study
from pgdyno.study.schedule import CHECKPOINT_TIMEOUT, aa_arms, aa_study, timeout_s, why_no_aa, with_window
from pgdyno.study.workload_parameters import WorkloadParameters


@dataclass(frozen=True)
class Preparation:
    """Steps that a feature adds to the preparation of a study.

    ``study``: completes the study before its servers are found. ``arms``: completes the cases whose data are
    loaded. ``caveats``: of the data of an arm, from the facts of its dataset. ``redaction``: of the values in
    the data of a workload. The first two raise UsageError, ServerError, DatasetError, WorkloadError,
    Interrupted.
    """

    study: Callable[[Study, Cache, Watch, Interruption], Study] = lambda study, *_: study
    arms: Callable[[list[Prepared], Watch, Interruption], list[Prepared]] = lambda ready, *_: ready
    caveats: Callable[[Study, int, Mapping[str, object]], Iterable[Caveat]] = lambda *_: ()
    redaction: Callable[[WorkloadParameters], Redaction | None] = lambda _: None


PREPARATIONS: Hooks[Preparation] = Hooks("prepare")


@contextlib.contextmanager
def prepare_arms(
    studies: Sequence[Study], watch: Watch, interruption: Interruption
) -> Iterator[Sequence[Prepared]]:
    """Prepare the arms of each case. At the end of the block, servers are stopped and live directories
    removed.

    All requests are checked before anything is loaded. Raises UsageError, ServerError, DiskFullError,
    DatasetError, Interrupted.
    """
    cache = Cache.open()
    cache.sweep()
    machine = machine_resources(cache.root)
    checked = []
    for study in map(with_cpu_partition, studies):
        interruption.check()
        for preparation in PREPARATIONS:
            study = preparation.study(study, cache, watch, interruption)  # noqa: PLW2901
        caveats = _script_caveats(study, watch)
        wanted = resolve_arms(study, cache, machine, watch, caveats)
        fitting = fit_schedule(study, wanted, machine, watch, caveats)
        for servers in running_servers(fitting):
            servers.require_usable(fitting, watch)
        require_connections(fitting, wanted)
        checked.append((fitting, wanted, caveats))
    requests = [(study, wanted) for study, wanted, _ in checked]
    for note in dict.fromkeys(
        note for _, wanted in requests for arm in wanted.values() for note in arm.requested.notes
    ):
        watch(Warned(note))
    with empty_clusters(cache) as clusters:
        in_effect = require_starts(requests, clusters, watch, interruption)
        require_working_scripts(requests, clusters, watch, interruption)
    with contextlib.ExitStack() as stack:
        places = _DataPlaces(cache, watch, interruption, stack)
        ready = [
            _with_settings(_ready(study, wanted, caveats, places), settings)
            for (study, wanted, caveats), settings in zip(checked, in_effect, strict=True)
        ]
        places.require_room_for_copies()
        places.add_second_places()
        for preparation in PREPARATIONS:
            ready = preparation.arms(ready, watch, interruption)
        for prepared in ready:
            prepared.caveats.extend(_placement_caveats(prepared.arms))
        ready = [_with_aa(prepared) for prepared in ready]
        for prepared in ready:
            second_servers = [arm for doubled in prepared.aa.values() for arm in doubled.arms]
            for arm in [*prepared.arms, *second_servers]:
                stack.callback(arm.stop)
            if any(arm.is_local() for arm in prepared.arms):
                prepared.caveats.append(Caveat.of("shared-machine", cores=machine.cores))
        yield ready


def with_cpu_partition(study: Study) -> Study:
    """Return the study with the CPU partitions of a duet. Raises UsageError if there are too few cores, or
    other cores than in earlier blocks.
    """
    if study.schedule != "duet":
        return study
    partition = partition_of(usable_cores())
    if study.cpu_partition not in (None, partition):
        raise UsageError(
            f"the study ran on the cores {study.cpu_partition.cores}, and pgdyno now has {partition.cores}: "
            "run it on the same cores, or start a new study"
        )
    return study.model_copy(update={"cpu_partition": partition})


def _script_caveats(study: Study, watch: Watch) -> list[Caveat]:
    """Examine the scripts of all workloads first, because this takes no time. Returns their caveats."""
    workloads = {
        study.driving(i).workload.model_dump_json(): study.driving(i).workload for i in range(len(study.arms))
    }
    found = [caveat for workload in workloads.values() for caveat in examine_scripts(workload)]
    for caveat in found:
        watch(Warned(caveat.text))
    return found


@dataclass
class _DataPlaces:
    """Data of all cases. Cases with the same data share them, because only one runs at a time."""

    cache: Cache
    watch: Watch
    interruption: Interruption
    stack: contextlib.ExitStack
    datasets: dict[str, Dataset] = field(default_factory=dict)
    placements: dict[str, Placement] = field(default_factory=dict)

    def dataset(self, study: Study, index: int, wanted: ArmRequest) -> Dataset:
        """Return the dataset; load it if neither the cache nor an earlier case has it."""
        workload, init = study.driving(index).workload, init_options(study)
        key = dataset_key(wanted.build, workload, init, wanted.data_builds)
        if key.name not in self.datasets:
            copies = sum(not arm.is_dsn for arm in study.arms)
            maker = Maker(self.cache, copies, self.watch, self.interruption, init, self._promised_bytes())
            self.datasets[key.name] = self.stack.enter_context(
                maker.hold(wanted.build, workload, wanted.data_builds)
            )
        return self.datasets[key.name]

    def placement(self, dataset: Dataset, places: int) -> Placement:
        """Return the live directories of a dataset, at least ``places``; cases share them."""
        found = self.placements.setdefault(dataset.name, Placement(dataset.name, []))
        while len(found.directories) < places:
            found.directories.append(self.stack.enter_context(self.cache.live_runs().open("arm")))
        return found

    def add_second_places(self) -> None:
        """Open a second live directory for each dataset with one, if the disk has room for all of them."""
        alone = [name for name, placement in self.placements.items() if len(placement.directories) == 1]
        more = sum(self.datasets[name].snapshot.size_bytes for name in alone)
        if self._promised_bytes() + more + WAL_RESERVE_BYTES <= free_bytes(self.cache.root):
            for name in alone:
                self.placement(self.datasets[name], 2)

    @cached_property
    def running_arm(self) -> Callable[[Study, int], RunningArm]:
        """Function that returns an arm on a running server; cases with the same data share it."""
        servers = RUNNING_SERVERS.require("a running server")
        return servers.open(self.watch, self.interruption, self.stack)

    def require_room_for_copies(self) -> None:
        """Raise DiskFullError if the live copies of all datasets do not fit."""
        if self._promised_bytes():
            smaller = "reduce the study"
            require_space(self.cache.root, 0, 0, smaller, promised_bytes=self._promised_bytes())

    def _promised_bytes(self) -> int:
        """Return the size of the live copies that the restores will create."""
        return sum(
            len(placement.directories) * self.datasets[name].snapshot.size_bytes
            for name, placement in self.placements.items()
        )


def _with_settings(prepared: Prepared, tried: Mapping[int, Mapping[str, str]]) -> Prepared:
    specs = prepared.study.arms
    running = {
        arm.index: arm.effective() for arm in prepared.arms if specs[arm.index].is_dsn and arm.is_local()
    }
    return replace(prepared, in_effect={**tried, **running})


def _is_fixed(arm: LabArm) -> bool:
    """Return whether the data of the arm stay in one place."""
    return isinstance(arm, BuildArm) and len(arm.placement.directories) == 1


def _placement_caveats(arms: Sequence[LabArm]) -> Iterator[Caveat]:
    fixed = [arm.name for arm in arms if _is_fixed(arm)]
    if len(arms) > 1 and fixed:
        yield Caveat.of("placement-fixed", arms=", ".join(fixed))


def _with_aa(prepared: Prepared) -> Prepared:
    """Add the arms of the A/A blocks, unless their data do not fit: they must not make a study fail."""
    study, arms = prepared.study, prepared.arms
    reason = why_no_aa(study)
    doubled = {index: arms[index] for index in aa_arms(study)} if not reason else {}
    if any(_is_fixed(arm) for arm in doubled.values()):
        doubled, reason = {}, "the disk is too small for the data of a second server"
    aa = {}
    for index, arm in doubled.items():
        assert isinstance(arm, BuildArm)
        own = aa_study(study, index)
        both = [
            replace(arm, index=k, name=spec.name, position=k, seed=own.seed)
            for k, spec in enumerate(own.arms)
        ]
        described = [replace(prepared.records[index], arm=k, name=one.name) for k, one in enumerate(both)]
        aa[index] = Prepared(own, both, described, [], prepared.data_path)
    return replace(prepared, aa=aa, why_no_aa=reason)


def _ready(
    study: Study, wanted: Mapping[int, ArmRequest], caveats: list[Caveat], places: _DataPlaces
) -> Prepared:
    arms: list[LabArm] = []
    described: list[records.Arm] = []
    with_data: Counter[str] = Counter()
    for index, spec in enumerate(study.arms):
        places.interruption.check()
        if spec.is_dsn:
            running = places.running_arm(study, index)
            arms.append(running.arm)
            described.append(_record(index, study, running.server, {}, running.dataset))
            caveats += running.caveats
        else:
            arm, facts = _build_arm(index, wanted[index], study, places, with_data)
            caveats += untested_version(spec.name, wanted[index].build.version)
            found = (one for preparation in PREPARATIONS for one in preparation.caveats(study, index, facts))
            caveats += [one for one in found if one not in caveats]
            arms.append(arm)
            server, settings = _server_facts(wanted[index]), wanted[index].requested.settings
            described.append(_record(index, study, server, settings, facts))
    for servers in running_servers(study):
        caveats += servers.shared(study, arms)
    if study.checkpoints is not None:
        study = with_window(study, [_timeout_s(arm, wanted.get(arm.index)) for arm in arms])
    return Prepared(study, arms, described, caveats, places.cache.root)


def _timeout_s(arm: LabArm, wanted: ArmRequest | None) -> float | None:
    """Return the checkpoint_timeout of the arm's server in seconds."""
    if wanted is None:
        return timeout_s(arm.effective().get(CHECKPOINT_TIMEOUT, ""))
    initial = wanted.catalogue.initial.get(CHECKPOINT_TIMEOUT, "")
    return timeout_s(wanted.requested.settings.get(CHECKPOINT_TIMEOUT, initial))


def _build_arm(
    index: int, wanted: ArmRequest, study: Study, places: _DataPlaces, with_data: Counter[str]
) -> tuple[BuildArm, Mapping[str, object]]:
    """Return the arm, and facts about its data. ``with_data``: number of arms so far by dataset."""
    dataset, workload = places.dataset(study, index, wanted), study.driving(index).workload
    position = with_data[dataset.name]
    with_data[dataset.name] += 1
    arm = BuildArm(
        index=index,
        name=wanted.spec.name,
        build=wanted.build,
        database=dataset.details.get("database", study.workload.kind),
        settings=wanted.requested.settings,
        optional=wanted.requested.optional,
        snapshot=dataset.snapshot,
        placement=places.placement(dataset, position + 1),
        position=position,
        seed=study.seed,
        account=places.cache.account,
        redaction=next(filter(None, (preparation.redaction(workload) for preparation in PREPARATIONS)), None),
    )
    facts = {"name": dataset.name, "size_bytes": dataset.snapshot.size_bytes, "made_s": dataset.made_s}
    return arm, {**dataset.facts, **facts, **dataset.details}


def _server_facts(wanted: ArmRequest) -> dict[str, object]:
    build = wanted.build
    return {
        "provider": build.provider,
        "version": str(build.version),
        "origin": build.origin,
        "label": build.label,
        "build_id": build.build_id,
        "bin_dir": str(build.bin_dir),
        "version_text": wanted.catalogue.version_text,
        "compiled": dict(wanted.catalogue.compiled),
        **({"extensions": [asdict(one) for one in build.extensions]} if build.extensions else {}),
    }


def _record(
    index: int,
    study: Study,
    server: Mapping[str, object],
    settings: Mapping[str, str],
    dataset: Mapping[str, object],
) -> records.Arm:
    spec, driving = study.arms[index], study.driving(index)
    return records.Arm(
        arm=index,
        name=spec.name,
        spec=spec.full_name,
        server=server,
        settings_requested=settings,
        safety=(),
        workload=driving.workload.model_dump(),
        clients=driving.clients,
        dataset=dataset,
    )
