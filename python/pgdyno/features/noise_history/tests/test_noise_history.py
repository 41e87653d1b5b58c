"""Noise history: consistent after a crash of any writer, and never applied to another machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from example_studies import make_study
from pgdyno.features.noise_history import entries
from pgdyno.features.noise_history.entries import HistoryFile, history_path, load_of, machine_of
from pgdyno.study.plan import DriversPlan

HOST = {
    "machine": "a1b2",
    "processor": "EPYC",
    "cores": 2,
    "memory_bytes": 8 << 30,
    "kernel": "Linux 6.1.0",
    "architecture": "x86_64",
    "load_average": [0.1, 0.2, 0.3],
}
LOAD = {"workload": {"kind": "pgbench", "scale": 1}, "clients": 2, "slice_s": 1.0}


def aa(
    log_ratios: list[float], at: float = 1.0, host: dict[str, Any] = HOST, **changes: Any
) -> dict[str, Any]:
    entry = {"kind": "aa", "id": f"aa {at}", "at_unix_s": at, "machine": machine_of(host), "load": LOAD}
    return {**entry, "log_ratios": log_ratios, **changes}


@pytest.fixture
def history(tmp_path: Path) -> HistoryFile:
    return HistoryFile(tmp_path / "noise.jsonl")


def test_appended_records_round_trip_and_the_last_state_of_a_resumed_study_is_used(tmp_path: Path) -> None:
    history = HistoryFile(tmp_path / "state" / "noise.jsonl")
    assert history.entries() == []
    entries = [aa([0.01, -0.02], 1.0), aa([0.03], 2.0)]
    for entry in entries:
        history.append(entry)
    assert history.entries() == entries
    history.append(aa([0.04, 0.05], 2.0))
    assert history.aa_before(HOST, LOAD) == [0.01, -0.02, 0.04, 0.05]


def test_a_line_that_was_cut_short_costs_only_itself(history: HistoryFile) -> None:
    history.append(aa([0.01], 1.0))
    with history.path.open("a") as file:
        file.write(json.dumps(aa([0.5], 2.0))[:40])
    assert history.aa_before(HOST, LOAD) == [0.01]
    history.append(aa([0.03], 3.0))
    assert history.aa_before(HOST, LOAD) == [0.01, 0.03]


WRITES = """
import os, sys
from pathlib import Path
from pgdyno.features.noise_history.entries import HistoryFile
for name in ("a", "b"):
    if os.fork() == 0:
        for number in range(25):
            entry = {"kind": "aa", "id": f"{name} {number}", "at_unix_s": number, "pad": "x" * 9000}
            HistoryFile(Path(sys.argv[1])).append(entry)
        os._exit(0)
assert [os.wait()[1] for _ in range(2)] == [0, 0]
"""


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "noise.jsonl"
    subprocess.run([sys.executable, "-c", WRITES, path], check=True, timeout=120)
    ids = {entry["id"] for entry in HistoryFile(path).entries()}
    assert ids == {f"{name} {number}" for name in ("a", "b") for number in range(25)}
    assert len(path.read_text().splitlines()) == 50


def test_it_does_not_grow_without_end(history: HistoryFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "ENTRIES_MAX", 10)
    for number in range(25):
        history.append(aa([0.0], float(number)))
    kept = [entry["at_unix_s"] for entry in history.entries()]
    assert len(kept) <= 20
    assert kept[-1] == 24.0
    assert kept == sorted(kept)


@pytest.mark.parametrize("changed", [{"kernel": "Linux 6.8.0"}, {"cores": 4}, {"machine": "c3d4"}])
def test_a_machine_that_has_changed_starts_anew(history: HistoryFile, changed: dict[str, Any]) -> None:
    history.append(aa([0.01]))
    assert history.aa_before({**HOST, **changed}, LOAD) == []
    assert history.aa_before({**HOST, "load_average": [9.0, 9.0, 9.0]}, LOAD) == [0.01]  # a transient fact


def test_only_the_latest_blocks_with_the_same_load_are_pooled(history: HistoryFile) -> None:
    history.append(aa([0.9], 0.5, load={**LOAD, "slice_s": 0.5}))
    for number in range(1, 31):
        history.append(aa([number / 1000, -number / 1000], float(number)))
    before = history.aa_before(HOST, LOAD)
    assert len(before) == entries.BLOCKS_BEFORE_MAX
    assert before[-1] == -0.03
    assert before[0] == 0.011


def test_a_calibration_of_an_earlier_version_is_kept_and_not_pooled(history: HistoryFile) -> None:
    row = {"schedule": "slices", "slice_s": 1.0, "blocks": 3, "sd_root_min": 0.03}
    old = {"kind": "calibration", "id": "calibration 1", "at_unix_s": 1.0, "machine": machine_of(HOST)}
    old |= {"server": "18.4", "workload": "pgbench", "clients": 2, "results": [row], "best": {"slices": 1.0}}
    history.path.write_text(json.dumps(old) + "\n")
    history.append(aa([0.01], 2.0))
    assert history.aa_before(HOST, LOAD) == [0.01]
    assert history.entries()[0] == old


def test_it_is_in_the_users_state_directory(tmp_path: Path) -> None:
    assert history_path({"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "pgdyno" / "noise.jsonl"
    assert history_path({}).is_relative_to(Path("~/.local/state").expanduser())


@pytest.mark.parametrize(
    "changes",
    [
        {"clients": 7},
        {"threads": 2},
        {"warmup_min_s": 0.5},
        {"cache_state": "prewarmed"},
        {"probes": ()},
        {"capacity": "p99<20ms"},
        {"memory_limit_bytes": 1 << 30},
        {"beside": ("stress-ng", "--cpu", "1")},
        {"drivers": DriversPlan(n=2)},
    ],
)
def test_blocks_with_another_load_are_not_reused_from_earlier_studies(changes: dict[str, Any]) -> None:
    assert load_of(make_study(**changes)) != load_of(make_study())
