"""The user's data without a server: sources, facts of dumps, invariants, and parameters that do not fit."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pgdyno.errors import UsageError
from pgdyno.features.own_data.dump import DumpFilter, scan
from pgdyno.features.own_data.loading import require_importable
from pgdyno.features.own_data.plan import Invariant, OwnData, OwnDataParameters
from pgdyno.features.own_data.source import (
    Counted,
    NamedDataStore,
    Selection,
    differences,
    examined,
    lines_of_plain_dump,
    read_only_conninfo,
    same_major_first,
)
from pgdyno.server.builds import Build, Version
from pgdyno.server.cache_directory import Cache, items, prune
from pgdyno.server.connections import Dsn
from pgdyno.server.directories import locked, server_account
from pgdyno.server.snapshots import ClusterState
from pgdyno.study.workload_parameters import workload_from
from pgdyno.workloads.pgbench.parameters import PgbenchParameters, Script

OWN = Script(name="own.sql", text="SELECT 1")

DUMP = b"""--
-- Dumped from database version 17.2
SET transaction_timeout = 0;
SET client_encoding = 'LATIN1';
CREATE DATABASE shop WITH TEMPLATE = template0 ENCODING = 'LATIN1' LOCALE_PROVIDER = libc LOCALE = 'de_DE';
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
    roles = ["a reader", "chief", "clerk", "guest", "owner_of_t", "writer"]
    assert facts.missing_roles == roles
    assert facts.extensions == {"uuid-ossp"}
    assert (facts.encoding, facts.major) == ("LATIN1", 17)
    assert facts.locale == {"ENCODING": "LATIN1", "LOCALE_PROVIDER": "libc", "LOCALE": "de_DE"}


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


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("SELECT 1;", ["SELECT 1"]),
        ("-- a; b\nSELECT ';' ; /* ; */ SELECT \"a;b\"", ["SELECT ';'", 'SELECT "a;b"']),
        ("SELECT $x$;$x$, E'\\';' -- ;\n;", ["SELECT $x$;$x$, E'\\';' -- ;"]),
    ],
)
def test_semicolons_separate_queries_except_in_strings_names_and_comments(
    text: str, queries: list[str]
) -> None:
    assert list(Invariant(name="n", text=text).queries()) == queries


def test_an_invariant_without_a_query_is_refused() -> None:
    with pytest.raises(ValidationError, match="contains no query"):
        Invariant(name="n", text="-- nothing\n;")


def test_a_plan_has_the_parameters_of_the_feature_only_if_one_of_them_is_given() -> None:
    plain = {"kind": "pgbench", "scale": 1}
    assert type(workload_from(plain)) is PgbenchParameters
    checks = [{"name": "c", "text": "SELECT 1"}]
    assert type(workload_from({**plain, "checks": checks})) is OwnDataParameters


def test_own_data_have_the_scale_1_and_are_stored_only_if_given() -> None:
    own = OwnDataParameters.model_validate({"data": "shop.dump", "scripts": (OWN,)})
    assert own.to_drive()["scale"] == 1
    assert OwnDataParameters.model_validate(own.model_dump()) == own
    assert own.name == "pgbench own.sql, data shop.dump"
    many = [OWN.model_copy(update={"name": f"{number}.sql"}) for number in range(5)]
    assert own.model_copy(update={"scripts": many}).name == "pgbench 5 scripts, data shop.dump"
    assert not {"data", "checks"} & OwnDataParameters(scale=1).model_dump().keys()


def test_data_that_an_older_version_masked_can_still_be_read() -> None:
    stored = {"source": "shop", "form": "plain", "digest": "d", "masked": ["public.customer.email=hash"]}
    assert OwnData.model_validate(stored) == OwnData(source="shop", form="plain", digest="d")


def test_a_database_is_read_by_the_programs_of_its_own_version_if_they_are_there() -> None:
    builds = [Build("system", Version(major, 1), Path(f"/{major}"), "", "") for major in (18, 17, 15)]
    assert [build.version.major for build in same_major_first(builds, 15)] == [15, 18, 17]
    assert same_major_first(builds, 16) == builds


