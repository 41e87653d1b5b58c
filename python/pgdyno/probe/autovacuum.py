"""How often autovacuum has worked in a database."""

from __future__ import annotations

from typing import Any

import psycopg


def autovacuum_runs(connection: psycopg.Connection[tuple[Any, ...]]) -> int:
    """Automatic vacuums and analyzes of tables that were completed so far; the difference is what counts.

    Needs no privilege (pg_stat_user_tables). One that is still under way is not in it.
    """
    row = connection.execute(
        "select coalesce(sum(autovacuum_count + autoanalyze_count), 0) from pg_stat_user_tables"
    ).fetchone()
    assert row is not None
    return int(row[0])
