"""insert workload in Python: parameters, checks after a trial, the insert rate, and costs of an operation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import synthetic_study
from pydantic import ValidationError
from synthetic_study import Synthetic

from example_studies import make_study
from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.comparison_caveats import _slice_caveats
from pgdyno.analysis.measurement_noise import interim_result
from pgdyno.analysis.study_findings import find_study
from pgdyno.cli.workload_options import Which, chosen_parameters
from pgdyno.errors import UsageError
from pgdyno.features.insert.data import Extent, InsertBenchmark, changes, fits, parameter_of
from pgdyno.features.insert.options import InsertOptions
from pgdyno.features.insert.parameters import PHASES, InsertParameters
from pgdyno.features.insert.section import cost_table
from pgdyno.features.running_server.arms import require_usable
from pgdyno.measure import study_runner
from pgdyno.report.study_report import StudyReport, build_study
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Counts, Role, Slice, StudyRecord, Trial
from pgdyno.study.arm_spec import parse_arms
from pgdyno.study.defaults import Schedule
from pgdyno.study.plan import Study
from pgdyno.study.workload_parameters import Pace
from pgdyno.workloads import workload as goodness


def parameters(**given: Any) -> InsertParameters:
    return InsertParameters.model_validate(given)


def test_options_give_parameters_and_phases_share_data() -> None:
    found = chosen_parameters(Which("insert"), InsertOptions(phase="qp500", rows=20_000, queues=2))
    assert found == parameters(phase="qp500", rows=20_000, queues=2)
    assert found.name == "insert qp500, 20,000 rows in each of 2 tables"
    shapes = [dict(parameters(phase=phase).shape()) for phase in PHASES]
    assert len({str(shape) for shape in shapes}) == 5
    assert shapes[4:] == [shapes[4]] * 6, "the queries begin with the same data"
    assert dict(parameters(phase="l.i1", inserts=2000).shape()) == dict(parameters(phase="l.i1").shape())
    assert dict(parameters(inserts=2000).shape()) != dict(parameters().shape())
    for wrong in ({"phase": "l.i3"}, {"rows": 9999}, {"queues": 0}, {"inserts": 0}, {"age": 5}):
        with pytest.raises(ValidationError):
            parameters(**wrong)


@pytest.mark.parametrize(
    ("phase", "tables", "fitting"),
    [("l.i0", 1, {1, 2, 3}), ("l.i1", 1, {2, 3}), ("qr100", 1, {3}), ("qr100", 2, {6}), ("l.i2", 2, {4, 6})],
)
def test_each_table_has_at_most_three_clients(phase: str, tables: int, fitting: set[int]) -> None:
    for clients in range(1, 10):
        if clients in fitting:
            parameters(phase=phase, queues=tables).require_clients(clients)
        else:
            with pytest.raises(ValueError, match=f"use --clients {3 * tables}$"):
                parameters(phase=phase, queues=tables).require_clients(clients)


@pytest.mark.parametrize(
    "given",
    [
        {"rate": {"per_s": 5.0}},
        {"capacity": "p99<50ms"},
        {"drivers": {"n": 2}},
        {"transactions": 100, "schedule": "blocks"},
    ],
)
def test_a_load_other_than_that_of_the_phase_is_refused(given: dict[str, Any]) -> None:
    plan = synthetic_study.study_of(Synthetic()).plan.model_dump()
    with pytest.raises(ValidationError, match="--workload=insert exclude each other"):
        Study.model_validate({**plan, "workload": parameters(), "clients": 3, **given})


@pytest.mark.parametrize(("phase", "busy"), [("l.i0", 2), ("l.x", 2), ("l.i1", 4), ("qp500", 2)])
def test_clients_without_a_task_and_those_with_a_rate_do_not_lengthen_slices(phase: str, busy: int) -> None:
    study = make_study(workload=parameters(phase=phase, queues=2), clients=6)
    slices = [Slice(0, Role.MEASURE, 0.0, 0.0, 0.5, 0.5, 0.0, 0.0, {"index": Counts(ok=10)})]
    lab = cast(Any, SimpleNamespace(study=study, measured={0: slices}))
    assert study_runner._latency_s(lab) == pytest.approx(busy * 0.5 / 10)


def test_one_fifth_of_the_rows_is_inserted_by_the_second_step() -> None:
    own = parameters(inserts=10_000)
    assert [own.statements_of(phase) for phase in ("l.i1", "l.i2")] == [160, 400]
    assert own.inserted_before == 10_000
    assert parameters(phase="l.i2", inserts=10_000).inserted_before == 8000
    assert parameters(phase="l.i1").unit_bytes < own.unit_bytes


def test_the_first_phase_begins_without_rows() -> None:
    own = parameters(phase="l.i0", queues=2)
    assert (own.name, own.label) == ("insert l.i0, 0 rows in each of 2 tables", "rows0")
    assert 0 < own.unit_bytes * own.units < 10**7
    assert own.to_load()["rows"] == 0


def test_steps_that_need_the_driver_are_no_load() -> None:
    assert parameters(phase="l.i1", rows=20_000).to_load()["indexes"] is True
    assert parameters(phase="l.i0").to_load()["rows"] == 0
    assert parameters(phase="l.x", rows=30_000).to_load() | {"rows": 30_000, "indexes": False} == (
        parameters(phase="l.x", rows=30_000).to_load()
    )
    assert parameters(phase="l.x", rows=30_000).pace == Pace("indexed rows/s", "index", 10_000)
    with pytest.raises(UsageError, match=r"qr100 begins after l\.i2"):
        parameters().to_load()


def test_a_running_server_is_refused_for_a_phase_after_l_i1_before_a_connection() -> None:
    study = make_study(arms=parse_arms(["17", "host=h dbname=d"]), workload=parameters(), clients=3)
    with pytest.raises(UsageError, match=r"qr100 begins after l\.i2"):
        require_usable(study, lambda _: None)


def test_the_step_before_data_is_advice_as_phases() -> None:
    assert parameter_of("done", "l.x") == "phase l.i1"
    assert parameter_of("done", "l.i2") == "phase qr100 or qp100 or qr500 or qp500 or qr1000 or qp1000"
    assert parameter_of("queues", "2") == "queues 2"


def test_a_run_requires_the_data_of_its_phase() -> None:
    steps = [parameters(phase=phase).to_drive()["done"] for phase in PHASES]
    assert steps == ["none", "l.i0", "l.x", "l.i1", *["l.i2"] * 6]


# ----------------------------------------------------------------------
# Checks
# ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "lowest", "failed"),
    [
        (1050, 101, set()),
        # The first of 40 gaps are passed.
        (1050, 111, set()),
        (1049, 101, {"rows conserved"}),
        (1050, 100, {"oldest rows deleted"}),
        (1050, 142, {"oldest rows deleted"}),
    ],
)
def test_lost_rows_and_deletes_of_other_rows_are_found(rows: int, lowest: int, failed: set[str]) -> None:
    before, counters = {"pi1": Extent(1000, 1, 1040)}, {"rows_inserted": 150, "rows_deleted": 100}
    found = changes(before, {"pi1": Extent(rows, lowest, 1190)}, counters)
    assert {one.name for one in found if not one.passed} == failed


def test_a_trial_passes_the_unused_keys_of_a_session() -> None:
    # All 1000 rows before, and half of the new ones, which begin after 500 unused keys of the last session.
    before, counters = {"pi1": Extent(1000, 1, 1000)}, {"rows_inserted": 2000, "rows_deleted": 2000}
    found = changes(before, {"pi1": Extent(1000, 2501, 3500)}, counters)
    assert all(one.passed for one in found), found
    # l.i0 begins with empty tables.
    counters = {"rows_inserted": 200, "rows_deleted": 0}
    found = changes({"pi1": Extent(0, 0, 0)}, {"pi1": Extent(200, 1, 200)}, counters)
    assert all(one.passed for one in found), found


@pytest.mark.parametrize(
    ("phase", "rows", "lowest"),
    [("l.i0", 0, 1), ("l.i1", 10_000, 1), ("l.i2", 10_000, 1601), ("qr100", 10_000, 2001)],
)
def test_restored_rows_and_keys_are_known_without_a_query(phase: str, rows: int, lowest: int) -> None:
    own = parameters(phase=phase, rows=10_000, inserts=2000, queues=2)
    checks = InsertBenchmark(own).checks(6, restored=True)
    checks.begin(cast(Any, None))
    known = Extent(rows, lowest, lowest + rows - 1)
    assert checks.before == {"pi1": known, "pi2": known}


def test_draws_that_are_not_uniform_are_found() -> None:
    even, skewed = [2000] * 50, [2000 + 20 * i for i in range(50)]
    starts = {"market": even, "register": even, "pdc": even}

    def failed(tally: dict[str, Any]) -> set[str]:
        return {check.name for check in goodness.tests_of(fits(tally)) if not check.passed}

    assert failed({"starts": starts, "keys": even}) == set()
    assert failed({"starts": starts, "keys": skewed}) == {"keys of point queries"}
    assert failed({"starts": {**starts, "pdc": skewed}, "keys": even}) == {
        "indexes of range queries",
        "starts of pdc",
    }


# ----------------------------------------------------------------------
# The insert rate and the costs, in the report of a recorded study.
# ----------------------------------------------------------------------

COMMITS = {True: 19, False: 17}
"""Commits of 50 rows in a slice of 0.94 s, if 1000 rows/s are kept and if not."""


Recorded = Callable[..., Path]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Return a function that writes a study of a phase, in which some arms keep the insert rate."""
    described, written = synthetic_study.study_of, synthetic_study.write_trial
    arm = 0

    @functools.cache
    def write(keeps: tuple[bool, bool], phase: str = "qr1000") -> Path:
        def study_of(wanted: Synthetic) -> StudyRecord:
            study = described(wanted)
            plan = study.plan.model_copy(update={"workload": parameters(phase=phase), "clients": 3})
            return synthetic_study.replace(study, plan=plan)

        def kinds(executed: float, _: int, __: float) -> dict[str, Counts]:
            statements = Counts(ok=COMMITS[keeps[arm]])
            if phase == "l.x":
                return {"index": statements}
            query = {} if phase[0] == "l" else {"range": Counts(ok=int(executed))}
            return {**query, "insert": statements, "delete": statements}

        def write_trial(writer: Any, wanted: Any, place: tuple[int, int], rate: float, rng: Any) -> None:
            nonlocal arm
            arm = place[1]
            written(writer, wanted, place, rate, rng)

        path = tmp_path_factory.mktemp("recorded") / "study.sqlite"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(synthetic_study, "study_of", study_of)
            patch.setattr(synthetic_study, "write_trial", write_trial)
            patch.setattr(synthetic_study, "_kinds", kinds)
            synthetic_study.write_anew(path, Synthetic(effects=(1.0, 1.1), blocks=8, probed=True))
        return path

    return write


