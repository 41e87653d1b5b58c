"""The user's data on real servers: every form of a source, and what a copy must not do."""

from __future__ import annotations

import gzip
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from driven_database import scalar
from psycopg.conninfo import make_conninfo
from server_of_major import OLDEST_MIDDLE_NEWEST, build_of

from pgdyno.errors import ConnectError, DatasetError, UsageError
from pgdyno.features.dumps import origin as dump_origin
from pgdyno.features.dumps.origin import ROLES, Counted, OriginFacts, count_rows, relations_to_count
from pgdyno.features.own_data.loading import DATABASE, FOREIGN_TABLES_TO_LOCAL
from pgdyno.features.own_data.plan import OwnData, OwnDataParameters
from pgdyno.features.own_data.source import NamedDataStore, Selection, examined, identity_of
from pgdyno.interruption import Interruption
from pgdyno.measure.dataset_loading import Maker, data_kind, dataset_key
from pgdyno.server.build_store import system_builds
from pgdyno.server.builds import NEWEST_MAJOR, Build
from pgdyno.server.cache_directory import Cache
from pgdyno.server.connections import Dsn
from pgdyno.server.directories import Account
from pgdyno.server.processes import Cluster, Connection, InitOptions, Server
from pgdyno.workloads.pgbench.parameters import Script

pytestmark = pytest.mark.server

SHOP = Path(__file__).parents[5] / "tests" / "data" / "shop"
PURCHASES = 2000


def parameters(data: OwnData) -> OwnDataParameters:
    return OwnDataParameters(data=data, scripts=(Script(name="s", text="SELECT 1"),), scale=1)


def loaded(source: Path | OwnData, build: Build, account: Account, data_dir: Path) -> Mapping[str, Any]:
    """Load the source as a study does. Return the details of the dataset."""
    data = source if isinstance(source, OwnData) else examined(OwnData(source=str(source)))
    init = InitOptions(sync=False)
    cache = Cache.at(data_dir.parent / "cache", account)
    maker = Maker(cache, 0, lambda _: None, Interruption(), init)
    return data_kind(parameters(data)).make(maker, build, parameters(data), ())(data_dir) or {}


@contextmanager
def opened(build: Build, account: Account, data_dir: Path, database: str) -> Iterator[Connection]:
    with Cluster(build, data_dir, account).start() as server, server.connect(database) as connection:
        yield connection


