"""A minimal capacity search on real servers: it runs, is stored, and is compared.

Long, because it searches for 20 s on a machine that must not stall. test_study_search.py has the search with
simulated servers, test_report_capacity.py the report, and test_e2e_interruption.py a search on a real server.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from small_study import run_small, small_study

from pgdyno.analysis.study_findings import find_study
from pgdyno.report.study_report import build_study
from pgdyno.results.reader import Evidence
from pgdyno.results.records import StudyEnd, TrialStatus
from pgdyno.server.builds import Build
from pgdyno.workloads.pgbench.parameters import PgbenchParameters

pytestmark = [pytest.mark.server, pytest.mark.long]


def test_each_block_searches_and_measures_at_the_rate_that_it_found(build: Build, tmp_path: Path) -> None:
    server = str(build.bin_dir)
    path, workload = tmp_path / "e.sqlite", PgbenchParameters(scale=1, scripts=({"name": "simple-update"},))
    # A loose limit of a low percentile, so that other load on the machine hardly matters.
    sought = {"capacity": "p50 < 10ms", "workload": workload, "blocks_max": 1, "aa": False}
    study = small_study([server, f"{server},synchronous_commit=off"], **sought)
    assert run_small(path, study) is StudyEnd.BLOCKS
    with Evidence(path) as evidence:
        trials = evidence.trials()
        found = find_study(evidence)
    # The checks count only the load after the search. Otherwise they would fail.
    assert [(trial.status, trial.reason) for trial in trials] == [(TrialStatus.OK, "")] * 2
    for trial in trials:
        sought = trial.driver.capacity
        assert sought is not None and sought.limit == "p50 < 10ms"
        assert sought.closed_loop_per_s > 0 and sought.steps
    assert found.first.primary.key == "capacity"
    (report,) = build_study(found).cases.values()
    assert any("Each block searches for it" in paragraph for paragraph in report.method)
