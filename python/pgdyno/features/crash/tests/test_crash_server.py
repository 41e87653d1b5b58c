"""The check of the check: crashes of real servers lose what their settings give up, and nothing else."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Timer
from typing import Any, cast

import numpy as np
import psycopg
import pytest

from pgdyno.errors import DiskFullError, EngineError, ServerError
from pgdyno.features.crash import run as crash_run
from pgdyno.features.crash.run import CrashRun, CrashSubject
from pgdyno.features.crash_disk import ledger, sites
from pgdyno.features.crash_disk.disk import FaultyDisk, create_image, missing_for_power_cuts
from pgdyno.features.crash_disk.ledger import (
    ACKNOWLEDGED,
    RECORD,
    Acknowledge,
    AuditInput,
    CrashLoad,
    crash_load,
    create_ledger,
    examine,
    kill_backend,
    read_ledger,
    read_rows,
    read_slots,
    recover,
)
from pgdyno.features.crash_disk.plan import (
    CrashKind,
    CrashMoment,
    CrashPlan,
    CrashWorkload,
    DiskBehavior,
    FileSystem,
    PlannedCrash,
    StandbyCrash,
    Survivors,
    planned_crash,
)
from pgdyno.features.crash_disk.records import AuditCounts, Crash
from pgdyno.features.crash_disk.sites import CrashSite
from pgdyno.interruption import Interruption
from pgdyno.server import connections, processes
from pgdyno.server.builds import Build
from pgdyno.server.directories import Account
from pgdyno.server.processes import Cluster, Connection, Runs
from pgdyno.server.settings import verify
from pgdyno.study.arm_spec import parse_arms

MISSING = missing_for_power_cuts()

pytestmark = pytest.mark.server
needs_disk = pytest.mark.skipif(bool(MISSING), reason=f"a simulated disk needs {', '.join(MISSING)}")

GB = 1 << 30
ODD = "cäche \\040"
"""Name of a directory with what the kernel escapes in its table of mounts, and what it does not."""
SHARED: dict[str, str] = {"wal_writer_delay": "200ms"}


@pytest.fixture(autouse=True)
def _crashes_follow_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time until a crash begins with the first acknowledged commit, also on a machine that stalls."""

    @contextmanager
    def load_with_commits(
        plan: CrashPlan, planned: PlannedCrash, conninfo: str, ledger: Path, *others: Any
    ) -> Iterator[CrashLoad]:
        with crash_load(plan, planned, conninfo, ledger, *others) as load:
            while not (read_ledger(ledger)["event"] == ACKNOWLEDGED).any():
                load.wait_until(
                    time.monotonic() - load.began_s + 0.01
                )  # raises an error if the load has ended
            load.began_s = time.monotonic()
            yield load

    monkeypatch.setattr(crash_run, "crash_load", load_with_commits)


@dataclass
class Place:
    """Crashes of one kind on one disk, from one template."""

    build: Build
    site: CrashSite
    plan: CrashPlan
    standby_site: CrashSite | None = None
    steps: list[str] = field(default_factory=list)
    """Steps of the last crash as shown."""

    def crash(
        self,
        settings: dict[str, str],
        number: int = 0,
        *,
        acknowledge: Acknowledge = "answer",
        **changes: object,
    ) -> Crash:
        plan = self.plan.model_copy(update=changes)
        self.steps.clear()
        self.site.plan = plan
        if self.standby_site is not None:
            self.standby_site.plan = plan
        active_s = (1.0 if plan.kind is CrashKind.POWER else 0.3) + 0.1 * number
        moments = {"active_s": active_s, "failing_nth": 1, "fault_s": 2.0}
        planned = planned_crash(plan, number, 0).model_copy(update=moments)
        with Interruption() as stop:
            subject = CrashSubject(0, "x", self.build, {**SHARED, **settings})
            more = (self.standby_site, acknowledge, self.steps.append)
            return CrashRun(plan, self.site, stop, subject, planned, *more).crash()


@contextmanager
def place_in(
    directory: Path, build: Build, account: Account, kind: CrashKind, **changes: object
) -> Iterator[Place]:
    plan = CrashPlan(arms=tuple(parse_arms(["18"])), kind=kind, clients=4, slots=500, disk_bytes=GB, seed=11)
    plan = plan.model_copy(update=changes)
    with Runs(directory, account).open("crash") as run, Interruption() as stop:
        site = CrashSite(run, account, plan)
        site.prepare(build, stop)
        yield Place(build, site, plan)
        assert left_of(run.path.name) == []


