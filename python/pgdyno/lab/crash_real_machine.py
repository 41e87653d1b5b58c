"""Crashes of a running server that the user causes, such as a power cut of its machine.

The clients and the ledger run here, on a machine that keeps its power. Files beside the results file hold the
ledger and the start time of the server, so that a restarted pgdyno continues with the audit.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psycopg

from pgdyno.errors import ConnectError, ServerError
from pgdyno.interruption import Interruption
from pgdyno.lab.crash_load import crash_load
from pgdyno.lab.crash_recovery import Aftermath, AuditInput, examine_rows
from pgdyno.lab.dataset_loading import Place, load_data
from pgdyno.results.crash_records import Crash
from pgdyno.server.ownership_marker import database_name
from pgdyno.server.remote import Remote
from pgdyno.server.running import Connection
from pgdyno.study.crash_plan import CrashPlan, planned_crash
from pgdyno.workload.ledger.ledger_file import ACKNOWLEDGED, read_ledger
from pgdyno.workload.ledger.ledger_tables import create_ledger

SILENCE_S = 10.0
"""Time without an acknowledged commit after which the server counts as gone. A checkpoint can stall all
clients for seconds."""

POLL_S = 1.0


@dataclass
class RealCrashes:
    """Crashes of the server of a connection string, one after the other."""

    plan: CrashPlan
    remote: Remote
    results: Path
    say: Callable[[str], None]
    interruption: Interruption

    @property
    def _database(self) -> str:
        return database_name("crash", self.plan.workload, f"{self.plan.seed:012x}")

    @property
    def _ledger(self) -> Path:
        return self.results.with_suffix(".ledger")

    @property
    def _pending(self) -> Path:
        return self.results.with_suffix(".pending")

    def crash(self, number: int) -> Crash:
        """Run clients until the server is gone, wait until it is back, and audit it.

        Raises ServerError (it did not restart), DatasetError, EngineError, Interrupted.
        """
        planned = planned_crash(self.plan, number, 0)
        begun_unix_s, begun_s = time.time(), time.monotonic()
        started_at = self._started_before(number)
        if started_at is None:
            started_at = self._prepare(number)
            conninfo = self.remote.dsn.with_database(self._database).conninfo
            with crash_load(self.plan, planned, conninfo, self._ledger, self.interruption) as load:
                self.say(f"clients are writing to {self.remote.dsn}: cut the power of its machine now")
                load.wait_for_silence(self._ledger, SILENCE_S)
        self.say("the server is gone; waiting until it accepts connections: start its machine and the server")
        self._wait_for_restart(started_at)
        records = read_ledger(self._ledger)
        acknowledged = records[records["event"] == ACKNOWLEDGED]
        # Every recorded answer was sent before the crash.
        crash_ns = int(acknowledged["at_ns"].max(initial=0)) + 1
        found = Aftermath(unchecked=["log", "checksums"])
        of = AuditInput(self.plan, planned, records, crash_ns)
        examine_rows(found, lambda: self.remote.connect(self._database), of)
        first_ns = int(acknowledged["at_ns"].min(initial=crash_ns))
        return Crash(
            number=number,
            arm=0,
            started_unix_s=begun_unix_s,
            took_s=time.monotonic() - begun_s,
            active_s=(crash_ns - first_ns) / 1e9,
            survivors=None,
            acknowledged=len(np.unique(acknowledged[["client", "sequence"]])),
            recovery_s=None,
            audit=found.audit,
            corruption=found.corruption,
            unchecked=found.unchecked,
            replayed_bytes=None,
            disk={},
        )

    def forget(self) -> None:
        """Remove the files and the database of a crash that is in the results file."""
        self._pending.unlink(missing_ok=True)
        self._ledger.unlink(missing_ok=True)
        self.remote.drop(self._database)

    def _prepare(self, number: int) -> str:
        """Create the tables. Return the start time of the server, which is also stored."""
        self._ledger.unlink(missing_ok=True)
        self.remote.drop(self._database)
        dsn = self.remote.dsn.with_database(self._database)
        with self.remote.making(self._database, "a crash test"):
            if (parameters := self.plan.parameters) is not None:
                place = Place(dsn.conninfo, lambda: self.remote.connect(self._database))
                load_data(place, parameters, self.interruption, lambda *_: None, lambda _: None)
            with contextlib.closing(self.remote.connect(self._database)) as connection:
                create_ledger(connection, self.plan.clients, self.plan.slots)
                connection.execute("vacuum analyze")
        with contextlib.closing(self.remote.connect()) as connection:
            with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
                connection.execute("checkpoint")  # so that the tables survive even with fsync = off
            started_at = _started_at(connection)
        self._pending.write_text(json.dumps({"number": number, "started_at": started_at}))
        return started_at

    def _started_before(self, number: int) -> str | None:
        """Return the start time of the server before a crash whose audit is missing; None without one."""
        if not (self._pending.exists() and self._ledger.exists()):
            return None
        pending = json.loads(self._pending.read_text())
        if pending["number"] != number or not self._ledger.stat().st_size:
            return None
        with contextlib.suppress(ConnectError), contextlib.closing(self.remote.connect()) as connection:
            if _started_at(connection) == pending["started_at"]:
                return None  # pgdyno was interrupted before the crash
        return str(pending["started_at"])

    def _wait_for_restart(self, started_at: str) -> None:
        while True:
            with contextlib.suppress(ConnectError), contextlib.closing(self.remote.connect()) as connection:
                if _started_at(connection) != started_at:
                    return
                raise ServerError(
                    f"{self.remote.dsn} did not restart, but answered no client for {SILENCE_S:g} s or ended "
                    "their sessions: nothing is recorded; repeat the command"
                )
            woken = threading.Event()
            with self.interruption.tell(woken.set):
                woken.wait(POLL_S)
            self.interruption.check()


def _started_at(connection: Connection) -> str:
    row = connection.execute("select pg_postmaster_start_time()::text").fetchone()
    assert row is not None
    return str(row[0])
