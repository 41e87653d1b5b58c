"""Overhead of the probes: slices of select-only with and without the sampler, in turn, on one server."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bench.drivers import ACCOUNTS_PER_SCALE, run_engine
from bench.environment import Environment, Sizes
from bench.figure import Figure, compared, limited
from pgdyno.measure.engine_runs import slice_from
from pgdyno.measure.host_counters import HostCounters
from pgdyno.measure.sampler import Sampler, Target, sample, sample_waits
from pgdyno.server.engine import Engine, Event

CLIENTS = (8, 64)
SHARE_MAX = 0.01
"""Maximum overhead of the probes, as a share of throughput."""

CPU_SHARE_MAX = 0.005
"""Maximum CPU time of the sampler, as a share of a core."""

STEP_S_MAX = 1.0  # interval of the sampler in a study
DISCARDED_STEPS, COUNTED_STEPS = 0.5, 2.0
PAIRS_PER_PAIR = 10  # a slice is short: a single pair is too noisy


def figures(environment: Environment, sizes: Sizes) -> Iterator[Figure]:
    """Compare throughput with and without probes.

    The reads never wait and all cores are busy: CPU time of a probe is taken from the transactions.
    """
    with environment.database("telemetry") as database:
        conninfo = environment.server.conninfo(database)
        tables = {"kind": "pgbench", "scale": sizes.pgbench_scale}
        load = {"conninfo": conninfo, "workload": tables, "seed": 1, "connections": 2, "into_existing": False}
        run_engine("load", load)
        for clients in CLIENTS if set(CLIENTS) <= set(sizes.clients) else sizes.clients:
            run = _Run(environment, database, min(STEP_S_MAX, sizes.duration_s / COUNTED_STEPS))
            run.carry_out(sizes, conninfo, clients)
            at = f"probes, select-only, {clients} clients"
            bound = 1 - SHARE_MAX
            pairs = list(zip(run.rates[True], run.rates[False], strict=True))
            yield compared(f"{at}: throughput", "tx/s", pairs, "no probes", bound=bound, sense="at least")
            percent = [100 * share for share in run.shares]
            yield limited(f"{at}: CPU of the sampler", "% of a core", percent, 100 * CPU_SHARE_MAX)


@dataclass
class _Run:
    """One run of the engine. Each pair of slices has one with the sampler, in random order.

    The first half step of a slice does not count: the sampler connects in it. The rest has two ticks.
    """

    environment: Environment
    database: str
    step_s: float
    rates: dict[bool, list[float]] = field(default_factory=lambda: {True: [], False: []})
    shares: list[float] = field(default_factory=list)
    _sampler: Sampler | None = None
    _marked_s: float | None = None

    def carry_out(self, sizes: Sizes, conninfo: str, clients: int) -> None:
        """Run the engine. Raises EngineError, RuntimeError."""
        rng = random.Random(clients)
        sampled: list[bool] = []
        for _ in range(sizes.pairs * PAIRS_PER_PAIR):
            first = rng.random() < 0.5
            sampled += [first, not first]
        specification = self._specification(conninfo, sizes.pgbench_scale, clients, len(sampled))
        try:
            with Engine("drive", specification) as engine:
                for event in engine.events():
                    self._note(event, sampled)
        finally:
            self._stop()

    def _note(self, event: Event, sampled: list[bool]) -> None:
        match event["event"]:
            case "interval" if self._sampler is not None and self._marked_s is None:
                self._sampler.mark()
                self._marked_s = time.monotonic()
            case "slice":
                self._stop()
                position = event["slice"]  # the first slice is warm-up
                if position > 0:
                    piece = slice_from(event)
                    ok = sum(counts.ok for counts in piece.kinds.values())
                    self.rates[sampled[position - 1]].append(ok / piece.counted_s)
                if position < len(sampled) and sampled[position]:
                    self._start()
            case "failed":
                raise RuntimeError(f"the engine failed: {event['message']}")
            case _:
                pass

    def _start(self) -> None:
        server = self.environment.server
        target = Target(
            0, lambda: server.connect(self.database), sample, sample_waits, lambda: server.postmaster_pid
        )
        host = HostCounters([server.data_dir])
        self._sampler = Sampler([target], host.read, time.monotonic(), step_s=self.step_s)
        self._sampler.prepare()
        self._sampler.start()
        self._marked_s = None

    def _stop(self) -> None:
        if self._sampler is None:
            return
        self._sampler.stop()
        if failed := [chunk.reason for chunk in self._sampler.drain() if chunk.reason]:
            raise RuntimeError(f"the sampler did not go through: {failed[0]}")
        if self._marked_s is not None:
            elapsed_s = time.monotonic() - self._marked_s
            self.shares.append(self._sampler.mark().of(0) / elapsed_s)
        self._sampler = None

    def _specification(self, conninfo: str, scale: int, clients: int, slices: int) -> dict[str, Any]:
        lasts_s = self.step_s * (DISCARDED_STEPS + COUNTED_STEPS)
        measured = [{"target": 0, "role": "measure", "duration_s": lasts_s}] * slices
        return {
            "targets": [{"name": "bench", "conninfo": conninfo}],
            "workload": {"kind": "select-only", "accounts": scale * ACCOUNTS_PER_SCALE},
            "clients": clients,
            "threads": None,
            "seed": 1,
            "pacing": "none",
            "rate": None,
            "retries_max": 10,
            "slices": [{"target": 0, "role": "warm-up", "duration_s": lasts_s}, *measured],
            "discard_s": self.step_s * DISCARDED_STEPS,
            "interval_s": self.step_s * DISCARDED_STEPS,
            "barriers": False,
            "connect_timeout_s": 60.0,
            "drain_timeout_s": 10.0,
        }
