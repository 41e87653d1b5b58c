"""Test data: results files of studies that never ran, written through the real writer."""

from __future__ import annotations

import functools
import hashlib
import math
import shutil
import sqlite3
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from unittest.mock import Mock, patch

import numpy as np
from synthetic_telemetry import PROBE_CPU_S, hardware_readings, machine_readings, readings, series

from pgdyno.caveats import Caveat
from pgdyno.results import results_file
from pgdyno.results.codec import pairs_from
from pgdyno.results.records import (
    Arm,
    Block,
    BlockStatus,
    CapacitySearch,
    Check,
    Counts,
    DriverFacts,
    DriverNode,
    Failure,
    Guarantee,
    Histogram,
    Interval,
    Kept,
    Measure,
    Slice,
    StoredReading,
    StudyEnd,
    StudyRecord,
    TrialOutcome,
    TrialStatus,
    WarmUpEnd,
)
from pgdyno.results.results_file import WriterLock
from pgdyno.results.writer import Writer
from pgdyno.study.arm_spec import ArmSpec
from pgdyno.study.defaults import Schedule
from pgdyno.study.plan import Driving, Rate, Study
from pgdyno.study.schedule import Role
from pgdyno.study.values import SearchStep, parse_limit
from pgdyno.workloads.tpcc.parameters import TpccParameters

SHARES = {"new_order": 10, "payment": 10, "order_status": 1, "delivery": 1, "stock_level": 1}
MEDIAN_MS = {"new_order": 4.0, "payment": 1.2, "order_status": 0.6, "delivery": 9.0, "stock_level": 1.5}
CREATED_UNIX_S = 1_795_000_000.0
HOST = {
    "processor": "AMD EPYC 7B13",
    "cores": 2,
    "memory_bytes": 25_198_092_288,
    "kernel": "Linux 6.1.0",
    "file_system": "ext4",
}


@dataclass(frozen=True)
class Synthetic:
    """Parameters of the synthetic study. ``effects``: true ratio of each arm to the baseline."""

    effects: Sequence[float] = (1.0, 1.042)
    names: Sequence[str] = ("17", "18")
    blocks: int = 12
    slices: int = 4
    noise: float = 0.015  # SD of the log rate of a block, per arm
    seed: int = 1
    margin: float = 0.02
    rate_per_s: float = 3000.0
    statuses: Mapping[tuple[int, int], TrialStatus] = field(default_factory=dict)  # (block, arm)
    stopped_by: Mapping[tuple[int, int], str] = field(default_factory=dict)
    caveats: Sequence[Caveat] = ()
    unsafe_arms: Sequence[int] = ()
    fixed_rate_per_s: float | None = None
    skipped: Sequence[float] = ()  # by arm, share of the arrivals, each of which waited for SKIPPED_AFTER_NS
    stalled: Collection[tuple[int, int]] = ()  # (block, arm) without transactions
    ended: StudyEnd | None = StudyEnd.BLOCKS
    schedule: Schedule = Schedule.SLICES
    stops_on_verdict: bool = False
    failed_per_slice: int = 0
    title: str = "test data, never measured"
    host: Mapping[str, Any] = field(default_factory=lambda: HOST)
    created_unix_s: float = CREATED_UNIX_S
    file: str = ""
    warehouses: int = 10
    mix: str = "deck"
    dialects: Sequence[str] = ()  # arm by arm
    settings: Mapping[str, str] = field(default_factory=dict)  # requested of every arm
    versions: Sequence[str] = ()  # of the servers; else the names
    flags: Sequence[str] = ()  # of the compiler, by arm; else unknown
    case: int = 0
    levels: Mapping[str, str] = field(default_factory=dict)  # of the case
    changes: Sequence[Mapping[str, str]] = ()
    published: Mapping[str, object] | None = None
    capacity: str | None = None
    latencies: Sequence[float] = ()  # by arm, factor of the latency
    probed: bool = False  # with readings and series
    instructions: Sequence[float] = ()  # by arm, per transaction in user mode; 0: the machine has no counters
    arms: Sequence[Mapping[str, str]] = ()  # levels of each factor
    slowed: Mapping[tuple[int, int], float] = field(default_factory=dict)  # (block, arm) → factor of its rate
    cold: Sequence[float] = ()  # by arm, share of the rate missing in the first slice
    warm_up_times: Mapping[int, int] | None = None  # block → multiple of the planned warm-up
    nodes: Sequence[DriverNode] | None = None  # load generators of every trial
    stolen: Mapping[tuple[int, int], float] | None = None  # (block, arm) → share of the CPU time

    @property
    def case_name(self) -> str:
        return ", ".join(f"{factor} {level}" for factor, level in self.levels.items())


