"""Published tables compared with measured values: position, unit and baseline of each figure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from report_forms import on_terminal, plain, report_of
from synthetic_study import Synthetic

import pgdyno
from example_studies import read_study
from pgdyno.analysis.statistics.intervals import Method, percent_of, student
from pgdyno.analysis.telemetry.metrics import METRICS
from pgdyno.analysis.telemetry.trial_telemetry import TrialTelemetry
from pgdyno.features.published.metric_names import PARTS_OF, PER_TIMEOUT
from pgdyno.features.published.plan import Published
from pgdyno.features.published.section import as_printed, source_charts, with_measured_columns
from pgdyno.features.published.tables import (
    NO_PAIRS,
    NO_RATIO,
    NOT_MEASURED,
    NOT_RUN,
    Agreement,
    CaseValues,
    MeasuredCell,
    MeasuredTable,
    MetricValues,
    SourceChange,
    _values,
    case_values,
    changes_of_source,
    further_values,
    in_unit,
    with_measured_values,
)
from pgdyno.report.document import Document, Section
from pgdyno.results.records import TrialStatus
from pgdyno.study.cases import cases_of
from pgdyno.units import NO_BREAK, Better, Estimate

UPDATE, SELECT = "UPDATE pgbench_accounts SET abalance = $1", "SELECT abalance FROM pgbench_accounts"


def case(
    values: Mapping[str, Mapping[int, Mapping[int, float]]],
    levels: Mapping[str, str] | None = None,
    arms: list[dict[str, str]] | None = None,
    unit: str = "ms",
) -> CaseValues:
    """``values``: key → arm → block → value."""
    measured = {key: MetricValues(unit, Better.LESS, by_block) for key, by_block in values.items()}
    arms = arms or [{"server": "10"}, {"server": "15"}]
    return CaseValues(", ".join((levels or {}).values()), levels or {}, arms, measured, 0.95, Method.STUDENT)


def blocks(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def pair(metric: str, a: Sequence[float], b: Sequence[float], **more: Any) -> CaseValues:
    """A case with the values of both arms in each block."""
    return case({metric: {0: blocks(*a), 1: blocks(*b)}}, **more)


CHANGE = {"title": "change", "metric": "tps", "levels": {"server": "15"}, "show": "change"}
OF_10, OF_15 = ({"title": name, "levels": {"server": name}} for name in ("10", "15"))


def table(cases: list[CaseValues], **given: object) -> MeasuredTable:
    of = {"title": "t", "columns": [{"title": "figure"}], **given}
    (found,) = with_measured_values(Published.model_validate({"tables": (of,)}, strict=False), cases)
    return found


def cell(cases: list[CaseValues], **given: object):
    return table(cases, rows=[{"cells": [{"value": 1.0, **given}]}]).rows[0][0]


def measured(cases: list[CaseValues], **given: object) -> float:
    return cell(cases, **given).measured.value


def test_a_table_has_the_rows_and_columns_of_the_source() -> None:
    found = table(
        [pair("tpm", (90.0, 110.0), (120.0, 130.0))],
        title="Transactions per minute",
        metric="tpm",
        columns=[{"title": "users"}, OF_10, OF_15, {**OF_15, "title": "change", "show": "change"}],
        rows=[{"cells": ["one", 95, 125, 31.6]}, {"cells": ["two", "", "", ""]}],
        notes=["One run."],
    )
    assert (found.title, found.columns) == ("Transactions per minute", ["users", "10", "15", "change"])
    assert [cell.text for cell in found.rows[0]] == ["one", "95", "125", "31.6"]
    name, a, b, change = found.rows[0]
    assert not name.is_requested
    means = [of.measured.value for of in (a, b) if of.measured]
    assert means == pytest.approx([math.sqrt(9900), math.sqrt(15600)])
    known = student([math.log(120 / 90), math.log(130 / 110)], 0.95)
    assert change.measured == known.percent(Better.LESS)
    assert change.unit == "%" and change.measured.better is Better.LESS
    assert not any(cell.is_requested for cell in found.rows[1])
    assert found.notes == ["One run."]


def test_a_change_is_of_the_baseline_whatever_the_source_divided_by() -> None:
    # 101 GB vs. 69 GB is −31.7%, not the printed −46%.
    of = pair("database.growth", (101.0, 101.0), (69.0, 69.0), unit="MiB")
    found = cell(
        [of],
        metric="database.growth",
        levels={"server": "15"},
        show="change",
        value=-46,
        corrected=-31.7,
        note="in percent of the newer version",
    )
    assert found.measured.value == pytest.approx(-31.7, abs=0.05)
    assert (found.value, found.corrected, found.note) == (-46, -31.7, "in percent of the newer version")


@pytest.mark.parametrize(("percentile", "has_interval"), [("p50", True), ("p99", False)])
def test_a_percentile_above_the_median_has_no_interval_and_is_not_compared(
    percentile: str, has_interval: bool
) -> None:
    metric = f"latency.transaction.{percentile}"
    of = pair(metric, (1.0, 1.02, 1.01, 1.03, 1.0, 1.01), (2.0, 2.01, 2.03, 2.02, 2.0, 2.01), unit="ms")
    for show in ({}, {"show": "change"}):
        asked = {"metric": metric, "levels": {"server": "15"}, **show}
        found = cell([of], **asked)
        assert found.measured.n == 6 and found.measured.value > 1.9
        assert (found.measured.low is not None) == (found.measured.high is not None) == has_interval
        assert ("without a CI" in found.note) != has_interval
    columns = [{"title": "figure"}, {"title": "change", **asked}]
    assert bool(changes_of([of], columns=columns, rows=[{"cells": ["x", 100]}])) == has_interval


def test_the_baseline_has_no_change_and_needs_no_excuse() -> None:
    of = pair("tps", (1.0, 2.0), (2.0, 3.0))
    found = cell([of], metric="tps", levels={"server": "10"}, show="change")
    assert found.measured is None and not found.is_requested


def test_a_change_may_be_against_another_arm_and_an_unnamed_factor_has_the_level_of_the_baseline() -> None:
    arms = [{"server": s, "settings": t} for s in ("12", "13") for t in ("plain", "tuned")]
    of = case({"tps": {i: blocks(x) for i, x in enumerate([10.0, 30.0, 11.0, 36.0])}}, arms=arms)
    assert measured([of], metric="tps", levels={"server": "13"}) == pytest.approx(11)
    tuned = {"metric": "tps", "levels": {"server": "13", "settings": "tuned"}, "show": "change"}
    assert measured([of], **tuned) == pytest.approx(260)
    assert measured([of], **tuned, against={"server": "12", "settings": "tuned"}) == pytest.approx(20)


def test_statements_are_identified_by_their_prefix() -> None:
    values = {
        f"statement.mean_ms:{UPDATE}": {0: blocks(1.0, 1.0), 1: blocks(2.0, 2.0)},
        f"statement.mean_ms:{SELECT}": {0: blocks(4.0, 4.0), 1: blocks(4.5, 4.5)},
        "statement.mean_ms:select pg_catalog": {0: blocks(9.0, 9.0), 1: blocks(90.0, 90.0)},
    }
    asked = {"metric": "statement.mean_ms", "levels": {"server": "15"}}
    of = [case(values)]
    one = {**asked, "statements": ("UPDATE pgbench_accounts",)}
    assert (measured(of, **one), cell(of, **one).parts) == (pytest.approx(2), ())
    two = {**asked, "statements": ("UPDATE", "SELECT"), "show": "change"}
    assert measured(of, **two) == pytest.approx(100 * (6.5 / 5 - 1))  # of the means, as the columns have them
    assert measured(of, **two, mean="changes") == pytest.approx((100 + 12.5) / 2)
    assert list(cell(of, **two).parts) == [UPDATE, SELECT]
    assert cell(of, **asked, statements=("INSERT",)).missing_reason == NOT_MEASURED


def test_a_table_may_have_a_schema() -> None:
    values = {f"relation.bytes:{name}": {1: blocks(n)} for name, n in (("public.accounts", 7.0), ("b", 9.0))}
    asked = {"metric": "relation.bytes", "relation": "accounts", "levels": {"server": "15"}}
    assert measured([case(values)], **asked) == pytest.approx(7)


def test_a_factor_of_the_cases_that_is_not_named_is_averaged_over() -> None:
    key = f"statement.mean_ms:{UPDATE}"
    of = [
        case({key: {0: blocks(1.0, 1.0), 1: blocks(*ratios)}}, {"scale": "100", "clients": clients})
        for clients, ratios in (("1", (1.1, 1.2)), ("2", (1.5, 1.4)))
    ]
    asked = {"metric": "statement.mean_ms", "levels": {"server": "15", "scale": 100}}
    value, change = cell(of, **asked), cell(of, **asked, show="change")
    assert value.measured.value == pytest.approx(math.sqrt(1.3 * 1.3))
    assert list(value.cases) == ["100, 1", "100, 2"]
    assert change.measured.value == pytest.approx(30)
    assert value.measured.n == change.measured.n == 2  # passes


def test_cases_without_a_common_block_have_a_mean_and_no_interval() -> None:
    late = case({"tps": {1: {5: 4.0, 6: 4.0}}}, {"clients": "2"})
    early = case({"tps": {1: {0: 2.0, 1: 2.0}}}, {"clients": "1"})
    found = cell([early, late], metric="tps", levels={"server": "15"})
    assert (found.measured.value, found.measured.low) == (3.0, None)


@pytest.mark.parametrize(
    ("asked", "missing_reason"),
    [
        ({"metric": "tps", "levels": {"server": "11"}}, NOT_RUN),
        ({"metric": "tps", "levels": {"scale": 100}}, NOT_RUN),
        ({"metric": "wal.bytes", "levels": {"server": "15"}}, NOT_MEASURED),
        ({"metric": "deadlocks", "levels": {"server": "15"}, "show": "change"}, NO_RATIO),
        ({"metric": "apart", "levels": {"server": "15"}, "show": "change"}, NO_PAIRS),
    ],
)
def test_a_missing_measured_value_has_a_reason(asked: dict, missing_reason: str) -> None:
    values = {
        "tps": {0: blocks(1.0), 1: blocks(2.0)},
        "deadlocks": {0: blocks(0.0), 1: blocks(2.0)},
        "apart": {0: {0: 1.0}, 1: {1: 2.0}},
    }
    found = cell([case(values)], **asked)
    assert (found.measured, found.missing_reason) == (None, missing_reason)
    assert cell([], **asked).missing_reason == NOT_RUN


@pytest.mark.parametrize(
    ("value", "unit", "to", "expected", "shown"),
    [
        (103424.0, "MiB", "GB", 101.0, "GB"),
        (2.0, "MiB", "TB", 2.0, "MB"),  # a fitted study is small
        (0.0, "MiB", "GB", 0.0, "GB"),
        (0.5, "ms", "s", 0.0005, "s"),
        (5.0, "tx/s", "GB", 5.0, "tx/s"),
        (3.0, "times", "times", 3.0, "times"),
        (3.0, "TPM", "", 3.0, "TPM"),
    ],
)
def test_measured_values_have_the_published_unit(
    value: float, unit: str, to: str, expected: float, shown: str
) -> None:
    found = in_unit(Estimate(value, unit, 2, Better.LESS, value / 2, 2 * value), to)
    assert (found.value, found.unit) == (pytest.approx(expected), shown)
    assert found.low == pytest.approx(expected / 2) and found.high == pytest.approx(2 * expected)


STUDIES = Path(__file__).parents[5] / "studies"
SCRIPTS = Path(pgdyno.__file__).parent / "workloads" / "pgbench" / "scripts"
STATEMENTS = [
    "UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2",
    "SELECT abalance FROM pgbench_accounts WHERE aid = $1",
    "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP)",
    *(" ".join(path.read_text("utf-8").split()) for path in SCRIPTS.glob("*.sql")),
]


@cache
def as_if_measured(path: Path) -> tuple[Published, list[CaseValues]]:
    """Return every case of a study with every metric. Each second arm is 20% higher."""
    file = read_study(path.read_text("utf-8"), path.name)
    keys = [
        *(of for of in METRICS if of.split(".")[0] not in PARTS_OF),
        "rate.cv",
        "rate.max_to_min",
        PER_TIMEOUT,
    ]
    keys += [f"{of}:{text}" for of in METRICS if of.startswith("statement.") for text in STATEMENTS]
    keys += [f"{of}:pgbench_accounts" for of in METRICS if of.startswith("relation.")]
    cases = []
    for case in cases_of(file):
        values = {i: blocks(10 * 1.2**i, 11 * 1.2**i) for i in range(len(case.arms))}
        measured = {key: MetricValues("MiB", Better.LESS, values) for key in keys}
        cases.append(CaseValues(case.name, case.levels, case.arms, measured, 0.95, Method.STUDENT))
    return file.published, cases


PUBLISHED = [path for path in sorted(STUDIES.glob("*.toml")) if "[published]" in path.read_text()]


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_every_published_figure_of_a_shipped_study_is_matched(path: Path) -> None:
    published, cases = as_if_measured(path)
    tables = with_measured_values(published, cases)
    asked = [cell for table in tables for row in table.rows for cell in row if cell.is_requested]
    assert asked and not [cell for cell in asked if cell.missing_reason]
    figures = [cell for table in published.tables for row in table.figures() for cell in row]
    assert len(asked) == sum(cell.metric is not None and cell.value is not None for cell in figures)
    changes = [cell.measured.value for cell in asked if cell.is_change and cell.measured]
    if len(cases[0].arms) == 2:
        assert changes == pytest.approx([20.0] * len(changes))


def test_the_total_average_of_2019_is_over_all_cases_and_statements() -> None:
    published, cases = as_if_measured(STUDIES / "moppel-2019-pgbench-11-vs-12.toml")
    table, conclusion = with_measured_values(published, cases)
    name, *_, change, _, _, _ = table.rows[-1]
    inserts = conclusion.rows[0][1].measured
    assert inserts.value == pytest.approx(20)
    assert name.text == "total average" and change.text == "3.3"
    assert (change.measured.value, change.measured.n) == (pytest.approx(20), 2)
    assert (change.part, len(change.parts)) == ("row", 19)
    assert change.parts[:2] == ["read-only, buffers", "read-only, RAM"]
    # Once per basis, with whole names of rows: columns of a row share it.
    note = with_measured_columns(table, 0.95).note
    assert "Here over 4 cases: read-only, buffers; read-only, RAM; read-only, disk; default, UPDATE" in note
    assert "Here over 19 rows: total average." in note
    assert with_measured_columns(conclusion, 0.95).note.count("Here over") == 1


def test_a_total_is_the_mean_of_the_changes_of_its_rows_and_names_them() -> None:
    rates = {"a": (1.0, 1.1), "b": (2.0, 2.6), "other": (1.0, 9.0)}
    of = [pair("tps", (a, a), (b, b), levels={"load": name}) for name, (a, b) in rates.items()]
    columns = [{"title": "load"}, CHANGE]
    rows = [
        *({"levels": {"load": name}, "cells": [name, 12]} for name in ("a", "b", "not run")),
        {"mean_of_rows": True, "cells": ["total", 20]},
    ]
    total = table(of, columns=columns, rows=rows).rows[-1][1]
    assert total.measured.value == pytest.approx((10 + 30) / 2)
    assert list(total.parts) == ["a", "b"]
    *_, compared = changes_of(of, columns=columns, rows=rows)
    assert (compared.what, compared.measured.value) == ("total, change", pytest.approx(20))


def test_an_undefined_change_is_in_neither_the_table_nor_the_agreement() -> None:
    of, given = pair("deadlocks", (0.0, 2.0), (1.0, 3.0)), {"columns": [{**CHANGE, "metric": "deadlocks"}]}
    assert table([of], **given, rows=[{"cells": [3]}]).rows[0][0].missing_reason == NO_RATIO
    assert changes_of([of], **given, rows=[{"cells": [3]}]) == []


def test_measured_levels_stand_beside_those_of_the_source() -> None:
    arms = [{"server": "12.4"}, {"server": "13"}]
    of = pair("tpm", (9.0, 9.0), (8.0, 8.0), levels={"clients": "5"}, arms=arms)
    of = replace(of, versions=("12.3", "13.1"))
    asked = {"metric": "tpm", "levels": {"clients": "5"}, "source_levels": {"clients": "250"}}
    columns = [
        {"title": "users"},
        {"title": "12", "levels": {"server": "12.4"}},
        {"title": "13", "levels": {"server": "13"}},
    ]
    given = {"columns": columns, "rows": [{**asked, "cells": ["250", 10, 12]}], "chart": True}
    found = table([of], **given)
    _, a, b = found.rows[0]
    assert (a.instead, b.instead) == ({"clients": "5", "server": "12.3"}, {"clients": "5"})  # 13.1 is a 13
    shown = with_measured_columns(found, 0.95)
    assert list(shown.columns) == ["users", "12", "12, here (server 12.3)", "13", "13, here"]
    assert shown.rows[0][0] == "250 (here clients 5)"
    published, here = source_charts(found)
    assert "250 (here clients 5)" in here.picture and "(here" not in published.picture
    (change,) = changes_of([of], **given)
    assert change.instead == "clients 5 for 250, server 12.3 for 12.4"


def test_a_row_without_a_name_has_that_of_the_row_above_beside_the_measured_level() -> None:
    found = [pair("tpm", (9.0, 9.0), (8.0, 8.0), levels={"scale": level}) for level in "12"]
    columns = [{"title": "query"}, OF_10, OF_15]
    rows = [
        {"levels": {"scale": "1"}, "source_levels": {"scale": "100"}, "cells": ["query 2", 10, 12]},
        {"levels": {"scale": "2"}, "source_levels": {"scale": "200"}, "cells": ["", 20, 22]},
    ]
    wide = with_measured_columns(table(found, columns=columns, rows=rows, metric="tpm"), 0.95)
    assert [row[0] for row in wide.rows] == ["query 2 (here scale 1)", "(here scale 2)"]
    names = [row[0] for row in wide.narrow.rows if not row[0].startswith(" ")]
    assert names == ["query 2 (here scale 1)", "query 2 (here scale 2)"]


def test_a_row_without_any_name_has_that_of_the_row_above_everywhere() -> None:
    of = pair("tpm", (9.0, 9.0), (8.0, 8.0))
    rows = [{"cells": ["a", 10, 12]}, {"cells": ["", 20, 22]}]
    given = {"metric": "tpm", "columns": [{"title": "query"}, OF_10, OF_15], "rows": rows}
    wide = with_measured_columns(table([of], **given), 0.95)
    assert [row[0] for row in wide.narrow.rows if not row[0].startswith(" ")] == ["a", "a"]
    assert {change.what for change in changes_of([of], **given)} == {"a, 15"}


def test_names_are_wrapped_before_a_narrow_terminal_omits_the_measured_values() -> None:
    ours = pair("tps", [1.0] * 5, (2.8, 2.9, 3.0, 2.95, 2.85))
    printed = {"value": 190, "text": "about one hundred and ninety (190)"}
    columns = [{"title": "figure"}, *({**CHANGE, "title": f"change {n}"} for n in (1, 2))]
    rows = [{"cells": ["transactions per second over ten hours", printed, printed]}]
    wide = with_measured_columns(table([ours], columns=columns, rows=rows), 0.95)
    document = Document(title="t", sections=[Section("published", tables=[wide])])
    shown = plain(on_terminal(document, 80)).splitlines()
    assert max(map(len, shown)) <= 80 and not any("Omitted" in one for one in shown)
    assert sum("ninety (190)" in one and one.rstrip().endswith("]") for one in shown) == 2


def bars_of(picture: str) -> list[tuple[str, float, float]]:
    """Return the title, the start and the length of each bar."""
    found = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"[^>]*><title>(.*?)</title>', picture)
    return [(title.replace(NO_BREAK, " "), float(x), float(width)) for x, width, title in found]


def test_bars_of_the_source_and_ours_begin_at_zero_each_on_its_own_scale() -> None:
    arms = [{"settings": name} for name in ("default", "tuned")]
    of = pair("tps", [20.0] * 5, (28.0, 32.0, 30.0, 29.0, 31.0), arms=arms, unit="tx/s")
    columns = [
        {"title": "Settings"},
        {"title": "TPS", "metric": "tps", "unit": "tx/s"},
        {"title": "change", "metric": "tps", "show": "change"},
    ]
    rows = [
        {"levels": {"settings": "default"}, "cells": ["default", 2000, ""]},
        {"levels": {"settings": "tuned"}, "cells": ["tuned", 8000, 300]},
    ]
    published, here = source_charts(table([of], columns=columns, rows=rows, chart="bars"))
    assert (published.title, here.title) == ("t, published", "t, here")
    for panel, titles, ratio in (
        (published, ["default: 2,000 tx/s", "tuned: 8,000 tx/s"], 4.0),
        (here, ["default: 20.0", "tuned: 30.0"], 1.5),
    ):
        (first, start, short), (second, other, long) = bars_of(panel.picture)
        assert first.startswith(titles[0]) and second.startswith(titles[1])
        assert start == other and long / short == pytest.approx(ratio, rel=0.02)
    assert "whisker" in here.picture and "whisker" not in published.picture
    assert source_charts(table([], columns=columns, rows=rows, chart="bars"))[0].title == "t, published"


def test_bars_of_several_columns_are_named_by_row_and_column() -> None:
    columns = [{"title": ""}, {"title": "17", "metric": "tps"}, {"title": "18", "metric": "tps"}]
    (published,) = source_charts(table([], columns=columns, rows=[{"cells": ["x", 1, 2]}], chart="bars"))
    assert [title for title, _, _ in bars_of(published.picture)] == ["x, 17: 1", "x, 18: 2"]
    assert 'class="dot arm0"' in published.picture and 'class="dot arm1"' in published.picture


def test_a_change_of_the_verdicts_metric_is_the_effect_of_the_verdict() -> None:
    effect = report_of(Synthetic(blocks=6)).findings.first.comparisons[0].primary
    of = replace(
        case({"tps": {0: dict.fromkeys(effect.log_ratios, 10.0), 1: dict.fromkeys(effect.log_ratios, 99.0)}}),
        effects={("tps", 1): effect.log_ratios},
    )
    found = table([of], columns=[CHANGE], rows=[{"cells": [3]}]).rows[0][0].measured
    assert found.value == pytest.approx(percent_of(fmean(effect.log_ratios.values())))
    (change,) = changes_of([of], columns=[CHANGE], rows=[{"cells": [3]}])
    assert change.measured.value == pytest.approx(found.value)


NOTE = {"text": "As many checkpoints.", "metric": "checkpoints.per_hour"}


def test_a_note_on_what_was_measured_depends_on_its_metric() -> None:
    for measured_value, notes in ((0.0, []), (4.0, ["As many checkpoints."])):
        of = pair("checkpoints.per_hour", [0.0], [measured_value])
        assert table([of], rows=[{"cells": ["x"]}], notes=[NOTE]).notes == notes
    assert table([], rows=[{"cells": ["x"]}], notes=[NOTE, "One run."]).notes == ["One run."]


@pytest.mark.parametrize(("server", "notes"), [("10", []), ("15", ["As many checkpoints."])])
def test_a_note_depends_on_the_figures_of_its_table_only(server: str, notes: list[str]) -> None:
    figure = {"value": 3.5, "metric": "checkpoints.per_hour", "levels": {"server": server}}
    of = pair("checkpoints.per_hour", [0.0], [4.0])
    assert table([of], rows=[{"cells": [figure]}], notes=[NOTE]).notes == notes


def changes_of(cases: list[CaseValues], **given: object) -> list[SourceChange]:
    return changes_of_source(
        Published.model_validate({"tables": [{"title": "t", **given}]}, strict=False), cases
    )


@pytest.mark.parametrize(
    ("source", "ours", "agreement"),
    [
        (189.95, (2.8, 2.9, 3.0, 2.95, 2.85), Agreement.AGREES),
        (189.95, (0.6, 0.65, 0.62, 0.66, 0.64), Agreement.OPPOSITE),
        (189.95, (1.2, 1.25, 1.22, 1.26, 1.24), Agreement.SMALLER),
        (189.95, (5.2, 5.25, 5.22, 5.26, 5.24), Agreement.LARGER),
        (189.95, (0.5, 5.5, 0.7, 1.6, 4.9), Agreement.UNRESOLVED),  # the CI contains this and 0
        (189.95, (0.999, 1.001, 1.0, 1.002, 0.998), Agreement.NOT_REPRODUCED),
        (189.95, (2.8, 2.9), Agreement.NO_INTERVAL),
        (0, (1.05, 1.051, 1.049, 1.05, 1.052), Agreement.ONLY_HERE),
        (0, (0.95, 0.951, 0.949, 0.95, 0.952), Agreement.ONLY_HERE),
        (0, (0.999, 1.001, 1.0, 1.002, 0.998), Agreement.AGREES),
        (0, (0.7, 1.4, 1.0, 0.8, 1.3), Agreement.UNRESOLVED),
    ],
)
def test_direction_and_size_are_compared_with_the_source(
    source: float, ours: tuple[float, ...], agreement: Agreement
) -> None:
    of = pair("tps", [1.0] * len(ours), ours)
    (found,) = changes_of([of], columns=[CHANGE], rows=[{"cells": [source]}])
    assert (found.published_percent, found.agreement) == (source, agreement)
    assert (found.arm, found.baseline) == ("15", "10")


def test_one_change_of_many_does_not_contradict_the_source_by_chance() -> None:
    ours = {
        "noisy": (0.9, 0.97, 0.99, 0.95, 0.88),
        **{f"still {n}": (1.0, 1.01, 0.99, 1.0, 1.0) for n in range(20)},
    }
    cases = [pair("tps", [1.0] * 5, of, levels={"load": name}) for name, of in ours.items()]
    rows = [{"levels": {"load": name}, "cells": [3]} for name in ours]
    alone, *_ = changes_of(cases[:1], columns=[CHANGE], rows=rows[:1])
    found = changes_of(cases, columns=[CHANGE], rows=rows)
    assert alone.agreement is Agreement.OPPOSITE
    assert len(found) == 21 and found[0].agreement is not Agreement.OPPOSITE
    assert found[0].measured.confidence == pytest.approx(1 - 0.05 / 21)


@pytest.mark.parametrize(
    ("cells", "percent"),
    [
        ([100, 150], 50),
        ([100, {"value": 150, "corrected": 200, "note": "a typo"}], 100),
        ([{"value": 100, "corrected": 50, "note": "a typo"}, 150], 200),
        ([100, 150, {"value": 33, "corrected": 40}], 40),  # the printed change
    ],
)
def test_changes_follow_from_corrected_values_unless_the_source_prints_them(
    cells: list[object], percent: float
) -> None:
    of, columns = pair("tps", (1.0, 1.0), (2.0, 2.0)), [OF_10, OF_15, CHANGE]
    (found,) = changes_of([of], metric="tps", columns=columns[: len(cells)], rows=[{"cells": cells}])
    assert (found.published_percent, found.measured.value) == pytest.approx((percent, 100))


def test_a_level_of_the_settings_is_compared_over_cases() -> None:
    untuned, tuned = (
        pair("tps", rates, rates, levels={"settings": name})
        for name, rates in (("untuned", (2.0, 4.0)), ("tuned", (3.0, 6.0)))
    )
    rows = [
        {"levels": {"settings": name, "server": "10"}, "cells": [name, value]}
        for name, value in (("untuned", 100), ("tuned", 700))
    ]
    columns = [{"title": "Settings"}, {"title": "TPS", "metric": "tps"}]
    (found,) = changes_of([untuned, tuned], columns=columns, rows=rows)
    assert (found.arm, found.baseline, found.published_percent) == ("tuned", "untuned", pytest.approx(600))
    assert found.measured.value == pytest.approx(50)


def test_values_are_compared_with_those_of_the_reference_arm() -> None:
    """Arm 1 is crash-safe, arm 3 the same without compression; each arm is 20% higher than the one before."""
    published, cases = as_if_measured(STUDIES / "percona-2018-crash-safety.toml")
    found = {one.what: one for one in changes_of_source(published, cases) if "compression" in one.table}
    assert set(found) == {"on, WAL", "on, TPS, with vs. without"}
    wal = found["on, WAL"]
    assert (wal.arm, wal.baseline) == ("crash-safe", "crash-safe without wal_compression")
    assert wal.published_percent == pytest.approx(100 * (1962 / 3359 - 1))
    assert wal.measured.value == pytest.approx(100 * (1 / 1.2**2 - 1))


def test_values_of_different_statements_or_cases_have_no_change() -> None:
    key, other = (f"statement.mean_ms:{of}" for of in (UPDATE, SELECT))
    given = {"metric": "statement.mean_ms", "columns": [OF_10, OF_15], "rows": [{"cells": [10, 20]}]}
    apart = case({key: {0: blocks(1.0, 1.0)}, other: {1: blocks(3.0, 3.0)}})
    assert changes_of([apart], **given) == []
    one, two = (
        case({key: {arm: blocks(1.0, 1.0)}}, {"clients": clients}) for arm, clients in ((0, "1"), (1, "2"))
    )
    assert changes_of([one, two], **given) == []
    fewer = pair(key, (1.0, 1.0), (2.0, 2.0), levels={"clients": "1"})
    assert changes_of([fewer, two], **given) == []


def test_the_same_statements_are_compared_if_cases_have_them_in_another_order() -> None:
    key, other = (f"statement.mean_ms:{of}" for of in (UPDATE, SELECT))
    first = {key: {0: blocks(1.0, 1.0)}, other: {0: blocks(4.0, 4.0)}}
    then = {other: {0: blocks(8.0, 8.0)}, key: {0: blocks(3.0, 3.0)}}
    found = [case(values, {"settings": name}) for values, name in ((first, "plain"), (then, "tuned"))]
    rows = [{"levels": {"settings": name}, "cells": [name, n]} for name, n in (("plain", 1), ("tuned", 2))]
    columns = [{"title": ""}, {"title": "ms", "metric": "statement.mean_ms", "mean": "changes"}]
    (change,) = changes_of(found, columns=columns, rows=rows)
    assert change.measured.value == pytest.approx((200 + 100) / 2)


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [
        ("1848943", 1848943.0, "1,848,943 TPM"),
        ("9999", 9999.0, "9,999 TPM"),
        ("12345", None, "12345"),  # not a number of the source: a label
        ("3 to 4", 3.5, "3 to 4 TPM"),
    ],
)
def test_long_published_numbers_are_grouped_as_measured_ones_are(
    text: str, value: float | None, shown: str
) -> None:
    printed = as_printed(MeasuredCell(text, value, None, "TPM", "", False))
    assert printed.replace(NO_BREAK, " ") == shown


def test_values_of_a_case_are_those_of_its_ok_trials() -> None:
    findings = report_of(Synthetic(blocks=3, statuses={(1, 0): TrialStatus.EXCLUDED})).findings.first
    trials = findings.trials
    telemetry = {
        trial.trial: TrialTelemetry({"wal.bytes": 8.0, "relation.growth:a": -1.0}, [], ["a"], {})
        for trial in trials
        if trial.block == 0
    }
    found = case_values(findings.study, trials, telemetry)
    assert sorted(found.values["tps"].by_block[0]) == [0, 2]
    assert sorted(found.values["tps"].by_block[1]) == [0, 1, 2]
    assert found.values["tpm"].by_block[1][1] == pytest.approx(60 * found.values["tps"].by_block[1][1])
    assert found.values["tpm"].unit == "TPM" and found.values["tpm"].better is Better.MORE
    assert found.values["wal.bytes"].by_block == {0: {0: 8.0}, 1: {0: 8.0}}
    assert found.values["relation.growth:a"].unit == "MiB"


def test_the_metric_of_the_verdict_has_values() -> None:
    findings = report_of(Synthetic(blocks=3, fixed_rate_per_s=3000.0)).findings.first
    (found,) = _values([findings])
    medians = found.values["median_latency"]
    assert (medians.unit, medians.better) == ("ms", Better.LESS)
    assert {arm: sorted(of) for arm, of in medians.by_block.items()} == {0: [0, 1, 2], 1: [0, 1, 2]}
    assert found.values["latency.all.p50"].by_block == medians.by_block


def test_a_ratio_has_no_unit() -> None:
    findings = report_of(Synthetic(blocks=3)).findings.first
    of = case_values(
        findings.study,
        findings.trials,
        {},
        lambda trial: [("rate.max_to_min", "1", 12.3 + trial.block / 100)],
    )
    of = replace(of, arms=[{"server": "10"}, {"server": "15"}])
    columns = [{"title": "figure"}, {"title": "ratio", "metric": "rate.max_to_min"}]
    found = table([of], columns=columns, rows=[{"cells": ["highest divided by lowest", 10]}])
    assert with_measured_columns(found, 0.95).rows == [["highest divided by lowest", "10", "12.3"]]


def test_checkpoints_are_also_counted_per_timeout_and_rates_have_their_variation() -> None:
    findings = report_of(Synthetic(blocks=3)).findings.first
    trial = replace(findings.trials[0], settings={"checkpoint_timeout": "30s"})
    of = TrialTelemetry({"checkpoints.per_hour": 420.0}, [], ["a"], {})
    known = replace(findings, telemetry=replace(findings.telemetry, by_trial={trial.trial: of}))
    values = {key: value for key, _, value in further_values(known, trial)}
    assert values[PER_TIMEOUT] == pytest.approx(3.5)
    assert values["rate.cv"] > 0 and values["rate.max_to_min"] > 1
    assert PER_TIMEOUT not in {key for key, *_ in further_values(findings, trial)}
    assert PER_TIMEOUT not in {key for key, *_ in further_values(known, replace(trial, settings={}))}