def left_of(name: str) -> list[bytes]:
    """Return the mounts, and the files of loop devices, with this name in their path, as the kernel writes
    them.
    """
    lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):  # another process has released the device
            lines += backing.read_bytes().splitlines()
    return [line for line in lines if name.encode() in line]


@pytest.fixture(scope="module")
def power(build: Build, account: Account, module_dir: Path) -> Iterator[Place]:
    (module_dir / ODD).mkdir()
    with place_in(module_dir / ODD, build, account, CrashKind.POWER) as place:
        assert left_of(module_dir.name) == []
        yield place
    assert left_of(module_dir.name) == []


@pytest.fixture(scope="module")
def killed(build: Build, account: Account, module_dir: Path) -> Iterator[Place]:
    """A place without a disk, for kills of processes."""
    with place_in(module_dir, build, account, CrashKind.SERVER) as place:
        yield place


@contextmanager
def pair_in(directory: Path, build: Build, account: Account, kind: CrashKind) -> Iterator[Place]:
    """A place for a primary and its standby."""
    with place_in(directory, build, account, kind) as place, Runs(directory, account).open("standby") as run:
        place.standby_site = CrashSite(run, account, place.plan, place.site.templates)
        yield place
        assert left_of(run.path.name) == []


def audit_of(crash: Crash) -> AuditCounts:
    assert crash.audit is not None, crash.corruption
    return crash.audit


def sound(crash: Crash) -> bool:
    audit = audit_of(crash)
    return not (audit.lost or audit.holes or audit.phantoms or audit.damaged or crash.corruption)


@pytest.mark.long
@needs_disk
@pytest.mark.parametrize("survivors", list(Survivors))
def test_the_default_settings_lose_nothing_in_a_power_cut(power: Place, survivors: Survivors) -> None:
    crash = power.crash({}, list(Survivors).index(survivors), survivors=survivors)
    assert crash.acknowledged > 0
    assert sound(crash)
    assert 0 < crash.disk["flushes"] <= 2 * crash.acknowledged  # those of the start and the load do not count
    assert crash.disk["written_bytes"] >= 4096 * crash.disk["flushes"]


@pytest.mark.long
@needs_disk
@pytest.mark.parametrize(
    ("settings", "disk"), [({"fsync": "off"}, DiskBehavior.HONEST), ({}, DiskBehavior.LYING)]
)
def test_without_flushes_a_power_cut_loses_commits(
    power: Place, settings: dict[str, str], disk: DiskBehavior
) -> None:
    assert power.crash(settings, disk=disk, survivors=Survivors.NOTHING).has_loss


@pytest.mark.long
@pytest.mark.parametrize("file_system", [FileSystem.XFS, FileSystem.BTRFS])
def test_other_file_systems_keep_what_they_flushed(
    file_system: FileSystem, build: Build, account: Account, session_dir: Path
) -> None:
    if missing := missing_for_power_cuts(file_system):
        pytest.skip(f"power cuts on {file_system} need {', '.join(missing)}")
    with place_in(session_dir, build, account, CrashKind.POWER, file_system=file_system) as place:
        assert sound(place.crash({}, survivors=Survivors.TORN))
        assert place.crash({"fsync": "off"}, survivors=Survivors.NOTHING).has_loss
        # xfs gives files more space than they need, so a server may not notice a full disk within 2 s.
        assert audit_of(place.crash({}, disk=DiskBehavior.FULL)).lost == 0


@pytest.mark.long
@needs_disk
def test_without_synchronous_commit_a_power_cut_loses_a_tail_without_holes(power: Place) -> None:
    crash = power.crash({"synchronous_commit": "off", "wal_writer_delay": "10s"}, survivors=Survivors.NOTHING)
    audit = audit_of(crash)
    assert audit.lost > 0 and audit.loss_window_s is not None
    assert (audit.holes, audit.phantoms, audit.damaged, crash.corruption) == (0, 0, 0, [])


@pytest.mark.long
@needs_disk
def test_torn_pages_without_full_page_writes_are_caught(power: Place) -> None:
    """Any one cut may tear a page that the recovery does not read."""
    torn = {"at": CrashMoment.CHECKPOINT, "survivors": Survivors.TORN}
    crashes = (power.crash({"full_page_writes": "off"}, number, **torn) for number in range(6))
    assert any(crash.corruption for crash in crashes)


@pytest.mark.long
@needs_disk
def test_full_page_writes_repair_torn_pages(power: Place) -> None:
    crash = power.crash({}, at=CrashMoment.CHECKPOINT, survivors=Survivors.TORN)
    assert crash.disk["volatile"] > 0
    assert sound(crash)


