"""Several hosts: effects pooled by case, and their average over cases."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from pgdyno.analysis.comparison import Comparison, Effect
from pgdyno.analysis.statistics.intervals import student
from pgdyno.analysis.study_findings import AVERAGE
from pgdyno.caveats import Code
from pgdyno.features.hosts.findings import average_over_hosts, over_hosts
from pgdyno.results.records import Arm
from pgdyno.units import Better


def arm(number: int, name: str) -> Arm:
    return Arm(number, name, name, {}, {}, [], {"kind": "pgbench"}, 2, {})


def comparison(effects: Mapping[str, Sequence[float]], name: str = "13") -> Comparison:
    """``effects``: key → ratio in each block."""
    found = {}
    for key, ratios in effects.items():
        d = {block: math.log(ratio) for block, ratio in enumerate(ratios)}
        summary = student(list(d.values()), 0.99)  # as adjusted by Holm
        found[key] = Effect(key, key.upper(), d, summary, summary.percent(Better.MORE), None)
    return Comparison(arm(0, "12"), arm(1, name), [], [], [], [], [], found, None, None, 0.02)


def test_effects_are_pooled_case_by_case_and_arm_by_arm() -> None:
    hosts = {
        "small": {"warm": [comparison({"tps": [1.1, 1.12], "wal": [1.0, 1.0]})]},
        "large": {"warm": [comparison({"tps": [1.2, 1.21]})], "cold": [comparison({"tps": [0.9]})]},
    }
    found = {(of.case, of.key): of for of in over_hosts(hosts, 0.95)}
    assert list(found) == [("warm", "tps"), ("warm", "wal"), ("cold", "tps")]
    warm = found["warm", "tps"]
    assert [of.host for of in warm.pooled.hosts] == ["small", "large"] and not warm.absent
    assert 10 < warm.pooled.percent(Better.MORE).value < 21
    assert warm.pooled.hosts[0].summary.confidence == warm.pooled.over_hosts.confidence == 0.95
    assert not warm.caveats()
    assert found["cold", "tps"].absent == ["small"] and found["warm", "wal"].absent == ["large"]


def test_hosts_that_disagree_are_reported_with_their_case() -> None:
    hosts = {
        "i5": {"scale 5000": [comparison({"tps": [0.9665]})]},
        "xeon": {"scale 5000": [comparison({"tps": [1.0441]})]},
    }
    (found,) = over_hosts(hosts, 0.95)
    (caveat,) = found.caveats()
    assert caveat.code == Code.HOSTS_DISAGREE and "TPS in scale 5000" in caveat.text


def test_the_average_is_over_the_cases_that_every_host_has() -> None:
    hosts = {
        "a": {"x": [comparison({"tps": [1.1, 1.1]})], "y": [comparison({"tps": [1.2, 1.2]})]},
        "b": {"x": [comparison({"tps": [1.1, 1.1]})], "z": [comparison({"tps": [9.0, 9.0]})]},
    }
    (found,) = average_over_hosts(hosts, "tps", 0.95)
    assert found.case == AVERAGE
    assert found.pooled.percent(Better.MORE).value == pytest.approx(10)
    assert found.pooled.blocks == 4


def test_no_hosts_or_an_unknown_metric_give_nothing() -> None:
    assert over_hosts({}, 0.95) == [] and average_over_hosts({}, "tps", 0.95) == []
    hosts = {"a": {"x": [comparison({"tps": [1.1]})]}}
    assert average_over_hosts(hosts, "nopm", 0.95) == []
