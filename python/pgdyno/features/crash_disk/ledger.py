"""The ledger of a crash: its load, the kill and the recovery of a server, and what is left of it.

- The ledger that the engine writes: which transactions were sent and acknowledged, and when.
- The audit after a crash: the ledger against the rows that the recovered server has. Pure functions.
- Tables of the ledger on a server.
- Crashes of a server on purpose: of one backend, of all processes, and of the machine that they run on.
- Checks of a recovered cluster for corruption: amcheck, and the checksums of all pages.
- The load of a crash: clients of the ledger workload, until a given moment.
- Recovery after a crash: start of the server, audit of the rows, checks for corruption.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import psutil
import psycopg

from pgdyno.errors import DatasetError, EngineError, ServerError, StartError, in_one_line
from pgdyno.features.crash_disk.plan import CrashPlan, PlannedCrash
from pgdyno.features.crash_disk.records import AuditCounts, Corruption
from pgdyno.interruption import Interruption
from pgdyno.measure.engine_runs import CONNECT_TIMEOUT_S, DRAIN_TIMEOUT_S, INTERVAL_S
from pgdyno.server.builds import Build, version_of
from pgdyno.server.directories import Account, server_account
from pgdyno.server.engine import Engine
from pgdyno.server.processes import RECOVERY_TIMEOUT_S, Cluster, Connection, Server, remove_segments, run_tool
from pgdyno.workloads.workload import NO_TIMEOUTS, Connect, workload_of

# ----------------------------------------------------------------------
# The ledger that the engine writes: which transactions were sent and acknowledged, and when.
#
# Records of 24 bytes, little-endian: client, event (1 sent, 2 acknowledged, 3 rolled back by design), number
# of the transaction, and nanoseconds of the monotonic clock. See docs/reference/engine-protocol.md.
# ----------------------------------------------------------------------

RECORD = np.dtype([("client", "<u4"), ("event", "<u4"), ("sequence", "<u8"), ("at_ns", "<u8")])
SENT = 1
ACKNOWLEDGED = 2
ROLLED_BACK = 3

Records = npt.NDArray[np.void]


def read_ledger(path: Path) -> Records:
    """Return the records of a file; none if it does not exist. A last record that is incomplete is left out:
    the engine was killed while it wrote it.
    """
    content = path.read_bytes() if path.exists() else b""
    return np.frombuffer(content, RECORD, len(content) // RECORD.itemsize)


# ----------------------------------------------------------------------
# The audit after a crash: the ledger against the rows that the recovered server has. Pure functions.
#
# - A transaction that was acknowledged before the crash must be present; otherwise it is lost.
# - One that was sent and not acknowledged is in doubt: present and absent are both right.
# - One that is present and was never sent, or was rolled back, is a phantom.
# - A lost transaction is a hole if a later one of the same client is present.
# - A row whose checksum or filler is wrong, that is there twice, or that contradicts the slots is damaged.
# ----------------------------------------------------------------------

CLIENT_SHIFT = np.uint64(40)
"""An identifier has the client in its upper bits and the number of the transaction below."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Rows:
    """Rows of the table of transactions or of slots, as arrays of equal length."""

    client: npt.NDArray[np.int64]
    sequence: npt.NDArray[np.int64]
    checksum: npt.NDArray[np.int64]
    slot: npt.NDArray[np.int64]
    is_filler_right: npt.NDArray[np.bool_]


def acknowledged_before(records: Records, crash_ns: int) -> int:
    """Return the number of transactions that were acknowledged before the crash."""
    before = records[(records["event"] == ACKNOWLEDGED) & (records["at_ns"] < crash_ns)]
    return len(np.unique(before[["client", "sequence"]]))


def mix(z: Words) -> Words:
    """Return the finalizer of SplitMix64 (Steele, Lea, Flood 2014), as the engine computes it."""
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))


def derive(seed: Words, number: Words) -> Words:
    """Return a seed made of a seed and a number: ``derive_seed`` of the engine."""
    return mix(mix(seed + _GOLDEN) + number * _GOLDEN)


def checksums(key: int, client: npt.NDArray[np.int64], sequence: npt.NDArray[np.int64]) -> Words:
    """Return the checksums of transactions."""
    keys = np.full(len(client), key, np.uint64)
    return derive(derive(keys, client.astype(np.uint64)), sequence.astype(np.uint64))


