"""Crash tests: preflight, templates, crashes of all arms in turn, results file.

- What this machine can crash, and options that do not fit together.
- One crash: start from the template, load, crash at the planned moment, recovery, audit.
- A crash test: the crashes of all arms in turn, stored one by one.
"""

from __future__ import annotations

import contextlib
import random
import select
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import psycopg

from pgdyno import __version__
from pgdyno.errors import (
    DiskFullError,
    EngineError,
    EvidenceError,
    ServerError,
    StartError,
    UsageError,
    in_one_line,
)
from pgdyno.features.crash.sections import progress_line
from pgdyno.features.crash_disk.disk import missing_for_power_cuts
from pgdyno.features.crash_disk.ledger import (
    Acknowledge,
    Aftermath,
    AuditInput,
    CrashLoad,
    acknowledged_before,
    crash_load,
    examine,
    kill_backend,
    kill_server,
    read_ledger,
    recover,
)
from pgdyno.features.crash_disk.plan import (
    CrashKind,
    CrashMoment,
    CrashPlan,
    DiskBehavior,
    FileSystem,
    PlannedCrash,
    StandbyCrash,
    planned_crash,
)
from pgdyno.features.crash_disk.records import (
    Corruption,
    Crash,
    CrashArm,
    CrashTestRecord,
    CrashWriter,
    read_crash_test,
)
from pgdyno.features.crash_disk.sites import (
    SYNCHRONOUS,
    CrashSite,
    Life,
    RealCrashes,
    catch_up,
    promote,
    settle,
    start_standby,
    wait_synchronous,
)
from pgdyno.features.running_server.remote import Remote
from pgdyno.interruption import Interruption, stopping
from pgdyno.measure.machine import describe_host, machine_resources
from pgdyno.measure.progress import Noted, PreparationStep, Warned, Watch
from pgdyno.server.build_store import resolve_all
from pgdyno.server.builds import Build
from pgdyno.server.cache_directory import Cache
from pgdyno.server.connections import Dsn
from pgdyno.server.directories import free_bytes
from pgdyno.server.engine import build_info
from pgdyno.server.processes import RECOVERY_TIMEOUT_S, Cluster, Connection, Server, keep_idle
from pgdyno.server.safety import safety
from pgdyno.server.settings import ProfileInput, request
from pgdyno.server.settings_catalogue import Catalogue, catalogue, empty_cluster
from pgdyno.units import format_duration, format_size, parse_duration_s
from pgdyno.workloads.server_log import DISK_FULL

# ----------------------------------------------------------------------
# What this machine can crash, and options that do not fit together.
# ----------------------------------------------------------------------

WITHOUT_ROOT = (CrashKind.BACKEND, CrashKind.SERVER)

SPARE_BYTES = 1 << 30
"""Free space beyond the size of the disk: template, log, results."""


def require_possible(plan: CrashPlan) -> None:
    """Raise UsageError if this machine cannot do crashes of that kind, or options do not fit together.

    Also raises DiskFullError.
    """
    for message in _on_real_machine(plan) if plan.real else _contradictions(plan):
        raise UsageError(message)
    if plan.real or plan.kind is not CrashKind.POWER:
        return
    if missing := missing_for_power_cuts(plan.file_system):
        raise UsageError(
            f"power cuts need a simulated disk, and this machine lacks {', '.join(missing)}: "
            f"provide it, or use pgdyno crash --kind {' or '.join(WITHOUT_ROOT)} without one"
        )
    disks = 1 if plan.standby is None else 2
    place, needed = Cache.open().root, disks * plan.disk_bytes + SPARE_BYTES
    if (free := free_bytes(place)) < needed:
        raise DiskFullError(
            f"the simulated disk may need {format_size(needed)} in {place}, and {format_size(free)} are "
            "free: free disk space, or use pgdyno crash with a smaller --disk-size"
        )


def _on_real_machine(plan: CrashPlan) -> Iterator[str]:
    """Yield an error unless there is one running server, and no option of a simulated crash."""
    (arm, *others) = plan.arms
    if others or not arm.is_dsn:
        yield "--real needs one running server as a DSN, for example postgresql://host/postgres"
    default = CrashPlan(arms=plan.arms)
    for name in ("kind", "disk", "file_system", "at", "standby", "survivors"):
        if getattr(plan, name) != getattr(default, name):
            option = name.replace("_", "-")
            yield f"--{option} does not apply to --real, where you cause the crash: remove it"


