"""Facts about the driver: JSON in the results file, and rejected values."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from synthetic_study import Synthetic, write_study

from edited_evidence import edited
from pgdyno.errors import EvidenceError
from pgdyno.results.reader import Evidence
from pgdyno.results.records import CapacitySearch, CpuTimeNs, DriverFacts, RoundTripNs, WakeLateNs, WarmUpEnd
from pgdyno.study.values import SearchStep

FACTS_JSON = TypeAdapter(DriverFacts)
STORED: dict[str, Any] = {
    "cpu_ns": {"user": 7, "system": 8},
    "memory_peak_bytes": 9_000_000,
    "wake_late_ns": {"p50": 1, "p99": 12, "max": 13},
    "threads": 2,
    "io": "io_uring",
    "round_trip_ns": {"p50": 40_000, "p99": 50_000},
    "capacity": {
        "limit": "p99 < 20ms",
        "closed_loop_per_s": 2000.5,
        "steps": [{"rate_per_s": 1400.0, "latency_ms": 3.5}, {"rate_per_s": 1750.0, "latency_ms": None}],
    },
    "warm_up": {"driven_s": 5.0, "by": "evidence", "values": 5, "looks": 1, "looks_steady": 1, "times": 1},
    "ordered_checkpoint_s": 0.25,
}
"""Facts as in the first version of the results file with these keys."""

TRIED = [SearchStep(1400.0, 3.5), SearchStep(1750.0, math.inf)]
FACTS = DriverFacts(
    cpu_ns=CpuTimeNs(7, 8),
    memory_peak_bytes=9_000_000,
    wake_late_ns=WakeLateNs(1, 12, 13),
    threads=2,
    io="io_uring",
    round_trip_ns=RoundTripNs(40_000, 50_000),
    capacity=CapacitySearch("p99 < 20ms", 2000.5, TRIED),
    warm_up=WarmUpEnd(5.0, "evidence", 5, 1, 1),
    ordered_checkpoint_s=0.25,
)


def test_stored_facts_round_trip() -> None:
    assert FACTS_JSON.validate_json(json.dumps(STORED)) == FACTS
    assert FACTS_JSON.dump_python(FACTS, mode="json") == STORED
    assert FACTS.capacity is not None and FACTS.capacity.steps == TRIED


@pytest.mark.parametrize("text", ["{}", '{"of_a_later_version": [1]}', '{"round_trip_ns": null}'])
def test_unknown_keys_and_missing_facts_are_no_error(text: str) -> None:
    assert FACTS_JSON.validate_json(text) == DriverFacts()
    assert FACTS_JSON.dump_python(DriverFacts()) == {}


@pytest.mark.parametrize(
    "changed",
    [
        {"threads": "two"},
        {"threads": -1},
        {"memory_peak_bytes": 1e400},
        {"wake_late_ns": [1]},
        {"wake_late_ns": {"p99": 2**64}},
        {"stopped_by": 17},
        {"ordered_checkpoint_s": math.nan},
        {"warm_up": {**STORED["warm_up"], "by": "chance"}},
        {"warm_up": {}},
        {"capacity": {**STORED["capacity"], "limit": "p99 < soon"}},
        {"capacity": {**STORED["capacity"], "steps": [{"rate_per_s": 0.0, "latency_ms": 1.0}]}},
        {"capacity": {**STORED["capacity"], "steps": [{"rate_per_s": 1.0}]}},
    ],
    ids=str,
)
def test_other_values_are_a_damaged_file(changed: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "e.sqlite"
    write_study(path, Synthetic(blocks=1))
    with edited(path) as connection:
        connection.execute("UPDATE trial SET driver = ?", (json.dumps(STORED | changed),))
    with Evidence(path) as evidence, pytest.raises(EvidenceError):
        evidence.trials()