@pytest.mark.long
@needs_disk
def test_the_default_settings_lose_nothing_during_a_vacuum(power: Place) -> None:
    vacuum = {"at": CrashMoment.VACUUM, "survivors": Survivors.PIECES}
    crashes = [power.crash({}, number, **vacuum) for number in range(2)]
    assert all(map(sound, crashes))
    assert any(crash.disk["in_phase"] for crash in crashes)


@needs_disk
def test_a_power_cut_at_a_flush_loses_no_commit_that_was_acknowledged(power: Place) -> None:
    crash = power.crash({}, at=CrashMoment.COMMIT, survivors=Survivors.NOTHING)
    assert crash.disk["in_phase"] == 1 and crash.disk["volatile"] > 0
    assert sound(crash)
    without = power.crash({"fsync": "off"}, at=CrashMoment.COMMIT, survivors=Survivors.NOTHING)
    assert without.has_loss


@pytest.mark.long
@needs_disk
@pytest.mark.parametrize("disk", [DiskBehavior.FAILING, DiskBehavior.FULL])
def test_a_disk_that_fails_or_is_full_before_the_cut_loses_no_acknowledged_commit(
    power: Place, disk: DiskBehavior
) -> None:
    crash = power.crash({}, disk=disk, survivors=Survivors.NOTHING)
    assert crash.disk["failed" if disk is DiskBehavior.FAILING else "no_space"] == 1
    assert crash.acknowledged > 0
    assert audit_of(crash).lost == 0
    assert crash.corruption == []


@pytest.mark.long
@needs_disk
def test_a_ledger_that_acknowledges_before_the_server_is_caught(power: Place) -> None:
    """In a cut some transactions are in flight: their early acknowledgements are lost commits."""
    crashes = (
        power.crash({}, number, acknowledge="send", survivors=Survivors.NOTHING) for number in range(5)
    )
    assert any(audit_of(crash).lost for crash in crashes)


