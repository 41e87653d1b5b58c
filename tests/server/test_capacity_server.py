"""A minimal capacity search on real servers: it runs, is stored, and is compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from pgdyno.analysis.study_findings import find_study
from pgdyno.interruption import Interruption
from pgdyno.measure.progress import Progress, Watch
from pgdyno.measure.study_runner import start_study
from pgdyno.report.study_report import build_study
from pgdyno.results.reader import Evidence
from pgdyno.results.records import StudyEnd, TrialStatus
from pgdyno.server.builds import Build
from pgdyno.study.arm_spec import parse_arms
from pgdyno.study.cases import Request, only_case
from pgdyno.study.plan import Study
from pgdyno.workloads.pgbench.parameters import PgbenchParameters

pytestmark = pytest.mark.server


@contextmanager
def unwatched(_names: Sequence[str]) -> Iterator[Watch]:
    def watch(_progress: Progress) -> None:
        pass

    yield watch


def test_each_block_searches_and_measures_at_the_rate_that_it_found(build: Build, tmp_path: Path) -> None:
    server = str(build.bin_dir)
    fields = {
        "title": "t",
        "arms": parse_arms([server, f"{server},synchronous_commit=off"]),
        "workload": PgbenchParameters(scale=1, scripts=({"name": "simple-update"},)),
        "clients": 2,
        "slice_s": 0.2,
        "discard_s": 0.02,
        "warmup_s": 0.2,
        "rounds": 2,
        "blocks_max": 1,
        "budget_s": 600.0,
        "probes": (),
        "aa": False,
        "seed": 1,
        # A loose limit of a low percentile, so that other load on the machine hardly matters.
        "capacity": "p50 < 10ms",
    }
    path, study = tmp_path / "e.sqlite", Study.model_validate(fields)
    with Interruption() as interruption:
        request = Request("t", [only_case(study)], "pgdyno compare")
        assert start_study(path, request, unwatched, interruption) is StudyEnd.BLOCKS
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