@functools.cache
def report_of(path: Path) -> StudyReport:
    with Evidence(path) as evidence:
        return build_study(find_study(evidence))


def test_queries_of_arms_that_keep_the_insert_rate_are_compared(recorded: Recorded) -> None:
    findings = report_of(recorded((True, True))).findings.first
    assert (findings.primary.key, findings.primary.unit) == ("queries", "queries/s")
    (comparison,) = findings.comparisons
    assert (comparison.verdict, comparison.missed_rates) == (Verdict.FASTER, [])
    # A slice counts 0.94 s, in which 95% of the transactions of a second are queries.
    level = findings.arms[0].levels["queries"]
    assert level is not None and level.value == pytest.approx(3000, rel=0.15)


@pytest.mark.parametrize(("keeps", "names"), [((True, False), ["18"]), ((False, False), ["17", "18"])])
def test_an_arm_that_misses_the_insert_rate_gets_no_verdict_and_the_miss_is_the_answer(
    recorded: Recorded, keeps: tuple[bool, bool], names: list[str]
) -> None:
    path = recorded(keeps)
    report = report_of(path)
    findings = report.findings.first
    (comparison,) = findings.comparisons
    assert comparison.verdict is Verdict.UNDECIDED and comparison.is_held_back
    assert [of.arm.name for of in comparison.missed_rates] == names
    rate = 50 * COMMITS[False] / 0.94
    for of in comparison.missed_rates:
        assert (of.rate, of.target) == (pytest.approx(rate), 1000)
        assert (of.below, of.blocks) == (8, 8)
    assert [one.code for one in findings.caveats].count("rate-missed") == len(names)
    (headline,) = report.headlines
    assert "did not keep the insert rate (904 of 1,000 rows/s, too low in 8 of 8 blocks)" in headline.more
    with Evidence(path) as evidence:
        assert not interim_result(evidence, 0).is_decided


