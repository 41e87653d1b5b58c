"""Texts of dumps: their facts, what is not loaded, and rows that differ from the origin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pgdyno.features.dumps.dump import DumpFilter, scan
from pgdyno.features.dumps.origin import Counted, differences

DUMP = b"""--
-- Dumped from database version 17.2
SET transaction_timeout = 0;
SET client_encoding = 'LATIN1';
CREATE DATABASE shop WITH TEMPLATE = template0 ENCODING = 'LATIN1' LOCALE_PROVIDER = libc LOCALE = 'de_DE';
ALTER DATABASE shop SET search_path TO 'sales', 'public';
CREATE EXTENSION IF NOT EXISTS "uuid-ossp" WITH SCHEMA public;
CREATE ROLE made;
CREATE TABLE t (n text);
ALTER TABLE public.t OWNER TO owner_of_t;
ALTER TABLE public.t OWNER TO made;
COPY public.t (n) FROM stdin;
GRANT SELECT ON TABLE public.t TO row_of_a_table;
SET transaction_timeout = 0;
\\.
GRANT SELECT ON TABLE public.t TO "a reader", writer WITH GRANT OPTION;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
ALTER DEFAULT PRIVILEGES FOR ROLE chief IN SCHEMA public GRANT SELECT ON TABLES TO clerk;
CREATE POLICY p ON public.t FOR SELECT TO guest USING (true);
"""


def test_a_dump_names_roles_extensions_encoding_and_locale_outside_of_its_rows() -> None:
    facts = scan(DUMP.splitlines(keepends=True))
    assert facts.missing_roles == ["a reader", "chief", "clerk", "guest", "owner_of_t", "writer"]
    assert facts.extensions == {"uuid-ossp"}
    assert (facts.encoding, facts.major) == ("LATIN1", 17)
    assert facts.locale == {"ENCODING": "LATIN1", "LOCALE_PROVIDER": "libc", "LOCALE": "de_DE"}
    assert facts.search_path == "'sales', 'public'"


def test_settings_that_an_older_server_lacks_are_left_out_but_rows_and_line_numbers_stay() -> None:
    lines = DUMP.splitlines(keepends=True)
    kept = filtered(DUMP, unknown=frozenset({"transaction_timeout"})).splitlines(keepends=True)
    assert len(kept) == len(lines)
    assert [n for n, (a, b) in enumerate(zip(lines, kept, strict=True)) if a != b] == [2]


def filtered(text: bytes, **options: Any) -> bytes:
    """Return the dump as it is loaded."""
    return b"".join(DumpFilter(**options).changed(text.splitlines(keepends=True)))


REMOTE: Mapping[str, tuple[str, str]] = {
    "server": ("CREATE SERVER s FOREIGN DATA WRAPPER w\n  OPTIONS (host 'h;');", "\n"),
    "mapping": ("-- c;\nCREATE USER MAPPING FOR u SERVER s OPTIONS (password 'x;\n');", "-- c;\n\n"),
    "one line": ("SELECT 1; CREATE SERVER s FOREIGN DATA WRAPPER w; SELECT 2;", "SELECT 1;  SELECT 2;"),
    "after a command": ("\\restrict a;'\nALTER SERVER s OWNER TO a;", "\\restrict a;'\n"),
    "grant": ("GRANT ALL ON FOREIGN SERVER s TO a;GRANT ALL ON t TO a;", "GRANT ALL ON t TO a;"),
    "subscription": ("CREATE SUBSCRIPTION s CONNECTION 'password=x' PUBLICATION p;", ""),
    "schema": ("IMPORT FOREIGN SCHEMA a FROM SERVER s INTO b;", ""),
    "options": ("ALTER FOREIGN TABLE ONLY t ALTER COLUMN a OPTIONS (\nADD x 'y'\n);", "\n\n"),
    "jobs": ("COPY cron.job (a) FROM stdin;\n1\n\\.\nSELECT 1;", "\n\n\nSELECT 1;"),
    "inserted job": ("INSERT INTO cron.job VALUES (1, ';');", ""),
    "table": (
        "CREATE FOREIGN TABLE a.server (\n    options int OPTIONS (a ')') NOT NULL,\n    b options\n)\n"
        "SERVER \"s t\"\nOPTIONS (\n    a 'b'\n);",
        "CREATE TABLE a.server (\n    options int  NOT NULL,\n    b options\n)\n\n\n\n;",
    ),
    "partition": (
        "CREATE FOREIGN TABLE p PARTITION OF q DEFAULT SERVER s;",
        "CREATE TABLE p PARTITION OF q DEFAULT ;",
    ),
    "body": ("CREATE FUNCTION f() AS $$\nCREATE SERVER s;\n$$;", "="),
    "tagged body": ("CREATE FUNCTION a$b$() AS $c$;\nCREATE SERVER $$ s;\n$c$;", "="),
    "string": ("SELECT '\nCREATE SERVER s;\n';", "="),
    "escaped string": ("SELECT E'a''b\\';\nCREATE SERVER s;\n';", "="),
    "name": ('SELECT "\nCREATE SERVER s;\n";', "="),
    "comment": ("/* /* */\nCREATE SERVER s;\n*/ SELECT 1;", "="),
    "rows": ("COPY t FROM stdin;\nCREATE SERVER s;\n'\n\\.\nSELECT 1;", "="),
    "server of mine": ("CREATE TABLE server (n int);\nSELECT 1 AS server;", "="),
}


@pytest.mark.parametrize("kind", REMOTE)
def test_nothing_that_reaches_another_server_is_loaded_and_all_else_stays(kind: str) -> None:
    text, expected = REMOTE[kind]
    found = filtered(text.encode()).decode()
    assert found == (text if expected == "=" else expected)


def test_tables_of_jobs_are_named_once_as_empty() -> None:
    rows = b"COPY cron.job_run_details FROM stdin;\n\\.\n"
    text = b"INSERT INTO cron.job VALUES (1);\nINSERT INTO cron.job VALUES (2);\n" + rows
    jobs = DumpFilter()
    assert b"".join(jobs.changed(text.splitlines(keepends=True))).strip() == b""
    assert jobs.emptied == ["cron.job", "cron.job_run_details"]


def test_event_triggers_are_created_last() -> None:
    text = b"CREATE EVENT TRIGGER e ON x\n EXECUTE FUNCTION f();\nREFRESH MATERIALIZED VIEW m;\n"
    assert filtered(text).split() == text.split()[-4:] + text.split()[:-4]


def test_foreign_keys_to_tables_that_are_not_read_are_left_out() -> None:
    keys = "ALTER TABLE ONLY a.t\n    ADD CONSTRAINT {} FOREIGN KEY (n) REFERENCES a.{}(n);\n"
    text = "CREATE TABLE a.t (n int);\n" + keys.format("k1", "t") + keys.format("k2", "gone")
    part = DumpFilter(is_part=True)
    kept = b"".join(part.changed(text.encode().splitlines(keepends=True)))
    assert (b"k1" in kept, b"k2" in kept) == (True, False)
    assert part.left_out == ["k2 of a.t"]
    assert b"k2" in filtered(text.encode())


def test_other_rows_are_an_error_except_of_views_above_stale_or_empty_ones() -> None:
    names = [("t", "table", 5, 4), ("v", "view", 5, -1), ("m", "loose", 5, 4), ("n", "table", None, 4)]
    origin = [Counted("a", name, kind, rows) for name, kind, rows, _ in names]  # type: ignore[arg-type]
    copy = [Counted("a", name, kind, rows) for name, kind, _, rows in names]  # type: ignore[arg-type]
    wrong, loose, uncounted = differences(origin, copy)
    assert wrong == ["a.t (4 instead of 5 rows)", "a.v (an error instead of 5 rows)"]
    assert (loose, uncounted) == (["a.m (4 instead of 5 rows)"], ["a.n"])
