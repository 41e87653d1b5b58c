"""A synchronous standby of the server that is to crash: its start, and what becomes of it after the crash."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Collection, Mapping

import psycopg

from pgdyno.errors import ServerError, in_one_line
from pgdyno.interruption import stopping
from pgdyno.server.cluster import Cluster
from pgdyno.server.running import Connection, Server
from pgdyno.server.server_process import run_tool

NAME = "pgdyno_standby"

SYNCHRONOUS: Mapping[str, str] = {"synchronous_standby_names": f'"{NAME}"'}
"""Settings of the primary; those of the arm take precedence."""

TIMEOUT_S = 60.0
"""Timeout for connecting, catching up or a promotion: the standby replays what a few seconds have written."""

POLL_S = 0.01

SIGNAL_FILE_FROM = 12
"""First major version with standby.signal in place of recovery.conf."""


def start_standby(
    cluster: Cluster, primary: Server, settings: Mapping[str, str], optional: Collection[str]
) -> Server:
    """Start a copy of a primary's data directory, stopped or crashed, as its standby. Raises ServerError.

    The primary may be gone: the standby then replays what it has.
    """
    quoted = primary.conninfo().replace("'", "''") + f" application_name={NAME}"
    lines = [f"primary_conninfo = '{quoted}'"]
    if cluster.build.version.major >= SIGNAL_FILE_FROM:
        config, signal = "postgresql.auto.conf", "standby.signal"
    else:
        config = signal = "recovery.conf"
        lines += ["standby_mode = 'on'", "recovery_target_timeline = 'latest'"]
    for name in dict.fromkeys((signal, config)):
        path = cluster.data_dir / name
        path.touch()
        cluster.account.own(path)
    (cluster.data_dir / config).write_text("\n".join(lines) + "\n")
    return cluster.start({"hot_standby": "on", **settings}, optional=optional, ready_timeout_s=TIMEOUT_S)


def wait_synchronous(primary: Server) -> None:
    """Wait until the standby streams and commits wait for it. Raises ServerError."""
    with contextlib.closing(primary.connect()) as connection:
        _wait(
            connection,
            f"select 1 from pg_stat_replication where application_name = '{NAME}' and state = 'streaming' "
            "and sync_state in ('sync', 'quorum')",
            "the standby did not become synchronous: remove settings of the arm that prevent it, such as "
            "synchronous_standby_names, wal_level and max_wal_senders",
        )


def catch_up(standby: Server, primary: Server) -> None:
    """Wait until the standby has replayed all that its primary has written. Raises ServerError."""
    with contextlib.closing(primary.connect()) as connection:
        try:
            row = connection.execute("select pg_current_wal_insert_lsn()::text").fetchone()
        except psycopg.Error as error:
            raise ServerError(f"the primary of the standby failed: {in_one_line(str(error))}") from error
        assert row is not None
    with contextlib.closing(standby.connect()) as connection:
        _wait(
            connection,
            f"select 1 where pg_last_wal_replay_lsn() >= '{row[0]}'",
            "the standby did not catch up with its primary",
        )


def promote(cluster: Cluster) -> None:
    """Promote the standby on this data directory, wait until it accepts changes. Raises ServerError."""
    program = str(cluster.build.program("pg_ctl"))
    command = [
        program,
        "promote",
        "--pgdata",
        str(cluster.data_dir),
        "--wait",
        "--timeout",
        f"{TIMEOUT_S:.0f}",
    ]
    try:
        done = run_tool(command, cluster.account, TIMEOUT_S + 10)
    except subprocess.TimeoutExpired as error:
        raise ServerError(f"the standby was not promoted within {TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        raise ServerError(f"the standby was not promoted: {in_one_line(done.stderr or done.stdout)}")


def _wait(connection: Connection, condition: str, otherwise: str) -> None:
    begun_s = time.monotonic()
    while True:
        try:
            if connection.execute(condition.encode()).fetchone() is not None:
                return
        except psycopg.Error as error:
            raise ServerError(f"{otherwise}: {in_one_line(str(error))}") from error
        if stopping.is_over(begun_s):
            raise ServerError("interrupted while waiting for the standby")
        if time.monotonic() > begun_s + TIMEOUT_S:
            raise ServerError(otherwise)
        time.sleep(POLL_S)
