"""pgdyno-sysbench compared with sysbench 1.0.20: the same seed, statements, names and reports."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from pgdyno.server.builds import Build
from pgdyno.server.engine import Engine, find_engine
from pgdyno.server.processes import Cluster, Server

SYSBENCH = shutil.which("sysbench") or ""
pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(not SYSBENCH, reason="NO SYSBENCH: there is none to compare with"),
]

SMALL = "--table-size=500 --tables=3 --rand-seed=42"

RUNS = [
    *(
        pytest.param(script, "", id=script)
        for script in (
            "oltp_point_select",
            "oltp_read_only",
            "oltp_read_write",
            "oltp_write_only",
            "oltp_update_index",
            "oltp_update_non_index",
            "oltp_delete",
            "oltp_insert",
            "select_random_points",
            "select_random_ranges",
        )
    ),
    pytest.param("oltp_read_write", "--rand-type=uniform", id="uniform"),
    pytest.param("oltp_read_write", "--rand-type=gaussian --rand-spec-iter=3", id="gaussian"),
    pytest.param("oltp_read_write", "--rand-type=pareto --rand-pareto-h=0.4", id="pareto"),
    pytest.param("oltp_read_write", "--rand-spec-pct=10 --rand-spec-res=30", id="special"),
    pytest.param("oltp_read_write", "--skip_trx=on --range_selects=off", id="without transactions"),
    pytest.param("oltp_read_write", "--db-ps-mode=disable", id="without prepared statements"),
    pytest.param(
        "oltp_read_write",
        "--point_selects=2 --simple_ranges=2 --sum_ranges=0 --order_ranges=3 --distinct_ranges=2"
        " --index_updates=3 --non_index_updates=2 --delete_inserts=3 --range_size=7",
        id="numbers of statements",
    ),
    pytest.param("select_random_points", "--random_points=3", id="points"),
    pytest.param("select_random_ranges", "--number_of_ranges=2 --delta=50", id="ranges"),
]

SCRIPTS = {
    "random": """
        function thread_init() con = sysbench.sql.driver():connect() end
        function event()
            local r = sysbench.rand
            for _, name in ipairs({"uniform", "gaussian", "special", "pareto", "default"}) do
                for _, range in ipairs({{1, 10}, {0, 99}, {500, 999}, {1, 4000000000}, {7, 7}}) do
                    print(name, r[name](range[1], range[2]))
                end
            end
            print(r.string("##-@@ x"))
            print(string.format("%.17g", r.uniform_double()), tostring(r.uniform_uint64()))
            print(sb_rand(1, 100), sb_rand_uniform(1, 100), sb_rand_str("@@@"))
        end""",
    "results": """
        function thread_init()
            con = sysbench.sql.driver():connect()
            con:query("DROP TABLE IF EXISTS api")
            con:query("CREATE TABLE api (id int PRIMARY KEY, t text)")
            con:query("INSERT INTO api VALUES (1, 'a'), (2, NULL)")
        end
        function event()
            local rs = con:query("SELECT id, t FROM api ORDER BY 1")
            print(rs.nrows, rs.nfields)
            for i = 1, rs.nrows do print(unpack(rs:fetch_row(), 1, rs.nfields)) end
            print(con:query_row("SELECT 1, 'x', NULL, 2.5"))
            print(con:query_row("SELECT 1 WHERE false"))
            con:query("UPDATE api SET t = 'z' WHERE id = 99")
            con:query("UPDATE api SET t = 'z' WHERE id = 1")
            local s = con:prepare("SELECT i FROM generate_series(1, ?) i")
            local p = s:bind_create(sysbench.sql.type.INT)
            s:bind_param(p)
            p:set(2.9)
            print(s:execute().nrows)
        end""",
    "texts longer than their parameter": """
        function thread_init()
            con = sysbench.sql.driver():connect()
            statement = con:prepare("SELECT ?::text")
            text = statement:bind_create(sysbench.sql.type.CHAR, 5)
            statement:bind_param(text)
        end
        function event()
            for _, value in ipairs({"abcdefgh", "abc"}) do
                text:set(value)
                print(statement:execute().nrows)
            end
        end""",
    "restarts": """
        function thread_init()
            con = sysbench.sql.driver():connect()
            con:query("DROP TABLE IF EXISTS once")
            con:query("CREATE TABLE once (i int PRIMARY KEY)")
        end
        sysbench.hooks.before_restart_event = function(e)
            print(e.errcode, e.sql_errno, e.sql_state, e.sql_errmsg, e.query)
        end
        local n = 0
        function event()
            n = n + 1
            if n == 4 then n = 100 end
            con:query("BEGIN")
            con:query("INSERT INTO once VALUES (" .. (n < 4 and 1 or n) .. ")")
            con:query("COMMIT")
        end""",
    "ignored": """
        function thread_init() con = sysbench.sql.driver():connect() end
        sysbench.hooks.sql_error_ignorable = function(e) print("ignorable", e.sql_state) return true end
        local n = 0
        function event()
            n = n + 1
            if n < 3 then con:query("SELECT 1 / 0") end
        end""",
    "fatal": """
        function thread_init() con = sysbench.sql.driver():connect() end
        function event()
            print(pcall(con.query, con, "SELECT 1 / 0"))
            con:query("SELECT * FROM missing")
        end""",
    "a lua error": "function event() local x = nil; x.y = 1 end",
    "no event": "function prepare() end",
    "counters": """
        local ffi = require("ffi")
        ffi.cdef([[ void sb_counter_inc(int thread_id, sb_counter_type counter); ]])
        function thread_init() con = sysbench.sql.driver():connect() end
        function event()
            for _, name in ipairs({"OTHER", "READ", "WRITE", "ERROR", "RECONNECT"}) do
                local counter = ffi.C["SB_CNT_" .. name]
                for i = 1, tonumber(counter) + 1 do ffi.C.sb_counter_inc(sysbench.tid, counter) end
            end
            print(tonumber(ffi.C.SB_CNT_MAX))
        end""",
    "a connection of the event's own": """
        function event()
            local con = sysbench.sql.driver():connect()
            con:query("SELECT 1")
            con:disconnect()
        end""",
    "a connection of a loop of the script's own": """
        function event() end
        function thread_run(id)
            con = sysbench.sql.driver():connect()
            while ffi.C.sb_more_events(id) do
                ffi.C.sb_event_start(id)
                con:query("SELECT 1")
                ffi.C.sb_event_stop(id)
            end
        end
        function thread_done() con:query("SELECT 2") end""",
    "a connection from the start to the end of a run": """
        function init() main = sysbench.sql.driver():connect() end
        function thread_init() con = sysbench.sql.driver():connect() end
        function event() con:query("SELECT 1") end
        function done() print(main:query_row("SELECT 2")) end""",
    "functions of 0.5": """
        function event(id)
            print(id, thread_id, mysql_table_engine, myisam_max_rows, db_driver, percentile, oltp_reads)
            print(DB_ERROR_NONE, DB_ERROR_RESTART_TRANSACTION, DB_ERROR_FAILED, sysbench.db.DB_ERROR_FAILED)
            for _, name in ipairs({"connect", "disconnect", "query", "bulk_insert_init", "bulk_insert_next",
                    "bulk_insert_done", "prepare", "bind_param", "bind_result", "execute", "store_results",
                    "free_results", "close"}) do
                print(name, type(sysbench.db[name]))
            end
            print(sb_rand(1, 9), sb_rand_uniform(1, 9), sb_rand_gaussian(1, 9), sb_rand_special(1, 9))
            print(sb_rand_str("#@"))
            print(type(sb_rand_uniq()), type(sb_rnd()))
            db_query("DROP TABLE IF EXISTS legacy")
            db_query("CREATE TABLE legacy (i int)")
            db_bulk_insert_init("INSERT INTO legacy VALUES")
            for i = 1, 5 do db_bulk_insert_next("(" .. i .. ")") end
            db_bulk_insert_done()
            local statement = db_prepare("SELECT i FROM legacy WHERE i = ?")
            local found = {0}
            db_bind_param(statement, {3})
            db_bind_result(statement, found)
            db_store_results(db_execute(statement))
            print("bound", found[1])
            db_close(statement)
            sysbench.db.query("DROP TABLE legacy")
            db_disconnect()
        end""",
    "the API": """
        local function types(name, object, members)
            for member in members:gmatch("%S+") do
                local value = object[member]
                print(name, member, type(value), type(value) == "number" and value or "")
            end
        end
        function event()
            types("sysbench", sysbench, "tid version opt error hooks cmdline rand sql histogram"
                .. " report_default report_csv report_json")
            types("error", sysbench.error, "NONE RESTART_EVENT")
            types("cmdline", sysbench.cmdline, "ARG_NULL ARG_BOOL ARG_INT ARG_SIZE ARG_DOUBLE ARG_STRING"
                .. " ARG_LIST ARG_FILE ARG_MAX PARALLEL_COMMAND argv command script_path options commands")
            types("rand", sysbench.rand, "default uniform gaussian special pareto unique string"
                .. " uniform_double uniform_uint64")
            types("sql.type", sysbench.sql.type, "NONE TINYINT SMALLINT INT BIGINT FLOAT DOUBLE TIME DATE"
                .. " DATETIME TIMESTAMP CHAR VARCHAR")
            types("sql.error", sysbench.sql.error, "NONE IGNORABLE FATAL")
            print(sysbench.version, sysbench.tid, sysbench.cmdline.command)
            local driver = sysbench.sql.driver()
            types("driver", driver, "name connect")
            print(driver:name(), tostring(driver))
            local con = driver:connect()
            types("connection", con, "query query_row prepare bulk_insert_init bulk_insert_next"
                .. " bulk_insert_done disconnect")
            print(tostring(con))
            local statement = con:prepare("SELECT ?::bigint, ?::text, ?::float8, ?::int, ?::int")
            types("statement", statement, "bind_create bind_param execute close")
            local T = sysbench.sql.type
            local one, two = statement:bind_create(T.INT), statement:bind_create(T.VARCHAR, 20)
            local four, five = statement:bind_create(T.TINYINT), statement:bind_create(T.BIGINT)
            local three = statement:bind_create(T.VARCHAR, 9)
            types("parameter", one, "set set_rand_str")
            types("parameter", two, "type max_len")
            statement:bind_param(one, two, three, four, five)
            one:set(-3.7) two:set_rand_str("##-@@") three:set("2.5") four:set(7) five:set(-8)
            local rs = statement:execute()
            types("result", rs, "fetch_row free nrows nfields")
            print(rs:free(), statement:close(), tostring(statement), tostring(one), tostring(rs))
            local histogram = sysbench.histogram.new(16, 0.1, 10)
            for _, ms in ipairs({0.2, 1, 1, 3}) do histogram:update(ms) end
            histogram:print()
            print(con:disconnect())
        end""",
    "a reporting hook": """
        function event() end
        sysbench.hooks.report_cumulative = function(stat) print(stat.events, stat.reads, stat.errors) end""",
    "bulk insert": """
        function thread_init()
            con = sysbench.sql.driver():connect()
            con:query("CREATE TABLE bulk (i int, t text)")
        end
        function event()
            con:bulk_insert_init("INSERT INTO bulk VALUES")
            for i = 1, 9000 do con:bulk_insert_next("(" .. i .. ", '" .. string.rep("x", i % 150) .. "')") end
            con:bulk_insert_done()
        end
        function thread_done() con:query("DROP TABLE bulk") end""",
}


@dataclass
class Programs:
    """Both programs on a database of a server that logs its statements."""

    server: Server
    log: Path
    database: str = "postgres"

    def ask(self, *queries: str) -> list[object]:
        """Return the rows of each query with results."""
        with closing(psycopg.connect(self.server.conninfo(self.database), autocommit=True)) as connection:
            cursors = [connection.execute(query.encode()) for query in queries]
            return [cursor.fetchall() for cursor in cursors if cursor.description]

    def ended(self, program: str, line: str) -> subprocess.CompletedProcess[str]:
        """Return a run that has ended, with its whole output."""
        to = conninfo_to_dict(self.server.conninfo(self.database))
        where = [f"--pgsql-host={to['host']}", f"--pgsql-port={to['port']}", f"--pgsql-user={to['user']}"]
        command = [program, "--db-driver=pgsql", *where, f"--pgsql-db={self.database}", *line.split()]
        return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)

    def run(self, program: str, line: str) -> tuple[int, list[str], list[str]]:
        """Return the exit status, the comparable lines of the output, and the statements received by the
        server.
        """
        start = self.log.stat().st_size
        done = self.ended(program, line)
        with closing(self.server.connect()) as connection:
            # The log is written in order: it contains the complete run before this.
            connection.execute("SELECT 'the run has ended'")
        with self.log.open(errors="replace") as file:
            file.seek(start)
            logged = file.read().split("statement: SELECT 'the run has ended'")[0]
        return done.returncode, comparable(done.stdout + done.stderr), statements(logged)


def comparable(output: str) -> list[str]:
    """Return the lines without version, times and rates."""
    lines = [re.sub(r"\s*\(\d+\.\d+ per sec\.\)", "", line.rstrip()) for line in output.splitlines()]
    return [
        line
        for line in lines
        if line and not re.search(r"^sysbench |:\s+[\d.]+s?$|time \(avg|percentile", line)
    ] + [
        line
        for line in lines
        if re.search(r"(read|write|other|total|events|transactions|queries|errors|reconnects):\s+\d+$", line)
    ]


def statements(log: str) -> list[str]:
    entries = re.split(r"^\d{4}-.*?\[\d+\] (?:\S+ )??(?=[A-Z]+: )", log, flags=re.MULTILINE)
    found = [" ".join(entry.split()) for entry in entries]
    return [entry for entry in found if re.match(r"LOG: (statement|execute)|DETAIL: param|ERROR|WARN", entry)]


@pytest.fixture(scope="module")
def programs(
    build: Build, new_cluster: Callable[[Build], AbstractContextManager[Cluster]]
) -> Iterator[Programs]:
    with new_cluster(build) as cluster, cluster.start({"log_statement": "all"}) as server:
        yield Programs(server, cluster.log_path)


@pytest.fixture(scope="module")
def ours() -> str:
    path = find_engine().with_name("pgdyno-sysbench")
    assert os.access(path, os.X_OK), path
    return str(path)


@pytest.fixture(scope="module")
def with_tables(programs: Programs, ours: str) -> Programs:
    """The programs on a database with the tables of stock scripts."""
    programs.ask("CREATE DATABASE stock")
    stock = replace(programs, database="stock")
    assert stock.run(ours, f"oltp_read_write {SMALL} prepare")[0] == 0
    return stock


@pytest.mark.parametrize(("script", "options"), RUNS)
def test_a_stock_script_sends_the_statements_of_sysbench(
    with_tables: Programs, ours: str, script: str, options: str
) -> None:
    line = f"{script} {SMALL} {options} --events=30 run"
    # The existing rows do not affect the statements, only the counts of writes.
    _, _, theirs = with_tables.run(SYSBENCH, line)
    status, _, got = with_tables.run(ours, line)
    assert status == 0
    assert theirs
    assert got == theirs


@pytest.mark.parametrize("script", ["select_random_points", "select_random_ranges"])
def test_each_thread_has_its_own_part_of_the_values(with_tables: Programs, ours: str, script: str) -> None:
    parts = []
    for program in (SYSBENCH, ours):
        line = f"{script} {SMALL} --threads=3 --rand-type=uniform --events=60 --delta=0 run"
        line = line if "ranges" in script else line.replace("--delta=0 ", "")
        _, _, sent = with_tables.run(program, line)
        events = [[int(n) for n in re.findall(r"= '(\d+)'", one)] for one in sent if one.startswith("DETAIL")]
        # A value at the end of a part may be the first one of the next part.
        assert all(max(values) - min(values) <= 500 / 3 + 1 for values in events)
        parts.append({int((min(values) + max(values)) / 2 * 3 / 500) for values in events})
    assert parts[0] | parts[1] == {0, 1, 2}


def test_prepare_of_oltp_insert_leaves_tables_without_rows_if_it_numbers_them(
    programs: Programs, ours: str
) -> None:
    line = "oltp_insert --auto_inc=off --table-size=50"
    for program in (SYSBENCH, ours):
        assert programs.run(program, f"{line} prepare")[0] == 0
        assert programs.ask("SELECT count(*) FROM sbtest1") == [[(0,)]]
        assert programs.run(program, f"{line} cleanup")[0] == 0


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_as_in_sysbench(programs: Programs, ours: str, tmp_path: Path, name: str) -> None:
    script = tmp_path / "script.lua"
    script.write_text(SCRIPTS[name])
    line = f"{script} --events=3 --rand-seed=7 run"
    theirs, got = programs.run(SYSBENCH, line), programs.run(ours, line)
    assert got == theirs


def test_intermediate_reports_have_the_queries_of_a_script_that_connects_in_its_events(
    programs: Programs, ours: str, tmp_path: Path
) -> None:
    script = tmp_path / "script.lua"
    text = SCRIPTS["a connection of the event's own"]
    script.write_text(text.replace("SELECT 1", "SELECT pg_sleep(0.05)"))  # not at full speed
    done = programs.ended(ours, f"{script} --time=2 --report-interval=1 run")
    lines = [line for line in done.stdout.splitlines() if line.startswith("[ ")]
    assert lines and all(" qps: " in line for line in lines), done.stdout


@pytest.mark.parametrize("threads", [1, 3])
def test_prepare_creates_the_tables_of_sysbench(programs: Programs, ours: str, threads: int) -> None:
    digits = re.compile(r"\d+")
    line = f"oltp_read_write --table-size=4000 --tables=2 --threads={threads}"
    found = []
    for program in (SYSBENCH, ours):
        status, output, sent = programs.run(program, f"{line} prepare")
        # Rows are random in sysbench for any seed; their format and number are not.
        shapes = sorted(digits.sub("#", statement) for statement in sent)
        # Threads of sysbench print concurrently, and may interleave their lines.
        lines = re.findall(
            r"(?:Creating|Inserting|Initializing).+?(?=Creating|Inserting|Initializing|$)", "".join(output)
        )
        found.append((status, sorted(lines), shapes))
        assert programs.run(program, f"{line} cleanup")[0] == 0
    assert found[0] == found[1]


SCHEMA = (
    """SELECT attrelid::regclass::text, attnum, attname, format_type(atttypid, atttypmod), attnotnull,
              pg_get_expr(adbin, adrelid)
         FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
         LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        WHERE relname LIKE 'sbtest%' AND relkind = 'r' AND attnum > 0 ORDER BY 1, 2""",
    "SELECT pg_get_indexdef(indexrelid), indisprimary FROM pg_index"
    " WHERE indrelid::regclass::text LIKE 'sbtest%' ORDER BY 1",
    "SELECT count(*), min(id), max(id), min(k) > 0, max(k) <= 3000,"
    " bool_and(length(c) = 119), bool_and(length(pad) = 59),"
    " bool_and(c ~ '^([0-9]{11}-){9}[0-9]{11}$'), bool_and(pad ~ '^([0-9]{11}-){4}[0-9]{11}$') FROM sbtest2",
)


@pytest.mark.parametrize("auto_inc", [True, False])
def test_the_engine_loads_the_tables_of_sysbench(programs: Programs, ours: str, auto_inc: bool) -> None:
    options = f"oltp_read_write --table-size=3000 --tables=2 --auto_inc={'on' if auto_inc else 'off'}"
    assert programs.run(SYSBENCH, f"{options} prepare")[0] == 0
    theirs = programs.ask(*SCHEMA)
    next_id = programs.ask("SELECT nextval('sbtest2_id_seq')") if auto_inc else []
    assert programs.run(SYSBENCH, f"{options} cleanup")[0] == 0
    specification = {
        "conninfo": programs.server.conninfo("postgres"),
        "workload": {"kind": "sysbench", "tables": 2, "table_size": 3000, "auto_inc": auto_inc},
        "seed": 1,
        "connections": 2,
        "into_existing": True,
    }
    for _ in range(2):  # the second time, the first tables are replaced
        with Engine("load", specification) as engine:
            result = list(engine.events())[-1]
        assert result["event"] == "result", result
    assert programs.ask(*SCHEMA) == theirs
    if auto_inc:
        assert programs.ask("SELECT nextval('sbtest2_id_seq')") == next_id
    # A table without the ownership marker is not replaced.
    programs.ask("COMMENT ON TABLE sbtest1 IS NULL")
    with Engine("load", specification) as engine:
        failed = list(engine.events())[-1]
    assert (failed["event"], failed["stage"]) == ("failed", "create")
    assert "the database has sbtest1, which pgdyno did not load" in failed["message"]
    assert programs.run(ours, f"{options} cleanup")[0] == 0


# A print of its own that writes each line at once: the built-in one writes its arguments and the end of the
# line one by one, and threads interleave them.
COMMANDS = """
function print(...)
    local texts = {}
    for i = 1, select("#", ...) do texts[i] = tostring((select(i, ...))) end
    io.stdout:write(table.concat(texts, "\\t") .. "\\n")
