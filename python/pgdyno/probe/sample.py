"""The few numbers of which there is one a second, and what backends wait for, sampled more often: one round
trip each.
"""

from __future__ import annotations

from collections.abc import Mapping

from psycopg import sql

from pgdyno.probe.session import prepare
from pgdyno.probe.statement import fetch, statement
from pgdyno.server.running import Connection

COUNTERS = frozenset(
    {
        *("xact_commit", "xact_rollback", "blks_read", "blks_hit", "temp_files", "temp_bytes", "deadlocks"),
        *("num_timed", "num_requested", "num_done", "buffers_written", "buffers_clean", "buffers_backend"),
        *("wal_fpi", "lsn_bytes"),
    }
)
"""Those that only grow (until a reset): differences count."""

GAUGES = frozenset(
    {"active_backends", "waiting_backends", "autovacuum_workers", "oldest_xmin_age", "frozen_xid_age"}
)
"""Those that tell what is so at the moment."""

SERIES = tuple(sorted(COUNTERS | GAUGES))

RUNNING = "running"
"""What stands for no wait: on a CPU, waiting for one, or in code that PostgreSQL does not count as a wait."""


def sample(connection: Connection) -> Mapping[str, float]:
    """One sample of SERIES, without what this version lacks or hides from us. The connection is the probes'
    from then on. Raises psycopg.Error.
    """
    prepare(connection)
    (row,) = fetch(connection, sql.SQL(statement("sample", connection.info.server_version // 10000)))
    return {name: float(value) for name, value in row.items() if value is not None}


def sample_waits(connection: Connection) -> Mapping[str, float]:
    """How many active backends of this database wait for what: by ``TYPE/EVENT``, or RUNNING. Those of other
    users are not seen without pg_read_all_stats. Raises psycopg.Error.
    """
    prepare(connection)
    rows = fetch(connection, sql.SQL(statement("sample_waits", connection.info.server_version // 10000)))
    return {str(row["wait"]): float(row["backends"] or 0) for row in rows}