def _contradictions(plan: CrashPlan) -> Iterator[str]:
    """Yield an error for each option that does not fit to the others."""
    is_aimed, is_faulty = plan.at is not CrashMoment.ANY, plan.disk is not DiskBehavior.HONEST
    of_power_cuts = {
        f"--survivors {plan.survivors}": plan.survivors is not None,
        f"--disk {plan.disk}": is_faulty,
        "--file-system": plan.file_system is not FileSystem.EXT4,
        "--at commit": plan.at is CrashMoment.COMMIT,
    }
    for option, is_given in of_power_cuts.items():
        if is_given and plan.kind is not CrashKind.POWER:
            yield f"{option} applies to --kind power only (got {plan.kind}): remove it"
    for arm in plan.arms:
        if arm.is_dsn:
            yield (
                f"pgdyno crashes only servers that it starts: remove the DSN {arm.name}, or use --real and "
                "cut the power of its machine yourself"
            )
    if plan.disk.fails_before_cut and is_aimed:
        yield f"--disk {plan.disk} has its own moment: remove --at {plan.at}"
    if plan.standby is None:
        return
    option = f"--standby {plan.standby}"
    if plan.kind is CrashKind.BACKEND:
        yield f"{option} applies to --kind power and server (got {plan.kind}): remove it"
    if plan.kind is CrashKind.POWER and plan.standby is StandbyCrash.PRIMARY:
        yield (
            f"{option}: nobody reads the primary's disk after its crash, so there is no power to cut: add "
            "--kind server"
        )
    if plan.file_system is FileSystem.BTRFS:
        btrfs = "--file-system btrfs, which refuses copies of a mounted disk"
        yield f"{option} does not apply to {btrfs}: use xfs"
    if is_faulty:
        yield f"{option} does not apply to --disk {plan.disk}: remove one of them"
    if is_aimed:
        yield f"{option} does not apply to --at {plan.at}: remove one of them"


# ----------------------------------------------------------------------
# One crash: start from the template, load, crash at the planned moment, recovery, audit.
# ----------------------------------------------------------------------

POLL_S = 0.01

END_TIMEOUT_S = 2.0
"""Timeout for the end of a postmaster whose startup process has failed: it ends the other processes first."""

DISK_TOO_SMALL = "the simulated disk was full before the crash: use a larger --disk-size"


@dataclass(frozen=True)
class CrashSubject:
    """An arm whose server is to crash: a build and settings."""

    arm: int
    name: str
    build: Build
    settings: Mapping[str, str]
    optional: Collection[str] = ()


@dataclass(frozen=True)
class _Happened:
    """A crash: its instant on the monotonic clock, the time since the first transaction, disk counters.

    ``killed_ns``: instant of the kill of a backend, after which others can acknowledge until ``at_ns``.
    """

    at_ns: int
    active_s: float
    disk: Mapping[str, int] = field(default_factory=dict)
    killed_ns: int | None = None


