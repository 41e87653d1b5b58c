"""Load of tpcc: the copy phase against COPY from prepared binary files, and the time of the whole load."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from psycopg import sql

from bench.environment import Environment, Sizes
from bench.figure import Figure, alone, compared, limited
from bench.tpcc import load_specification
from pgdyno.measure.host_counters import machine_cpu
from pgdyno.server.engine import Engine

CONNECTIONS = 2
ENGINE_SHARE_MAX = 0.20
BLOCK_BYTES = 1 << 20
TABLES = (
    *("order_line", "stock", "customer", "history", "orders", "item", "new_order", "district", "warehouse"),
)
"""Largest first, the order of the engine."""


def figures(environment: Environment, sizes: Sizes) -> Iterator[Figure]:
    """Alternate loads by the engine and COPY of prepared files, each into a new database."""
    pairs, shares, whole = [], [], []
    for index in range(sizes.pairs):
        with environment.database(f"load_{index}") as database:
            result, share = _load(environment.server.conninfo(database), sizes.warehouses)
            files = _make_files(environment, database)
            with environment.database(f"limit_{index}") as copy:
                limit_s = _copy_files(environment, database, copy, files)
        ours_s = result["phases_s"]["copy"]
        size_mb = sum(path.stat().st_size for path in files.values()) / 1e6
        pairs.append((size_mb / ours_s, size_mb / limit_s))
        shares.append(share)
        whole.append(sum(result["phases_s"].values()))
    at = f"load of {sizes.warehouses} warehouses"
    against = f"binary files, {CONNECTIONS} connections"
    yield compared(f"{at}: copy phase", "MB/s of file", pairs, against, bound=0.85, sense="at least")
    yield limited(f"{at}: engine's share of the copy phase's CPU", "share", shares, ENGINE_SHARE_MAX)
    peer = "not measured here: go-tpc took 56 s for 10 warehouses on a machine of this kind"
    yield alone(f"{at}: whole", "s", whole, peer)


def _load(conninfo: str, warehouses: int) -> tuple[dict[str, Any], float]:
    """Return the result of the engine, and its share of the machine's CPU time in the copy phase."""
    busy_s: dict[str, float] = {}
    with Engine("load", load_specification(conninfo, warehouses, CONNECTIONS)) as engine:
        for event in engine.events():
            phase = str(event.get("phase") or event["event"])
            busy_s.setdefault(phase, machine_cpu().busy_s)
            if event["event"] == "failed":
                raise RuntimeError(f"load failed: {event['message']}")
    # The first event after "started" that does not belong to the copy phase marks its end.
    end_s = min(at for phase, at in busy_s.items() if phase not in ("started", "copy"))
    cpu_s = sum(event["cpu_copy_ns"].values()) / 1e9
    return event, cpu_s / max(end_s - busy_s["started"], cpu_s)


def _make_files(environment: Environment, database: str) -> dict[str, Path]:
    files = {table: environment.directory / f"{table}.copy" for table in TABLES}
    with closing(environment.server.connect(database)) as conn:
        for table, path in files.items():
            query = sql.SQL("COPY {} TO STDOUT (FORMAT binary)").format(sql.Identifier(table))
            with conn.cursor() as cursor, cursor.copy(query) as copy, path.open("wb") as file:
                for block in copy:
                    file.write(block)
    return files


def _copy_files(environment: Environment, model: str, database: str, files: dict[str, Path]) -> float:
    """Return the seconds to copy the same rows from files into the same tables.

    Tables are created in the same transaction, with FREEZE.
    """
    create = {table: _definition(environment, model, table) for table in TABLES}
    queue: SimpleQueue[str] = SimpleQueue()
    for table in TABLES:
        queue.put(table)

    def work() -> None:
        with closing(environment.server.connect(database)) as conn:
            while not queue.empty():
                table = queue.get()
                query = sql.SQL("COPY {} FROM STDIN (FORMAT binary, FREEZE)").format(sql.Identifier(table))
                with conn.transaction(), conn.cursor() as cursor, files[table].open("rb") as file:
                    cursor.execute(create[table])
                    with cursor.copy(query) as copy:
                        while block := file.read(BLOCK_BYTES):
                            copy.write(block)

    begun_s = time.monotonic()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for done in [pool.submit(work) for _ in range(CONNECTIONS)]:
            done.result()
    return time.monotonic() - begun_s


def _definition(environment: Environment, database: str, table: str) -> sql.Composed:
    """Return CREATE TABLE with the columns of the loaded table, without indexes."""
    with closing(environment.server.connect(database)) as conn:
        columns = conn.execute(
            "SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute"
            " WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum",
            (table,),
        ).fetchall()
    parts = [
        sql.SQL("{} {} {}").format(sql.Identifier(name), sql.SQL(kind), sql.SQL("NOT NULL" if fixed else ""))
        for name, kind, fixed in columns
    ]
    return sql.SQL("CREATE TABLE {} ({})").format(sql.Identifier(table), sql.SQL(", ").join(parts))