def audit(
    records: Records,
    rows: Rows,
    slots: Rows,
    *,
    key: int,
    slots_per_client: int,
    clients: int,
    crash_ns: int,
    killed_ns: int | None = None,
) -> AuditCounts:
    """Compare the ledger with the rows. Records from ``crash_ns`` on do not count: what was acknowledged
    then, no machine had written. The loss window ends at ``killed_ns``, by default at ``crash_ns``.
    """
    end_ns = crash_ns if killed_ns is None else killed_ns
    records = records[records["at_ns"] < crash_ns]
    acknowledgements = records[records["event"] == ACKNOWLEDGED]
    acknowledged = _identifiers(acknowledgements["client"], acknowledgements["sequence"])
    begun, undone = (records[records["event"] == event] for event in (SENT, ROLLED_BACK))
    sent = np.union1d(_identifiers(begun["client"], begun["sequence"]), acknowledged)
    sent = np.setdiff1d(sent, _identifiers(undone["client"], undone["sequence"]))
    present, copies = np.unique(_identifiers(rows.client, rows.sequence), return_counts=True)
    is_lost = ~np.isin(acknowledged, present)
    lost = acknowledged[is_lost]
    doubt = np.setdiff1d(sent, acknowledged)
    right = _is_right(rows, key, slots_per_client)
    first_ns = acknowledgements["at_ns"][is_lost].min(initial=end_ns)
    return AuditCounts(
        lost=len(np.unique(lost)),
        in_doubt=len(doubt),
        in_doubt_present=int(np.isin(doubt, present).sum()),
        phantoms=int((~np.isin(present, sent)).sum()),
        holes=_holes(np.unique(lost), present),
        damaged=int((~right).sum())
        + int((copies - 1).sum())
        + _wrong_slots(rows, right, slots, key, slots_per_client, clients),
        loss_window_s=(end_ns - int(first_ns)) / 1e9 if len(lost) else None,
    )


def _identifiers(client: npt.NDArray[np.integer], sequence: npt.NDArray[np.integer]) -> Words:
    return (client.astype(np.uint64) << CLIENT_SHIFT) | sequence.astype(np.uint64)


def _holes(lost: Words, present: Words) -> int:
    """Return how many lost transactions precede a present one of the same client."""
    if not len(present):
        return 0
    # Identifiers are sorted, and those of a client are adjacent.
    after = np.searchsorted(present, lost)
    has_next = after < len(present)
    following = present[np.minimum(after, len(present) - 1)]
    return int((has_next & (following >> CLIENT_SHIFT == lost >> CLIENT_SHIFT)).sum())


def _is_right(rows: Rows, key: int, slots_per_client: int) -> npt.NDArray[np.bool_]:
    expected = checksums(key, rows.client, rows.sequence)
    in_slot = rows.slot == (expected % np.uint64(slots_per_client)).astype(np.int64)
    right: npt.NDArray[np.bool_] = (rows.checksum == expected.view(np.int64)) & in_slot & rows.is_filler_right
    return right


def _wrong_slots(
    rows: Rows, right: npt.NDArray[np.bool_], slots: Rows, key: int, slots_per_client: int, clients: int
) -> int:
    """Return how many slots are missing, duplicate, or do not have the last present transaction that wrote
    to them: the two changes of a transaction are atomic.
    """
    shape = (clients, slots_per_client)
    right = right & (rows.client >= 0) & (rows.client < clients)
    last = np.zeros(shape, np.int64)
    np.maximum.at(last, (rows.client[right], rows.slot[right]), rows.sequence[right])
    inside = (
        (slots.client >= 0) & (slots.client < clients) & (slots.slot >= 0) & (slots.slot < slots_per_client)
    )
    expected = np.where(slots.sequence == 0, np.uint64(0), checksums(key, slots.client, slots.sequence)).view(
        np.int64
    )
    sound = inside & (slots.checksum == expected) & slots.is_filler_right
    places = (slots.client[sound], slots.slot[sound])
    found = np.full(shape, -1, np.int64)
    found[places] = slots.sequence[sound]
    surplus = len(slots.slot) - int((found >= 0).sum())
    # A wrong slot is counted once: as missing here, or as surplus if its place has a sound row, too.
    return int((found != last).sum()) + max(0, surplus - int((found < 0).sum()))


