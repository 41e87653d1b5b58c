"""linkbench workload in Python: parameters, distributions, and checks after a trial."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from pydantic import ValidationError

from pgdyno.cli.workload_options import Which, chosen_parameters
from pgdyno.errors import DatasetError
from pgdyno.features.linkbench.data import (
    EXPONENTS,
    MULTIGET_MAX,
    UNCORRELATED_WRITES,
    LinkBench,
    check_change,
    fits,
    harmonic,
    multiget_sizes,
    rank_bins,
)
from pgdyno.features.linkbench.options import LinkBenchOptions
from pgdyno.features.linkbench.parameters import MIXES, LinkBenchParameters
from pgdyno.workloads import workload as goodness

SHAPE = "nodes=5000 edition=2011 distributions=executed"

CRATE = Path(__file__).parents[5] / "crates" / "linkbench" / "src"
BINS = 32


def parameters(**given: Any) -> LinkBenchParameters:
    return LinkBenchParameters.model_validate(given)


def test_options_give_parameters_and_only_the_data_determine_the_dataset() -> None:
    options = LinkBenchOptions(nodes=5000, edition="2011")
    found = chosen_parameters(Which("linkbench"), options)
    assert found == parameters(nodes=5000, edition="2011")
    assert found.name == "linkbench 2011, 5,000 nodes"
    shapes = [parameters(), parameters(nodes=5000), parameters(edition="2011")]
    shapes += [parameters(distributions="configured")]
    assert len({str(one.shape()) for one in shapes}) == len(shapes)
    for wrong in ({"nodes": 99}, {"edition": "2012"}, {"distributions": "real"}):
        with pytest.raises(ValidationError):
            parameters(**wrong)


@pytest.mark.parametrize(
    ("comment", "reason"),
    [
        (None, "no complete linkbench data: load them with .* linkbench --nodes 5000 --edition 2011$"),
        ("of the user", "no complete linkbench data"),
        (f"made by pgdyno: linkbench {SHAPE} format=0", "loaded by another version of pgdyno"),
        (SHAPE.replace("2011", "fork"), "have edition fork, not 2011: use edition fork, or load them with "),
        (SHAPE.replace("edition=2011 ", ""), None),
        (SHAPE, None),
    ],
)
def test_the_comment_of_a_load_tells_whether_its_data_are_these(
    comment: str | None, reason: str | None
) -> None:
    workload = LinkBench(parameters(nodes=5000, edition="2011"))
    if comment and comment.startswith("nodes="):
        comment = f"made by pgdyno: linkbench {comment} seed=7 format={workload.format}"
    rows = SimpleNamespace(fetchall=lambda: [(comment,)])
    connection = cast(Any, SimpleNamespace(execute=lambda *_: rows, info=SimpleNamespace(dbname="d")))
    if reason is None:
        workload.require(connection)
    else:
        with pytest.raises(DatasetError, match=reason):
            workload.require(connection)


def test_links_and_nodes_of_restored_data_are_known_without_a_scan() -> None:
    def execute(statement: str | bytes, *_: object) -> Any:
        text = statement if isinstance(statement, str) else statement.decode()
        assert "count(" not in text and "sum(" not in text
        return SimpleNamespace(fetchall=lambda: [(77,)])

    checks = LinkBench(parameters(nodes=5000)).checks(8, restored=True)
    checks.begin(cast(Any, SimpleNamespace(execute=execute, info=SimpleNamespace(dbname="d"))))
    assert (checks.links_before, checks.nodes_before) == (77, 5000)


def test_distributions_that_linkbench_does_not_execute_are_a_caveat() -> None:
    assert parameters().specification_caveats() == []
    (caveat,) = parameters(distributions="configured").specification_caveats()
    assert caveat.code == "linkbench-as-configured"


def test_the_size_of_a_small_graph_has_the_links_of_its_first_node() -> None:
    configured, executed = parameters(nodes=1000, distributions="configured"), parameters(nodes=1000)
    assert executed.unit_bytes > 100 * configured.unit_bytes
    assert parameters(nodes=10**9).unit_bytes == pytest.approx(configured.unit_bytes, rel=0.01)


@pytest.mark.parametrize("edition", MIXES)
def test_the_mix_is_that_of_the_engine_and_adds_up(edition: str) -> None:
    assert sum(MIXES[edition].values()) == pytest.approx(100, abs=1e-5)
    text = (CRATE / "operation.rs").read_text()
    found = re.findall(r'\w+ = "(\w+)", ([\d._]+), ([\d._]+);', text)
    place = {"2011": 1, "fork": 2}[edition]
    assert {of[0]: float(of[place]) for of in found} == MIXES[edition]


@pytest.mark.parametrize(("n", "exponent"), [(100, 0.8), (10_001, 0.741), (1_000_000, 0.606)])
def test_harmonic_numbers_are_sums(n: int, exponent: float) -> None:
    expected = float((np.arange(1, n + 1) ** -exponent).sum())
    assert harmonic(n, exponent) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("exponent", [0.8, 0.741, 0.606])
@pytest.mark.parametrize("nodes", [100, 1000, 65_535])
def test_bins_of_ranks_agree_with_the_formula_at_many_probabilities(nodes: int, exponent: float) -> None:
    zeta = float((np.arange(1, nodes + 1) ** -exponent).sum())
    second = 0.5**exponent
    eta = (1 - (2 / nodes) ** (1 - exponent)) / (1 - (1 + second) / zeta)
    p = (np.arange(500_000) + 0.5) / 500_000
    rank = np.minimum(nodes * (eta * p - eta + 1) ** (1 / (1 - exponent)), nodes - 1).astype(int)
    rank = np.where(p * zeta < 1, 0, np.where(p * zeta < 1 + second, 1, rank))
    found = np.bincount(np.log2(rank + 1 + 1e-9).astype(int), minlength=BINS) / p.size
    expected = rank_bins(nodes, exponent, BINS)
    np.testing.assert_allclose(found, expected, atol=4e-6)
    assert expected.sum() == pytest.approx(1, abs=1e-12)


def test_sizes_of_a_multiget_are_a_shifted_geometric_distribution() -> None:
    for distributions, smallest in (("executed", 2), ("configured", 1)):
        sizes = multiget_sizes(distributions)
        assert (sizes.size, int(np.flatnonzero(sizes)[0])) == (MULTIGET_MAX + 1, smallest)
        assert float(sizes @ np.arange(sizes.size)) == pytest.approx(1 / 0.382 + smallest - 1, rel=1e-9)
        assert sizes.sum() == pytest.approx(1)


def drawn(own: LinkBenchParameters, n: int = 100_000) -> dict[str, Any]:
    """Return a tally of the expected counts."""
    exponent, uncorrelated = UNCORRELATED_WRITES[own.distributions]
    exponents = {**EXPONENTS, "link_write_uncorrelated": exponent, "node_delete": 0.0}
    size = {**dict.fromkeys(exponents, n), "link_write": round(n * (1 - uncorrelated))}
    size["link_write_uncorrelated"] = round(n * uncorrelated)

    def counts(probability: Any, of: int) -> list[int]:
        return [round(of * float(one)) for one in probability]

    return {
        "drawn": {name: round(n * percent / 100) for name, percent in MIXES[own.edition].items()},
        "ranks": {
            name: counts(rank_bins(own.nodes, exponents[name], BINS), size[name]) for name in exponents
        },
        "correlated_reads": round(n * 0.005),
        "link_types": [n // 2, n // 2],
        "multiget": counts(multiget_sizes(own.distributions), n),
        "histories": 0,
    }


def failed(tally: Mapping[str, Any], own: LinkBenchParameters) -> set[str]:
    return {check.name for check in goodness.tests_of(fits(tally, own)) if not check.passed}


@pytest.mark.parametrize("edition", MIXES)
@pytest.mark.parametrize("distributions", ["executed", "configured"])
def test_expected_counts_pass_and_those_of_other_parameters_fail(edition: str, distributions: str) -> None:
    given = {"edition": edition, "distributions": distributions, "nodes": 50_000}
    own, tally = parameters(**given), drawn(parameters(**given))
    assert goodness.FALSE_ALARMS_PER_TRIAL < 1e-3
    assert failed(tally, own) == set()
    other = {"executed": "configured", "configured": "executed"}[distributions]
    assert failed(tally, parameters(**{**given, "distributions": other})) == {
        "correlated writes",
        "links of a multiget",
        "ranks of link_write_uncorrelated",
    }
    mixed = parameters(**{**given, "edition": {"2011": "fork", "fork": "2011"}[edition]})
    assert failed(tally, mixed) == {"mix"}
    assert "ranks of node_delete" in failed(tally, parameters(**{**given, "nodes": 100_000}))


@pytest.mark.parametrize(
    ("grown", "committed", "passes"), [(5, 5, True), (5, 4, False), (-1, -1, True), (0, 1, False)]
)
def test_lost_and_extra_changes_are_found(grown: int, committed: int, passes: bool) -> None:
    assert check_change("links conserved", grown, committed).passed is passes
