"""The page of the series shows what the file has, reduced without loss of extremes."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient
from synthetic_study import Synthetic, study_of, write_study

from ok_trial import ok_trial
from pgdyno.features.explore.series import TIME_STEP_S, _is_own, reduced
from pgdyno.features.serve.index import Index, identifier
from pgdyno.features.serve.pages import application
from pgdyno.results.records import SampleSeries, Slice
from pgdyno.study.defaults import Schedule
from pgdyno.study.schedule import Role

PROBED = Synthetic(effects=(1.0, 1.2), blocks=3, slices=10, probed=True)
HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("series")
    write_study(found / "probed.sqlite", PROBED)
    write_study(found / "bare.sqlite", Synthetic(names=("17", HOSTILE), title=HOSTILE, blocks=2))
    return found


@pytest.fixture(scope="module")
def client(folder: Path) -> TestClient:
    return TestClient(application(Index(folder)))


def address(folder: Path, name: str = "probed") -> str:
    return f"/explore/{identifier(folder, folder / f'{name}.sqlite')}"


def decoded(line: Mapping[str, Any]) -> list[tuple[float, float]]:
    times = np.cumsum(line["x"]) * TIME_STEP_S
    return [(float(at), y) for at, y in zip(times, line["y"], strict=True) if y is not None]


def of_file(path: Path, arm: int, column: str) -> list[tuple[float, float]]:
    """Return middle and value of the intervals of an arm, since the start of the study."""
    query = f"""
        SELECT trial.epoch_unix_s - study.created_unix_s + (from_s + to_s) / 2, {column}
        FROM interval JOIN trial USING (trial), study WHERE arm = ? ORDER BY 1"""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query, (arm,)).fetchall()


@pytest.mark.parametrize(
    ("metric", "column"),
    [("driver.tps", "executed / (to_s - from_s)"), ("driver.p99", "latency_p99_ns / 1e6")],
)
def test_series_of_the_driver_are_those_of_the_file(
    client: TestClient, folder: Path, metric: str, column: str
) -> None:
    (chart,) = client.get(f"{address(folder)}/series.json?metric={metric}").json()["charts"]
    assert [line["arm"] for line in chart["lines"]] == [0, 1]
    for line in chart["lines"]:
        expected = of_file(folder / "probed.sqlite", line["arm"], column)
        np.testing.assert_allclose(decoded(line), expected, rtol=1e-4)
        values = [value for _, value in expected]
        found = [line["n"], line["low"], line["median"], line["high"]]
        expected_sums = [len(values), min(values), float(np.median(values)), max(values)]
        np.testing.assert_allclose(found, expected_sums, rtol=1e-4)
        assert line["y"].count(None) == 2, "lines are interrupted between three blocks"


def test_samples_are_rates_shares_and_checkpoints(client: TestClient, folder: Path) -> None:
    metrics = ("server.lsn_bytes", "waits.waiting", "waits.running", "host.server_cpu_s")
    query = "&".join(f"metric={metric}" for metric in metrics)
    found = client.get(f"{address(folder)}/series.json?{query}").json()
    values = {of["key"]: [line["median"] for line in of["lines"]] for of in found["charts"]}
    assert values == {  # see synthetic_telemetry.series
        "server.lsn_bytes": [1.0, 0.9],
        "waits.waiting": [0.4, 0.4],
        "waits.running": [1.2, 1.2],
        "host.server_cpu_s": [1.0, 1.0],
    }
    marks = sorted((of["block"], of["arm"], *of["at_s"]) for of in found["marks"])
    assert marks == [(block, arm, 40.0 * block + 10 + 5) for block in range(3) for arm in range(2)]


def test_a_window_has_its_values_only_at_the_asked_resolution(client: TestClient, folder: Path) -> None:
    url = f"{address(folder)}/series.json?metric=driver.tps"
    found = client.get(f"{url}&from=50&to=70&arm=1").json()
    (line,) = found["charts"][0]["lines"]
    inside = [of for of in of_file(folder / "probed.sqlite", 1, "executed") if 50 <= of[0] <= 70]
    assert line["arm"] == 1 and line["n"] == len(inside) and (found["from_s"], found["to_s"]) == (50, 70)
    assert len(decoded(line)) == len(inside) + 2, "a point at either side of the window"
    whole, coarse = (client.get(f"{url}&points={points}").json() for points in (1000, 2))
    for fine, of in zip(whole["charts"][0]["lines"], coarse["charts"][0]["lines"], strict=True):
        assert len(decoded(of)) <= 4 < len(decoded(fine)) and of["n"] == fine["n"]
        ys = [y for _, y in decoded(fine)]
        assert {min(ys), max(ys)} <= {y for _, y in decoded(of)}


def test_blocks_are_chosen_and_wrong_values_are_ignored(client: TestClient, folder: Path) -> None:
    url = f"{address(folder)}/series.json?metric=driver.tps&metric=no.such"
    found = client.get(f"{url}&block=0,2-9&from=x&points=-1").json()
    assert {of["block"] for of in found["marks"]} == {0, 2} and len(found["charts"]) == 1
    assert client.get(f"{url}&block={'9' * 5000}").json()["charts"][0]["lines"] == []
    assert client.get(f"{url}&block=none").json()["charts"][0]["lines"] == []
    assert client.get(f"{url}&from=1e9&to=1e9").json()["to_s"] < 1e3


def test_a_page_lists_what_the_file_has(client: TestClient, folder: Path) -> None:
    bare, probed = (client.get(address(folder, name)).text for name in ("bare", "probed"))
    listed = re.findall('name="metric" value="([^"]+)"', bare)
    assert listed == ["driver.tps", "driver.p50", "driver.p95", "driver.p99", "driver.max"]
    assert 'value="waits.LWLock/WALWrite"' in probed and 'value="server.lsn_bytes" checked' in probed
    assert client.get(f"/run/{address(folder).rpartition('/')[2]}").text.count(">Explore</a>") == 1


def test_a_page_is_small_escapes_names_and_loads_nothing_from_elsewhere(
    client: TestClient, folder: Path
) -> None:
    page = client.get(address(folder, "bare"))
    assert "<img" not in page.text and "&lt;img" in page.text
    assert not re.search(
        r"(?:src|href)=\"(?!/)|<style| style=|<script>", page.text.replace('"#content', '"/')
    )
    names = re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text)
    files = [client.get(name) for name in (*names, "/static/choice.js")]  # a module that another imports
    assert len(names) >= 8 and all(of.status_code == 200 for of in files)
    sizes = [int(of.headers.get("content-length", len(of.content))) for of in (page, *files)]
    assert sum(sizes) < 150_000, "the first paint, compressed"


def test_what_does_not_exist_is_not_found(client: TestClient, folder: Path) -> None:
    for url in ("/explore/none", f"{address(folder)}?case=7", "/explore/none/series.json"):
        assert client.get(url).status_code == 404
    assert client.get("/static/..%2Fseries.py").status_code == client.get("/static/no.js").status_code == 404


def test_a_sample_between_the_slices_of_an_arm_is_not_its_own() -> None:
    slices = [
        Slice(i, Role.MEASURE, begin, begin, begin + 5.0, begin + 5.0, 0, 0, {})
        for i, begin in enumerate((0.0, 10.0))
    ]
    at = np.arange(0.0, 16.0)
    series = SampleSeries("server", ("at_s", "late_s"), np.column_stack([at, 0 * at]))
    trial = ok_trial(trial=1, block=0, arm=0, slices=slices)
    own, is_alone = _is_own(series, trial, study_of(PROBED).plan)
    assert at[own].tolist() == [1, 2, 3, 4, 5, 11, 12, 13, 14, 15] and is_alone
    short = [replace(of, closed_s=of.opened_s + 1.0, drained_s=of.opened_s + 1.0) for of in slices]
    own, is_alone = _is_own(series, replace(trial, slices=short), study_of(PROBED).plan)
    assert at[own].tolist() == list(range(1, 12)) and not is_alone
    blocks = study_of(replace(PROBED, schedule=Schedule.BLOCKS)).plan
    assert _is_own(series, replace(trial, slices=short), blocks)[1]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.integers(1, 50))
def test_a_reduction_keeps_the_extremes_of_each_part(values: list[float], points: int) -> None:
    at, of = np.arange(len(values)) + 0.5, np.array(values)
    kept = reduced(at, of, (0.0, float(len(values))), points)
    assert len(kept) <= max(2 * points, 0) or len(kept) == len(values)
    width = len(values) / points
    for part in range(points):
        inside = of[np.floor(at / width).astype(int) == part]
        if len(inside):
            shown = of[kept[np.floor(at[kept] / width).astype(int) == part]]
            assert (shown.min(), shown.max()) == (inside.min(), inside.max())
