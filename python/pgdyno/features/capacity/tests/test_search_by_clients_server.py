"""A search by clients on a real server, and the studies that cannot have one."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_forms import FORMS
from small_study import run_small, small_study

from pgdyno.cli.report import read_report
from pgdyno.measure.progress import PreparationStep, Progress
from pgdyno.results.records import StudyEnd
from pgdyno.server.builds import Build
from pgdyno.study.plan import DriversPlan
from pgdyno.workloads.pgbench.parameters import PgbenchParameters, Script


@pytest.mark.server
@pytest.mark.usefixtures("cache_of_studies")
def test_a_search_finds_the_clients_of_a_server_and_its_progress_has_each_step(
    build: Build, tmp_path: Path
) -> None:
    """Each transaction holds a lock for 10 ms, so n clients take 10n ms: three of them exceed 27 ms."""
    held = "begin;\nselect pg_advisory_xact_lock(1);\nselect pg_sleep(0.01);\nend;\n"
    study = small_study(
        [f"A={build.bin_dir}", f"B={build.bin_dir},work_mem=5MB"],
        workload=PgbenchParameters(scale=1, scripts=(Script(name="held", text=held),)),
        clients=8,
        capacity="p50 < 27ms",
        capacity_by="clients",
        blocks_max=1,
        aa=False,
    )
    path, shown = tmp_path / "e.sqlite", list[str]()

    def watch(progress: Progress) -> None:
        if isinstance(progress, PreparationStep):
            shown.append(progress.text)

    assert run_small(path, study, watch) is StudyEnd.BLOCKS
    report = read_report(path)
    for trial in report.findings.first.trials:
        search = trial.driver.capacity
        assert search and [of.clients for of in search.steps][:3] == [1, 2, 4]
        assert search.capacity_per_s and 1 < search.capacity_per_s < 4
        alone, both = (next(of for of in search.steps if of.clients == n) for n in (1, 2))
        assert alone.latency_ms < both.latency_ms and alone.rate_per_s < 100
    assert any("step 2: " in text and "A at 2 clients (last 1 client: p50 " in text for text in shown)
    found = report.findings.first.feature_findings["client_capacity"]
    assert [of.points[0].clients for of in found.arms] == [1, 1]
    assert all(of.capacity and of.capacity.unit == "clients" for of in found.arms)
    assert all(name in FORMS["json"](report) for name in ("client_capacity", "kept_at_max"))
    for form in ("terminal", "html", "md"):
        assert "Throughput and latency by clients" in FORMS[form](report)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "--by=clients requires --capacity"),
        ({"capacity": "p99 < 20ms", "drivers": DriversPlan(n=2)}, "exclude each other"),
    ],
)
def test_a_search_by_clients_needs_a_limit_and_one_load_generator(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        small_study(["A=17", "B=18"], capacity_by="clients", **changes)