def study_of(wanted: Synthetic) -> StudyRecord:
    of_dialects = [
        TpccParameters.model_validate({"warehouses": wanted.warehouses, "dialect": dialect})
        for dialect in wanted.dialects
    ]
    return StudyRecord(
        title=wanted.title,
        created_unix_s=wanted.created_unix_s,
        pgdyno_version="0.1.0",
        engine={"version": "0.1.0", "profile": "release", "target": "x86_64-unknown-linux-gnu"},
        command="pgdyno compare " + " ".join(wanted.names),
        plan=Study(
            title=wanted.title,
            arms=tuple(ArmSpec(name=name, server=name) for name in wanted.names),
            workload=TpccParameters(warehouses=wanted.warehouses, mix=wanted.mix),
            drivings=tuple(Driving(workload=one, clients=8) for one in of_dialects) or None,
            clients=8,
            schedule=wanted.schedule,
            margin=wanted.margin,
            seed=wanted.seed,
            warmup_s=3.0,
            rounds=wanted.slices + wanted.slices % 2,  # a complete study has pairs of them
            blocks_max=None if wanted.stops_on_verdict else max(1, wanted.blocks),
            budget_s=600.0,
            rate=None if wanted.fixed_rate_per_s is None else Rate(per_s=wanted.fixed_rate_per_s),
            stop="verdict" if wanted.stops_on_verdict else "budget",
            capacity=wanted.capacity,
        ),
        arm_levels=wanted.arms,
        host=wanted.host,
        case=wanted.case_name,
        levels=wanted.levels,
        file=wanted.file,
        changes=wanted.changes,
        published=wanted.published,
    )


def arms_of(wanted: Synthetic) -> list[Arm]:
    versions = wanted.versions or wanted.names
    return [
        Arm(
            arm=i,
            name=name,
            spec=name,
            server={
                "provider": "embedded",
                "version": versions[i],
                "compiler": "gcc 12.2 -O2",
                "checksums": "off",
                **({"compiled": {"CFLAGS": wanted.flags[i]}} if wanted.flags else {}),
            },
            settings_requested=wanted.settings,
            safety=[
                Guarantee("survives a process crash", Kept.YES, "fsync = on"),
                Guarantee(
                    "survives power loss",
                    Kept.NO if i in wanted.unsafe_arms else Kept.YES,
                    "the cluster may be corrupted beyond repair" if i in wanted.unsafe_arms else "",
                ),
                Guarantee("torn pages repaired", Kept.YES, "full_page_writes = on"),
            ],
            workload={"kind": "tpcc", "warehouses": 10},
            clients=int({**wanted.levels, **(wanted.arms[i] if wanted.arms else {})}.get("clients", 8)),
            dataset={"workload": "tpcc", "warehouses": 10, "size_bytes": 1_050_000_000, "seed": 7},
        )
        for i, name in enumerate(wanted.names)
    ]


class QuickWriter(Writer):
    """Writer without fsync, because no power cut concerns tests. A transaction may enclose several events.

    It neither checks values nor updates checksums row by row, which takes half of the time. The checksums are
    computed at the end, where the file is verified like any other.
    """

    @classmethod
    def create(cls, *study: Any) -> Self:
        with patch.multiple(
            results_file, _add_triggers=Mock(), _refuse_out_of_range=Mock(), _check_integrity=Mock()
        ):
            return super().create(*study)

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: WriterLock) -> None:
        super().__init__(path, connection, lock)
        connection.execute("PRAGMA synchronous = OFF")

    def _transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        return nullcontext(self._connection) if self._connection.in_transaction else super()._transaction()

    def _checkpoint(self) -> None:
        pass

    def _settle_in_one_file(self) -> bool:
        results_file.store_all(self._connection)
        return super()._settle_in_one_file()


@functools.cache
def _written() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="pgdyno-synthetic-")


def written_study(*cases: Synthetic) -> Path:
    """Write the complete study once per process, and return its file, which stays as it is."""
    written = Path(_written().name) / hashlib.sha256(repr(cases).encode()).hexdigest()
    if not written.exists():
        write_anew(written, *cases)
    return written


def write_study(path: Path, *cases: Synthetic) -> None:
    """Write the complete study and close it."""
    assert not path.exists()
    shutil.copyfile(written_study(*cases), path)


