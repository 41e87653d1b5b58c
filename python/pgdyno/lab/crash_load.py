"""The load of a crash: clients of the ledger workload, until a given moment."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pgdyno.drive.drive_specification import CONNECT_TIMEOUT_S, DRAIN_TIMEOUT_S, INTERVAL_S
from pgdyno.engine import Engine
from pgdyno.errors import EngineError
from pgdyno.interruption import Interruption
from pgdyno.study.crash_plan import CrashPlan, PlannedCrash

START_TIMEOUT_S = 60.0
"""Timeout from the start of the engine until all clients are connected."""

SILENCE_POLL_S = 0.5

Acknowledge = Literal["answer", "send"]
"""When the ledger records an acknowledgement. ``send`` is wrong on purpose: the audit must notice it."""


@dataclass
class CrashLoad:
    """A load that runs. ``began_s``: monotonic time of its first transaction."""

    interruption: Interruption
    began_s: float = 0.0
    _started: threading.Event = field(default_factory=threading.Event)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _failure: str = ""

    def wait_until(self, active_s: float, *, may_end: bool = False) -> None:
        """Wait until the load has run for this time. Raises Interrupted, and EngineError if it ended before,
        unless it ``may_end``.
        """
        woken = threading.Event() if may_end else self._stopped
        with self.interruption.tell(woken.set):
            woken.wait(max(0.0, self.began_s + active_s - time.monotonic()))
        self.interruption.check()
        if not may_end and self._stopped.is_set():
            raise EngineError(f"the load ended before the crash: {self._failure or 'no message'}")

    def wait_for_silence(self, ledger: Path, silence_s: float) -> None:
        """Wait until the load has ended, or written nothing to its ledger for this time. Raises Interrupted.

        A machine without power closes no connections.
        """
        size, since_s = 0, time.monotonic()
        with self.interruption.tell(self._stopped.set):
            while not self._stopped.wait(SILENCE_POLL_S) and time.monotonic() < since_s + silence_s:
                if ledger.stat().st_size != size:
                    size, since_s = ledger.stat().st_size, time.monotonic()
        self.interruption.check()

    def _read(self, engine: Engine) -> None:
        """Read all events, in a thread. The end is expected only after the crash."""
        with contextlib.suppress(EngineError):
            for event in engine.events():
                if event["event"] == "connected":
                    self.began_s = time.monotonic()
                    self._started.set()
                elif event["event"] in ("error", "failed"):
                    self._failure = self._failure or str(event["message"])
        self._stopped.set()
        self._started.set()


@contextlib.contextmanager
def crash_load(
    plan: CrashPlan,
    planned: PlannedCrash,
    conninfo: str,
    ledger: Path,
    interruption: Interruption,
    acknowledge: Acknowledge = "answer",
) -> Iterator[CrashLoad]:
    """Run the load. At the end of the block the engine is killed; its ledger is complete without it.

    Raises EngineError if the clients cannot connect.
    """
    load = CrashLoad(interruption)
    with Engine("drive", _specification(plan, planned, conninfo, ledger, acknowledge)) as engine:
        reading = threading.Thread(target=load._read, args=(engine,), name="pgdyno-crash-load", daemon=True)
        reading.start()
        try:
            if not load._started.wait(START_TIMEOUT_S) or load._stopped.is_set():
                raise EngineError(f"the load did not start: {load._failure or 'no answer'}")
            yield load
        finally:
            engine.abandon()
            reading.join()


def _specification(
    plan: CrashPlan, planned: PlannedCrash, conninfo: str, ledger: Path, acknowledge: Acknowledge
) -> dict[str, Any]:
    changes = {
        "path": str(ledger),
        "key": planned.key,
        "slots": plan.slots,
        "acknowledge": acknowledge,
    }
    own = plan.parameters
    workload = {"kind": "ledger", **changes} if own is None else {**own.to_drive(), "ledger": changes}
    # Longer than the load can run: the crash ends it.
    duration_s = plan.active_s_max + START_TIMEOUT_S
    return {
        "targets": [{"name": "crash", "conninfo": conninfo}],
        "workload": workload,
        "clients": plan.clients,
        "threads": None,
        "io": "auto",
        "seed": planned.seed,
        "pacing": "none",
        "rate": None,
        "retries_max": 0,
        "slices": [{"target": 0, "role": "measure", "duration_s": duration_s}],
        "discard_s": 0.0,
        "interval_s": INTERVAL_S,
        "barriers": False,
        "connect_timeout_s": CONNECT_TIMEOUT_S,
        "drain_timeout_s": DRAIN_TIMEOUT_S,
    }
