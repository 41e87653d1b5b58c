"""Latencies, crashes, capacity searches and parts of the report agree with the file."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_study
from starlette.testclient import TestClient
from synthetic_study import Synthetic, write_anew, write_study

from pgdyno.features.crash_disk.plan import CrashPlan
from pgdyno.features.crash_disk.records import Corruption, Crash, CrashArm, CrashTestRecord, CrashWriter
from pgdyno.features.serve.index import Index, identifier
from pgdyno.features.serve.pages import application
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Measure, Moment, StoredReading, TrialStatus
from pgdyno.study.arm_spec import parse_arms

HOSTILE = "</script><img src=x onerror=alert(1)>"
FAILED = {(1, 1): TrialStatus.FAILED}


def opened(path: Path) -> tuple[TestClient, str]:
    """Return a client, and the address of the views of a file."""
    return TestClient(application(Index(path.parent))), f"/explore/{identifier(path.parent, path)}"


def histograms(path: Path, arm: int, blocks: tuple[int, ...], kind: str = "") -> np.ndarray:
    """Return the latencies of an arm in ms with their counts, over its valid trials."""
    with Evidence(path) as evidence:
        pairs = [
            of.pairs
            for trial in evidence.trials()
            if trial.arm == arm and trial.block in blocks and trial.status is TrialStatus.OK
            for of in evidence.histograms(trial.trial, Measure.LATENCY)
            if kind in ("", of.kind)
        ]
    every = np.concatenate(pairs).astype(int)
    return np.repeat(every[:, 0], every[:, 1]) / 1e6


@pytest.mark.parametrize("kind", ["", "payment"])
def test_percentile_curves_are_those_of_the_histograms(tmp_path: Path, kind: str) -> None:
    write_study(tmp_path / "e.sqlite", Synthetic(blocks=3, statuses=FAILED))
    client, url = opened(tmp_path / "e.sqlite")
    found = client.get(f"{url}/latency.json?kind={kind}&block=0-1").json()
    for curve in found["curves"]:
        values = histograms(tmp_path / "e.sqlite", curve["arm"], (0, 1), kind)
        assert curve["n"] == len(values) and curve["skipped"] == 0
        for beyond, ms in zip(curve["beyond"], curve["ms"], strict=True):
            slower, at_least = np.mean(values > ms * 1.0001), np.mean(values >= ms * 0.9999)
            assert slower <= beyond * 1.0001 and at_least >= beyond * 0.9999
        expected = np.quantile(values, 0.99, method="inverted_cdf")
        assert curve["quantiles_ms"]["p99"] == pytest.approx(expected, rel=1e-4)
    assert [(of["arm"], of["block"]) for of in found["columns"]] == [(0, 0), (1, 0), (0, 1)]


def test_a_column_of_the_heat_map_has_the_shares_of_its_trial(tmp_path: Path) -> None:
    write_study(tmp_path / "e.sqlite", Synthetic(blocks=2))
    client, url = opened(tmp_path / "e.sqlite")
    found = client.get(f"{url}/latency.json").json()
    for column in found["columns"]:
        values = histograms(tmp_path / "e.sqlite", column["arm"], (column["block"],))
        edges = 10 ** (np.arange(column["first"], column["first"] + len(column["shares"]) + 1) / 10)
        expected = np.histogram(values, edges)[0] / len(values)
        np.testing.assert_allclose(column["shares"], expected, rtol=1e-3, atol=1e-9)
        assert column["from_s"] == pytest.approx(40 * column["block"] + 10 + column["arm"])


def test_skipped_arrivals_end_a_curve_and_are_counted(tmp_path: Path) -> None:
    wanted = Synthetic(blocks=2, fixed_rate_per_s=1000, skipped=(0.0, 0.2))
    write_study(tmp_path / "e.sqlite", wanted)
    client, url = opened(tmp_path / "e.sqlite")
    kept, lost = client.get(f"{url}/latency.json").json()["curves"]
    assert kept["skipped"] == 0 and lost["skipped"] / lost["n"] == pytest.approx(0.2, abs=0.01)
    assert min(lost["beyond"]) >= 0.19 and lost["quantiles_ms"]["p99"] is None


PLAN = CrashPlan(arms=tuple(parse_arms(["18", "18,fsync=off"])), cuts=3, seed=5)


def crash(number: int, arm: int, lost: int | None) -> Crash:
    counts: Mapping[str, Any] = dict.fromkeys(
        ("in_doubt", "in_doubt_present", "phantoms", "holes", "damaged"), 0
    )
    return Crash(
        number=number,
        arm=arm,
        started_unix_s=1.7e9,
        took_s=8.0,
        active_s=2.5,
        survivors=None,
        acknowledged=1000 * (number + 1),
        recovery_s=0.25,
        lost=lost,
        corruption=[] if lost is not None else [Corruption("start", HOSTILE)],
        **(counts if lost is not None else {}),
    )


def test_crashes_are_shown_cut_by_cut_with_speed_and_loss(tmp_path: Path) -> None:
    arms = [CrashArm(0, HOSTILE, {}, {}, [], 0.2), CrashArm(1, "fsync=off", {}, {}, [], 0.2)]
    with CrashWriter.begin(
        tmp_path / "c.sqlite", CrashTestRecord(1.7e9, "0.1", {}, "c", {}, PLAN), arms
    ) as writer:
        for one in (crash(0, 0, 0), crash(0, 1, 700), crash(1, 0, 0), crash(1, 1, None)):
            writer.add_crash(one)
    client, url = opened(tmp_path / "c.sqlite")
    page = client.get(url).text
    assert "<img" not in page
    assert "fsync=off, crash 1: 700" in page and page.count('class="dot arm0"') == 4, "two in each chart"
    assert "400" in page and "800" in page, "commits per second"
    assert "no row was readable: 1." in page
    only = client.get(f"{url}/crashes?arm=1&metric=recovery").text
    assert 'class="dot arm0"' not in only and '<option value="recovery" selected>' in only
    assert client.get(f"{url}/latency").status_code == client.get(f"{url}/matrix").status_code == 404


def test_a_capacity_search_has_its_steps_and_the_crossing(tmp_path: Path) -> None:
    write_study(tmp_path / "e.sqlite", Synthetic(blocks=2, slices=1, capacity="p99 < 20ms"))
    client, url = opened(tmp_path / "e.sqlite")
    page = client.get(f"{url}/capacity?block=0").text
    with Evidence(tmp_path / "e.sqlite") as evidence:
        found = [of.driver.capacity for of in evidence.trials() if of.block == 0]
    for of in found:
        assert f"capacity {of.capacity_per_s:,.0f} tx/s" in page.replace("\u00a0", " ")
    assert "block 1: capacity" in page and "block 2: capacity" not in page
    assert page.count('r="5.0"') == 2


def test_a_study_of_versions_has_its_matrix_with_links_to_the_cases(tmp_path: Path) -> None:
    cases = [Synthetic(blocks=4, levels={"workload": name}) for name in ("read", HOSTILE)]
    write_study(tmp_path / "e.sqlite", *cases)
    client, url = opened(tmp_path / "e.sqlite")
    page = client.get(f"{url}/matrix").text
    assert "All workloads against 17" in page and "<img" not in page
    assert (
        f'href="{url}?case=1">workload &lt;/script' in page and client.get(f"{url}?case=1").status_code == 200
    )


def test_workloads_with_other_arms_have_no_matrix(tmp_path: Path) -> None:
    cases = [Synthetic(blocks=2, names=(of, "18"), levels={"workload": of}) for of in ("16", "17")]
    write_study(tmp_path / "e.sqlite", *cases)
    client, url = opened(tmp_path / "e.sqlite")
    assert client.get(f"{url}/matrix").status_code == 404


def test_a_profiled_study_has_its_flame_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_study(tmp_path / "plain.sqlite", Synthetic(blocks=3))
    rows = [
        {"hz": 99, "samples": 100},
        {"stack": "main;ExecScan", "n": 60},
        {"stack": "main;XLogInsert", "n": 40},
    ]
    reading = StoredReading("profile", Moment.END, 8.0, 0.1, rows)
    monkeypatch.setattr(synthetic_study, "_readings", lambda *_: [reading])
    write_anew(tmp_path / "e.sqlite", Synthetic(blocks=3))
    client, url = opened(tmp_path / "e.sqlite")
    page = client.get(f"{url}/flames").text
    assert "ExecScan" in page and "<svg" in page and 'aria-current="page">Flame graphs' in page
    _, plain = opened(tmp_path / "plain.sqlite")
    assert "Flame graphs" not in client.get(plain).text and client.get(f"{plain}/flames").status_code == 404


def test_each_view_is_small(tmp_path: Path) -> None:
    write_study(tmp_path / "e.sqlite", Synthetic(blocks=12, probed=True, capacity="p99 < 20ms", slices=1))
    client, url = opened(tmp_path / "e.sqlite")
    for view in re.findall(rf'href="{url}(/\w+)"', client.get(url).text):
        page = client.get(f"{url}{view}")
        assert page.status_code == 200 and len(zlib.compress(page.content)) < 40_000
