"""sysbench workload, end to end: bundled scripts and a script with its own data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from program import COUNTED, Program

from pgdyno.results.reader import Evidence
from pgdyno.server.processes import Server

SMALL = (*("--workload", "sysbench", "--clients", "2", "--seed", "7", "--blocks", "1", "--json"), *COUNTED)
DRIVE = ("--clients", "2", "--rate", "50", "--warmup", "0s", "--window", "3s", "--json")
"""Longer than a pause of the machine."""

OWN = """
require("own_common")
sysbench.cmdline.options = { rows = {"Rows", 10} }
sysbench.cmdline.commands = { prepare = {fill, sysbench.cmdline.PARALLEL_COMMAND} }
function thread_init() con = sysbench.sql.driver():connect() end
function event()
  local id = sysbench.rand.uniform(1, sysbench.opt.rows)
  con:query("UPDATE own" .. sysbench.tid % sysbench.opt.threads + 1 .. " SET n = n + 1 WHERE id = " .. id)
end
"""

OWN_COMMON = """
function fill()
  local con = sysbench.sql.driver():connect()
  local name = "own" .. sysbench.tid % sysbench.opt.threads + 1
  con:query("CREATE TABLE " .. name .. " (id int PRIMARY KEY, n int)")
  con:bulk_insert_init("INSERT INTO " .. name .. " VALUES")
  for id = 1, sysbench.opt.rows do con:bulk_insert_next("(" .. id .. ", 0)") end
  con:bulk_insert_done()
end
"""


def write_own(folder: Path) -> Path:
    (folder / "own.lua").write_text(OWN)
    (folder / "own_common.lua").write_text(OWN_COMMON)
    return folder / "own.lua"


def test_a_comparison_by_a_stock_script_passes_its_checks(
    program: Program, server: str, tmp_path: Path
) -> None:
    evidence = tmp_path / "e.sqlite"
    data = ("--tables", "2", "--table-size", "1000")
    after_dashes = ("--", "--point_selects=2")
    ended = program.succeed("compare", *SMALL, *data, "--evidence", evidence, server, server, *after_dashes)
    assert list(ended.case["arms"][0]["latency_ms"]) == ["event", "all"]
    with Evidence(evidence) as opened:
        for trial in opened.trials():
            assert {check.name: check.passed for check in trial.checks} == {
                "row count": True,
                "server log": True,
            }
            assert trial.counters["queries_read"] > 0
    shown = program.run("report", evidence, "--md")
    assert r"| script name | oltp\_read\_write |" in shown.out
    assert "| point-selects | 2 |" in shown.out


def test_a_script_in_the_manner_of_sysbench_tpcc_is_compared(program: Program, server: str) -> None:
    script = Path(__file__).parents[2] / "bench" / "order_entry.lua"
    options = ("--script", script)
    ended = program.succeed(
        "compare", *SMALL, *options, server, server, "--", "--scale=2", "--items=100", "--trx-level=RC"
    )
    assert "own-scripts-not-checked" in {caveat["code"] for caveat in ended.json()["caveats"]}
    counts = ended.case["arms"][0]["counts"]["event"]
    assert (counts["failed"], counts["ok"] > 0) == (0, True)


def test_an_invalid_script_is_rejected_before_servers_are_resolved(program: Program, tmp_path: Path) -> None:
    (tmp_path / "mine.lua").write_text("function event() end\nx = nil + 1")
    nowhere = tmp_path / "nowhere"
    ended = program.run("compare", *SMALL, "--script", tmp_path / "mine.lua", nowhere, nowhere)
    assert ended.status == 2
    assert "mine.lua:2: " in ended.complaint
    assert ended.err.splitlines()[-1:] == ended.complaints, ended.err


@pytest.fixture
def dsn(running_server: Server) -> Iterator[str]:
    yield running_server.conninfo("sbtest")
    with closing(running_server.connect()) as connection:
        connection.execute("drop database if exists sbtest")


def test_tables_are_loaded_and_driven_step_by_step(program: Program, dsn: str) -> None:
    size = ("--tables", "2", "--table-size", "500")
    loaded = program.succeed("load", dsn, "--workload", "sysbench", *size, "--json")
    assert loaded.json()["rows"] == {"sbtest1": 500, "sbtest2": 500}
    driven = program.succeed("drive", dsn, "--workload", "sysbench", *DRIVE, *size, "--script", "oltp_insert")
    events = driven.json()["counts"]["event"]
    assert (events["failed"], events["ok"] > 0) == (0, True)
    missing = program.run("compare", *SMALL, "--tables", "3", "--into-existing", dsn, dsn)
    assert (
        "has no table sbtest3: load the data with pgdyno load --workload sysbench --tables 3" in missing.err
    )


def test_data_of_a_script_are_prepared_in_parallel_and_driven(
    program: Program, running_server: Server, dsn: str, tmp_path: Path
) -> None:
    options = ("--script", write_own(tmp_path), "--opt", "rows=20", "--prepare-threads", "2")
    program.succeed("load", dsn, "--workload", "sysbench", *options, "--json")
    with closing(running_server.connect("sbtest")) as connection:
        found = connection.execute(
            "select (select count(*) from own1), (select count(*) from own2)"
        ).fetchone()
    assert found == (20, 20)
    driven = program.succeed("drive", dsn, "--workload", "sysbench", *DRIVE, *options[:4])
    events = driven.json()["counts"]["event"]
    assert (events["failed"], events["ok"] > 0) == (0, True)


def test_a_failed_prepare_contains_the_error_of_the_server(
    program: Program, running_server: Server, dsn: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.lua").write_text(
        "function prepare() sysbench.sql.driver():connect():query('SELECT 1/0') end function event() end"
    )
    ended = program.run("load", dsn, "--workload", "sysbench", "--script", tmp_path / "bad.lua")
    assert ended.status == 1
    assert "cannot prepare the data of bad.lua: " in ended.err
    assert "division by zero" in ended.err
    with closing(running_server.connect()) as connection:
        found = connection.execute("select count(*) from pg_database where datname = 'sbtest'").fetchone()
    assert found == (0,)