end
sysbench.cmdline.options = {a = {"An a", 5}, l = {"A list", {"x", "y"}}, b = {"A flag", false}}
sysbench.cmdline.commands = {
    mine = {function() print("mine", sysbench.cmdline.command) end, sysbench.cmdline.PARALLEL_COMMAND},
    alone = {function() print("alone", sysbench.tid) end},
    wrong = {function() error("boom") end},
}
function init() print("init") end
function done() print("done") end
function thread_done() print("thread_done") end
function event() print("event", sysbench.opt.a, sysbench.opt.b, table.concat(sysbench.opt.l, "+")) end
"""


@pytest.mark.parametrize(
    "line",
    [
        "mine --threads=2",
        "alone --threads=2",
        "wrong",
        "missing",
        "prepare",
        "cleanup",
        "help",
        "--events=2 run",
        "run --events=1 --a=7 --b --l=u,v",
        "run --events=1 --a=x",
        "run --events=1 --a=0.5",
        "run --events=1 --b=yes",
        "run --events=1 --b=1 --validate=true",
        "run --events=1 --time=10m",
        "run --events=1 --rate=1k",
        "run --events=1 --report-interval=99999999999",
        "run --events=1 --b=off --validate",
        "run --events=1 --percentile=0",
        "run --events=1 --verbosity=0",
        "run --events=1 --threads=2 --time=5",
        "run --events=1 --forced-shutdown=x",
        "run --events=1 --c=1",
    ],
)
def test_commands_and_options_of_a_script_work_as_in_sysbench(
    programs: Programs, ours: str, tmp_path: Path, line: str
) -> None:
    script = tmp_path / "script.lua"
    script.write_text(COMMANDS)
    theirs, got = programs.run(SYSBENCH, f"{script} {line}"), programs.run(ours, f"{script} {line}")
    # Threads write their lines in any order.
    assert (got[0], sorted(got[1])) == (theirs[0], sorted(theirs[1]))


def test_help_is_the_scripts_own_function_as_in_sysbench(
    programs: Programs, ours: str, tmp_path: Path
) -> None:
    script = tmp_path / "script.lua"
    script.write_text(COMMANDS + "function help() print('my help') end")
    assert programs.run(ours, f"{script} help") == programs.run(SYSBENCH, f"{script} help")


ORDER_ENTRY = Path(__file__).parents[2] / "bench" / "order_entry.lua"


def test_a_script_in_the_manner_of_sysbench_tpcc_runs_in_both(programs: Programs, ours: str) -> None:
    # One in 200 transactions asks for an item that does not exist, which the script counts as an error.
    line = f"{ORDER_ENTRY} --tables=2 --scale=2 --items=200 --rand-seed=5"
    found = []
    for program in (SYSBENCH, ours):
        # With the same seed, ours makes the same rows each time.
        prepared = programs.run(ours, f"{line} --threads=2 --settle_ms=10 prepare")
        assert (prepared[0], len(prepared[2]) > 40) == (0, True)
        run = programs.run(program, f"{line} --events=1000 --time=0 run")
        checked = programs.run(program, f"{line} check")
        found.append((run, checked))
        assert programs.run(program, f"{line} cleanup")[0] == 0
    assert found[0] == found[1]
    (status, output, _), (_, checks, _) = found[1]
    assert (status, [line for line in checks if line.startswith("set")]) == (
        0,
        ["set 1: passed", "set 2: passed"],
    )
    assert not any(re.search(r"ignored errors:\s+0$", line) for line in output)


def test_data_that_sysbench_made_are_used_by_ours(programs: Programs, ours: str) -> None:
    line = f"{ORDER_ENTRY} --tables=1 --scale=1 --items=100 --threads=4"
    assert programs.run(SYSBENCH, f"{line} prepare")[0] == 0
    assert programs.run(ours, f"{line} --events=200 --time=0 run")[0] == 0
    for program in (SYSBENCH, ours):
        assert "set 1: passed" in programs.run(program, f"{line} check")[1]
    assert programs.run(ours, f"{line} cleanup")[0] == 0


def test_processes_of_a_script_need_allow_os(programs: Programs, ours: str, tmp_path: Path) -> None:
    script = tmp_path / "script.lua"
    script.write_text("function prepare() os.execute('true') end function event() end")
    status, output, _ = programs.run(ours, f"{script} prepare")
    assert status == 1
    assert any("os.execute is not available without --allow-os" in line for line in output)
    assert programs.run(ours, f"{script} --allow-os prepare")[0] == 0


def test_an_unknown_option_is_refused_as_in_sysbench(programs: Programs, ours: str) -> None:
    for line in (
        "oltp_read_only --bogus=1 run",
        "oltp_read_only nothing",
        "missing_script run",
        "oltp_read_only run --threads=0",
        "oltp_read_only run --rand-type=bogus",
        "bulk_insert help",
    ):
        assert programs.run(ours, line) == programs.run(SYSBENCH, line), line
