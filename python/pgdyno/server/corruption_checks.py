"""Checks of a recovered cluster for corruption: amcheck, and the checksums of all pages."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import psycopg

from pgdyno.errors import in_one_line
from pgdyno.server.build import Build
from pgdyno.server.running import Connection
from pgdyno.server.server_account import Account
from pgdyno.server.server_process import run_tool

CHECKSUMS_TIMEOUT_S = 300.0
"""Timeout of pg_checksums, which reads about 1 GB/s."""

STATEMENT_TIMEOUT = "60s"
"""Timeout of the check of one relation of a few MB."""

FINDINGS_MAX = 20
"""A corrupt cluster can have thousands; the first ones identify it."""

_SQL = resources.files(__package__).joinpath("sql")


def amcheck_findings(connection: Connection, major: int) -> list[str] | None:
    """Check all B-tree indexes against their tables (from PostgreSQL 11 on) and all tables (from 14 on).

    Returns the findings, or None if the build has no amcheck, or the role may not create it.
    """
    try:
        connection.execute("create extension if not exists amcheck")
    except (
        psycopg.errors.FeatureNotSupported,
        psycopg.errors.UndefinedFile,
        psycopg.errors.InsufficientPrivilege,
    ):
        return None
    connection.execute("select set_config('statement_timeout', %s, false)", (STATEMENT_TIMEOUT,))
    heap_all_indexed = ", true" if major >= 11 else ""
    findings: list[str] = []
    try:
        for (index,) in connection.execute(_SQL.joinpath("btree_indexes.sql").read_bytes()).fetchall():
            _check(connection, f"select bt_index_check(%s::regclass{heap_all_indexed})", index, findings)
        if major >= 14:
            for (table,) in connection.execute(_SQL.joinpath("tables_to_verify.sql").read_bytes()).fetchall():
                _check(connection, "select msg from verify_heapam(%s::regclass)", table, findings)
    except psycopg.Error as error:  # the catalog itself
        findings.append(in_one_line(str(error)))
    return findings[:FINDINGS_MAX]


def _check(connection: Connection, statement: str, relation: str, findings: list[str]) -> None:
    try:
        for (message,) in connection.execute(statement.encode(), (relation,)).fetchall():
            if message:
                findings.append(f"{relation}: {in_one_line(str(message))}")
    except psycopg.OperationalError:
        if connection.broken:
            raise
        findings.append(f"{relation}: the check did not end")
    except psycopg.Error as error:
        findings.append(f"{relation}: {in_one_line(str(error))}")


def checksum_findings(build: Build, data_dir: Path, account: Account) -> list[str] | None:
    """Verify the checksums of all pages of a stopped cluster. Return the findings, or None if the build has
    no tool for it.
    """
    names = [name for name in ("pg_checksums", "pg_verify_checksums") if build.program(name).exists()]
    if not names:
        return None
    check = ["--check"] if names[0] == "pg_checksums" else []
    command = [str(build.program(names[0])), *check, "-D", str(data_dir)]
    done = run_tool(command, account, CHECKSUMS_TIMEOUT_S)
    if done.returncode == 0:
        return []
    lines = [line.strip() for line in done.stderr.splitlines() if "checksum verification failed" in line]
    return (lines or [in_one_line(done.stderr or done.stdout)])[:FINDINGS_MAX]