def write_anew(path: Path, *cases: Synthetic) -> None:
    """Write the complete study by the writer itself, and close it."""
    numbered = [replace(wanted, case=case) for case, wanted in enumerate(cases)]
    described = [(study_of(wanted), arms_of(wanted)) for wanted in numbered]
    with QuickWriter.create(path, *described[0], *described[1:]) as writer, writer._transaction():
        for wanted in numbered:
            rng = np.random.default_rng(wanted.seed)
            for block in range(wanted.blocks):
                write_block(writer, wanted, block, rng)
            for caveat in wanted.caveats:
                writer.add_caveat(caveat, wanted.case)
        if cases[0].ended:
            writer.finish_study(cases[0].ended, CREATED_UNIX_S + 40 * cases[0].blocks)


def write_with_aa(path: Path, cases: Sequence[Synthetic], aa_blocks: Sequence[float], **study: Any) -> None:
    """Write cases with A/A blocks, in which the twin is faster by these log ratios, without noise."""
    cases = [replace(case, case=number) for number, case in enumerate(cases)]
    seen = [(replace(study_of(case), why_no_aa="", **study), arms_of(case)) for case in cases]
    twins = [replace(of, names=("17", "17 (twin)"), noise=0.0, case=len(cases) + of.case) for of in cases]
    hidden = [
        (replace(study_of(twin), case=f"A/A {case}", aa_of=case), arms_of(twin))
        for case, twin in enumerate(twins)
    ]
    with QuickWriter.create(path, *seen[0], *seen[1:], *hidden) as writer, writer._transaction():
        for case in cases:
            rng = np.random.default_rng(case.seed)
            for block in range(case.blocks):
                write_block(writer, case, block, rng)
        for twin in twins:
            for block, d in enumerate(aa_blocks):
                quiet = replace(twin, effects=(1.0, float(np.exp(d))))
                write_block(writer, quiet, block, np.random.default_rng(block))
        writer.finish_study(StudyEnd.BLOCKS, 1.8e9)


def write_block(writer: Writer, wanted: Synthetic, block: int, rng: np.random.Generator) -> None:
    started = CREATED_UNIX_S + 40.0 * block
    order = [int(i) for i in rng.permutation(len(wanted.names))]
    writer.begin_block(Block(block, wanted.seed + block, order, started, case=wanted.case))
    drift = rng.normal(0, 0.08)  # block effect, common to its arms: it must cancel
    rates = [
        wanted.rate_per_s * float(np.exp(drift + np.log(effect) + rng.normal(0, wanted.noise)))
        for effect in wanted.effects
    ]
    for arm in order:
        write_trial(writer, wanted, (block, arm), rates[arm] * wanted.slowed.get((block, arm), 1.0), rng)
    writer.finish_block(block, BlockStatus.DONE, started + 38.0, wanted.case)


