"""``python -m bench original-programs``: LinkBench and the insert benchmark beside the programs that define
them.

Runs alternate on one database, which pgdyno loaded and which grows, through the same Unix socket. Each
program reports its own rate. A program that is missing is named and skipped:

- LinkBench, the fork with PostgreSQL support (github.com/mdcallag/linkbench). The environment variable
  PGDYNO_LINKBENCH has the directory of its source, built with ``mvn package``. For the socket, its directory
  ``target`` has junixsocket-common and junixsocket-native-common, too (``mvn dependency:copy``).
- iibench.py (github.com/mdcallag/mytools, bench/ibench). PGDYNO_IIBENCH has its path. Python of the system
  runs it, with psycopg2.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL

from bench.drivers import engine_drive, run_engine
from bench.environment import Environment, Sizes
from bench.figure import Figure, compared

LINKBENCH = "PGDYNO_LINKBENCH"
IIBENCH = "PGDYNO_IIBENCH"
PYTHON = "/usr/bin/python3"

REQUESTERS = 8
"""Clients of LinkBench: the default of the fork."""

RUN_LONGER = 5
"""Runs are as many times as long as those of other benchmarks: a virtual machine of Java warms up first."""

NODES = {True: 2_000, False: 1_000_000}
ROWS = {True: 10_000, False: 1_000_000}
"""Size of the data, in the smoke test and otherwise."""

ROWS_PER_COMMIT = 50
"""Rows of an INSERT and of a DELETE, as in the step l.i1."""

SOCKET_FACTORY = "org.newsclub.net.unix.AFUNIXSocketFactory$FactoryArg"
NEVER = "1000000000"


def figures(environment: Environment, sizes: Sizes) -> Iterator[Figure]:
    """Pairs of runs alternate."""
    yield from _linkbench(environment, sizes)
    yield from _insert_benchmark(environment, sizes)


def _linkbench(environment: Environment, sizes: Sizes) -> Iterator[Figure]:
    home, java = Path(os.environ.get(LINKBENCH, "/nonexistent")), shutil.which("java")
    if java is None or not (home / "target" / "FacebookLinkBench.jar").exists():
        print(f"LinkBench: not here; it needs Java, and its built source in {LINKBENCH}", file=sys.stderr)
        return
    nodes, seconds = NODES[sizes.duration_s < 1], _seconds(sizes)
    # The program has these names of the database and of the schema in its code.
    with environment.database("linkbench") as database:
        conninfo = environment.server.conninfo(database)
        # As executed, the first node has millions of links.
        shape = {"edition": "fork", "distributions": "configured" if nodes < 10_000 else "executed"}
        _load(conninfo, {"kind": "linkbench", "nodes": nodes, **shape})
        with closing(environment.server.connect(database)) as connection:
            described = "SELECT obj_description('public.linktable'::regclass, 'pg_class')"
            (comment,) = connection.execute(described).fetchone() or ("",)
            connection.execute("CREATE SCHEMA linkdb0")
            for table in ("linktable", "counttable", "nodetable"):
                connection.execute(f"ALTER TABLE {table} SET SCHEMA linkdb0")
            # Our driver reads the comment there.
            connection.execute("CREATE TABLE linktable ()")
            connection.execute(SQL("COMMENT ON TABLE linktable IS {}").format(comment))
            connection.execute(f"ALTER DATABASE {database} SET search_path = linkdb0")
            connection.execute("VACUUM ANALYZE")
        parts = conninfo_to_dict(conninfo)
        driver = environment.directory / "classes" / "org" / "postgresql"
        driver.mkdir(parents=True, exist_ok=True)
        socket = f"{parts['host']}/.s.PGSQL.{parts['port']}"
        (driver / "driverconfig.properties").write_text(
            f"socketFactory={SOCKET_FACTORY}\nsocketFactoryArg={socket}\n", "utf-8"
        )
        options = {
            "host": "localhost",
            "user": parts["user"],
            "maxid1": nodes + 1,
            "requesters": REQUESTERS,
            "requests": NEVER,
            "warmup_time": seconds,
            "maxtime": seconds,
        }
        command = [
            *(java, "-cp", f"{environment.directory / 'classes'}:{home / 'target'}/*"),
            *("com.facebook.LinkBench.LinkBenchDriver", "-c", "config/LinkConfigPgsql.properties", "-r"),
            *(word for name, value in options.items() for word in ("-D", f"{name}={value}")),
        ]

        def theirs() -> float:
            output = _run(command, home, {"LINKBENCH_HOME": str(home)})
            return float(_last(r"Requests/second = (\d+)", output))

        workload = {"kind": "linkbench", **shape}
        pairs = [
            (engine_drive(conninfo, workload, REQUESTERS, None, seconds).per_s, theirs())
            for _ in range(sizes.pairs)
        ]
    at = f"linkbench fork, {nodes:,} nodes, {REQUESTERS} clients"
    yield compared(f"{at}: throughput", "requests/s", pairs, "LinkBench", bound=1.0, sense="at least")


def _insert_benchmark(environment: Environment, sizes: Sizes) -> Iterator[Figure]:
    script = Path(os.environ.get(IIBENCH, "/nonexistent"))
    can_import = [PYTHON, "-c", "import psycopg2"]
    if not script.exists() or subprocess.run(can_import, capture_output=True, check=False).returncode:
        print(f"iibench.py: not here; it needs psycopg2, and its path in {IIBENCH}", file=sys.stderr)
        return
    rows, seconds = ROWS[sizes.duration_s < 1], _seconds(sizes)
    with environment.database("insert") as database:
        conninfo = environment.server.conninfo(database)
        _load(conninfo, {"kind": "insert", "rows": rows, "tables": 1, "indexes": True})
        parts = conninfo_to_dict(conninfo)
        command = [
            *(PYTHON, str(script), "--dbms=postgres", f"--db_name={database}", f"--db_host={parts['host']}"),
            *(f"--db_user={parts['user']}", "--table_name=pi1", "--data_length_max=20"),
            *(f"--max_rows={NEVER}", f"--max_seconds={seconds}", "--secs_per_report=1"),
        ]
        at = f"insert, a table of {rows:,} rows, 1 client"

        def theirs(column: int, options: Sequence[str]) -> float:
            output = _run([*command, *options], environment.directory, {"PGPORT": str(parts["port"])})
            reports = [line.split("\t") for line in output.splitlines() if line.count("\t") > column]
            return float(reports[-1][column])

        def compare(
            name: str, ours: Mapping[str, Any], clients: int, column: int, options: Sequence[str]
        ) -> Figure:
            """``column``: of the rate since the start, in their reports."""
            pairs = []
            for _ in range(sizes.pairs):
                run = engine_drive(conninfo, {"kind": "insert", "tables": 1, **ours}, clients, None, seconds)
                pairs.append((run.per_s, theirs(column, options)))
            unit = "queries/s"
            if "query" not in ours:  # an insert of so many rows and a delete
                unit, pairs = "rows/s", [(of * ROWS_PER_COMMIT / 2, their) for of, their in pairs]
            return compared(f"{at}: {name}", unit, pairs, "iibench.py", bound=1.0, sense="at least")

        both = [f"--rows_per_commit={ROWS_PER_COMMIT}", "--delete_per_insert"]
        yield compare("rows inserted and deleted", {"batch": ROWS_PER_COMMIT, "deletes": True}, 2, 3, both)
        # Almost no inserts: a run without any has no end.
        few = ["--rows_per_commit=1", "--inserts_per_second=1", "--delete_per_insert"]
        queries_of = ["--query_threads=1", "--use_prepared_query"]
        for kind, of_kind in (("range", []), ("point", ["--query_pk_only"])):
            queries = {"batch": 1, "rows_per_s": 1, "deletes": True, "query": kind}
            yield compare(f"{kind} queries", queries, 3, 7, [*few, *queries_of, *of_kind])


def _seconds(sizes: Sizes) -> int:
    return max(1, round(RUN_LONGER * sizes.duration_s))


def _load(conninfo: str, data: Mapping[str, Any]) -> None:
    load = {"conninfo": conninfo, "workload": data, "seed": 1, "connections": 2, "into_existing": False}
    run_engine("load", load)


def _run(command: Sequence[str], directory: Path, variables: Mapping[str, str]) -> str:
    """Return the output of a program. Raises RuntimeError if it fails."""
    done = subprocess.run(
        command, cwd=directory, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-900:]}")
    return done.stdout + done.stderr


def _last(pattern: str, output: str) -> str:
    found = re.findall(pattern, output)
    if not found:
        raise RuntimeError(f"no rate in: {output[-900:]}")
    return str(found[-1])
