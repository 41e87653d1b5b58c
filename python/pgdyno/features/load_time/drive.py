"""Loads as drives: the engine's load between the barriers of a drive, with the events of a drive.

So the blocks, the telemetry and the analysis of a load are those of any other workload.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from signal import SIGINT
from typing import Any

import psycopg

from pgdyno.errors import DatasetError, EngineError, Interrupted, ServerError, in_one_line
from pgdyno.features.load_time.parameters import KIND, LoadParameters
from pgdyno.interruption import Interruption
from pgdyno.measure.dataset_loading import Place, load_specification
from pgdyno.measure.engine_runs import DriveEngine, run_load, start_local
from pgdyno.measure.trial import Session
from pgdyno.server.connections import cancel, connect
from pgdyno.server.engine import Event
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Role
from pgdyno.workloads.workload import workload_of

MS_PER_S = 1000

DONE = {"ok": 1, "rolled_back": 0, "failed": 0, "skipped": 0, "retried": 0}


class _Stop(Interruption):
    """Interruption of a load by its drive, which the signal has stopped."""

    def request(self) -> None:
        """Stop the load."""
        if not self.requested:
            self._on_signal(SIGINT, None)


class LoadDrive:
    """One load of one server. See ``DriveEngine``."""

    pid = None

    def __init__(self, specification: Mapping[str, Any], *, checkpoint: bool = True) -> None:
        (self._target,) = specification["targets"]
        given = self._target.get("workload", specification["workload"])
        self._parameters = LoadParameters.model_validate(given)
        self._clients = int(self._target.get("clients", specification["clients"]))
        self._stop = _Stop()
        self._ends_with_checkpoint = checkpoint

    def proceed(self) -> None:
        """Do nothing: the events continue after the barrier."""

    def measure(self) -> None:
        """Do nothing: there is no warm-up."""

    def stop(self) -> None:
        """End the load as an interrupted one."""
        self._stop.request()

    def events(self) -> Iterator[Event]:
        """Yield the events of a drive with one slice, whose only transaction is the load."""
        epoch_ns = time.monotonic_ns()
        yield {"event": "started", "epoch_unix_ns": time.time_ns(), "epoch_monotonic_ns": epoch_ns}
        yield _barrier("measure", 0)
        yield {"event": "step", "step": f"{self._parameters.data_name} on {self._target['name']}"}
        opened_ns = time.monotonic_ns() - epoch_ns
        try:
            loaded, phases_s = self._load()
            closed_ns = time.monotonic_ns() - epoch_ns
            yield {
                **{"event": "slice", "slice": 0, "target": 0, "role": Role.MEASURE},
                **{"opened_ns": opened_ns, "counted_from_ns": opened_ns},
                **{"closed_ns": closed_ns, "drained_ns": closed_ns},
                **{"driver_cpu_ns": loaded["cpu_ns"], "kinds": {KIND: DONE}},
            }
            yield _barrier("end", 1)
            if self._ends_with_checkpoint:
                phases_s["checkpoint"] = self._checkpoint_s()
        except Interrupted:
            return
        except (DatasetError, EngineError, ServerError, psycopg.Error) as error:
            yield {
                **{"event": "failed", "stage": "drive", "target": self._target["name"]},
                "message": in_one_line(error),
            }
            return
        counters = {f"{phase}_ms": round(took_s * MS_PER_S) for phase, took_s in phases_s.items()}
        counters["rows"], counters["bytes"] = sum(loaded["rows"].values()), loaded["bytes_copied"]
        of_target = {
            "kinds": {KIND: {"counts": DONE, "failures": {}, "histograms": {}}},
            **{"totals": {KIND: DONE}, "counters": counters, "tally": {}, "connections_lost": 0},
        }
        driver = {"memory_peak_bytes": loaded["memory_peak_bytes"], "threads": self._clients}
        yield {"event": "result", "stopped": "done", "lost": None, "targets": [of_target], "driver": driver}

    def _load(self) -> tuple[Event, dict[str, float]]:
        """Load the data. Return the result of the engine, and the duration of each phase in seconds."""
        place = Place(self._target["conninfo"], partial(connect, self._target["conninfo"]))
        loaded = self._parameters.loaded
        specification = {
            **load_specification(place, loaded, connections=self._clients),
            **{"vacuum_connections": self._parameters.vacuum_jobs, "server_settings": True},
        }
        result = run_load(specification, self._stop, lambda *_: None, lambda _: None)
        phases_s = dict(result["phases_s"])
        begun: list[tuple[str, float]] = []
        with place.connect() as connection, self._stop.tell(lambda: cancel(connection)):
            workload_of(loaded).complete(connection, lambda phase: begun.append((phase, time.monotonic())))
        ends_s = [*(at_s for _, at_s in begun[1:]), time.monotonic()]
        for (phase, at_s), end_s in zip(begun, ends_s, strict=False):
            phases_s[phase] = phases_s.get(phase, 0.0) + end_s - at_s
        return result, phases_s

    def _checkpoint_s(self) -> float:
        """Write what the load left in memory, after the measured part. Return the duration in seconds."""
        with contextlib.closing(connect(self._target["conninfo"])) as connection:
            begun_s = time.monotonic()
            connection.execute("CHECKPOINT")
            return time.monotonic() - begun_s


def _barrier(name: str, transactions: int) -> Event:
    return {"event": "barrier", "name": name, "totals": [{"transactions": transactions, "counters": {}}]}


def start(checkpoint: bool, specification: Mapping[str, Any]) -> AbstractContextManager[DriveEngine]:
    """Start a load, or the engine for another workload. ``checkpoint``: a timed one follows a load."""
    if specification["workload"]["kind"] != KIND:
        return start_local(specification)
    return nullcontext(LoadDrive(specification, checkpoint=checkpoint))


@contextlib.contextmanager
def open_session(study: Study) -> Iterator[Session | None]:
    """Open the session of a study without load generators on other nodes: any of its cases may be loads.

    After a checkpoint, the recovery of all cases would have nothing to replay.
    """
    begin = partial(start, not study.recovery)
    yield None if study.drivers else Session(lambda _: begin, lambda *_: False, lambda *_: ())
