"""Messages that a server log may and may not contain after a valid trial."""

from __future__ import annotations

import pytest

from pgdyno.workloads.server_log import (
    GRAVE_CHARACTERS_MAX,
    QUOTED_CHARACTERS_MAX,
    LogMessage,
    check_log,
    entries,
    first_unexpected_error,
)

STAMP = "2026-11-21 20:11:31.123 UTC [4711] "


def log(*lines: str) -> str:
    return "".join(f"{line}\n" if line.startswith("\t") else f"{STAMP}{line}\n" for line in lines)


SOUND = log(
    "LOG:  starting PostgreSQL 18.0 on x86_64-pc-linux-gnu, compiled by gcc (Debian 12.2.0-14)",
    'LOG:  listening on Unix socket "/tmp/pgdyno-x/.s.PGSQL.5432"',
    "LOG:  database system was shut down at 2026-11-21 20:11:30 UTC",
    "LOG:  database system is ready to accept connections",
    "LOG:  checkpoint starting: time",
    "LOG:  checkpoint complete: wrote 44 buffers (0.3%); 0 WAL file(s) added, 0 removed",
    'LOG:  automatic vacuum of table "tpcc.public.district": index scans: 0',
    "\tpages: 0 removed, 5 remain, 5 scanned (100.00% of total)",
    "ERROR:  canceling autovacuum task",
    'CONTEXT:  while vacuuming index "stock_i1" of relation "public.stock"',
    "HINT:  There is nothing to be done about WARNING:  in a hint.",
)

ROLLBACK = log(
    "ERROR:  item number is not valid",
    "CONTEXT:  PL/pgSQL function tpcc_new_order(integer,smallint) line 70 at RAISE",
    "STATEMENT:  SELECT * FROM tpcc_new_order($1,",
    "\t$2)",
)

CONFLICTS = log(
    "ERROR:  deadlock detected",
    "DETAIL:  Process 1 waits for ShareLock on transaction 2; blocked by process 3.",
    "ERROR:  could not serialize access due to concurrent update",
)

STOP = log("LOG:  received fast shutdown request", "LOG:  aborting any active transactions")

KILLED_BY_STOP = log(
    "FATAL:  terminating connection due to administrator command",
    "FATAL:  terminating autovacuum process due to administrator command",
    "WARNING:  terminating connection because of crash of another server process",
)

EXPECTED: list[tuple[str, str, dict[str, int]]] = [
    ("an empty log", "", {}),
    ("start, checkpoint, autovacuum", SOUND, {}),
    ("as many rollbacks as the driver counted", SOUND + ROLLBACK * 2, {"rolled_back": 2}),
    ("as many conflicts as the driver counted", CONFLICTS, {"conflicts": 2}),
    (
        "a transaction cancelled and counted",
        log("ERROR:  canceling statement due to user request"),
        {"failed": 1},
    ),
    ("what a requested stop ends", STOP + KILLED_BY_STOP, {}),
    ("an early connection", log("FATAL:  the database system is starting up"), {}),
    ("the default prefix of pg_ctl-less starts", "LOG:  redirecting log output\n", {}),
]


@pytest.mark.parametrize(("what", "text", "counted"), EXPECTED)
def test_a_valid_trial_leaves_a_log_that_passes(what: str, text: str, counted: dict[str, int]) -> None:
    assert check_log(text, counted).passed, what


UNEXPECTED: list[tuple[str, str, dict[str, int]]] = [
    ("more rollbacks than counted", ROLLBACK * 3, {"rolled_back": 2}),
    ("more conflicts than counted", CONFLICTS, {"conflicts": 1}),
    ("a cancelled statement nobody counted", log("ERROR:  canceling statement due to user request"), {}),
    ("a statement timeout", log("ERROR:  canceling statement due to statement timeout"), {"failed": 5}),
    ("an administrator who is not us", KILLED_BY_STOP, {}),
    ("an error", log('ERROR:  relation "warehouse" does not exist at character 15'), {"rolled_back": 9}),
    ("a warning", log("WARNING:  there is no transaction in progress"), {}),
    ("a panic", log('PANIC:  could not write to file "pg_wal/xlogtemp.1": No space left on device'), {}),
    ("a crash", log("LOG:  server process (PID 4712) was terminated by signal 9: Killed"), {}),
    ("a crash's recovery", log("LOG:  all server processes terminated; reinitializing"), {}),
    (
        "a snapshot of a running server",
        log("LOG:  database system was interrupted; last known up at 2026"),
        {},
    ),
    ("crash recovery at start", log("LOG:  database system was not properly shut down; recovering"), {}),
    ("a library's last words", "free(): invalid pointer\n", {}),
]


@pytest.mark.parametrize(("what", "text", "counted"), UNEXPECTED)
def test_anything_else_fails_and_is_quoted(what: str, text: str, counted: dict[str, int]) -> None:
    check = check_log(SOUND + text + SOUND, counted)
    assert not check.passed, what
    said = [line.removeprefix(STAMP).partition(":")[2].strip() for line in text.splitlines()]
    assert any(words[:40] in check.detail for words in said if words), what


def test_only_the_first_unexpected_entries_are_quoted_and_shortened() -> None:
    check = check_log(log(*[f"ERROR:  number {n} {'x' * 1000}" for n in range(50)]), {})
    assert check.detail.startswith("50 unexpected entries, the first: ERROR: number 0 ")
    assert len(check.detail) < 4 * QUOTED_CHARACTERS_MAX
    assert check.statistic == 50


@pytest.mark.parametrize("prefix", ["", STAMP, "user=pgdyno,db=tpcc [1]: ", "%m 2026 <x@y> 40001 "])
def test_any_prefix_that_ends_before_the_severity_is_read(prefix: str) -> None:
    assert list(entries(f"{prefix}ERROR:  deadlock detected\n")) == [LogMessage("ERROR", "deadlock detected")]


FULL = 'could not extend file "base/5/16384": No space left on device'
FULL_OF_WAL = 'could not write to file "pg_wal/xlogtemp.7": No space left on device'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SOUND + ROLLBACK + CONFLICTS + STOP + KILLED_BY_STOP, ""),
        (ROLLBACK + log("LOG:  a", "WARNING:  b", "FATAL:  c", "PANIC:  d"), "FATAL: c"),
        (
            CONFLICTS + log(f"ERROR:  {FULL}", "HINT:  Check free disk space.", "PANIC:  later"),
            f"ERROR: {FULL} (run pgdyno cache prune, or set PGDYNO_CACHE to a larger disk)",
        ),
        (
            log(f"PANIC:  {FULL_OF_WAL}"),
            f"PANIC: {FULL_OF_WAL} (run pgdyno cache prune, or set wal_dir or PGDYNO_CACHE to a larger disk)",
        ),
        (log(f"ERROR:  {'x' * 999}"), f"ERROR: {'x' * (GRAVE_CHARACTERS_MAX - 8)}…"),
    ],
)
def test_the_first_unexpected_severe_log_entry_is_the_reason(text: str, words: str) -> None:
    assert first_unexpected_error(text) == words
