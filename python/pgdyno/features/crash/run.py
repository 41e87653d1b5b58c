"""One crash: start from the template, load, crash at the planned moment, recovery, audit."""

from __future__ import annotations

import contextlib
import random
import select
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import psycopg

from pgdyno.errors import DiskFullError, ServerError, StartError, in_one_line
from pgdyno.features.crash.ledger import acknowledged_before, read_ledger
from pgdyno.features.crash.load import (
    RECOVERY_TIMEOUT_S,
    Acknowledge,
    Aftermath,
    AuditInput,
    CrashLoad,
    crash_load,
    examine,
    kill_backend,
    kill_server,
    recover,
)
from pgdyno.features.crash.plan import (
    CrashKind,
    CrashMoment,
    CrashPlan,
    DiskBehavior,
    PlannedCrash,
    StandbyCrash,
)
from pgdyno.features.crash.records import Corruption, Crash
from pgdyno.features.crash_disk.sites import (
    SYNCHRONOUS,
    CrashSite,
    Life,
    catch_up,
    promote,
    settle,
    start_standby,
    wait_synchronous,
)
from pgdyno.interruption import Interruption, stopping
from pgdyno.server.builds import Build
from pgdyno.server.processes import Cluster, Connection, Server, keep_idle
from pgdyno.workloads.server_log import DISK_FULL

POLL_S = 0.01

DISK_TOO_SMALL = "the simulated disk was full before the crash: use a larger --disk-size"


@dataclass(frozen=True)
class CrashSubject:
    """An arm whose server is to crash: a build and settings."""

    arm: int
    name: str
    build: Build
    settings: Mapping[str, str]
    optional: Collection[str] = ()