# ----------------------------------------------------------------------
# Tables of the ledger on a server.
# ----------------------------------------------------------------------

_SQL = resources.files(__package__).joinpath("sql")


ROWS_AT_ONCE = 100_000
"""Rows per reading, 52 bytes each: a result of 32 MiB is refused."""


def _statement(name: str) -> bytes:
    return _SQL.joinpath(f"{name}.sql").read_bytes()


def create_ledger(connection: Connection, clients: int, slots: int) -> None:
    """Create the tables, with the slots of all clients. Raises psycopg.Error."""
    connection.execute(_statement("create_tables"))
    connection.execute(_statement("fill_slots"), {"clients": clients, "slots": slots}, prepare=False)


def read_rows(connection: Connection) -> Rows:
    """Return all rows of transactions. Raises psycopg.Error."""
    return _rows(connection, "read_rows", ("client", "sequence", "checksum", "slot"))


def read_slots(connection: Connection) -> Rows:
    """Return all slots. Raises psycopg.Error."""
    return _rows(connection, "read_slots", ("client", "slot", "sequence", "checksum"))


def _rows(connection: Connection, name: str, columns: tuple[str, ...]) -> Rows:
    parts: list[npt.NDArray[np.int64]] = [np.empty((0, len(columns) + 1), np.int64)]
    with connection.transaction(), psycopg.ServerCursor(connection, name) as cursor:
        cursor.execute(_statement(name), binary=True)
        while found := cursor.fetchmany(ROWS_AT_ONCE):
            parts.append(np.array(found, np.int64))
    values = np.concatenate(parts)
    return Rows(
        **{column: values[:, index] for index, column in enumerate(columns)},
        is_filler_right=values[:, -1].astype(bool),
    )


# ----------------------------------------------------------------------
# Crashes of a server on purpose: of one backend, of all processes, and of the machine that they run on.
# ----------------------------------------------------------------------

DEATH_TIMEOUT_S = 20.0
"""Timeout for the end of killed processes. A process that waits for a disk ends when the disk answers."""

SHARED = Path("/dev/shm")
_MAPPED_FILE = re.compile(rb"/dev/shm/PostgreSQL\.(\d+)$", re.MULTILINE)


