"""Metrics of running studies, read by the parser of Prometheus."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from synthetic_study import CREATED_UNIX_S, QuickWriter, Synthetic, arms_of, study_of, write_block

from pgdyno.errors import EvidenceError
from pgdyno.features.open_metrics.routes import TYPE
from pgdyno.features.serve import stop
from pgdyno.features.serve.access import Guard
from pgdyno.features.serve.index import Index
from pgdyno.features.serve.server import all_pages
from pgdyno.results.reader import Evidence
from pgdyno.results.records import StudyEnd

HOSTILE = 'a "b"\\\n\u202e'
WANTED = Synthetic(effects=(1.0, 1.2), blocks=20, ended=None, title=HOSTILE)
TOKEN = "secret-token"
BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    monkeypatch.setattr("pgdyno.features.serve.index.SCAN_S", 0.0)
    not_needed = Mock(side_effect=EvidenceError("metrics need no report"))
    monkeypatch.setattr("pgdyno.features.serve.index.read_document", not_needed)
    guard = Guard(all_pages(Index(tmp_path)), TOKEN, 8123)
    return TestClient(guard, base_url="http://127.0.0.1:8123")


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[QuickWriter]:
    with QuickWriter.create(tmp_path / "e.sqlite", study_of(WANTED), arms_of(WANTED)) as found:
        yield found


Values = dict[str, dict[tuple[str, ...], float]]


def values(client: TestClient) -> Values:
    """Return the samples by metric and labels, without those of the study."""
    found = client.get("/metrics", headers=BEARER)
    assert found.headers["content-type"] == TYPE
    return {
        family.name.removeprefix("pgdyno_"): {
            tuple(v for k, v in one.labels.items() if k not in ("file", "study")): one.value
            for one in family.samples
        }
        for family in text_string_to_metric_families(found.text)
    }


def test_a_program_sends_the_token_as_bearer(client: TestClient) -> None:
    for wrong in (
        {},
        {"authorization": TOKEN},
        {"authorization": "Bearer wrong"},
        {"authorization": "Basic x"},
    ):
        assert client.get("/metrics", headers=wrong).status_code == 403
    assert client.get("/metrics", headers={"authorization": f"bearer {TOKEN}"}).status_code == 200
    assert client.get("/metrics", headers={**BEARER, "origin": "http://attacker.example"}).status_code == 403


def test_without_a_running_study_there_is_no_sample(client: TestClient) -> None:
    found = values(client)
    assert len(found) == 10 and not any(found.values())


def test_a_study_has_values_while_it_runs_and_then_its_state(
    client: TestClient, writer: QuickWriter, tmp_path: Path
) -> None:
    begun = values(client)
    assert begun["study_state"][("running",)] == 1 and sum(begun["study_state"].values()) == 1
    assert begun["blocks_done"] == {(): 0} and not begun["throughput_tx_per_second"]
    rng = np.random.default_rng(1)
    for block in range(6):
        write_block(writer, WANTED, block, rng)
    found = values(client)
    pair, arms = ("", "18", "17"), ("17", "18")
    with Evidence(tmp_path / "e.sqlite", verify=False) as evidence:
        last = {arms[of.arm]: evidence.intervals(of.trial)[-1] for of in evidence.trials() if of.block == 5}
    assert found["blocks_done"] == {(): 6} and found["effect_blocks"] == {pair: 6}
    assert found["throughput_tx_per_second"] == {
        ("", arm): pytest.approx(last[arm].executed / (last[arm].to_s - last[arm].from_s)) for arm in arms
    }
    assert found["latency_seconds"] == {
        ("", arm, quantile): pytest.approx(latency_ns / 1e9)
        for arm in arms
        for quantile, latency_ns in (
            ("0.5", last[arm].latency_p50_ns),
            ("0.95", last[arm].latency_p95_ns),
            ("0.99", last[arm].latency_p99_ns),
        )
    }
    stop.ask(tmp_path / "e.sqlite", os.getpid())
    stopping = values(client)
    assert stopping["study_state"][("stopping",)] == 1 and stopping["blocks_done"] == {(): 6}
    low, effect, high = (found[f"effect_{of}ratio"][pair] for of in ("low_", "", "high_"))
    assert low < effect < high and low < 0.2 < high
    assert found["verdict"][(*pair, "faster")] == 1 and sum(found["verdict"].values()) == 1
    writer.finish_study(StudyEnd.BUDGET, CREATED_UNIX_S + 240)
    ended = values(client)
    assert ended["study_state"][("ended",)] == 1
    assert [name for name, of in ended.items() if of] == ["study_state"]


def test_an_interval_of_few_blocks_is_left_out_as_in_reports(client: TestClient, writer: QuickWriter) -> None:
    rng = np.random.default_rng(1)
    for block in range(4):
        write_block(writer, WANTED, block, rng)
    found = values(client)
    assert found["effect_ratio"] and not found["effect_low_ratio"] and not found["effect_high_ratio"]


def test_a_study_whose_process_ended_is_stopped_and_a_removed_one_disappears(
    client: TestClient, tmp_path: Path
) -> None:
    with QuickWriter.create(tmp_path / "e.sqlite", study_of(WANTED), arms_of(WANTED)):
        assert values(client)["study_state"][("running",)] == 1
    assert values(client)["study_state"][("stopped",)] == 1
    (tmp_path / "e.sqlite").unlink()
    assert not values(client)["study_state"]


def test_labels_are_escaped(client: TestClient, writer: QuickWriter, tmp_path: Path) -> None:
    text = client.get("/metrics", headers=BEARER).text
    assert text.isascii() and text.endswith("# EOF\n")
    (family, *_) = text_string_to_metric_families(text)
    assert {one.labels["study"] for one in family.samples} == {'a "b"\\\n\\u202e'}
    assert {one.labels["file"] for one in family.samples} == {"e.sqlite"}


def test_two_studies_are_told_apart_by_their_files(
    client: TestClient, writer: QuickWriter, tmp_path: Path
) -> None:
    other = replace(WANTED, title="other")
    with QuickWriter.create(tmp_path / "f.sqlite", study_of(other), arms_of(other)):
        text = client.get("/metrics", headers=BEARER).text
        families = {of.name: of for of in text_string_to_metric_families(text)}
    files = [one.labels["file"] for one in families["pgdyno_blocks_done"].samples]
    assert sorted(files) == ["e.sqlite", "f.sqlite"]