@dataclass
class CrashRun:
    """Crashes of the arms of a plan in one place. ``acknowledge`` is for a test of the audit itself."""

    plan: CrashPlan
    site: CrashSite
    interruption: Interruption
    acknowledge: Acknowledge = "answer"
    standby_site: CrashSite | None = None
    """Place of the standby, with the templates of ``site``."""

    def crash(self, subject: CrashSubject, planned: PlannedCrash) -> Crash:
        """Let an arm crash once and examine what is left. Raises PgdynoError if the crash is void."""
        started_unix_s, begun_s = time.time(), time.monotonic()
        ledger = self.site.run.path / "ledger"
        ledger.unlink(missing_ok=True)
        self.site.restore(subject.build)
        if self.standby_site is not None:
            self.standby_site.restore(subject.build)
            happened, found = self._crash_with_standby(subject, planned, ledger, self.standby_site)
        elif self.plan.kind is CrashKind.BACKEND:
            happened, found = self._backend_crash(subject, planned, ledger)
        else:
            happened = self._end_of_life(subject, planned, ledger)
            found = self._next_life(subject, self._audit_input(planned, ledger, happened))
        return Crash(
            number=planned.number,
            arm=subject.arm,
            started_unix_s=started_unix_s,
            took_s=time.monotonic() - begun_s,
            active_s=happened.active_s,
            survivors=planned.survivors if self.plan.kind is CrashKind.POWER else None,
            acknowledged=acknowledged_before(read_ledger(ledger), happened.at_ns),
            disk=happened.disk,
            **found.recorded,
        )

    def _end_of_life(self, subject: CrashSubject, planned: PlannedCrash, ledger: Path) -> _Happened:
        """Run the first life until its crash."""
        with self.site.live(subject.build) as life:
            server = life.cluster.start(subject.settings, optional=subject.optional)
            try:
                settle(life)
                with (
                    crash_load(*self._load(planned, server, ledger)) as load,
                    self._phase(server, load, planned) as phase_ended,
                ):
                    self._disk_fault(life, load, planned)
                    happened = self._cut(life, load, planned) if life.disk else self._kill(server, load)
                if self.plan.at.is_forced:
                    in_phase = int(not phase_ended.is_set())
                    happened = replace(happened, disk={**happened.disk, "in_phase": in_phase})
                lacked_space = DISK_FULL.search(server.log()) is not None
                if self.plan.disk is DiskBehavior.FULL:
                    happened = replace(happened, disk={**happened.disk, "no_space": int(lacked_space)})
                elif lacked_space:
                    raise DiskFullError(DISK_TOO_SMALL)
                kill_server(server, forget_memory=life.disk is not None)
            except BaseException:
                kill_server(server, forget_memory=True)
                raise
        return happened

    def _crash_with_standby(
        self, subject: CrashSubject, planned: PlannedCrash, ledger: Path, standby_site: CrashSite
    ) -> tuple[_Happened, Aftermath]:
        """Let the primary, its standby or both crash. The audit is of the standby, which is then promoted."""
        with contextlib.ExitStack() as lives, contextlib.ExitStack() as life_of_standby:
            life = lives.enter_context(self.site.live(subject.build))
            other = life_of_standby.enter_context(standby_site.live(subject.build))
            started: list[Server] = []
            try:
                settings = {**SYNCHRONOUS, **subject.settings}
                primary = life.cluster.start(settings, optional=subject.optional)
                started.append(primary)
                standby = start_standby(other.cluster, primary, subject.settings, subject.optional)
                started.append(standby)
                wait_synchronous(primary)
                settle(life)
                settle(other)
                with (
                    crash_load(*self._load(planned, primary, ledger)) as load,
                    self._phase(primary, load, planned),
                ):
                    # The standby first: what the primary acknowledges afterwards does not count. Nobody looks
                    # at the primary's disk again, so the end of its processes is the end of its machine.
                    happened = None
                    if self.plan.standby is not StandbyCrash.PRIMARY:
                        happened = (
                            self._cut(other, load, planned) if other.disk else self._kill(standby, load)
                        )
                    if self.plan.standby is not StandbyCrash.STANDBY:
                        killed = self._kill(primary, load)
                        happened = happened or killed
                        started.remove(primary)
                assert happened is not None
                if any(DISK_FULL.search(server.log()) for server in (primary, standby)):
                    raise DiskFullError(DISK_TOO_SMALL)
                if self.plan.standby is StandbyCrash.STANDBY:
                    # The primary went on, and the standby must have all that it acknowledged later.
                    happened = replace(happened, at_ns=time.monotonic_ns())
                of = self._audit_input(planned, ledger, happened)
                if self.plan.standby is StandbyCrash.PRIMARY:
                    started.remove(standby)
                    found = self._promoted(other.cluster, standby, None, of)
                else:
                    kill_server(standby, forget_memory=other.disk is not None)
                    started.remove(standby)
                    life_of_standby.close()
                    self.interruption.check()
                    with standby_site.live(subject.build) as next_life:
                        found = self._standby_again(next_life, subject, primary, of)
            except BaseException:
                with contextlib.ExitStack() as kills:
                    for server in started:
                        kills.callback(kill_server, server, forget_memory=True)
                raise
            if primary in started:
                kill_server(primary, forget_memory=True)
        return happened, found

    def _standby_again(self, life: Life, subject: CrashSubject, primary: Server, of: AuditInput) -> Aftermath:
        """Start the standby after its crash, let it catch up if its primary runs, and promote it."""
        begun_s = time.monotonic()
        try:
            standby = start_standby(life.cluster, primary, subject.settings, subject.optional)
        except (StartError, ServerError, OSError) as error:
            return Aftermath(corruption=[Corruption("start", in_one_line(error))])
        return self._promoted(
            life.cluster, standby, primary if self.plan.standby is StandbyCrash.STANDBY else None, of, begun_s
        )

    def _promoted(
        self,
        cluster: Cluster,
        standby: Server,
        primary: Server | None,
        of: AuditInput,
        begun_s: float | None = None,
    ) -> Aftermath:
        """Promote the standby, after it has caught up with a ``primary`` that runs, and examine it."""
        begun_s = time.monotonic() if begun_s is None else begun_s
        try:
            if primary is not None:
                catch_up(standby, primary)
            promote(cluster)
            found = examine(cluster, standby, time.monotonic() - begun_s, of)
        except BaseException:
            kill_server(standby, forget_memory=True)
            raise
        # Most of what a standby replays has nothing to do with its recovery.
        found.replayed_bytes = None
        return found

    def _disk_fault(self, life: Life, load: CrashLoad, planned: PlannedCrash) -> None:
        """Let the disk fail or be full until the power cut. The server may end before."""
        if life.disk is None or not self.plan.disk.fails_before_cut:
            return
        if self.plan.disk is DiskBehavior.FAILING:
            life.disk.fail(planned.failing_operation, planned.failing_nth)
        else:
            life.disk.fill()
        load.wait_until(planned.active_s + planned.fault_s, may_end=True)

    def _cut(self, life: Life, load: CrashLoad, planned: PlannedCrash) -> _Happened:
        assert life.disk is not None
        at = planned.volatile if self.plan.at.is_forced else None
        is_at_commit = self.plan.at is CrashMoment.COMMIT
        cut = life.disk.cut(planned.survivors, planned.seed, "flush" if is_at_commit else at)
        pieces = {"volatile": cut.volatile, "survived": cut.survived, "torn": cut.torn}
        if is_at_commit:
            pieces["in_phase"] = int(cut.is_planned)
        return _Happened(cut.at_ns, cut.at_ns / 1e9 - load.began_s, {**cut.counts, **pieces})

    def _kill(self, server: Server, load: CrashLoad) -> _Happened:
        """Kill the server. What it acknowledged until its processes were frozen counts."""
        at_ns = kill_server(server)
        return _Happened(at_ns, at_ns / 1e9 - load.began_s)

    def _next_life(self, subject: CrashSubject, of: AuditInput) -> Aftermath:
        self.interruption.check()
        with contextlib.ExitStack() as stack:
            try:
                life = stack.enter_context(self.site.live(subject.build))
            except ServerError as error:
                return Aftermath(corruption=[Corruption("mount", in_one_line(error))])
            return recover(life.cluster, subject.settings, subject.optional, of)

    def _backend_crash(
        self, subject: CrashSubject, planned: PlannedCrash, ledger: Path
    ) -> tuple[_Happened, Aftermath]:
        """Kill one backend; the postmaster then restarts the server in place."""
        with self.site.live(subject.build) as life:
            server = life.cluster.start(subject.settings, optional=subject.optional)
            try:
                with (
                    contextlib.closing(server.connect()) as idle,
                    crash_load(*self._load(planned, server, ledger)) as load,
                ):
                    victims = _backends(keep_idle(idle))
                    with self._phase(server, load, planned):
                        kill_backend(random.Random(planned.seed).choice(victims))
                        killed_s = time.monotonic()
                    _wait_ended(idle, server, killed_s)
                happened = _Happened(time.monotonic_ns(), killed_s - load.began_s)
                try:
                    recovery_s = _back_again(server, killed_s)
                except ServerError as error:
                    kill_server(server)
                    return happened, Aftermath(corruption=[Corruption("start", in_one_line(error))])
                return happened, examine(
                    life.cluster, server, recovery_s, self._audit_input(planned, ledger, happened)
                )
            except BaseException:
                kill_server(server, forget_memory=True)
                raise

    @contextlib.contextmanager
    def _phase(self, server: Server, load: CrashLoad, planned: PlannedCrash) -> Iterator[threading.Event]:
        """Wait for the moment of the crash: the planned time, and with ``--at`` a checkpoint or VACUUM that
        begins then. A power cut then waits for its writes. The event is set when the checkpoint or VACUUM has
        ended before the crash.
        """
        ended = threading.Event()
        if not self.plan.at.is_forced:
            load.wait_until(planned.active_s)
            yield ended
            return
        with contextlib.closing(server.connect()) as connection:
            load.wait_until(planned.active_s)
            forced = threading.Thread(target=_force, args=(connection, self.plan.at, ended), daemon=True)
            forced.start()
            if self.plan.kind is not CrashKind.POWER:
                load.wait_until(planned.active_s + planned.delay_s)
            yield ended
        forced.join()

    def _load(
        self, planned: PlannedCrash, server: Server, ledger: Path
    ) -> tuple[CrashPlan, PlannedCrash, str, Path, Interruption, Acknowledge]:
        return self.plan, planned, server.conninfo(), ledger, self.interruption, self.acknowledge

    def _audit_input(self, planned: PlannedCrash, ledger: Path, happened: _Happened) -> AuditInput:
        return AuditInput(self.plan, planned, read_ledger(ledger), happened.at_ns)