def require_the_shop(connection: Connection) -> None:
    """Rows, partitions, JSON, trigger and sequence must be as they were made."""
    assert scalar(connection, "SELECT count(*) FROM purchase") == PURCHASES
    assert scalar(connection, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'purchase'::regclass") == 2
    assert scalar(connection, "SELECT profile ->> 'city' FROM customer WHERE id = 8") == "c1"
    before = scalar(connection, "SELECT sum(amount) FROM sold")
    number = scalar(
        connection,
        "INSERT INTO purchase (customer_id, product_id, amount, bought_on) VALUES (1, 1, 5, '2026-01-01')"
        " RETURNING id",
    )
    assert number == 1001 + PURCHASES
    assert scalar(connection, "SELECT sum(amount) FROM sold") == before + 5
    assert scalar(connection, "SELECT count(*) FROM pg_constraint WHERE contype = 'f'") >= 3
    assert scalar(connection, "SELECT tableowner FROM pg_tables WHERE tablename = 'customer'") == "shop_owner"
    assert scalar(connection, "SELECT has_table_privilege('shop reader', 'sold', 'SELECT')")


@pytest.fixture(scope="module")
def shop(build: Build, account: Account, module_dir: Path) -> Path:
    """The data directory of a stopped shop."""
    loaded(SHOP / "load", build, account, module_dir / "data")
    return module_dir / "data"


@pytest.fixture(scope="module")
def origin(shop: Path, build: Build, account: Account) -> Iterator[Server]:
    """A running shop, the production server of these tests."""
    with Cluster(build, shop, account).start({"max_logical_replication_workers": "0"}) as server:
        yield server


def require(build: Build, program: str) -> None:
    if not build.has(program):
        pytest.skip(f"NOT TESTED: {build.label} has no {program}")


@pytest.fixture
def pg_dump(build: Build) -> None:
    """The build has pg_dump."""
    require(build, "pg_dump")


needs_pg_dump = pytest.mark.usefixtures("pg_dump")


def run(build: Build, program: str, *arguments: str) -> None:
    """Run a client program."""
    require(build, program)
    subprocess.run([str(build.program(program)), *arguments], check=True, capture_output=True)


def backup_of(server: Server, build: Build, path: Path) -> Path:
    """Take a base backup."""
    place = (f"--host={server.socket.path}", "--username=pgdyno")
    run(build, "pg_basebackup", f"--pgdata={path}", "--checkpoint=fast", "--no-sync", *place)
    return path


def require_values(connection: Connection, expected: Mapping[str, object]) -> None:
    """Each query must return the value."""
    for query, result in expected.items():
        assert scalar(connection, query) == result, query


@pytest.mark.parametrize("major", OLDEST_MIDDLE_NEWEST)
def test_a_directory_with_a_load_script_is_loaded_on_a_version_as_the_user_of_the_servers(
    account: Account, server_dir: Path, major: int
) -> None:
    build, own = build_of(Cache.open(), major), server_dir / "own"
    shutil.copytree(SHOP / "load", own)
    own.chmod(0o700)
    with (own / "load.sql").open("a") as script:
        script.write("\\set who `id -u`\nCREATE TABLE w AS SELECT :who AS uid;\n")
    details = loaded(own, build, account, server_dir / "data")
    assert details == {"database": "pgdyno_data", "changes": [], "without_statistics": 0}
    assert not (server_dir / "import").exists()
    with opened(build, account, server_dir / "data", "pgdyno_data") as connection:
        assert scalar(connection, "SELECT uid FROM w") == account.uid
        require_the_shop(connection)
        require_facts_and_local_tables(connection)
    assert account.uid != 0 or os.geteuid() != 0


def require_facts_and_local_tables(connection: Connection) -> None:
    """The catalogs that are read and changed are those of this version."""
    assert "shop_owner" in {row[0] for row in connection.execute(ROLES).fetchall()}
    connection.execute("CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w")
    connection.execute(
        "CREATE FOREIGN TABLE far (n int, t text) SERVER s; CREATE VIEW on_far AS SELECT * FROM far"
    )
    connection.execute("CREATE VIEW cheap AS SELECT * FROM product WHERE id < 4")
    connection.execute("CREATE VIEW recent AS SELECT * FROM purchase WHERE bought_on = current_date")
    relations, emptied = relations_to_count(connection, lambda _: True)
    assert emptied == ["public.far", "public.on_far"]
    assert Counted("public", "cheap", "view") in relations
    assert "recent" not in {one.name for one in relations}
    with connection.transaction():
        counted = {one.name: one.rows for one in count_rows(connection, relations)}
    assert (counted["cheap"], counted["customer"]) == (3, 200)
    connection.execute(FOREIGN_TABLES_TO_LOCAL)
    connection.execute(
        "INSERT INTO far SELECT 1, string_agg(n::text, ' ') FROM generate_series(1, 100000) AS n"
    )
    assert scalar(connection, "SELECT count(*) FROM on_far") == 1


FORMS: Mapping[str, tuple[str, ...]] = {"custom": ("-Fc",), "created": ("-Fp", "--create")}


@pytest.mark.parametrize("form", FORMS)
def test_a_dump_is_loaded_with_the_roles_that_it_names(
    form: str, origin: Server, build: Build, account: Account, server_dir: Path
) -> None:
    dump = server_dir / "shop.dump"
    run(build, "pg_dump", origin.conninfo(DATABASE), *FORMS[form], f"--file={dump}")
    if form == "created":
        dump.write_text(dump.read_text().replace(DATABASE, "web_shop"))
    else:
        for other in ("-Fd", "-Ft"):
            run(build, "pg_dump", origin.conninfo(DATABASE), other, f"--file={server_dir / other}")
            assert examined(OwnData(source=str(server_dir / other))).form == "archive"
    data = examined(OwnData(source=str(dump), analyze=form == "created"))
    assert data.form == ("plain" if form == "created" else "archive")
    details = loaded(data, build, account, server_dir / "data")
    assert details["database"] == ("web_shop" if form == "created" else DATABASE)
    assert details["changes"] == ["roles were created without privileges: shop reader, shop_owner"]
    assert details["without_statistics"] == (0 if data.analyze else 5)
    with opened(build, account, server_dir / "data", details["database"]) as connection:
        require_the_shop(connection)


def test_a_dump_of_an_older_version_is_loaded_on_the_newest(
    origin: Server, build: Build, account: Account, server_dir: Path
) -> None:
    newest = build_of(Cache.open(), NEWEST_MAJOR)
    run(build, "pg_dump", origin.conninfo(DATABASE), "-Fp", f"--file={server_dir / 'shop.sql'}")
    (server_dir / "s.gz").write_bytes(gzip.compress((server_dir / "shop.sql").read_bytes()))
    details = loaded(server_dir / "s.gz", newest, account, server_dir / "data")
    assert "the dump does not name its locale, and the copy has C" in details["changes"]
    with opened(newest, account, server_dir / "data", details["database"]) as connection:
        require_the_shop(connection)


@needs_pg_dump
def test_a_database_is_read_once_without_write_access_and_by_selected_tables(
    origin: Server, build: Build, account: Account, server_dir: Path
) -> None:
    store = NamedDataStore(server_dir, system_builds)
    dsn = origin.conninfo(DATABASE)
    named = store.add("shop", OwnData(source=dsn), Selection(("customer", "product", "sold")))
    assert store.names() == ["shop"]
    assert named.is_copy
    assert "read on" in named.origin
    assert "(customer, product, sold)" in named.origin
    data = store.resolved(OwnData(source="shop"))
    assert (data.form, data.major) == ("plain", build.version.major)
    dump = gzip.decompress(Path(data.path).read_bytes())
    assert b"CREATE TABLE public.customer" in dump
    assert b"CREATE TABLE public.purchase" not in dump
    with pytest.raises(UsageError, match="exist: choose another name"):
        store.add("shop", OwnData(source=dsn), Selection())
    store.remove("shop")
    assert store.names() == []
    first = store.resolved(OwnData(source=dsn, locale="C"))
    assert store.resolved(OwnData(source=dsn, locale="C")) == first
    assert store.resolved(OwnData(source=dsn)).locale == ""
    assert len(store.names()) == 1


@needs_pg_dump
def test_a_copy_is_masked_as_the_manual_shows(origin: Server, build: Build, server_dir: Path) -> None:
    page = (Path(__file__).parents[1] / "README.md").read_text()
    mask = page.partition("`mask.sql`:\n\n```sql\n")[2].partition("```")[0]
    with origin.connect() as connection:
        connection.execute(f"CREATE DATABASE shop_masked TEMPLATE {DATABASE}")
    with origin.connect("shop_masked") as connection:
        before = scalar(connection, "SELECT min(email) FROM customer")
        connection.execute(mask.encode())
    try:
        store = NamedDataStore(server_dir, system_builds)
        named = store.add("shop", OwnData(source=origin.conninfo("shop_masked")), Selection())
    finally:
        with origin.connect() as connection:
            connection.execute("DROP DATABASE shop_masked")
    restored = gzip.decompress(Path(named.data.path).read_bytes()).decode()
    assert "customer7@example.com" in restored
    assert before not in restored
    assert '"city"' not in restored


SECRET = "Secret-4711"

ORIGIN_SCHEMA = f"""
CREATE ROLE boss SUPERUSER;
CREATE ROLE owner_of_rows;
CREATE ROLE clerk;
CREATE TABLE local (id int PRIMARY KEY, options text);
INSERT INTO local SELECT generate_series(1, 30), 'x';
CREATE SCHEMA sales;
ALTER DATABASE odd SET search_path = public, sales;
CREATE EXTENSION citext SCHEMA sales;
CREATE TYPE sales.mood AS ENUM ('good', 'bad');
CREATE FUNCTION sales.touch() RETURNS trigger LANGUAGE plpgsql
    AS 'BEGIN NEW.id := NEW.id + 1; RETURN NEW; END';
CREATE TABLE sales.visit (
    id int PRIMARY KEY, moods sales.mood[], name sales.citext, who int REFERENCES local (id)
);
INSERT INTO sales.visit VALUES (1, '{{good}}', 'A', 1);
CREATE TRIGGER t BEFORE INSERT ON sales.visit FOR EACH ROW EXECUTE FUNCTION sales.touch();
CREATE VIEW sales.lower AS SELECT name = 'a' AS is_a FROM sales.visit;
GRANT owner_of_rows TO clerk;
CREATE TABLE hidden (id int, at timestamptz DEFAULT now());
INSERT INTO hidden SELECT generate_series(1, 1000);
ALTER TABLE hidden OWNER TO owner_of_rows;
ALTER TABLE hidden ENABLE ROW LEVEL SECURITY;
CREATE POLICY nobody ON hidden USING (false);
CREATE VIEW all_hidden AS SELECT * FROM hidden;
ALTER VIEW all_hidden OWNER TO boss;
CREATE VIEW of_clerk AS SELECT id FROM hidden;
ALTER VIEW of_clerk OWNER TO clerk;
CREATE VIEW of_today AS SELECT * FROM hidden WHERE at > now() - interval '1 second';
CREATE FUNCTION secure_count() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT count(*) FROM hidden';
ALTER FUNCTION secure_count() OWNER TO boss;
CREATE TABLE ddl_log (tag text);
CREATE FUNCTION log_ddl() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER
    AS $$BEGIN INSERT INTO ddl_log VALUES (tg_tag); END$$;
ALTER FUNCTION log_ddl() OWNER TO boss;
CREATE EVENT TRIGGER ddl ON ddl_command_end EXECUTE FUNCTION log_ddl();
ALTER EVENT TRIGGER ddl OWNER TO boss;
CREATE MATERIALIZED VIEW stale AS SELECT id FROM hidden;
DELETE FROM hidden WHERE id > 990;
CREATE VIEW above_stale AS SELECT * FROM stale;
CREATE EXTENSION postgres_fdw;
CREATE SERVER "far away" FOREIGN DATA WRAPPER postgres_fdw
    OPTIONS (host 'SOCKET', port '5432', dbname 'odd');
CREATE USER MAPPING FOR PUBLIC SERVER "far away" OPTIONS (user 'pgdyno', password '{SECRET}');
CREATE FOREIGN TABLE remote (
    id int OPTIONS (column_name 'id') NOT NULL, options text DEFAULT 'SERVER OPTIONS ('
)
    SERVER "far away" OPTIONS (table_name 'local');
CREATE SCHEMA cron;
CREATE TABLE cron.job (command text);
INSERT INTO cron.job VALUES ('SELECT 1');
CREATE TABLE parted (id int) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10);
CREATE FOREIGN TABLE parted_2 PARTITION OF parted FOR VALUES FROM (10) TO (20) SERVER "far away";
INSERT INTO parted VALUES (1);
-- committed
CREATE VIEW above_remote AS SELECT * FROM remote;
CREATE MATERIALIZED VIEW of_remote AS SELECT * FROM remote;
CREATE FUNCTION body() RETURNS text LANGUAGE sql AS $x$
SELECT '
CREATE SERVER stays FOREIGN DATA WRAPPER postgres_fdw;
';$x$;
CREATE EXTENSION dblink;
CREATE MATERIALIZED VIEW linked AS
    SELECT * FROM dblink('host=SOCKET port=5432 user=pgdyno dbname=odd', 'SELECT 1') AS t (n int);
"""


@pytest.fixture(scope="module")
def odd_origin(
    build: Build, new_cluster: Callable[[Build], AbstractContextManager[Cluster]]
) -> Iterator[Server]:
    """A server whose database needs superusers, and has foreign tables that are tables of its own."""
    with (
        new_cluster(build) as cluster,
        cluster.start({"shared_preload_libraries": "pg_stat_statements"}) as server,
    ):
        with server.connect() as connection:
            connection.execute("CREATE DATABASE odd")
            connection.execute("CREATE EXTENSION pg_stat_statements")
        with server.connect("odd") as connection:
            for part in ORIGIN_SCHEMA.replace("SOCKET", str(server.socket.path)).split("-- committed"):
                connection.execute(part.encode())
        yield server


@needs_pg_dump
def test_a_copy_has_the_rows_and_privileges_of_its_origin_and_contacts_nobody(
    odd_origin: Server, build: Build, account: Account, server_dir: Path
) -> None:
    store = NamedDataStore(server_dir, system_builds)
    with odd_origin.connect() as connection:
        connection.execute("SELECT pg_stat_statements_reset()")
        data = store.add("odd", OwnData(source=odd_origin.conninfo("odd")), Selection()).data
        assert scalar(connection, "SELECT count(*) FROM pg_stat_statements") < 10
    dump = gzip.decompress(Path(data.path).read_bytes()).decode()
    assert SECRET not in dump
    assert "CREATE SERVER stays" in dump
    details = loaded(data, build, account, server_dir / "data")
    assert details["changes"] == [
        "roles were created without login: boss, clerk, owner_of_rows",
        "superusers among them: boss",
        "empty tables (foreign tables and others) and views that depend on them: "
        "cron.job, public.above_remote, public.parted_2, public.remote",
        "dblink returns no row to its callers: public.linked",
        "rows of materialized views, or of views that depend on them: "
        "public.above_stale (990 instead of 1,000 rows), public.linked (0 instead of 1 rows), "
        "public.of_remote (0 instead of 30 rows), public.stale (990 instead of 1,000 rows)",
    ]
    with opened(build, account, server_dir / "data", details["database"]) as connection:
        expected = {
            "SELECT count(*) FROM all_hidden": 990,
            "SELECT count(*) FROM of_clerk": 990,
            "SELECT secure_count()": 990,
            "SELECT count(*) FROM parted": 1,
            "SELECT count(*) FROM cron.job": 0,
            "SELECT count(*) FROM pg_foreign_server": 0,
            "SELECT count(*) FROM pg_user_mapping": 0,
            "SELECT relkind::text FROM pg_class WHERE relname = 'remote'": "r",
            "SELECT rolsuper AND NOT rolcanlogin FROM pg_roles WHERE rolname = 'boss'": True,
            "SHOW search_path": "public, sales",
        }
        require_values(connection, expected)
        before = scalar(connection, "SELECT count(*) FROM ddl_log")
        connection.execute("CREATE TABLE another ()")
        assert scalar(connection, "SELECT count(*) FROM ddl_log") == before + 1


@needs_pg_dump
def test_a_role_that_cannot_switch_statistics_off_reads_what_it_may_and_is_warned(
    odd_origin: Server, build: Build, account: Account, server_dir: Path
) -> None:
    with odd_origin.connect("odd") as connection:
        connection.execute("CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA sales TO reader")
        connection.execute("GRANT SELECT ON sales.visit, sales.lower TO reader")
    warnings: list[str] = []
    store = NamedDataStore(server_dir, system_builds, warnings.append)
    dsn = make_conninfo(odd_origin.conninfo("odd"), user="reader")
    with pytest.raises(UsageError, match=r"table sales\.visit: add"):
        store.add("part", OwnData(source=dsn), Selection(("sales.lower",)))
    data = store.add("part", OwnData(source=dsn), Selection(("sales.*",))).data
    assert len(warnings) == 2
    details = loaded(data, build, account, server_dir / "data")
    assert details["changes"] == [
        "roles were created without login: reader",
        "foreign keys to tables that were not read are left out: visit_who_fkey of sales.visit",
    ]
    with opened(build, account, server_dir / "data", details["database"]) as connection:
        assert scalar(connection, "INSERT INTO sales.visit VALUES (7, '{bad}', 'B', 99) RETURNING id") == 8
        assert scalar(connection, "SELECT has_schema_privilege('reader', 'sales', 'USAGE')")
        assert scalar(connection, "SELECT count(*) FROM sales.lower") == 2
        assert scalar(connection, "SELECT to_regclass('local') IS NULL")
    with odd_origin.connect("odd") as connection:
        connection.execute("DROP OWNED BY reader; DROP ROLE reader")


@needs_pg_dump
def test_a_long_reading_is_not_ended_by_limits_of_the_database(
    origin: Server, build: Build, server_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = iter([2.5])

    def wait_once() -> None:
        time.sleep(next(waits, 0.0))  # longer than the limits, while pg_dump runs

    limits = ["idle_in_transaction_session_timeout"]
    limits += ["transaction_timeout"] if build.version.major >= 17 else []
    monkeypatch.setattr(dump_origin, "COUNT_ALL_S", -1)
    with origin.connect(DATABASE) as connection:
        for name in limits:
            connection.execute(f"ALTER DATABASE {DATABASE} SET {name} = '2s'".encode())
        try:
            data = NamedDataStore(server_dir, system_builds).add(
                "shop", OwnData(source=origin.conninfo(DATABASE)), Selection(), wait_once
            )
        finally:
            connection.execute(f"ALTER DATABASE {DATABASE} RESET ALL".encode())
    facts = OriginFacts.parse(gzip.decompress(Path(data.data.path).read_bytes()).decode().splitlines()[-1])
    assert facts.counted and {one.rows for one in facts.counted} == {None}


def test_a_dsn_means_the_database_that_it_resolves_to(
    origin: Server, odd_origin: Server, server_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGHOST", str(origin.socket.path))
    monkeypatch.setenv("PGUSER", "pgdyno")
    first = identity_of(Dsn("dbname=postgres"))
    assert identity_of(Dsn(f"postgresql:///postgres?host={origin.socket.path}&port=5432")) == first
    monkeypatch.setenv("PGDATABASE", "postgres")
    assert identity_of(Dsn("port=5432")) == first
    monkeypatch.setenv("PGPORT", "1")
    with pytest.raises(ConnectError):
        identity_of(Dsn("dbname=postgres"))
    monkeypatch.delenv("PGPORT")
    services = server_dir / "services"
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    found = {first}
    for host, database in ((odd_origin.socket.path, "postgres"), (odd_origin.socket.path, "odd")):
        services.write_text(f"[shop]\nhost={host}\ndbname={database}\n")
        found.add(identity_of(Dsn("service=shop")))
    monkeypatch.setenv("PGHOST", str(odd_origin.socket.path))
    found.add(identity_of(Dsn("dbname=postgres")))
    found.add(identity_of(Dsn("dbname=postgres options='-c role=pg_monitor'")))
    assert len(found) == 4


@needs_pg_dump
def test_a_copy_with_other_rows_than_its_origin_is_an_error(
    odd_origin: Server, build: Build, account: Account, server_dir: Path
) -> None:
    store = NamedDataStore(server_dir, system_builds)
    selection = Selection(("hidden", "all_hidden"))
    path = Path(store.add("odd", OwnData(source=odd_origin.conninfo("odd")), selection).data.path)
    of_boss = b'"boss", "is_superuser": %b'
    dump = gzip.decompress(path.read_bytes()).replace(of_boss % b"true", of_boss % b"false")
    path.write_bytes(gzip.compress(dump))
    with pytest.raises(DatasetError, match=r"public\.all_hidden \(an error instead of 990 rows\)"):
        loaded(examined(OwnData(source=str(path))), build, account, server_dir / "data")


def test_a_base_backup_contacts_nobody_leaves_settings_behind_and_needs_its_wal(
    origin: Server, build: Build, account: Account, server_dir: Path
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as production:
        production.setblocking(False)
        publisher = f"host=127.0.0.1 port={production.getsockname()[1]} connect_timeout=2"
        with origin.connect(DATABASE) as connection:
            connection.execute(
                f"CREATE SUBSCRIPTION feed CONNECTION '{publisher}' PUBLICATION p WITH (connect = false)"
            )
            connection.execute("UPDATE pg_subscription SET subenabled = true, subslotname = 'feed'")
            connection.execute("SELECT pg_create_physical_replication_slot('held', true)")
            connection.execute("ALTER DATABASE pgdyno_data SET work_mem = '1MB'")
            connection.execute("ALTER DATABASE pgdyno_data SET search_path = public, pg_catalog")
            connection.execute("ALTER SYSTEM SET maintenance_work_mem = '77MB'")
        backup = backup_of(origin, build, server_dir / "backup")
        with origin.connect(DATABASE) as connection:
            connection.execute("DELETE FROM pg_subscription")
            connection.execute("SELECT pg_drop_replication_slot('held')")
            connection.execute("ALTER DATABASE pgdyno_data RESET ALL")
            connection.execute("ALTER SYSTEM RESET ALL")
        (backup / "standby.signal").touch()
        data_dir = server_dir / "data"
        details = loaded(backup, build, account, data_dir)
        assert details["database"] == DATABASE
        assert details["changes"] == [
            "subscriptions were removed: feed",
            "settings of databases and roles were removed: work_mem",
        ]
        with opened(build, account, data_dir, DATABASE) as connection:
            require_the_shop(connection)
            expected = {
                "SELECT count(*) FROM pg_subscription": 0,
                "SELECT count(*) FROM pg_replication_slots": 0,
                "SHOW work_mem": "4MB",
                "SHOW maintenance_work_mem": "64MB",
                "SHOW search_path": "public, pg_catalog",
                "SELECT pg_is_in_recovery()": False,
            }
            require_values(connection, expected)
        with pytest.raises(BlockingIOError):
            production.accept()
    require_one_dataset_and_wal(backup, build, account)


def require_one_dataset_and_wal(backup: Path, build: Build, account: Account) -> None:
    """A backup is one dataset for all builds of its version, and needs its WAL."""
    data = examined(OwnData(source=str(backup)))
    key = dataset_key(build, parameters(data), InitOptions())
    assert key.build_id == f"postgresql-{build.version.major}"
    assert key.scale["data"] == data.digest
    with pytest.raises(UsageError, match=f"backup of PostgreSQL {build.version.major}"):
        parameters(data).require_major(build.version.major + 1, "18")
    for file in (backup / "pg_wal").glob("0*"):
        file.unlink()
    with pytest.raises(DatasetError, match="wal-method=stream") as caught:
        loaded(backup, build, account, backup.with_name("without-wal"))
    assert "recovery.signal" not in str(caught.value)


def test_a_backup_has_local_tables_in_place_of_foreign_ones_and_no_dblink(
    odd_origin: Server, build: Build, account: Account, server_dir: Path
) -> None:
    backup = backup_of(odd_origin, build, server_dir / "backup")
    data = examined(OwnData(source=str(backup), database="odd"))
    data_dir = server_dir / "data"
    assert loaded(data, build, account, data_dir)["changes"] == [
        "foreign tables are empty local tables: public.parted_2, public.remote",
        "tables of jobs are empty: cron.job",
        "dblink returns no row to its callers: public.linked",
    ]
    with opened(build, account, data_dir, "odd") as connection:
        expected = {
            "SELECT count(*) FROM remote": 0,
            "SELECT count(*) FROM above_remote": 0,
            "SELECT count(*) FROM cron.job": 0,
            "SELECT count(*) FROM pg_foreign_server": 0,
            "SELECT count(*) FROM pg_user_mapping": 0,
            "SELECT count(*) FROM parted": 1,
            "SELECT count(*) FROM all_hidden": 990,
            "SELECT count(*) FROM dblink('host=nowhere', 'SELECT 1') AS t (n int)": 0,
        }
        require_values(connection, expected)
        connection.execute(
            "INSERT INTO remote VALUES (1, (SELECT string_agg(n::text, ' ') FROM"
            " generate_series(1, 100000) AS n))"
        )
        connection.execute("INSERT INTO parted VALUES (11)")
        connection.execute("REFRESH MATERIALIZED VIEW linked")
        connection.execute("VACUUM FULL remote")
        assert scalar(connection, "SELECT count(*) FROM above_remote") == 1
        assert scalar(connection, "SELECT count(*) FROM linked") == 0
    files = [path for path in (data_dir / "global", data_dir / "base") for path in path.rglob("*")]
    assert not any(SECRET.encode() in path.read_bytes() for path in files if path.is_file())


BROKEN: Mapping[str, tuple[str, str]] = {
    "rows": ("CREATE TABLE t (n int);\nCOPY t FROM stdin;\nsecret\n\\.\n", r"a\.sql:4: ERROR:  .*integer"),
    "extension": ("CREATE EXTENSION IF NOT EXISTS of_mine;\n", "needs the extensions of_mine"),
    "locale": ("CREATE DATABASE x WITH ENCODING = 'UTF8' LOCALE = 'xx_XX';\n", "--locale C"),
    "empty": ("SELECT 1;\n", "contains no table"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_dump_with_errors_is_refused_with_its_first_error(
    kind: str, build: Build, account: Account, server_dir: Path
) -> None:
    text, message = BROKEN[kind]
    (server_dir / "a.sql").write_text(text)
    with pytest.raises(DatasetError, match=message):
        loaded(server_dir / "a.sql", build, account, server_dir / "data")