def test_a_window_with_less_than_twenty_index_creations_is_a_caveat() -> None:
    wanted = Synthetic(schedule=Schedule.BLOCKS)
    study, arms = synthetic_study.study_of(wanted), synthetic_study.arms_of(wanted)
    assert study.plan.window_s == 4 * study.plan.slice_s
    p50_ms = {0: 1001 * study.plan.window_s / 20, 1: 999 * study.plan.window_s / 20}
    assert _slice_caveats(study, arms, p50_ms) == []
    plan = study.plan.model_copy(update={"workload": parameters(phase="l.x"), "clients": 3})
    (caveat,) = _slice_caveats(synthetic_study.replace(study, plan=plan), arms, p50_ms)
    assert (caveat.kind, caveat.parameters["arm"]) == ("slices-too-short", "17")


@pytest.mark.parametrize("phase", ["qr1000", "l.x"])
def test_times_of_clients_that_pause_are_not_attributed(recorded: Recorded, phase: str) -> None:
    findings = report_of(recorded((True, True), phase)).findings.first
    assert findings.time_breakdowns == {}


def test_inserts_without_queries_need_no_rate_and_rows_are_counted(recorded: Recorded) -> None:
    findings = report_of(recorded((True, False), "l.i2")).findings.first
    (comparison,) = findings.comparisons
    assert findings.primary.unit == "inserts/s"
    assert comparison.missed_rates == []
    level = findings.arms[0].levels["inserts"]
    assert level is not None and level.value == pytest.approx(5 * COMMITS[True] / 0.94)
    effect = comparison.effects["inserts"]
    assert np.allclose(list(effect.log_ratios.values()), np.log(COMMITS[False] / COMMITS[True]))