def write_trial(
    writer: Writer, wanted: Synthetic, place: tuple[int, int], rate_per_s: float, rng: np.random.Generator
) -> None:
    block, arm = place
    trial = writer.begin_trial(block, arm, CREATED_UNIX_S + 40.0 * block, wanted.case)
    arms, executed = len(wanted.names), 0
    share = wanted.skipped[arm] if wanted.skipped else 0.0
    unsent = share / (1 - share)  # for each that was sent
    for k in range(wanted.slices):
        position = k * arms + arm
        opened = float(position)
        busy = 0.0 if place in wanted.stalled else 1.0
        noise = float(np.exp(rng.normal(0, 0.03)))
        cold = wanted.cold[arm] * np.exp(-3 * k / wanted.slices) if wanted.cold else 0.0
        kinds = _kinds(busy * rate_per_s * 0.95 * noise * (1 - cold), wanted.failed_per_slice, unsent)
        executed += sum(counts.executed for counts in kinds.values())
        role = Role.MEASURE
        writer.add_slice(
            trial,
            Slice(position, role, opened, opened + 0.05, opened + 0.99, opened + 1.0, 0.02, 0.03, kinds),
        )
        p50 = int(2e6 * 3000 / rate_per_s)
        writer.add_interval(
            trial, Interval(position, role, opened, opened + 1.0, kinds, p50, 3 * p50, 5 * p50, 20 * p50)
        )
    end_s = float(wanted.slices * arms)
    for sampled in series(arm, end_s) if wanted.probed else ():
        writer.add_series(trial, sampled)
    status = wanted.statuses.get((block, arm), TrialStatus.OK)
    slower = wanted.latencies[arm] if wanted.latencies else 1.0
    failed = wanted.failed_per_slice * wanted.slices
    writer.finish_trial(
        trial,
        TrialOutcome(
            status=status,
            ended_unix_s=CREATED_UNIX_S + 40.0 * block + 35,
            reason="" if status is TrialStatus.OK else "test data says so",
            epoch_unix_s=CREATED_UNIX_S + 40.0 * block + 10,
            restore_s=1.4,
            start_s=0.3,
            server_cpu_s=executed * 300e-6 * 3000 / rate_per_s,
            transactions=executed,
            counters={"new_orders": int(executed * 10 / 23)},
            driver_memory_bytes=21_000_000,
            driver=DriverFacts(
                threads=2,
                nodes=wanted.nodes,
                stopped_by=wanted.stopped_by.get(place),
                capacity=_sought(wanted, rate_per_s),
                warm_up=None
                if wanted.warm_up_times is None
                else WarmUpEnd(3.0, "time", 6, 1, 1, times=wanted.warm_up_times.get(block, 1)),
            ),
            settings={"effective_io_concurrency": "1" if arm == 0 else "16", "fsync": "on"},
            failures=[Failure("payment", "40001", failed, "could not serialize access")] if failed else [],
            histograms=_histograms(rate_per_s / slower, executed, unsent, rng),
            checks=[
                Check("condition 1", status is not TrialStatus.EXCLUDED, detail="W_YTD = sum of D_YTD"),
                Check("mix", True, 3.2, 0.52, "23 cards"),
            ],
            server_log="LOG:  database system is ready to accept connections\n",
            probe_cpu_s=PROBE_CPU_S if wanted.probed else None,
            readings=_readings(wanted, place, executed, end_s),
        ),
    )


def _readings(wanted: Synthetic, place: tuple[int, int], executed: int, end_s: float) -> list[StoredReading]:
    found = readings(place[1], executed, end_s) if wanted.probed else []
    if wanted.instructions:
        sign = -1 if sum(place) % 2 else 1
        found += hardware_readings(wanted.instructions[place[1]], executed, end_s, sign)
    if wanted.stolen is not None:
        found += machine_readings(end_s, wanted.stolen.get(place, 0.001))
    return found


def _sought(wanted: Synthetic, rate_per_s: float) -> CapacitySearch | None:
    """A capacity search that found the rate: half of it keeps the limit, twice as much does not."""
    if wanted.capacity is None or wanted.fixed_rate_per_s is not None:
        return None
    limit_ms = 1e3 * parse_limit(wanted.capacity).latency_s
    steps = [
        SearchStep(rate_per_s / 2, limit_ms / 4),
        SearchStep(rate_per_s * 2, limit_ms * 4),
        SearchStep(rate_per_s * 3, math.inf),
    ]
    return CapacitySearch(wanted.capacity, 2 * rate_per_s, steps)


def _kinds(executed: float, failed: int, unsent: float) -> dict[str, Counts]:
    deck = sum(SHARES.values())
    kinds = {}
    for kind, share in SHARES.items():
        n = int(executed * share / deck)
        rolled_back = n // 100 if kind == "new_order" else 0
        kinds[kind] = Counts(
            ok=n - rolled_back,
            rolled_back=rolled_back,
            failed=failed if kind == "payment" else 0,
            skipped=round(n * unsent),
            retried=n // 500,
        )
    return kinds


LAG_NS = 4096
"""Lateness of the start of every transaction, which is read if the load is fixed."""


SKIPPED_AFTER_NS = 5_000_000_000


def _histograms(rate_per_s: float, executed: int, unsent: float, rng: np.random.Generator) -> list[Histogram]:
    found = []
    for kind, share in SHARES.items():
        n = executed * share // 23
        scale = MEDIAN_MS[kind] * 1e6 * 3000 / rate_per_s
        counts = np.bincount((rng.lognormal(np.log(scale), 0.5, n) // 4096).astype(int))
        (values,) = counts.nonzero()
        pairs = np.column_stack([4096 * values, counts[values]]).astype(np.uint64)
        lag = pairs_from([(LAG_NS, n)])
        found += [
            Histogram(kind, Measure.LATENCY, pairs),
            Histogram(kind, Measure.SERVICE, pairs),
            Histogram(kind, Measure.LAG, lag),
        ]
        if skipped := round(n * unsent):
            found.append(Histogram(kind, Measure.SKIPPED, pairs_from([(SKIPPED_AFTER_NS, skipped)])))
    return found