@dataclass(frozen=True)
class _Happened:
    """A crash: its instant on the monotonic clock, the time since the first transaction, disk counters."""

    at_ns: int
    active_s: float
    disk: Mapping[str, int] = field(default_factory=dict)


def _force(connection: Connection, what: CrashMoment, ended: threading.Event) -> None:
    """Run ``checkpoint`` or ``vacuum``. The crash ends the connection."""
    with contextlib.suppress(psycopg.Error, OSError, ValueError):
        connection.execute(what.value.encode())
        ended.set()


def _backends(connection: Connection) -> list[int]:
    """Return the process IDs of the clients' backends, oldest first."""
    found = connection.execute(
        "select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
        " order by backend_start, pid"
    ).fetchall()
    return [pid for (pid,) in found]


def _wait_ended(idle: Connection, server: Server, killed_s: float) -> None:
    """Wait until the postmaster has ended an idle connection: until then it may not know of the kill and
    accept connections. Raises ServerError.
    """
    while not select.select([idle], [], [], POLL_S)[0]:
        _require_coming_back(server, killed_s)


def _back_again(server: Server, killed_s: float) -> float:
    """Wait until the server accepts connections again. Return the time since the kill. Raises ServerError."""
    while True:
        with contextlib.suppress(ServerError):
            connection = server.connect()
            connection.close()
            return time.monotonic() - killed_s
        _require_coming_back(server, killed_s)
        time.sleep(POLL_S)


def _require_coming_back(server: Server, killed_s: float) -> None:
    if not server.alive or stopping.is_over(killed_s) or time.monotonic() > killed_s + RECOVERY_TIMEOUT_S:
        raise ServerError(f"{server.build.label} did not come back: {server.last_words()}")