def test_a_changed_file_has_another_digest_and_a_moved_one_the_same(tmp_path: Path) -> None:
    file, moved = tmp_path / "shop.sql", tmp_path / "m.sql"
    file.write_text("SELECT 1;")
    before = examined(OwnData(source=str(file)))
    assert (before.form, before.name, before.size_bytes) == ("plain", "shop", 9)
    moved.write_text("SELECT 1;")
    assert examined(OwnData(source=str(moved))).digest == before.digest
    file.write_text("SELECT 2;")
    assert examined(OwnData(source=str(file))).digest != before.digest
    assert before.shape() != examined(OwnData(source=str(file), analyze=False)).shape()


def test_files_behind_links_and_absolute_paths_belong_to_the_content(tmp_path: Path) -> None:
    source, far = tmp_path / "source", tmp_path / "far"
    for folder in (source, far, far / "below"):
        folder.mkdir()
    named = {name: tmp_path / f"{name} of 'mine'" for name in ("i", "ir", "copy", "server", "nested")}
    quoted = {name: f"'{str(path).replace(chr(39), chr(39) * 2)}'" for name, path in named.items()}
    (source / "load.sql").write_text(
        f"\\i {quoted['i']}\n  \\ir {quoted['ir']}\n\\copy t from {quoted['copy']} csv\n"
        f"COPY t (a,\nb) FROM {quoted['server']};\n"
    )
    for path in named.values():
        path.write_text("1")
    named["i"].write_text(f"\\i {quoted['nested']}\n")
    (far / "below" / "rows.csv").write_text("1")
    (far / "up").symlink_to(far)
    (source / "link").symlink_to(far)
    digests = {examined(OwnData(source=str(source))).digest}
    for path in (named["nested"], named["ir"], named["copy"], named["server"], far / "below" / "rows.csv"):
        path.write_text("2")
        digests.add(examined(OwnData(source=str(source))).digest)
    assert len(digests) == 6


PACKERS: Mapping[str, Callable[[Path, bytes], None]] = {
    "gz": lambda path, text: path.write_bytes(gzip.compress(text)) and None,
    "bz2": lambda path, text: path.write_bytes(bz2.compress(text)) and None,
    "xz": lambda path, text: path.write_bytes(lzma.compress(text)) and None,
    "zip": lambda path, text: zipfile.ZipFile(path, "w").writestr("a.sql", text),
}


@pytest.mark.parametrize("kind", PACKERS)
def test_a_file_that_a_compressed_script_reads_belongs_to_the_content(kind: str, tmp_path: Path) -> None:
    rows, path = tmp_path / "rows.csv", tmp_path / "dump"
    PACKERS[kind](path, f"\\copy t from {rows}\n".encode())
    digests = set()
    for content in ("1", "2"):
        rows.write_text(content)
        digests.add(examined(OwnData(source=str(path))).digest)
    assert len(digests) == 2


@pytest.mark.parametrize("kind", PACKERS)
def test_a_compressed_sql_file_is_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "dump"
    PACKERS[kind](path, DUMP)
    assert examined(OwnData(source=str(path))).form == "plain"
    assert b"".join(lines_of_plain_dump(path)) == DUMP
    PACKERS[kind](path, b"PGDMP\1")
    with pytest.raises(UsageError, match="compressed archive of pg_dump: unpack it with"):
        examined(OwnData(source=str(path)))
    packed = path.read_bytes()
    path.write_bytes(packed[: len(packed) - 9])
    with pytest.raises(UsageError, match="cannot read"):
        examined(OwnData(source=str(path)))


def test_zstd_is_read_by_its_program_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, programs = tmp_path / "a.zst", tmp_path / "bin"
    path.write_bytes(b"\x28\xb5\x2f\xfd....")
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(UsageError, match="install it, or unpack it with zstd -d"):
        examined(OwnData(source=str(path)))
    (programs / "zstd").write_text("#!/bin/sh\necho 'SELECT 1;'\n")
    (programs / "zstd").chmod(0o755)
    assert examined(OwnData(source=str(path))).form == "plain"
    assert list(lines_of_plain_dump(path)) == [b"SELECT 1;\n"]