@dataclass
class CrashRun:
    """One crash of an arm of a plan. ``acknowledge`` is for a test of the audit itself."""

    plan: CrashPlan
    site: CrashSite
    interruption: Interruption
    subject: CrashSubject
    planned: PlannedCrash
    standby_site: CrashSite | None = None
    """Place of the standby, with the templates of ``site``."""
    acknowledge: Acknowledge = "answer"
    show: Callable[[str], None] = lambda _: None
    """Called with each step."""

    def __post_init__(self) -> None:
        self._ledger = self.site.run.path / "ledger"

    def crash(self) -> Crash:
        """Let the arm crash once and examine what is left. Raises PgdynoError if the crash is void."""
        started_unix_s, begun_s = time.time(), time.monotonic()
        self._ledger.unlink(missing_ok=True)
        self.show("restoring the data")
        self.site.restore(self.subject.build)
        if self.standby_site is not None:
            self.standby_site.restore(self.subject.build)
            happened, found = self._crash_with_standby(self.standby_site)
        elif self.plan.kind is CrashKind.BACKEND:
            happened, found = self._backend_crash()
        else:
            happened = self._end_of_life()
            found = self._next_life(self.site, partial(self._recovered, happened))
        return Crash(
            number=self.planned.number,
            arm=self.subject.arm,
            started_unix_s=started_unix_s,
            took_s=time.monotonic() - begun_s,
            active_s=happened.active_s,
            survivors=self.planned.survivors if self.plan.kind is CrashKind.POWER else None,
            acknowledged=acknowledged_before(read_ledger(self._ledger), happened.at_ns),
            disk=happened.disk,
            **found.recorded,
        )

    def _end_of_life(self) -> _Happened:
        """Run the first life until its crash."""
        with self.site.live(self.subject.build) as life:
            server = self._start(life)
            try:
                settle(life)
                with self._load(server) as load, self._phase(server, load) as phase_ended:
                    self._disk_fault(life, load)
                    happened = self._end(life, server, load)
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

    def _next_life(self, site: CrashSite, examination: Callable[[Cluster], Aftermath]) -> Aftermath:
        """Begin the life after a crash and examine it. A disk that cannot be mounted is corrupt."""
        self.interruption.check()
        with contextlib.ExitStack() as stack:
            try:
                life = stack.enter_context(site.live(self.subject.build))
            except ServerError as error:
                return Aftermath(corruption=[Corruption("mount", in_one_line(error))])
            return examination(life.cluster)

    def _recovered(self, happened: _Happened, cluster: Cluster) -> Aftermath:
        """Start the server after its crash and examine it."""
        of, optional = self._audit_input(happened), self.subject.optional
        return recover(cluster, self.subject.settings, optional, of, self.show)

    def _crash_with_standby(self, standby_site: CrashSite) -> tuple[_Happened, Aftermath]:
        """Let the primary, its standby or both crash. The audit is of the standby, which is then promoted."""
        build, settings, optional = self.subject.build, self.subject.settings, self.subject.optional
        whose = self.plan.standby
        with contextlib.ExitStack() as lives, contextlib.ExitStack() as life_of_standby:
            life = lives.enter_context(self.site.live(build))
            other = life_of_standby.enter_context(standby_site.live(build))
            started: list[Server] = []
            try:
                primary = self._start(life, SYNCHRONOUS)
                started.append(primary)
                standby = start_standby(other.cluster, primary, settings, optional)
                started.append(standby)
                wait_synchronous(primary)
                settle(life)
                settle(other)
                with self._load(primary) as load, self._phase(primary, load):
                    # The standby first: what the primary acknowledges afterwards does not count. Nobody looks
                    # at the primary's disk again, so the end of its processes is the end of its machine.
                    happened = None
                    if whose is not StandbyCrash.PRIMARY:
                        happened = self._end(other, standby, load)
                    if whose is not StandbyCrash.STANDBY:
                        killed = _kill(primary, load)
                        happened = happened or killed
                        started.remove(primary)
                assert happened is not None
                if any(DISK_FULL.search(server.log()) for server in (primary, standby)):
                    raise DiskFullError(DISK_TOO_SMALL)
                if whose is StandbyCrash.STANDBY:
                    # The primary went on, and the standby must have all that it acknowledged later.
                    happened = replace(happened, at_ns=time.monotonic_ns())
                if whose is StandbyCrash.PRIMARY:
                    started.remove(standby)
                    found = self._promoted(other.cluster, standby, happened, time.monotonic())
                else:
                    kill_server(standby, forget_memory=other.disk is not None)
                    started.remove(standby)
                    life_of_standby.close()
                    again = partial(self._standby_again, primary=primary, happened=happened)
                    found = self._next_life(standby_site, again)
            except BaseException:
                with contextlib.ExitStack() as kills:
                    for server in started:
                        kills.callback(kill_server, server, forget_memory=True)
                raise
            if primary in started:
                kill_server(primary, forget_memory=True)
        return happened, found

    def _standby_again(self, cluster: Cluster, primary: Server, happened: _Happened) -> Aftermath:
        """Start the standby after its crash, let it catch up if its primary runs, and promote it."""
        begun_s = time.monotonic()
        self.show("recovery of the standby")
        try:
            standby = start_standby(cluster, primary, self.subject.settings, self.subject.optional)
        except (psycopg.Error, StartError, ServerError, OSError) as error:
            return Aftermath(corruption=[Corruption("start", in_one_line(error))])
        runs = self.plan.standby is StandbyCrash.STANDBY
        return self._promoted(cluster, standby, happened, begun_s, primary if runs else None)

    def _promoted(
        self,
        cluster: Cluster,
        standby: Server,
        happened: _Happened,
        begun_s: float,
        primary: Server | None = None,
    ) -> Aftermath:
        """Promote the standby, after it has caught up with a ``primary`` that runs, and examine it. One that
        ends meanwhile is corrupt.
        """
        try:
            if primary is not None:
                self.show("the standby catches up")
                catch_up(standby, primary)
            self.show("promoting the standby")
            promote(cluster)
            self.show("checking commits, tables and indexes")
            found = examine(cluster, standby, time.monotonic() - begun_s, self._audit_input(happened))
        except ServerError as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                standby.process.wait(END_TIMEOUT_S)
            has_ended = not standby.alive
            kill_server(standby, forget_memory=True)
            if not has_ended:
                raise
            if DISK_FULL.search(standby.log()):
                raise DiskFullError(DISK_TOO_SMALL) from error
            return Aftermath(corruption=[Corruption("start", in_one_line(error))])
        except BaseException:
            kill_server(standby, forget_memory=True)
            raise
        # Most of what a standby replays has nothing to do with its recovery.
        found.replayed_bytes = None
        return found

    def _disk_fault(self, life: Life, load: CrashLoad) -> None:
        """Let the disk fail or be full until the power cut. The server may end before."""
        if life.disk is None or not self.plan.disk.fails_before_cut:
            return
        if self.plan.disk is DiskBehavior.FAILING:
            life.disk.fail(self.planned.failing_operation, self.planned.failing_nth)
        else:
            life.disk.fill()
        load.wait_until(self.planned.active_s + self.planned.fault_s, may_end=True)

    def _end(self, life: Life, server: Server, load: CrashLoad) -> _Happened:
        """Cut the power of the server's disk; without one, kill the server."""
        if life.disk is None:
            return _kill(server, load)
        is_at_commit = self.plan.at is CrashMoment.COMMIT
        at = self.planned.volatile if self.plan.at.is_forced else None
        cut = life.disk.cut(self.planned.survivors, self.planned.seed, "flush" if is_at_commit else at)
        in_phase = {"in_phase": int(cut.is_planned)} if is_at_commit else {}
        return _Happened(cut.at_ns, cut.at_ns / 1e9 - load.began_s, {**cut.counts, **in_phase})

    def _backend_crash(self) -> tuple[_Happened, Aftermath]:
        """Kill one backend; the postmaster then restarts the server in place, or ends by the settings."""
        with self.site.live(self.subject.build) as life:
            server = self._start(life)
            try:
                with contextlib.closing(server.connect()) as idle, self._load(server) as load:
                    victims = _backends(keep_idle(idle))
                    with self._phase(server, load):
                        kill_backend(random.Random(self.planned.seed).choice(victims))
                        killed_s = time.monotonic()
                    _wait_ended(idle, server, killed_s)
                active_s, killed_ns = killed_s - load.began_s, round(1e9 * killed_s)
                happened = _Happened(time.monotonic_ns(), active_s, killed_ns=killed_ns)
                if server.effective.get("restart_after_crash") == "off":
                    kill_server(server)
                    return happened, self._recovered(happened, life.cluster)
                self.show("recovery")
                try:
                    recovery_s = _back_again(server, killed_s)
                except ServerError as error:
                    kill_server(server)
                    return happened, Aftermath(corruption=[Corruption("start", in_one_line(error))])
                self.show("checking commits, tables and indexes")
                return happened, examine(life.cluster, server, recovery_s, self._audit_input(happened))
            except BaseException:
                kill_server(server, forget_memory=True)
                raise

    @contextlib.contextmanager
    def _phase(self, server: Server, load: CrashLoad) -> Iterator[threading.Event]:
        """Wait for the moment of the crash: the planned time, and with ``--at`` a checkpoint or VACUUM that
        begins then. A power cut then waits for its writes. The event is set when the checkpoint or VACUUM has
        ended before the crash.
        """
        ended = threading.Event()
        if not self.plan.at.is_forced:
            load.wait_until(self.planned.active_s)
            yield ended
            return
        with contextlib.closing(server.connect()) as connection:
            load.wait_until(self.planned.active_s)
            forced = threading.Thread(target=_force, args=(connection, self.plan.at, ended), daemon=True)
            forced.start()
            if self.plan.kind is not CrashKind.POWER:
                load.wait_until(self.planned.active_s + self.planned.delay_s)
            yield ended
        forced.join()

    def _start(self, life: Life, more: Mapping[str, str] | None = None) -> Server:
        self.show("starting the server")
        settings = {**(more or {}), **self.subject.settings}
        return life.cluster.start(settings, optional=self.subject.optional)

    def _load(self, server: Server) -> contextlib.AbstractContextManager[CrashLoad]:
        conninfo, ledger = server.conninfo(), self._ledger
        self.show(f"load for {format_duration(round(self.planned.active_s))}, then the crash")
        return crash_load(self.plan, self.planned, conninfo, ledger, self.interruption, self.acknowledge)

    def _audit_input(self, happened: _Happened) -> AuditInput:
        """Read the ledger. Raises EngineError if nothing can be lost."""
        records = read_ledger(self._ledger)
        if not acknowledged_before(records, happened.at_ns):
            raise EngineError(
                "no transaction was acknowledged before the crash: use a longer --within and another results "
                "file"
            )
        return AuditInput(self.plan, self.planned, records, happened.at_ns, happened.killed_ns)


