"""Report of a study's factors: effects and interactions in every format, and peaks of a sweep of clients."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from golden_reports import CASES as PUBLISHED_CASES
from golden_reports import FACTORS, sweep_of_clients
from report_forms import FORMS, plain, report_of, sections_of
from synthetic_study import Synthetic

from pgdyno.features.factors.effects import design_of, effects_in
from pgdyno.features.factors.scalability import Law, _cell, _peak, _peaks_least, _peaks_most, _unsigned
from pgdyno.report.document import Section
from pgdyno.report.study_report import StudyReport
from pgdyno.report.terminal_format import _fitting
from pgdyno.units import Better, Estimate

ARMS = FACTORS
CASES = [replace(case, published=None, changes=(), blocks=6) for case in PUBLISHED_CASES]
CASE = replace(CASES[0], levels={})


@pytest.fixture(scope="module")
def built() -> StudyReport:
    return report_of(*CASES)


def test_programs_get_the_effects_with_their_intervals(built: StudyReport) -> None:
    found = json.loads(FORMS["json"](built))["more"]["effects"]
    assert [of["name"] for of in found["factors"]] == ["server", "settings", "clients"]
    server = found["main"][0]
    assert server["percent"]["low"] < server["percent"]["value"] < server["percent"]["high"]
    assert server["combinations"] == len(server["combined"]["names"]) == 4
    (of_clients,) = [
        of
        for of in found["interactions"]
        if of["by"]["factor"] == "clients" and of["change"]["factor"] == "server"
    ]
    assert of_clients["percent"]["value"] == pytest.approx(100 * (0.8 / 1.2 - 1), abs=3)
    changes = [
        (of["contrast"]["change"]["factor"], of["other"], of["at"]) for of in found["changes_at_levels"]
    ]
    assert ("server", "clients", "64") in changes


def test_a_spreadsheet_has_a_column_for_each_factor(built: StudyReport) -> None:
    rows = list(csv.DictReader(io.StringIO(FORMS["csv"](built))))
    told = {(row["arm"], row["server"], row["settings"], row["case"], row["clients"]) for row in rows}
    assert len(told) == 8 and ("18, new", "18", "new", "clients 64", "64") in told


def test_a_comparison_of_several_factors_without_cases_has_them_too() -> None:
    (section,) = sections_of(report_of(CASE))
    assert [plain(of).split(":")[0] for of in section.sentences] == ["server", "settings"]


def test_a_setting_as_a_factor_has_its_own_name_and_its_main_effect() -> None:
    levels = {"server": "server", "settings": "settings.wal_compression"}
    arms = tuple({levels[name]: level for name, level in of.items()} for of in ARMS)
    (section,) = sections_of(report_of(replace(CASE, arms=arms)))
    assert [plain(of).split(":")[0] for of in section.sentences] == ["server", "wal_compression"]
    row = section.tables[0].rows[1]
    assert row[0] == "wal_compression old → new" and row[2] == "higher"


def test_levels_with_other_transactions_are_not_compared_but_their_interactions_are() -> None:
    mixes = (("full", "deck"), ("orders", "new-order=1"), ("same", "deck"))
    cases = [
        replace(case, levels={"load": load, "clients": "8"}, mix=mix)
        for case, (load, mix) in zip([*CASES, CASES[0]], mixes, strict=True)
    ]
    built = report_of(*cases)
    (section,) = sections_of(built)
    main, interactions, by_level = section.tables
    assert [row[0] for row in main.rows] == ["server 17 → 18", "settings old → new", "load full → same"]
    assert ["server 17 → 18", "load full → orders"] in [row[:2] for row in interactions.rows]
    assert ["server 17 → 18", "load orders"] in [row[:2] for row in by_level.rows]
    (sentence,) = [plain(of) for of in section.sentences if "common unit" in of]
    assert sentence.startswith("load: same instead")
    found = json.loads(FORMS["json"](built))["more"]["effects"]
    assert found["not_compared"] == [{"factor": "load", "first": "full", "level": "orders"}]
    changes = [of["contrast"]["change"] for of in found["changes_at_levels"]]
    assert {(of["factor"], of["level"]) for of in changes}.isdisjoint({("load", "orders")})


def test_a_factor_of_other_transactions_only_has_the_reason_and_no_change() -> None:
    full, orders = (replace(case, levels={"load": str(n)}) for n, case in enumerate(CASES))
    (section,) = sections_of(report_of(full, replace(orders, mix="new-order=1")))
    (sentence,) = [of for of in section.sentences if of.startswith("load")]
    assert "common unit" in sentence and "%" not in sentence
    assert not [row for row in section.tables[0].rows if row[0].startswith("load")]


def test_one_factor_is_what_the_comparison_says() -> None:
    arms = ({"server": "17"}, {"server": "18"})
    assert sections_of(report_of(Synthetic(blocks=2, slices=2, arms=arms))) == []


def test_few_passes_decide_nothing_whatever_their_interval_is() -> None:
    (section,) = sections_of(report_of(*(replace(case, blocks=3) for case in CASES)))
    assert not [row for table in section.tables for row in table.rows if row[-3] not in ("undecided",)]


def test_cells_are_as_the_study_file_orders_their_levels_and_without_twins_and_stalled_ones() -> None:
    twins = [*ARMS, ARMS[0]]
    names = [*CASE.names, "17, old (again 2)"]
    cases = (
        # An exclusion removed 17 from the first case.
        replace(CASES[0], arms=ARMS[2:], names=CASE.names[2:], effects=CASE.effects[2:]),
        replace(CASES[1], arms=twins, names=names, effects=(*CASE.effects, 1), stalled=[(1, 3)]),
    )
    found = report_of(*cases).findings
    design = design_of(found.cases)
    assert [tuple(of.levels) for of in design.factors] == [("17", "18"), ("old", "new"), ("8", "64")]
    assert len(design.cells) == 6 and [cell.stalled for cell in design.cells].count(True) == 1
    assert effects_in(found.cases).main[0].combined.names == ["settings old, clients 64"]


def test_a_combination_whose_effect_changes_within_the_windows_is_left_out() -> None:
    cases = report_of(CASES[0], replace(CASES[1], cold=(0.0, 0.0, 0.0, 0.3))).findings.cases
    assert [one.is_trending for one in cases[1].comparisons] == [False, False, True]
    assert effects_in(cases).main[0].combined.names == [
        "settings old, clients 8", "settings old, clients 64", "settings new, clients 8"
    ]  # fmt: skip


def sweep(sigma: float, kappa: float, *numbers: int, blocks: int = 6) -> list[Synthetic]:
    return list(sweep_of_clients(sigma, kappa, numbers, blocks=blocks))


def scalability(of: StudyReport) -> Section:
    return next(section for section in sections_of(of) if section.title == "Scalability")


@pytest.fixture(scope="module")
def swept() -> StudyReport:
    return report_of(*sweep(0.04, 0.002, 1, 4, 8, 16, 64))


def test_programs_get_parameters_and_points(swept: StudyReport) -> None:
    found = json.loads(FORMS["json"](swept))["more"]["scalability"]
    assert [curve["name"] for curve in found["curves"]] == ["17", "18"]
    curve = found["curves"][0]
    assert list(curve["measured"]) == list(curve["fitted"]) == ["1", "4", "8", "16", "64"]
    assert curve["kappa"]["low"] < curve["kappa"]["value"] < curve["kappa"]["high"]
    assert found["differences"][0]["rate_of_one"]["value"] == pytest.approx(10, abs=3)


def test_a_number_of_clients_at_which_an_arm_stalled_is_omitted_and_named() -> None:
    cases = sweep(0.04, 0.002, 1, 4, 8, 16, 64, blocks=2)
    cases[3] = replace(cases[3], stalled=[(0, 0)])
    old, new = map(plain, scalability(report_of(*cases)).sentences)
    assert "16 clients" in old and "16 clients" not in new


def test_on_80_columns_the_names_of_the_curves_stay(swept: StudyReport) -> None:
    """Numbers are omitted first, the least important ones first, because a row without its name is
    useless.
    """
    table = next(table for table in scalability(swept).tables if table.title.startswith("Universal"))
    widest = ["18,shared_buffers=2GB", *["12,345 [12,000, 12,700]"] * 5, "0.12", "8"]
    shown = _fitting(replace(table, rows=[*table.rows, widest]), 80)
    assert [table.columns[index].split(",")[0] for index in shown] == ["arm", "knee", "peak"]


def test_a_peak_whose_knee_may_be_out_of_range_has_no_upper_bound() -> None:
    """Knees at 10 and 1000 clients, with no measurement beyond 64."""
    near, far = (Law(*(np.array([x]) for x in (100.0, 0.0, kappa))) for kappa in (1e-2, 1e-6))
    assert np.isfinite(_peak(near, 128.0)).all() and np.isinf(_peak(far, 128.0)).all()
    assert _peaks_most(far, near, 128.0)[0] == np.inf and np.isfinite(_peaks_least(far, near, 128.0)[0])
    assert _peaks_least(near, far, 128.0)[0] == -100.0 and np.isfinite(_peaks_most(near, far, 128.0)[0])
    for high, text in ((np.inf, "500.0 [450.0, ∞]"), (550.0, "500 [450, 550]")):
        peak = Estimate(500.0, "tx/s", 5, Better.MORE, 450.0, high)
        assert plain(_cell(peak, _unsigned(peak))) == text
