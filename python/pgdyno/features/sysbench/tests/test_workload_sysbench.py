"""sysbench workload in Python: parameters, script files, options, and checks after a trial."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import ValidationError

from pgdyno.cli.compare import command_of
from pgdyno.cli.workload_options import Which, chosen_parameters
from pgdyno.errors import DatasetError, UsageError
from pgdyno.features.sysbench import data
from pgdyno.features.sysbench.data import Sysbench, check_row_count
from pgdyno.features.sysbench.options import SysbenchOptions
from pgdyno.features.sysbench.parameters import STOCK, SysbenchParameters, script_fields
from pgdyno.interruption import Interruption
from pgdyno.measure import engine_runs
from pgdyno.measure.engine_runs import run_load
from pgdyno.server.engine import TargetResult
from pgdyno.study.cases import cases_of
from pgdyno.study.plan import Driving
from pgdyno.study.study_file_reader import examine_text


def parameters(**given: Any) -> SysbenchParameters:
    return SysbenchParameters.model_validate(given)


MINE = {"name": "mine.lua", "text": "function event() end"}
WITH_DATA = {"name": "mine.lua", "text": "function prepare() end function event() end"}


def test_only_parameters_of_the_data_determine_the_dataset() -> None:
    base = parameters().shape()
    others = [{"tables": 2}, {"table_size": 5}, {"options": {"auto-inc": "off"}}]
    others += [{"options": {"create-secondary": False}}, {"script": WITH_DATA}]
    shapes = [str(parameters(**given).shape()) for given in others]
    assert len({str(base), *shapes}) == len(shapes) + 1
    for same in ({"script": "oltp_read_only"}, {"script": MINE}, {"options": {"point-selects": 3}}):
        assert parameters(**same).shape() == base


def test_data_of_a_script_depend_on_all_that_its_prepare_sees() -> None:
    base = parameters(script=WITH_DATA)
    assert base.to_load()["kind"] == "sysbench-script"
    for other in (
        {"script": {**WITH_DATA, "text": WITH_DATA["text"] + " "}},
        {"script": WITH_DATA, "modules": {"m": "x = 1"}},
        {"script": WITH_DATA, "options": {"scale": "2"}},
        {"script": WITH_DATA, "tables": 2},
        {"script": WITH_DATA, "prepare_threads": 2},
    ):
        assert parameters(**other).shape() != base.shape()


def test_data_are_prepared_in_one_thread_as_in_sysbench_unless_asked() -> None:
    for script, usual in ((WITH_DATA, 1), ("bulk_insert", 4)):
        for given, threads in (({}, usual), ({"prepare_threads": 8}, 8)):
            asked = parameters(script=script, **given)
            assert asked.to_load()["threads"] == asked.shape()["prepare_threads"] == threads


@pytest.mark.parametrize(("threads", "is_named"), [(1, False), (4, True)])
def test_a_parallel_prepare_that_fails_names_its_option(
    monkeypatch: pytest.MonkeyPatch, threads: int, is_named: bool
) -> None:
    failed = {"event": "failed", "stage": "prepare", "message": "relation exists", "target": None}
    engine = SimpleNamespace(events=lambda: iter([failed]), stop=lambda: None)
    monkeypatch.setattr(engine_runs, "Engine", lambda *_: nullcontext(engine))
    load = parameters(script=WITH_DATA, prepare_threads=threads).to_load()
    with pytest.raises(DatasetError, match="relation exists") as caught:
        run_load({"workload": load}, Interruption(), lambda *_: None, lambda _: None)
    assert ("prepare_threads = 1" in str(caught.value)) == is_named


def test_options_have_one_spelling_and_tables_are_fields() -> None:
    found = parameters(options={"--point_selects": 3, "tables": "4", "table-size": 50, "skip_trx": True})
    assert (found.tables, found.table_size) == (4, 50)
    assert found.options == {"point-selects": "3", "skip-trx": "on"}
    assert found.to_drive()["options"] == {**found.options, "tables": "4", "table-size": "50"}
    # The seed of random numbers is the engine's.
    drive = parameters(options={"rand-seed": 7, "db-driver": "pgsql"}).to_drive()
    assert (drive["random_seed"], drive["options"]) == (7, {})
    assert parameters().to_drive()["random_seed"] is None
    for text, allowed in (("", True), ("on", True), ("off", False)):
        drive = parameters(options={"allow-os": text, "pgsql-variant": "redshift"}).to_drive()
        assert (drive["allow_os"], drive["options"]) == (allowed, {"pgsql-variant": "redshift"})
    assert parameters(options={"skip-trx": ""}).row_change == "unknown"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"script": "oltp_red_only"}, "unknown sysbench script 'oltp_red_only'"),
        ({"options": {"threads": 4}}, "use --clients"),
        ({"options": {"time": 4}}, "use --minutes"),
        ({"options": {"report-interval": 1}}, "option of the program pgdyno-sysbench"),
        ({"options": {"mysql-host": "x"}}, "the only driver is pgsql"),
        ({"options": {"db-driver": "mysql"}}, "the only driver is pgsql"),
        ({"options": {"pgsql-host": "x"}}, "the arm names the server"),
        ({"options": {"pgsql-sslmode": "require"}}, "the arm names the server"),
        ({"options": {"thread-init-timeout": 9}}, "option of the program pgdyno-sysbench"),
        ({"options": {"allow-os": "maybe"}}, "allow-os must be on or off"),
        ({"allow_os": False, "options": {"allow-os": "on"}}, "may be given once"),
        ({"options": {"tables": "many"}}, "tables must be a number"),
        ({"tables": 1, "options": {"tables": "2"}}, "may be given once"),
        ({"options": {"rand-seed": "x"}}, "rand-seed must be a whole number"),
        ({"table_size": 0}, "greater than or equal to 1"),
    ],
)
def test_a_study_that_cannot_run_is_rejected_with_the_remedy(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        parameters(**given)


def test_bulk_insert_needs_a_table_for_each_client() -> None:
    with pytest.raises(ValidationError, match="use fewer clients, or set prepare_threads to 8"):
        Driving(workload=parameters(script="bulk_insert"), clients=8)
    assert Driving(workload=parameters(script="bulk_insert", prepare_threads=8), clients=8)


def test_every_stock_script_is_known_by_both_names() -> None:
    for name in STOCK:
        for spelling in (name, f"{name}.lua"):
            assert script_fields(spelling, Path("/nowhere")) == {"script": {"name": name}}


def test_a_script_file_includes_the_modules_that_it_requires(tmp_path: Path) -> None:
    mine, one = 'require("one")\nfunction event() end', "dofile('two.lua')"
    for name, text in {"mine": mine, "one": one, "two": "x = 1", "other": "y = 1"}.items():
        (tmp_path / f"{name}.lua").write_text(text)
    found = script_fields(str(tmp_path / "mine.lua"), Path())
    assert found["script"]["name"] == "mine.lua"
    assert found["modules"] == {"one": "dofile('two.lua')", "two": "x = 1"}
    assert script_fields("mine", tmp_path) == script_fields("mine.lua", tmp_path)


def test_a_file_in_the_directory_precedes_a_stock_script_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "oltp_insert.lua").write_text("function event() end")
    assert script_fields("oltp_insert.lua", tmp_path)["script"]["text"] == "function event() end"
    assert script_fields("oltp_insert", tmp_path)["script"] == {"name": "oltp_insert"}


def test_unreadable_scripts_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "bytes.lua").write_bytes(b"\xff\xfe")
    (tmp_path / "large.lua").write_bytes(b"-" * (1 << 20 | 1))
    for name, complaint in (("none.lua", "No such file"), ("bytes.lua", "not UTF-8"), ("large.lua", "1 MiB")):
        with pytest.raises(UsageError, match=complaint):
            script_fields(name, tmp_path)
    for name in ("", ".", "/"):
        with pytest.raises(UsageError, match="Is a directory"):
            script_fields(name, Path())


def test_options_of_the_command_line_reach_the_script() -> None:
    options = SysbenchOptions(script="oltp_read_only", options=["point-selects=5"])
    found = chosen_parameters(Which("sysbench"), options.with_arguments(["--tables=3", "--skip_trx"]))
    assert isinstance(found, SysbenchParameters)
    assert (found.script.name, found.tables) == ("oltp_read_only", 3)
    assert found.options == {"point-selects": "5", "skip-trx": "on"}


STUDY = """
title = "x"
compare = ["server"]
[workload]
kind = "sysbench"
script = "oltp_read_only"
options = {point-selects = 5, skip-trx = true}
[drive]
clients = 2
[factors]
server = ["17", "18"]
table_size = [1000, 2000]
[run]
budget = "10min"
"""


def test_a_study_file_has_scripts_options_and_sizes_as_factors() -> None:
    file, errors = examine_text(STUDY, "x.toml")
    assert errors == []
    workloads = [case.study.workload for case in cases_of(file)]
    assert [one.shape()["table_size"] for one in workloads] == [1000, 2000]
    assert isinstance(workloads[0], SysbenchParameters)
    assert workloads[0].options == {"point-selects": "5", "skip-trx": "on"}
    plan = cases_of(file)[0].study
    command = command_of(plan, ["compare", "17", "18", "--", "--tables=2"])
    assert command.endswith(f"--seed {plan.seed} -- --tables=2")  # before options of the script
    _, errors = examine_text(STUDY.replace("oltp_read_only", "oltp"), "x.toml")
    assert "unknown sysbench script 'oltp'" in errors[0]


@pytest.mark.parametrize(
    ("script", "grown", "passes"),
    [
        ("oltp_read_only", 0, True),
        ("oltp_read_only", 1, False),
        ("oltp_read_write", 0, True),
        ("oltp_read_write", -1, False),
        ("oltp_insert", 10, True),
        ("oltp_insert", 9, False),
        ("oltp_insert", 11, False),
        ("oltp_delete", -10, True),
        ("oltp_delete", -4, True),
        ("oltp_delete", -11, False),
        ("oltp_delete", 1, False),
    ],
)
def test_missing_and_extra_rows_are_found(script: str, grown: int, passes: bool) -> None:
    assert check_row_count(parameters(script=script), grown, 10).passed is passes


def test_rows_are_counted_table_by_table_since_a_statement_locks_all_of_its_tables() -> None:
    sent: list[str] = []

    def execute(query: Any, *_: Any) -> Any:
        sent.append(str(query))
        return SimpleNamespace(fetchall=lambda: [(len(sent),)])

    connection = cast(Any, SimpleNamespace(info=SimpleNamespace(dbname="mine"), execute=execute))
    assert data.count_rows(connection, ["sbtest1", "sbtest2", "sbtest3"]) == 3 + 4 + 5
    assert [query.count("sbtest") for query in sent] == [0, 0, 1, 1, 1]  # the settings come first


def ended(
    monkeypatch: pytest.MonkeyPatch, script: Any, rows: int, log: str, **counts: int
) -> dict[str, bool]:
    """Return the checks after a trial by name, and whether each passed."""

    monkeypatch.setattr(data, "count_rows", lambda _conn, _tables: rows)
    totals = {"event": {"ok": 0, "rolled_back": 0, "failed": 0, "retried": 0, "skipped": 0, **counts}}
    result = TargetResult({}, totals, {}, {}, 0)
    checks = Sysbench(parameters(script=script)).checks(2, restored=True)
    found = checks.end(lambda: cast(Any, SimpleNamespace(close=lambda: None)), result, log)
    return {check.name: check.passed for check in found}


def test_errors_in_the_log_are_expected_as_often_as_the_driver_counted_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    duplicate = 'ERROR:  duplicate key value violates unique constraint "sbtest1_pkey"\n'
    rolled_back = "WARNING:  there is no transaction in progress\n"
    both = {"row count": True, "server log": True}
    assert ended(monkeypatch, "oltp_read_write", 10_000, duplicate + rolled_back, ok=3, retried=1) == both
    assert not ended(monkeypatch, "oltp_read_write", 10_000, duplicate * 2, ok=3, retried=1)["server log"]
    other = 'ERROR:  relation "sbtest1" does not exist\n'
    assert ended(monkeypatch, "oltp_read_only", 10_000, other, failed=1) == both
    assert not ended(monkeypatch, "oltp_read_only", 10_000, other, ok=1)["server log"]
    # The effect of a user's script on the rows is unknown.
    log = "WARNING:  something\nERROR:  division by zero\n"
    assert ended(monkeypatch, MINE, 1, log, failed=1) == {"server log": True}
    assert not ended(monkeypatch, MINE, 1, log)["server log"]


def test_data_of_a_script_are_never_replaced() -> None:
    connection = cast(Any, SimpleNamespace(info=SimpleNamespace(dbname="mine")))
    with pytest.raises(DatasetError, match="cannot replace its tables: name a new database"):
        Sysbench(parameters(script=WITH_DATA)).require_replaceable(connection)