def _kill(server: Server, load: CrashLoad) -> _Happened:
    """Kill the server. What it acknowledged until its processes were frozen counts."""
    at_ns = kill_server(server)
    return _Happened(at_ns, at_ns / 1e9 - load.began_s)


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


# ----------------------------------------------------------------------
# A crash test: the crashes of all arms in turn, stored one by one.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Crashes:
    """The arms of a test, the function that crashes one of them and shows its steps, and one that is called
    after each crash is stored.
    """

    arms: Sequence[CrashArm]
    crash: Callable[[int, int, Callable[[str], None]], Crash]
    forget: Callable[[], None] = lambda: None


def run_crash_test(
    path: Path, plan: CrashPlan, command: str, watch: Watch, interruption: Interruption
) -> None:
    """Run a crash test; continue it if the file has one with the same plan. Completed crashes are kept.

    A file with a study gets the test in addition; ``plan`` is then one of its arms.

    Raises UsageError, ServerError, EngineError, DiskFullError, EvidenceError, Interrupted.
    """
    require_possible(plan)
    done = _crashes_so_far(path, plan)
    cache = Cache.open()
    with contextlib.ExitStack() as stack:
        if plan.real:
            crashes = _real(path, plan, watch, interruption)
        else:
            crashes = _simulated(stack, plan, cache, watch, interruption)
        writer = stack.enter_context(_writer(path, plan, command, crashes.arms, cache))
        for number in range(plan.cuts):
            for arm in crashes.arms:
                interruption.check()
                if (number, arm.arm) in done:
                    continue
                place = f"crash {number + 1} of {plan.cuts} of {arm.name}"

                def show(step: str, place: str = place) -> None:
                    watch(PreparationStep(f"{place}: {step}"))

                crash = crashes.crash(number, arm.arm, show)
                if crash.corruption:
                    # Ctrl-C ends the start of a server, too: that is no corruption.
                    interruption.check()
                writer.add_crash(crash)
                crashes.forget()
                watch(Noted(progress_line(crash, arm.name, plan), arm.name))
        writer.finish_test(time.time())


