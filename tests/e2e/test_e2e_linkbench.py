"""LinkBench workload, end to end: a comparison by a study file."""

from __future__ import annotations

from pathlib import Path

from program import Program, write_study

from pgdyno.features.linkbench.parameters import MIXES
from pgdyno.results.reader import Evidence


def test_a_comparison_passes_its_checks_and_reports_each_operation(
    program: Program, server: str, tmp_path: Path
) -> None:
    workload = {
        "kind": "linkbench",
        "nodes": 2000,
        "edition": "2011",  # test_linkbench_server.py has the checks of the other one
        "distributions": "configured",  # without the first node's links, millions in a graph of any size
    }
    study = write_study(
        tmp_path / "study.toml",
        [server, server],
        workload=workload,
        drive={"clients": 2},
        run={"schedule": "blocks", "warmup": "0.1s", "transactions": 1000, "repeats": 1},
    )
    evidence = tmp_path / "e.sqlite"
    ended = program.succeed("run", study, "--evidence", evidence, "--json")
    assert ended.trials == [{"ok": 1}] * 2
    latencies = ended.case["arms"][0]["latency_ms"]
    assert list(latencies) == [*MIXES["2011"], "all"]
    assert "linkbench-as-configured" in {caveat["code"] for caveat in ended.json()["caveats"]}
    with Evidence(evidence) as opened:
        for trial in opened.trials():
            checks = {check.name: check.passed for check in trial.checks}
            assert {"counts of links", "links conserved", "nodes conserved", "mix"} <= set(checks)
            assert all(checks.values())
