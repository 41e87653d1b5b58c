"""Crashes that the user causes: a running server is killed, started again, and audited."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from psycopg.conninfo import conninfo_to_dict

from pgdyno.errors import EngineError, Interrupted, ServerError
from pgdyno.features.crash_disk import sites
from pgdyno.features.crash_disk.ledger import ACKNOWLEDGED, RECORD, SENT, kill_server, read_ledger
from pgdyno.features.crash_disk.plan import CrashPlan
from pgdyno.features.crash_disk.records import Crash
from pgdyno.features.crash_disk.sites import RealCrashes
from pgdyno.features.running_server.remote import Remote
from pgdyno.interruption import Interruption
from pgdyno.server.builds import Build
from pgdyno.server.connections import Dsn
from pgdyno.server.processes import Cluster, Server
from pgdyno.study.arm_spec import parse_arms

pytestmark = pytest.mark.server

ASYNCHRONOUS = {"synchronous_commit": "off"}
PAUSE_S = 0.01
LATE = 1 << 39
"""Number of a transaction that no client reaches."""


@pytest.fixture(autouse=True)
def _clients_are_silent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is killed before the search for silence begins."""
    monkeypatch.setattr(sites, "SILENCE_S", 0.0)


@dataclass
class Machine:
    """A server whose DSN stays the same over restarts, and who cuts its power when asked to."""

    cluster: Cluster
    link: Path
    results: Path
    settings: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    on_writing: Callable[[], None] | None = None
    on_gone: Callable[[], None] | None = None
    server: Server | None = None

    def start(self) -> None:
        self.server = self.cluster.start(self.settings)
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(str(conninfo_to_dict(self.server.conninfo())["host"]))

    @property
    def dsn(self) -> str:
        assert self.server is not None
        found = conninfo_to_dict(self.server.conninfo())
        return f"host={self.link} port={found['port']} user={found['user']} dbname=postgres"

    def say(self, text: str) -> None:
        self.said.append(text)
        if text.startswith("clients are writing"):
            (self.on_writing or self.kill_after_commits)()
        elif text.startswith("the server is gone"):
            if self.on_gone is not None:
                self.on_gone()
            self.start()

    def kill_after_commits(self) -> None:
        """Kill the server while clients write. Commits that do not wait for their WAL are lost: the process
        that would write it is stopped.
        """
        assert self.server is not None
        with self.server.connect() as connection:
            query = "select pid from pg_stat_activity where backend_type = 'walwriter'"
            row = connection.execute(query).fetchone()
        assert row is not None
        os.kill(row[0], signal.SIGSTOP)
        commits, pause = self.commits(), threading.Event()
        while self.commits() <= commits:
            pause.wait(PAUSE_S)
        kill_server(self.server)

    def commits(self) -> int:
        records = read_ledger(self.results.with_suffix(".ledger"))
        return int((records["event"] == ACKNOWLEDGED).sum())

    def crash(self, number: int = 0) -> Crash:
        plan = CrashPlan(arms=tuple(parse_arms([self.dsn])), real=True, clients=2, slots=100, seed=5)
        with Interruption() as stop:
            crashes = RealCrashes(plan, Remote(Dsn(self.dsn)), self.results, self.say, stop)
            crash = crashes.crash(number)
            crashes.forget()
        assert not self.results.with_suffix(".ledger").exists()
        assert not Remote(Dsn(self.dsn)).own_databases()
        return crash


@pytest.fixture(scope="module")
def shared_machine(
    build: Build,
    new_cluster: Callable[[Build], AbstractContextManager[Cluster]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("machine")
    with new_cluster(build) as cluster:
        machine = Machine(cluster, folder / "socket", folder / "r.sqlite")
        machine.start()
        try:
            yield machine
        finally:
            assert machine.server is not None
            kill_server(machine.server, forget_memory=True)


@pytest.fixture
def machine(shared_machine: Machine) -> Machine:
    """The machine of all tests, whose server has the default settings."""
    assert shared_machine.settings == {}
    shared_machine.on_writing = shared_machine.on_gone = None
    shared_machine.said.clear()
    return shared_machine


def test_commits_lost_by_a_crash_of_a_running_server_are_counted(machine: Machine) -> None:
    machine.settings = ASYNCHRONOUS  # from its next start on
    try:
        kept = machine.crash()
    finally:
        machine.settings = {}
    lost = machine.crash(1)
    assert kept.acknowledged > 0
    assert kept.audit is not None and (kept.audit.lost, kept.audit.damaged, kept.corruption) == (0, 0, [])
    assert lost.audit is not None and lost.audit.lost > 0
    assert lost.audit.loss_window_s is not None and (lost.audit.holes, lost.corruption) == (0, [])


def test_a_commit_without_an_answer_that_was_sent_after_the_last_answer_is_no_phantom(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = machine.start

    def start_with_late_commit() -> None:
        start()
        path = machine.results.with_suffix(".ledger")
        records = read_ledger(path)
        last_ns = records["at_ns"][records["event"] == ACKNOWLEDGED].max()
        with path.open("ab") as file:
            file.write(np.array([(0, SENT, LATE, last_ns + 1)], RECORD).tobytes())
        (database,) = Remote(Dsn(machine.dsn)).own_databases()
        assert machine.server is not None
        with closing(machine.server.connect(database)) as connection:
            connection.execute("insert into pgdyno_ledger values (0, %s, 0, 0, '')", (LATE,))

    monkeypatch.setattr(machine, "start", start_with_late_commit)
    audit = machine.crash().audit
    assert audit is not None
    assert audit.in_doubt_present > 0 and audit.phantoms == 0


def test_an_interrupted_load_is_repeated_after_a_restart_and_an_interrupted_test_continues_with_the_audit(
    machine: Machine,
) -> None:
    def interrupt_after_commits() -> None:
        pause = threading.Event()
        while not machine.commits():
            pause.wait(PAUSE_S)
        raise KeyboardInterrupt

    machine.on_writing = interrupt_after_commits
    with pytest.raises(Interrupted):
        machine.crash()
    machine.on_writing = None
    assert machine.server is not None
    machine.server.stop()
    machine.start()
    machine.said.clear()
    machine.on_gone = interrupt
    with pytest.raises(Interrupted):
        machine.crash()
    machine.on_gone = None
    crash = machine.crash()
    begins = ["clients are writing", "the server is gone;", "the server is gone;"]
    assert [text[:19] for text in machine.said] == begins
    assert crash.acknowledged > 0 and crash.audit is not None and crash.audit.lost == 0


def interrupt() -> None:
    raise KeyboardInterrupt


def test_a_crash_before_the_first_acknowledged_commit_is_void(machine: Machine) -> None:
    ledger = machine.results.with_suffix(".ledger")

    def forget_answers() -> None:
        records = read_ledger(ledger)
        ledger.write_bytes(records[records["event"] == SENT].tobytes())

    machine.on_gone = forget_answers
    with pytest.raises(EngineError, match="no transaction was acknowledged"):
        machine.crash()
    assert not machine.results.with_suffix(".pending").exists()


def test_a_server_that_did_not_restart_has_not_crashed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "say", lambda _: None)
    with pytest.raises(ServerError, match="did not restart"):
        machine.crash()
    assert not machine.results.with_suffix(".pending").exists()