def _simulated(
    stack: contextlib.ExitStack, plan: CrashPlan, cache: Cache, watch: Watch, interruption: Interruption
) -> _Crashes:
    """Return the crashes of servers that pgdyno starts, after the preparation of their templates."""
    cache.sweep()
    subjects, arms = _subjects(plan, cache, watch)
    site, standby_site = (
        CrashSite(stack.enter_context(cache.live_runs().open("crash")), cache.account, plan),
        None,
    )
    if plan.standby is not None:
        other = stack.enter_context(cache.live_runs().open("crash-standby"))
        standby_site = CrashSite(other, cache.account, plan, site.templates)
    for build in dict.fromkeys(subject.build for subject in subjects):
        interruption.check()
        watch(PreparationStep(f"preparing {build.label}", may_last=True))
        site.prepare(build, interruption)

    def crash(number: int, arm: int, show: Callable[[str], None]) -> Crash:
        planned = planned_crash(plan, number, arm)
        return CrashRun(plan, site, interruption, subjects[arm], planned, standby_site, show=show).crash()

    return _Crashes(arms, crash)


def _real(path: Path, plan: CrashPlan, watch: Watch, interruption: Interruption) -> _Crashes:
    """Return the crashes of a running server that the user causes."""
    spec = plan.arms[0]
    remote = Remote(Dsn(spec.server))
    crashes = RealCrashes(plan, remote, path, lambda text: watch(Noted(text)), interruption)
    description = crashes.remote.check()
    if description.is_local:
        watch(Warned(f"{spec.name} runs on this machine: a power cut also ends pgdyno and its ledger"))
    server = {"version": str(description.version), "provider": "dsn"}
    arm = _arm(0, spec.name, server, {}, description.effective)

    def crash(number: int, _: int, show: Callable[[str], None]) -> Crash:
        crashes.show = show
        return crashes.crash(number)

    return _Crashes([arm], crash, crashes.forget)


