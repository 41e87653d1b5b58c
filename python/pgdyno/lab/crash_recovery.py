"""Recovery after a crash: start of the server, audit of the rows, checks for corruption."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import psycopg

from pgdyno.errors import DatasetError, ServerError, StartError, in_one_line
from pgdyno.results.crash_records import AuditCounts, Corruption
from pgdyno.server.cluster import Cluster
from pgdyno.server.corruption_checks import amcheck_findings, checksum_findings
from pgdyno.server.running import Connection, Server
from pgdyno.server.version import version_of
from pgdyno.study.crash_plan import CrashPlan, PlannedCrash
from pgdyno.workload.interface import Connect
from pgdyno.workload.ledger.ledger_audit import audit
from pgdyno.workload.ledger.ledger_file import Records
from pgdyno.workload.ledger.ledger_tables import read_rows, read_slots
from pgdyno.workload.workloads import workload_of

RECOVERY_TIMEOUT_S = 120.0
"""Timeout of a recovery: it replays at most what a few seconds have written."""

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


@dataclass(frozen=True)
class AuditInput:
    """The ledger, and what the audit needs to know of its run."""

    plan: CrashPlan
    planned: PlannedCrash
    records: Records
    crash_ns: int


def recover(
    cluster: Cluster, settings: Mapping[str, str], optional: Collection[str], of: AuditInput
) -> Aftermath:
    """Start a server after a crash, audit it and stop it. Its data directory is then checked, too."""
    try:
        server = cluster.start(settings, optional=optional, ready_timeout_s=RECOVERY_TIMEOUT_S)
    except (StartError, ServerError, OSError) as error:
        return Aftermath(corruption=[Corruption("start", in_one_line(error))])
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
    _note(found, "checksums", checksum_findings(build, cluster.data_dir, cluster.account))
    return found


def examine_rows(found: Aftermath, connect: Connect, of: AuditInput) -> None:
    """Audit the rows of a running server, and check its tables and indexes. Adds to ``found``."""
    try:
        with contextlib.closing(connect()) as connection:
            found.audit = _audit(connection, of)
            messages = amcheck_findings(connection, version_of(connection).major)
            _note(found, "amcheck", messages)
        if (parameters := of.plan.parameters) is not None:
            checks = workload_of(parameters).invariants(connect)
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


def _audit(connection: Connection, of: AuditInput) -> AuditCounts:
    """Read all rows and compare them with the ledger. Raises psycopg.Error if a row cannot be read."""
    result = audit(
        of.records,
        read_rows(connection),
        read_slots(connection),
        key=of.planned.key,
        slots_per_client=of.plan.slots,
        clients=of.plan.clients,
        crash_ns=of.crash_ns,
    )
    return AuditCounts(
        lost=result.lost,
        in_doubt=result.in_doubt,
        in_doubt_present=result.in_doubt_present,
        phantoms=result.phantoms,
        holes=result.holes,
        damaged=result.damaged,
        loss_window_s=result.loss_window_s,
    )


def _note(found: Aftermath, check: str, messages: list[str] | None) -> None:
    if messages is None:
        found.unchecked.append(check)
    else:
        found.corruption += [Corruption(check, message) for message in messages]
