"""Reports of a sweep of clients: the peak of throughput, and differences between arms."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from golden_reports import sweep_of_clients
from report_forms import FORMS, plain, report_of, sections_of
from synthetic_study import Synthetic

from pgdyno.features.factors.scalability import Law, _cell, _peak, _peaks_least, _peaks_most, _unsigned
from pgdyno.report.document import Section
from pgdyno.report.study_report import StudyReport
from pgdyno.report.terminal_format import _fitting
from pgdyno.units import Better, Estimate


def sweep(sigma: float, kappa: float, *numbers: int, blocks: int = 6) -> list[Synthetic]:
    return list(sweep_of_clients(sigma, kappa, numbers, blocks=blocks))


def section(built: StudyReport) -> Section:
    return next(section for section in sections_of(built) if section.title == "Scalability")


@pytest.fixture(scope="module")
def built() -> StudyReport:
    return report_of(*sweep(0.04, 0.002, 1, 4, 8, 16, 64))


def test_programs_get_parameters_and_points(built: StudyReport) -> None:
    found = json.loads(FORMS["json"](built))["more"]["scalability"]
    assert [curve["name"] for curve in found["curves"]] == ["17", "18"]
    curve = found["curves"][0]
    assert list(curve["measured"]) == list(curve["fitted"]) == ["1", "4", "8", "16", "64"]
    assert curve["kappa"]["low"] < curve["kappa"]["value"] < curve["kappa"]["high"]
    assert found["differences"][0]["rate_of_one"]["value"] == pytest.approx(10, abs=3)


def test_a_number_of_clients_at_which_an_arm_stalled_is_omitted_and_named() -> None:
    cases = sweep(0.04, 0.002, 1, 4, 8, 16, 64, blocks=2)
    cases[3] = replace(cases[3], stalled=[(0, 0)])
    built = report_of(*cases)
    old, new = map(plain, section(built).sentences)
    assert "16 clients" in old and "16 clients" not in new


def test_on_80_columns_the_names_of_the_curves_stay(built: StudyReport) -> None:
    """Numbers are omitted first, the least important ones first, because a row without its name is
    useless.
    """
    table = next(table for table in section(built).tables if table.title.startswith("Universal"))
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
