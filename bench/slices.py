"""Noise between two identical servers by length of a slice and by schedule.

A piece is one run of the driver. Its noise is the SD of its log ratio, in points (hundredths), times the
square root of its minutes: that of one minute if pieces are independent, which they nearly are. Half of it
means a quarter of the time for the same interval. Draining, swaps of cores and discarded starts are included
in the noise; they are also reported separately.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean, stdev

from bench.drivers import run_engine
from bench.environment import Environment, Sizes
from bench.figure import Figure
from pgdyno.interruption import Interruption
from pgdyno.measure.engine_runs import Pinning, drive_specification, run_drive
from pgdyno.server.engine import Event
from pgdyno.server.processes import Cluster, InitOptions, Server
from pgdyno.server.settings import usable_cores
from pgdyno.study.arm_spec import parse_arms
from pgdyno.study.defaults import discard_s, partition_of
from pgdyno.study.plan import Study
from pgdyno.study.schedule import block_of
from pgdyno.workloads.pgbench.parameters import PgbenchParameters

CLIENTS = 8
WARMUP_S = 1.0
SCHEDULES = ("slices", "duet")
SETTINGS = {"checkpoint_timeout": "1h", "max_wal_size": "16GB"}
"""Synchronous commits, as in production, and no timed checkpoint."""

SCRIPT = "simple-update"


@dataclass
class _PieceResults:
    """Results of one length and schedule: values per piece, and the duration of each swap of cores.

    ``lost`` is the share of a piece that was not counted.
    """

    log_ratios: list[float] = field(default_factory=list)
    minutes: list[float] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)
    swaps_ms: list[float] = field(default_factory=list)

    @property
    def noise(self) -> float:
        """Noise in points times the square root of minutes."""
        return 100 * stdev(self.log_ratios) * math.sqrt(fmean(self.minutes))


def figures(environment: Environment, sizes: Sizes) -> Iterator[Figure]:
    """Run pieces of every length and schedule in rounds, in random order within each round."""
    found = {key: _PieceResults() for key in itertools.product(SCHEDULES, sizes.slice_lengths_s)}
    rng = random.Random(1)
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(pgbench_server(environment, sizes, f"slices-{number}")) for number in (0, 1)
        ]
        for _ in range(sizes.pieces):
            for schedule, slice_s in rng.sample(list(found), len(found)):
                study = _study(sizes, schedule, slice_s, rng.randrange(2**48))
                _piece(study, servers, found[schedule, slice_s])
    for (schedule, slice_s), of in found.items():
        at, n = f"{schedule} of {slice_s:g} s", len(of.log_ratios)
        yield Figure(f"{at}: noise", "points × √min", n, of.noise, "–")
        yield Figure(f"{at}: not counted", "% of the time", n, 100 * fmean(of.lost), "–")
        if of.swaps_ms:
            yield Figure(f"{at}: swap of cores", "ms", len(of.swaps_ms), fmean(of.swaps_ms), "–")


@contextlib.contextmanager
def pgbench_server(environment: Environment, sizes: Sizes, name: str) -> Iterator[Server]:
    """Start one of several identical servers with the pgbench tables. ``name`` is its directory."""
    cluster = Cluster(environment.cluster.build, environment.directory / name, environment.account)
    cluster.initdb(InitOptions(sync=False))
    settings = {**SETTINGS, "shared_buffers": sizes.settings["shared_buffers"]}
    with cluster.start(settings) as server:
        tables = {"kind": "pgbench", "scale": sizes.pgbench_scale}
        load = {"conninfo": server.conninfo(), "workload": tables, "seed": 1}
        run_engine("load", {**load, "connections": 2, "into_existing": False})
        with contextlib.closing(server.connect()) as connection:
            connection.execute("CHECKPOINT")
        yield server


def _study(sizes: Sizes, schedule: str, slice_s: float, seed: int) -> Study:
    rounds = 2 * max(1, round(sizes.piece_s / slice_s / (4 if schedule == "slices" else 2)))
    return Study.model_validate(
        {
            "title": "slices",
            "arms": tuple(parse_arms(["18", "18"])),  # the names are not used here
            "workload": PgbenchParameters.model_validate(
                {"scale": sizes.pgbench_scale, "scripts": [{"name": SCRIPT}]}
            ),
            "clients": CLIENTS,
            "schedule": schedule,
            "cpu_partition": partition_of(usable_cores()) if schedule == "duet" else None,
            "slice_s": slice_s,
            "discard_s": discard_s(slice_s),
            "warmup_s": min(WARMUP_S, sizes.piece_s),
            "rounds": rounds,
            "budget_s": 1.0,
            "seed": seed,
        }
    )


def _piece(study: Study, servers: list[Server], found: _PieceResults) -> None:
    """Run the driver once, as in a study. Raises RuntimeError, EngineError."""
    block = block_of(study, 0)
    pids = [server.postmaster_pid for server in servers]
    pinning = None if study.cpu_partition is None else Pinning(study.cpu_partition.cores, pids)
    targets = [(f"server {number}", server.conninfo()) for number, server in enumerate(servers)]
    specification = drive_specification(study, block.seed, block.slices, targets, pinning=pinning)
    measured: list[Event] = []

    def note(event: Event) -> None:
        if event["event"] == "slice" and event["role"] == "measure":
            measured.append(event)

    run = run_drive(specification, Interruption(), note)
    if not run.complete:
        raise RuntimeError(f"the engine did not go through: {run.failure}")
    by_target = [[event for event in measured if event["target"] == target] for target in (0, 1)]
    rates = [_rate(events) for events in by_target]
    elapsed_ns = max(event["drained_ns"] for event in measured) - measured[0]["opened_ns"]
    once = {event["slice"]: event for event in measured}.values()
    counted_ns = sum(event["closed_ns"] - event["counted_from_ns"] for event in once)
    found.log_ratios.append(math.log(rates[1] / rates[0]))
    found.minutes.append(elapsed_ns / 60e9)
    found.lost.append(1 - counted_ns / elapsed_ns)
    found.swaps_ms += [event["swap_ns"] / 1e6 for event in once if event["swap_ns"]]


def _rate(events: list[Event]) -> float:
    counted_ns: int = sum(event["closed_ns"] - event["counted_from_ns"] for event in events)
    return sum(_ok(event["kinds"]) for event in events) / counted_ns


def _ok(kinds: Mapping[str, Mapping[str, int]]) -> int:
    return sum(counts["ok"] for counts in kinds.values())