def test_the_kill_of_a_backend_loses_nothing_even_without_fsync(
    killed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that has not noticed the kill has not recovered."""
    delay_s = 0.3
    monkeypatch.setattr(crash_run, "kill_backend", lambda pid: Timer(delay_s, kill_backend, [pid]).start())
    crash = killed.crash({"fsync": "off"}, kind=CrashKind.BACKEND)
    assert crash.acknowledged > 0
    assert sound(crash)
    assert crash.recovery_s is not None and crash.recovery_s > delay_s
    assert killed.steps == STEPS


def test_a_server_that_does_not_restart_is_started_again_and_without_checksums_is_not_corrupt(
    build: Build, account: Account, server_dir: Path
) -> None:
    with place_in(server_dir, build, account, CrashKind.BACKEND, checksums=False) as place:
        crash = place.crash({"restart_after_crash": "off"})
    assert sound(crash)
    assert crash.recovery_s is not None
    assert "checksums" in crash.unchecked
    assert place.steps == STEPS


STEPS = [
    "restoring the data",
    "starting the server",
    "load for 0 s, then the crash",
    "recovery",
    "checking commits, tables and indexes",
]


@pytest.mark.parametrize(
    "workload", [pytest.param(CrashWorkload.TPCC, marks=pytest.mark.long), CrashWorkload.PGBENCH]
)
def test_the_kill_of_a_server_keeps_the_transactions_of_a_workload_with_the_changes_of_the_ledger(
    workload: CrashWorkload, build: Build, account: Account, server_dir: Path
) -> None:
    with place_in(server_dir, build, account, CrashKind.SERVER, workload=workload) as place:
        # An early acknowledgement counts New-Orders that roll back, and what was in flight.
        early = place.crash({"synchronous_commit": "off", "wal_writer_delay": "10s"}, 5, acknowledge="send")
        assert audit_of(early).lost > 0
        assert early.corruption == []
        damaged = workload is CrashWorkload.PGBENCH
        if damaged:
            data = place.site._template(build) / "data"
            with Cluster(build, data, account).start() as server, closing(server.connect()) as connection:
                connection.execute("update pgbench_accounts set abalance = 1 where aid = 1")
        crash = place.crash({"fsync": "off"})
        assert crash.acknowledged > 0
        assert sound(replace(crash, corruption=[]))
        assert {found.check for found in crash.corruption} == ({"consistency"} if damaged else set())
        assert audit_of(crash).in_doubt <= place.plan.clients  # without New-Orders that roll back
        assert crash.recovery_s is not None
        assert place.steps == STEPS


def test_more_rows_are_read_than_a_result_may_have_and_a_check_that_takes_too_long_is_no_corruption(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "STATEMENT_TIMEOUT", "1ms")
    monkeypatch.setattr(ledger, "CHECKSUMS_TIMEOUT_S", 0.0)
    plan = CrashPlan(arms=tuple(parse_arms(["18"])), kind=CrashKind.SERVER, clients=3, slots=1700)
    with cluster.start() as server:
        with closing(server.connect()) as connection:
            create_ledger(connection, 3, 1700)
            monkeypatch.setattr(connections, "READ_BYTES_MAX", 64 << 10)
            monkeypatch.setattr(ledger, "ROWS_AT_ONCE", 500)
            slots = read_slots(connection)
            assert sorted(slots.client * 1700 + slots.slot) == list(range(5100))
            assert slots.is_filler_right.all()
            assert read_rows(connection).client.shape == (0,)
        of = AuditInput(plan, planned_crash(plan, 0, 0), np.array([], RECORD), crash_ns=1)
        found = examine(cluster, server, 0.0, of)
    assert found.audit is not None and found.audit.damaged == 0
    assert (found.corruption, found.unchecked) == ([], ["amcheck", "checksums"])


def test_a_crash_without_an_acknowledged_commit_is_void(
    killed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crash_run, "acknowledged_before", lambda *_: 0)
    with pytest.raises(EngineError, match="no transaction was acknowledged before the crash"):
        killed.crash({})


def damaged_at(start: int) -> Callable[..., Any]:
    """Return the reading of all settings, which finds a damaged catalog at the n-th start of a server."""
    starts = itertools.count(1)

    def read(connection: Connection, *others: Any) -> Any:
        if next(starts) == start:
            connection.close()
            raise psycopg.errors.DataCorrupted("invalid page in block 0 of relation base/5/1259")
        return verify(connection, *others)

    return read


def test_a_damaged_catalog_after_the_recovery_is_corruption(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "verify", damaged_at(1))
    found = recover(cluster, {}, (), cast(Any, None))
    assert [one.check for one in found.corruption] == ["start"]
    assert found.audit is None


def test_data_that_do_not_fit_on_the_simulated_disk_are_refused(
    build: Build, account: Account, server_dir: Path
) -> None:
    plan = CrashPlan(arms=tuple(parse_arms(["18"])), workload=CrashWorkload.PGBENCH, scale=1000)
    with (
        Runs(server_dir, account).open("crash") as run,
        pytest.raises(DiskFullError, match="use a larger --disk-size, or a smaller --scale"),
    ):
        CrashSite(run, account, plan)._require_space(2 * GB)


@contextmanager
def mounted(directory: Path) -> Iterator[FaultyDisk]:
    """A new disk."""
    create_image(directory / "x.img", GB)
    with FaultyDisk.attach(directory, directory / "x.img") as disk:
        disk.format()
        disk.mount()
        yield disk


@needs_disk
def test_synced_files_survive_and_an_image_that_could_not_be_written_is_an_error_at_the_end(
    server_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(message: dict[str, Any], expected: str) -> dict[str, Any]:
        return {**answer(message, expected), "image_error": "No space left on device"}

    with mounted(server_dir) as disk:
        with (disk.root / "synced").open("wb", buffering=0) as file:
            file.write(b"x" * 100_000)
            os.fsync(file.fileno())
        (disk.root / "unsynced").write_bytes(b"x")
        assert disk.cut(Survivors.NOTHING, 1).at_ns > 0
    image = server_dir / "x.img"
    with (
        pytest.raises(DiskFullError, match="cannot write the image"),
        FaultyDisk.attach(server_dir, image) as disk,
    ):
        disk.mount()
        assert (disk.root / "synced").read_bytes() == b"x" * 100_000
        assert not (disk.root / "unsynced").exists()
        answer = disk._ask
        monkeypatch.setattr(disk, "_ask", ask)
    assert left_of(server_dir.name) == []


@needs_disk
def test_a_failed_flush_is_reported_to_the_program_that_syncs(server_dir: Path) -> None:
    with mounted(server_dir) as disk, (disk.root / "file").open("wb", buffering=0) as file:
        file.write(b"x")
        disk.fail("flush", 1)
        with pytest.raises(OSError, match="error"):
            os.fsync(file.fileno())


@needs_disk
def test_a_process_of_the_disk_that_dies_is_an_error_and_leaves_nothing(server_dir: Path) -> None:
    directory = server_dir / ODD
    directory.mkdir()
    with pytest.raises(ServerError), mounted(directory) as disk:
        disk._process.kill()
        disk._process.wait()
        assert len(left_of(server_dir.name)) == 3
        disk.restart_counts()
    assert left_of(server_dir.name) == []


HOLDER = """
import sys
from pathlib import Path
from pgdyno.cli.features import features
from pgdyno.features.crash_disk.disk import FaultyDisk, create_image
from pgdyno.server.processes import Runs
from pgdyno.server.directories import server_account

features()
with Runs(Path(sys.argv[1]), server_account()).open("crash") as run:
    create_image(run.path / "x.img", 1 << 30)
    with FaultyDisk.attach(run.path, run.path / "x.img") as disk:
        disk.format()
        disk.mount()
        (disk.root / "dirty").write_bytes(b"x" * 1_000_000)
        print(run.path, flush=True)
        sys.stdin.read()
"""


@needs_disk
def test_the_next_start_removes_the_disk_of_a_killed_pgdyno_and_spares_one_in_use(
    server_dir: Path, account: Account
) -> None:
    directory = server_dir / ODD
    directory.mkdir()
    command, runs = [sys.executable, "-c", HOLDER, str(directory)], Runs(directory, account)
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    left = Path(holder.stdout.readline().strip())
    with runs.open("crash") as living, mounted(living.path):
        holder.kill()
        holder.communicate()
        assert left_of(left.name)
        assert runs.sweep() == [left]
        assert not left.exists()
        assert left_of(left.name) == []
        assert len(left_of(living.path.name)) == 3
    assert not living.path.exists()


@pytest.mark.long
@needs_disk
def test_a_power_cut_of_primary_and_standby_loses_what_the_standby_had_not_flushed(
    build: Build, account: Account, session_dir: Path
) -> None:
    both = {"standby": StandbyCrash.BOTH, "survivors": Survivors.NOTHING}
    with pair_in(session_dir, build, account, CrashKind.POWER) as pair:
        assert sound(pair.crash({}, **both))
        # Without fsync the standby's acknowledgment of a flush is worth nothing.
        assert pair.crash({"fsync": "off"}, **both).has_loss
        again = pair.crash({}, standby=StandbyCrash.STANDBY, survivors=Survivors.PIECES)
        assert sound(again) and again.disk["flushes"] > 0
        assert again.recovery_s is not None


@pytest.mark.long
def test_a_promoted_standby_has_all_commits_that_waited_for_it(
    build: Build, account: Account, session_dir: Path
) -> None:
    with pair_in(session_dir, build, account, CrashKind.SERVER) as pair:
        for level in ("remote_write", "on", "remote_apply"):
            crash = pair.crash({"synchronous_commit": level}, standby=StandbyCrash.PRIMARY)
            assert crash.acknowledged > 0 and sound(crash), level
        both = pair.crash({"synchronous_commit": "remote_write"}, standby=StandbyCrash.BOTH)
        assert sound(both)
        assert sound(pair.crash({"synchronous_standby_names": "*"}, standby=StandbyCrash.PRIMARY))


@pytest.mark.long
def test_a_standby_that_does_not_start_again_or_ends_or_loses_its_disk_is_corrupt(
    build: Build, account: Account, session_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(cluster: Cluster) -> None:
        os.kill(int((cluster.data_dir / "postmaster.pid").read_text().split()[0]), signal.SIGQUIT)
        raise ServerError("the standby was not promoted")

    def refuse(_: Build) -> None:
        raise ServerError("mount failed")

    with pair_in(session_dir, build, account, CrashKind.SERVER) as pair:
        assert pair.standby_site is not None
        lives: list[Callable[..., Any]] = [pair.standby_site.live, refuse]
        changes: list[tuple[object, str, object, StandbyCrash]] = [
            (processes, "verify", damaged_at(3), StandbyCrash.BOTH),
            (crash_run, "promote", end, StandbyCrash.PRIMARY),
            (pair.standby_site, "live", lambda build: lives.pop(0)(build), StandbyCrash.BOTH),  # noqa: PLW0108
        ]
        found = []
        for of, name, value, standby in changes:
            with monkeypatch.context() as patch:
                patch.setattr(of, name, value)
                found.append([one.check for one in pair.crash({}, standby=standby).corruption])
    assert found == [["start"], ["start"], ["mount"]]


@pytest.mark.long
def test_a_standby_that_cannot_become_synchronous_is_an_error(
    build: Build, account: Account, session_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sites, "TIMEOUT_S", 2.0)
    with (
        pair_in(session_dir, build, account, CrashKind.SERVER) as pair,
        pytest.raises(ServerError, match="did not become synchronous: remove settings of the arm"),
    ):
        pair.crash({"synchronous_standby_names": ""}, standby=StandbyCrash.PRIMARY)