def kill_server(server: Server, *, forget_memory: bool = False) -> int:
    """Kill all processes of a server with SIGKILL and wait for their end. They are frozen first, so that none
    works longer than the others. Return the time on the monotonic clock at which all were frozen, in ns.

    ``forget_memory``: also remove its shared memory, as the end of the machine would. Otherwise the next
    start of the server does that. Raises ServerError if a process does not end.
    """
    processes: list[psutil.Process] = []
    if server.alive:  # otherwise its ID may belong to another process by now
        with contextlib.suppress(psutil.NoSuchProcess):
            processes.append(postmaster := psutil.Process(server.postmaster_pid))
            postmaster.suspend()  # so that it starts no process meanwhile
            processes += postmaster.children(recursive=True)
    for process in processes[1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGSTOP)
    frozen_ns = time.monotonic_ns()
    files = _shared_files(processes[0].pid) if forget_memory and processes else set()
    for process in processes[::-1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    _, alive = psutil.wait_procs(processes, timeout=DEATH_TIMEOUT_S)
    if alive:
        raise ServerError(f"{len(alive)} processes of {server.build.label} did not end after SIGKILL")
    if forget_memory:
        for file in files:
            file.unlink(missing_ok=True)
        remove_segments(server.postmaster_pid, server_account())
    server.abandon()
    return frozen_ns


def kill_backend(pid: int) -> None:
    """Kill one backend with SIGKILL. Its postmaster then ends all others and restarts. Does nothing if the
    backend has ended.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _shared_files(postmaster_pid: int) -> set[Path]:
    """Return the files of a server's dynamic shared memory.

    The postmaster has mapped the control segment, which lists all others by their number, also those that no
    process has mapped.
    """
    files: set[Path] = set()
    with contextlib.suppress(OSError):
        # Bytes: the path of a library need not be UTF-8.
        mapped = _MAPPED_FILE.findall(Path(f"/proc/{postmaster_pid}/maps").read_bytes())
        there = {path.suffix[1:]: path for path in SHARED.glob("PostgreSQL.*")}
        for number in map(bytes.decode, mapped):
            content = there[number].read_bytes()
            listed = array("I", content[: len(content) // 4 * 4])
            files |= {there[number], *(there[name] for word in set(listed) if (name := str(word)) in there)}
    return files


# ----------------------------------------------------------------------
# Checks of a recovered cluster for corruption: amcheck, and the checksums of all pages.
# ----------------------------------------------------------------------

CHECKSUMS_TIMEOUT_S = 300.0
"""Timeout of pg_checksums, which reads about 1 GB/s."""

STATEMENT_TIMEOUT = "60s"
"""Timeout of the check of one relation of a few MB."""

FINDINGS_MAX = 20
"""A corrupt cluster can have thousands; the first ones identify it."""


def amcheck_findings(connection: Connection, major: int) -> tuple[list[str], bool]:
    """Check all B-tree indexes against their tables (from PostgreSQL 11 on) and all tables (from 14 on).

    Returns the findings, and whether all checks ended. False if the build has no amcheck, or the role may not
    create it.
    """
    try:
        connection.execute("create extension if not exists amcheck")
    except (
        psycopg.errors.FeatureNotSupported,
        psycopg.errors.UndefinedFile,
        psycopg.errors.InsufficientPrivilege,
    ):
        return [], False
    connection.execute("select set_config('statement_timeout', %s, false)", (STATEMENT_TIMEOUT,))
    heap_all_indexed = ", true" if major >= 11 else ""
    findings: list[str] = []
    is_complete = True
    try:
        for (index,) in connection.execute(_statement("btree_indexes")).fetchall():
            check = f"select bt_index_check(%s::regclass{heap_all_indexed})"
            is_complete &= _check(connection, check, index, findings)
        if major >= 14:
            for (table,) in connection.execute(_statement("tables_to_verify")).fetchall():
                check = "select msg from verify_heapam(%s::regclass)"
                is_complete &= _check(connection, check, table, findings)
    except psycopg.errors.QueryCanceled:
        is_complete = False
    except psycopg.Error as error:  # the catalog itself
        findings.append(in_one_line(str(error)))
    return findings[:FINDINGS_MAX], is_complete


def _check(connection: Connection, statement: str, relation: str, findings: list[str]) -> bool:
    """Add the findings about a relation. Return whether the check ended before its timeout."""
    try:
        for (message,) in connection.execute(statement.encode(), (relation,)).fetchall():
            if message:
                findings.append(f"{relation}: {in_one_line(str(message))}")
    except psycopg.errors.QueryCanceled:
        return False
    except psycopg.Error as error:
        if connection.broken:
            raise
        findings.append(f"{relation}: {in_one_line(str(error))}")
    return True


def checksum_findings(build: Build, data_dir: Path, account: Account) -> tuple[list[str], bool]:
    """Verify the checksums of all pages of a stopped cluster. Return the findings, and whether the check
    ended. False if the build has no tool for it.
    """
    names = [name for name in ("pg_checksums", "pg_verify_checksums") if build.program(name).exists()]
    if not names:
        return [], False
    check = ["--check"] if names[0] == "pg_checksums" else []
    command = [str(build.program(names[0])), *check, "-D", str(data_dir)]
    try:
        done = run_tool(command, account, CHECKSUMS_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return [], False
    if done.returncode == 0:
        return [], True
    lines = [line.strip() for line in done.stderr.splitlines() if "checksum verification failed" in line]
    return (lines or [in_one_line(done.stderr or done.stdout)])[:FINDINGS_MAX], True


# ----------------------------------------------------------------------
# The load of a crash: clients of the ledger workload, until a given moment.
# ----------------------------------------------------------------------

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
    changes = {"path": str(ledger), "key": planned.key, "slots": plan.slots, "acknowledge": acknowledge}
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


# ----------------------------------------------------------------------
# Recovery after a crash: start of the server, audit of the rows, checks for corruption.
# ----------------------------------------------------------------------

GRAVE = re.compile(r"PANIC:  .*|(?:WARNING|ERROR|FATAL):  .*(?:page verification failed|invalid page).*")
"""Log messages of a damaged cluster."""

REDO = re.compile(
    r"redo (?:starts at ([0-9A-F]+/[0-9A-F]+).*?redo done at ([0-9A-F]+/[0-9A-F]+)|is not required)",
    re.DOTALL,
)
"""Log messages at the start and end of a replay."""


@dataclass
class Aftermath:
    """Findings about a recovered cluster. ``recovery_s`` is None if the server did not start, and
    ``replayed_bytes`` if its log has no messages about a replay.
    """

    recovery_s: float | None = None
    replayed_bytes: int | None = None
    audit: AuditCounts | None = None
    corruption: list[Corruption] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    @property
    def recorded(self) -> dict[str, Any]:
        """The fields of a ``Crash`` that have these findings."""
        counts = {} if self.audit is None else vars(self.audit)
        return {**{name: value for name, value in vars(self).items() if name != "audit"}, **counts}


@dataclass(frozen=True)
class AuditInput:
    """The ledger, and what the audit needs to know of its run."""

    plan: CrashPlan
    planned: PlannedCrash
    records: Records
    crash_ns: int
    killed_ns: int | None = None


def recover(
    cluster: Cluster,
    settings: Mapping[str, str],
    optional: Collection[str],
    of: AuditInput,
    show: Callable[[str], None] = lambda _: None,
) -> Aftermath:
    """Start a server after a crash, audit it and stop it. Its data directory is then checked, too.

    ``show`` is called with each step.
    """
    show("recovery")
    try:
        server = cluster.start(settings, optional=optional, ready_timeout_s=RECOVERY_TIMEOUT_S)
    except (psycopg.Error, StartError, ServerError, OSError) as error:
        return Aftermath(corruption=[Corruption("start", in_one_line(error))])
    show("checking commits, tables and indexes")
    return examine(cluster, server, server.ready_s, of)


def examine(cluster: Cluster, server: Server, recovery_s: float, of: AuditInput) -> Aftermath:
    """Audit a running server and stop it, then check the pages of its data directory."""
    found = Aftermath(recovery_s=recovery_s, replayed_bytes=replayed_bytes(server.log()))
    build = cluster.build
    examine_rows(found, server.connect, of)
    if (grave := GRAVE.search(server.log())) is not None:
        found.corruption.append(Corruption("log", in_one_line(grave[0])))
    try:
        server.stop()
    except ServerError as error:
        found.corruption.append(Corruption("log", in_one_line(error)))
        return found
    if of.plan.checksums:
        _note(found, "checksums", *checksum_findings(build, cluster.data_dir, cluster.account))
    else:
        found.unchecked.append("checksums")
    return found


def examine_rows(found: Aftermath, connect: Connect, of: AuditInput) -> None:
    """Audit the rows of a running server, and check its tables and indexes. Adds to ``found``."""

    def connect_unlimited() -> Connection:
        connection = connect()
        connection.execute(NO_TIMEOUTS)  # the settings of the arm may have some
        return connection

    try:
        with contextlib.closing(connect_unlimited()) as connection:
            found.audit = audit(
                of.records,
                read_rows(connection),
                read_slots(connection),
                key=of.planned.key,
                slots_per_client=of.plan.slots,
                clients=of.plan.clients,
                crash_ns=of.crash_ns,
                killed_ns=of.killed_ns,
            )
            _note(found, "amcheck", *amcheck_findings(connection, version_of(connection).major))
        if (parameters := of.plan.parameters) is not None:
            checks = workload_of(parameters).invariants(connect_unlimited)
            _note(found, "consistency", [f"{one.name}: {one.detail}" for one in checks if not one.passed])
    except (psycopg.Error, ServerError, DatasetError) as error:
        found.corruption.append(Corruption("read", in_one_line(str(error))))


def replayed_bytes(log: str) -> int | None:
    """Return the bytes of WAL that the last recovery in a server log replayed, up to the start of its last
    record. None without a complete recovery.
    """
    found = list(REDO.finditer(log))
    if not found:
        return None
    first, last = found[-1].groups()
    return _lsn(last) - _lsn(first) if last else 0


def _lsn(text: str) -> int:
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def _note(found: Aftermath, check: str, messages: list[str], is_complete: bool = True) -> None:
    found.corruption += [Corruption(check, message) for message in messages]
    if not is_complete:
        found.unchecked.append(check)