def test_what_a_killed_reading_left_is_removed_by_the_next_command(tmp_path: Path) -> None:
    cache = Cache.at(tmp_path / "cache", server_account())
    left = [cache.data / f".{name}.part" for name in ("shop", "busy")]
    for part in left:
        part.mkdir()
        (part / "database.sql.gz").write_text("rows")
    with locked(cache.data / ".busy.lock"):
        assert [(item.name, item.in_use) for item in items(cache)] == [
            (".busy.part", True),
            (".shop.part", False),
        ]
        assert [item.name for item in prune(cache)] == [".shop.part"]
        assert [part.exists() for part in left] == [False, True]
    store = NamedDataStore(cache.data, lambda: [])
    (tmp_path / "a.sql").write_text("SELECT 1;")
    store.add("a", OwnData(source=str(tmp_path / "a.sql")), Selection())
    assert not left[1].exists()


NO_SOURCE: Mapping[str, Callable[[Path], object]] = {
    "cannot read": Path.rmdir,
    "unpack base.tar": lambda path: (path / "base.tar.gz").touch(),
    "is no directory dump": lambda path: (path / "readme").touch(),
    "neither a dump of pg_dump nor SQL": lambda path: (path.rmdir(), path.write_bytes(b"ELF\0\1\2")),
}


@pytest.mark.parametrize("reason", NO_SOURCE)
def test_what_is_no_source_is_refused_with_the_reason(reason: str, tmp_path: Path) -> None:
    path = tmp_path / "source"
    path.mkdir()
    NO_SOURCE[reason](path)
    with pytest.raises(UsageError, match=reason):
        examined(OwnData(source=str(path)))


def stopped(path: Path, state: ClusterState) -> None:
    """Make the parts of a data directory that are examined before its copy."""
    for name in ("global", "pg_tblspc", "base"):
        (path / name).mkdir(parents=True)
    (path / "PG_VERSION").write_text("15\n")
    (path / "global" / "pg_control").write_bytes(bytes(16) + int(state).to_bytes(4, "little"))


def test_only_a_stopped_data_directory_without_tablespaces_or_a_base_backup_is_copied(
    tmp_path: Path,
) -> None:
    stopped(tmp_path / "good", ClusterState.SHUT_DOWN)
    require_importable(tmp_path / "good")
    (tmp_path / "good" / "pg_tblspc" / "16999").symlink_to("/nowhere")
    with pytest.raises(UsageError, match="has tablespaces"):
        require_importable(tmp_path / "good")
    stopped(tmp_path / "live", ClusterState.IN_PRODUCTION)
    with pytest.raises(UsageError, match="not shut down cleanly"):
        require_importable(tmp_path / "live")
    (tmp_path / "live" / "backup_label").touch()
    require_importable(tmp_path / "live")
    (tmp_path / "live" / "postmaster.pid").touch()
    with pytest.raises(UsageError, match=r"postmaster\.pid exists"):
        require_importable(tmp_path / "live")


def test_a_database_is_read_in_read_only_sessions_with_limits() -> None:
    conninfo = read_only_conninfo(Dsn("host=h options='-c work_mem=1MB'"))
    for option in ("work_mem=1MB", "default_transaction_read_only=on", "lock_timeout=10s"):
        assert f"-c {option}" in conninfo
    assert "application_name='pgdyno data'" in conninfo


def test_a_name_stands_for_a_file_and_for_its_datasets_after_the_file_is_gone(tmp_path: Path) -> None:
    file, store = tmp_path / "shop.sql", NamedDataStore(tmp_path / "store", lambda: [])
    file.write_text("SELECT 1;")
    store.add("shop", OwnData(source=str(file), locale="C"), Selection())
    assert store.names() == ["shop"]
    first = store.resolved(OwnData(source="shop"))
    assert (first.name, first.locale) == ("shop", "C")
    file.write_text("SELECT 2;")
    assert store.resolved(OwnData(source="shop")).digest != first.digest
    file.unlink()
    assert store.resolved(OwnData(source="shop")) == first
    assert not store.read("shop").is_there
    store.remove("shop")
    with pytest.raises(UsageError, match="there are no data 'shop'"):
        store.resolved(OwnData(source="shop"))


@pytest.mark.parametrize("name", ["", "Shop", "../x", "a b"])
def test_names_are_plain_words(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="invalid name"):
        NamedDataStore(tmp_path, lambda: []).add(name, OwnData(source="x"), Selection())


def test_rows_are_selected_only_in_databases(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("SELECT 1;")
    with pytest.raises(UsageError, match="require a DSN"):
        NamedDataStore(tmp_path, lambda: []).add(
            "a", OwnData(source=str(tmp_path / "a.sql")), Selection(("t",))
        )