def _crashes_so_far(path: Path, plan: CrashPlan) -> set[tuple[int, int]]:
    """Return number and arm of the crashes in the file. Raises EvidenceError if it has something else."""
    if not path.exists():
        return set()
    found = read_crash_test(path)
    if found is None:  # a study, to which the test is added
        return set()
    if found[0].plan.model_copy(update={"cuts": plan.cuts}) != plan:
        raise EvidenceError(
            f"{path} has a crash test with other options: use another name, or repeat its command: "
            f"{found[0].command}"
        )
    return {(crash.number, crash.arm) for crash in found[2]}


def _writer(path: Path, plan: CrashPlan, command: str, arms: Sequence[CrashArm], cache: Cache) -> CrashWriter:
    """Open the file, or create it. Raises EvidenceError if it has crashes of other arms."""
    if path.exists() and (found := read_crash_test(path)) is not None:
        if found[1] != list(arms):
            raise EvidenceError(f"{path} has crashes of other servers or settings: use another name")
        return CrashWriter.resume_test(path, plan)
    record = CrashTestRecord(
        created_unix_s=time.time(),
        pgdyno_version=__version__,
        engine=build_info(),
        command=command,
        host=describe_host(cache.root),
        plan=plan,
    )
    return CrashWriter.begin(path, record, arms)


def _subjects(plan: CrashPlan, cache: Cache, watch: Watch) -> tuple[list[CrashSubject], list[CrashArm]]:
    """Return the arms with their builds and validated settings. Raises UsageError, FetchError."""
    machine = machine_resources(cache.root)
    store = cache.store(progress=lambda text: watch(PreparationStep(text, may_last=True)))
    watch(PreparationStep("finding the servers"))
    builds = resolve_all([arm.build for arm in plan.arms], store=store).builds
    subjects, arms = [], []
    for index, (spec, build) in enumerate(zip(plan.arms, builds, strict=True)):
        watch(PreparationStep(f"testing the settings of {spec.name}"))
        known = catalogue(build, cache)
        fit = ProfileInput(machine, build.version, known.definitions, library_dir=known.library_dir)
        requested = request(spec.profiles, spec.settings, fit, spec.optional, spec.files)
        for note in requested.notes:
            watch(Noted(f"{spec.name}: {note}"))
        subject = CrashSubject(index, spec.name, build, requested.settings, requested.optional)
        subjects.append(subject)
        server = {"version": str(build.version), "provider": build.provider}
        effective = _in_effect(subject, known, cache)
        arms.append(_arm(index, spec.name, server, requested.settings, effective))
    return subjects, arms


def _in_effect(subject: CrashSubject, known: Catalogue, cache: Cache) -> Mapping[str, str]:
    """Return all settings in effect. Raises StartError with the arm if the server does not accept them."""
    if not subject.settings:
        return known.initial
    try:
        with (
            empty_cluster(subject.build, cache, "try") as cluster,
            cluster.start(subject.settings, optional=subject.optional) as server,
        ):
            return dict(server.effective)
    except ServerError as error:
        raise StartError(f"{subject.name}: {error}") from error


def _arm(
    index: int,
    name: str,
    server: Mapping[str, str],
    settings: Mapping[str, str],
    effective: Mapping[str, str],
) -> CrashArm:
    return CrashArm(
        arm=index,
        name=name,
        server=server,
        settings=settings,
        safety=[*safety(effective).badges.values()],
        wal_writer_delay_s=parse_duration_s(effective["wal_writer_delay"], bare="ms"),
    )