def per_query(trial: Trial) -> float:
    """Return the transactions of each kind per query."""
    counts = [(of.ok, kind == "range") for piece in trial.measured for kind, of in piece.kinds.items()]
    return sum(n for n, _ in counts) / sum(n for n, is_query in counts if is_query)


def test_costs_are_per_query_and_per_inserted_row(recorded: Recorded) -> None:
    findings = report_of(recorded((True, True))).findings.first
    rows = {row[0]: row for row in cost_table(findings, PHASES["qr1000"]).rows}
    trials = [trial for trial in findings.trials if trial.arm == 0]
    logs = []
    for trial in trials:
        queries = sum(piece.kinds["range"].ok for piece in trial.measured)
        logs.append(np.log(1e6 * (trial.server_cpu_s + trial.driver_cpu_s) / queries))
    assert rows["cpupq"][1] == "µs per query"
    assert float(rows["cpupq"][2]) == pytest.approx(np.exp(np.mean(logs)), rel=0.01)
    assert rows["rkbpq"][1] == "KiB per query"
    read = {
        trial: of.values["database.blocks_read_per_tx"] for trial, of in findings.telemetry.by_trial.items()
    }
    assert float(rows["rkbpq"][2]) == pytest.approx(
        8 * np.exp(np.mean([np.log(read[of.trial] * per_query(of)) for of in trials])), rel=0.01
    )
    assert "wpi" not in rows, "both servers run at the same time"


@pytest.mark.parametrize(("phase", "has_bytes"), [("qr1000", True), ("l.x", False)])
def test_bytes_that_index_creation_writes_are_unknown(
    recorded: Recorded, phase: str, has_bytes: bool
) -> None:
    findings = report_of(recorded((True, True), phase)).findings.first
    telemetry = findings.telemetry
    by_trial = {
        trial: synthetic_study.replace(of, values={**of.values, "io.written_bytes_per_tx": 8192.0})
        for trial, of in telemetry.by_trial.items()
    }
    with_io = synthetic_study.replace(telemetry, by_trial=by_trial)
    table = cost_table(synthetic_study.replace(findings, telemetry=with_io), PHASES[phase])
    assert ("wkbpi" in {row[0] for row in table.rows}) == has_bytes
    assert ("Written bytes" in table.note) == has_bytes


def test_costs_of_index_creation_are_per_indexed_row(recorded: Recorded) -> None:
    findings = report_of(recorded((True, True), "l.x")).findings.first
    rows = {row[0]: row for row in cost_table(findings, PHASES["l.x"]).rows}
    assert rows["cpupq"][1] == "µs per indexed row"
    assert float(rows["cpupq"][2]) > 0
