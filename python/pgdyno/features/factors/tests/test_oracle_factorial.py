"""Main effects and interactions compared with contrasts computed by hand, least squares, and simulation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from scipy import stats

from pgdyno.analysis.statistics.intervals import Method
from pgdyno.analysis.telemetry.metrics import TPS
from pgdyno.features.factors.effects import (
    Effects,
    Factor,
    FactorialCell,
    FactorialDesign,
    effects_of,
    interactions_of,
)
from pgdyno.study.defaults import Schedule

FACTORS = (
    Factor("server", ("17", "18"), True),
    Factor("settings", ("old", "new"), True),
    Factor("clients", ("1", "8", "64"), False),
)
LEVELS = list(itertools.product(*(factor.levels for factor in FACTORS)))


def design(
    logs: Mapping[tuple[str, ...], Sequence[float]], factors: Sequence[Factor] = FACTORS
) -> FactorialDesign:
    """``logs``: levels → log rate in each pass; NaN if it did not run."""
    names = [factor.name for factor in factors]
    cells = [
        FactorialCell(
            dict(zip(names, levels, strict=True)),
            8,
            None,
            {number: value for number, value in enumerate(of) if not math.isnan(value)},
            stalled=False,
        )
        for levels, of in logs.items()
    ]
    return FactorialDesign(factors, cells, TPS, Schedule.SLICES, Method.STUDENT)


def found(logs: Mapping[tuple[str, ...], Sequence[float]], factors: Sequence[Factor] = FACTORS) -> Effects:
    return effects_of(design(logs, factors), 0.95)


def means(effects: Effects) -> dict[str, float]:
    """Return the mean of each contrast by name."""
    said = {}
    for contrast in [*effects.main, *effects.interactions]:
        by = f" × {contrast.by.level}" if contrast.by else ""
        said[f"{contrast.change.level}{by}"] = contrast.combined.summary.mean
    return said


# Transactions per second in one pass, as an example to compute by hand.
RATES = {
    ("17", "old"): (100, 400, 800),
    ("18", "old"): (100, 800, 800),
    ("17", "new"): (100, 400, 1600),
    ("18", "new"): (200, 800, 1600),
}


def test_a_balanced_2_by_2_by_3_is_as_computed_by_hand() -> None:
    logs = {
        (server, settings, clients): [math.log2(rates[i])]
        for (server, settings), rates in RATES.items()
        for i, clients in enumerate(FACTORS[2].levels)
    }
    # Doublings, at 1, 8 and 64 clients. 18 against 17: 0, 1, 0 with the old settings, 1, 1, 0 with new ones.
    # New against old: 0, 0, 1 of 17, 1, 0, 1 of 18. From 1 client to 8: 2, 3, 2, 2; to 64: 3, 3, 4, 3.
    assert means(found(logs)) == pytest.approx(
        {
            "18": 3 / 6,
            "new": 3 / 6,
            "8": 9 / 4,
            "64": 13 / 4,
            "18 × new": ((1 - 0) + (1 - 1) + (0 - 0)) / 3,
            "18 × 8": ((1 - 0) + (1 - 1)) / 2,
            "18 × 64": ((0 - 0) + (0 - 1)) / 2,
            "new × 8": ((0 - 0) + (0 - 1)) / 2,
            "new × 64": ((1 - 0) + (1 - 1)) / 2,
        }
    )


def simulated(
    rng: np.random.Generator, passes: int, planted: float = 0.0
) -> dict[tuple[str, ...], list[float]]:
    """Return rates with drift of passes and of blocks; the noise is four times as large with one client as
    with 64.
    """
    drift = rng.normal(0, 0.1, passes)
    blocks = rng.normal(0, 0.05, (3, passes))
    logs = {}
    for server, settings, clients in LEVELS:
        i = FACTORS[2].levels.index(clients)
        mean = 5 + 0.03 * (server == "18") - 0.05 * (settings == "new") + i
        mean += planted * (server == "18") * (clients == "64")
        noise = rng.normal(0, (0.04, 0.02, 0.01)[i], passes)
        logs[server, settings, clients] = list(mean + drift + blocks[i] + noise)
    return logs


def test_the_estimates_are_those_of_least_squares_with_a_term_for_each_pass() -> None:
    passes = 5
    logs = simulated(np.random.default_rng(3), passes, planted=0.2)
    rows, y = [], []
    for (server, settings, clients), number in itertools.product(logs, range(passes)):
        # Coded so that each term is averaged over the levels of the others: 2 levels −½ and ½, of three the
        # two dummies less their means.
        s, t = (server == "18") - 0.5, (settings == "new") - 0.5
        c8, c64 = (clients == "8") - 1 / 3, (clients == "64") - 1 / 3
        terms = [s, t, c8, c64, s * t, s * c8, s * c64, t * c8, t * c64, s * t * c8, s * t * c64]
        rows.append([*terms, *(float(number == p) for p in range(passes))])
        y.append(logs[server, settings, clients][number])
    solved = np.linalg.lstsq(np.array(rows), np.array(y))[0]
    names = ["18", "new", "8", "64", "18 × new", "18 × 8", "18 × 64", "new × 8", "new × 64"]
    assert means(found(logs)) == pytest.approx(dict(zip(names, solved, strict=False)))


def test_t_squared_of_a_complete_two_by_two_design_is_the_f_of_anova() -> None:
    """Within passes the contrast of an effect is its own error term, as in a repeated-measures analysis: F =
    MS(effect) / MS(effect × pass), with 1 and passes − 1 degrees of freedom.
    """
    rng, passes = np.random.default_rng(8), 7
    y = rng.normal(0, 0.02, (2, 2, passes)) + rng.normal(0, 0.1, passes)
    logs = {(a, b): list(y[i, j]) for i, a in enumerate(["17", "18"]) for j, b in enumerate(("old", "new"))}
    effects = found(logs, FACTORS[:2])
    signs = np.array([-1.0, 1.0])
    for contrast, coded in [
        (effects.main[0], signs[:, None] * np.ones(2)),
        (effects.main[1], np.ones(2)[:, None] * signs),
        (effects.interactions[0], signs[:, None] * signs),
    ]:
        of_passes = (coded[:, :, None] * y).sum(axis=(0, 1))
        ms_effect = of_passes.sum() ** 2 / (4 * passes)
        ms_error = ((of_passes - of_passes.mean()) ** 2).sum() / 4 / (passes - 1)
        f = ms_effect / ms_error
        assert contrast.combined.summary.p_value == pytest.approx(stats.f.sf(f, 1, passes - 1))


def test_excluded_trials_are_omitted_counted_and_not_imputed() -> None:
    logs = simulated(np.random.default_rng(6), 6)
    del logs["18", "new", "64"]
    effects = found(logs)
    server, _, _, _ = effects.main
    assert (len(server.combined.names), server.combinations) == (5, 6)
    there = [levels[1:] for levels in LEVELS if levels[0] == "17" and levels[1:] != ("new", "64")]
    changes = [np.mean(np.subtract(logs["18", *others], logs["17", *others])) for others in there]
    assert server.combined.summary.mean == pytest.approx(np.mean(changes))
    gone = [c for c in effects.interactions if c.by and (c.change.level, c.by.level) == ("18", "64")]
    assert [len(c.combined.names) for c in gone if c.combined] == [1]  # with the old settings only


def test_an_effect_is_not_reported_without_a_common_case() -> None:
    logs = {(server, settings, "1"): [1.0, 1.1, 1.2] for server, settings in (("17", "old"), ("18", "new"))}
    effects = found(logs, (*FACTORS[:2], Factor("clients", ("1",), False)))
    assert [contrast.combined for contrast in [*effects.main, *effects.interactions]] == [None] * 3


STUDIES = 200


def claimed(logs: Mapping[tuple[str, ...], Sequence[float]]) -> list[str]:
    """Return the interactions whose intervals exclude 0."""
    names = []
    for contrast in interactions_of(design(logs), 0.95):
        assert contrast.combined and contrast.by
        summary = contrast.combined.summary
        if not summary.low <= 0 <= summary.high:
            names.append(f"{contrast.change.level} × {contrast.by.level}")
    return names


def test_simultaneous_intervals_of_absent_interactions_have_their_nominal_coverage() -> None:
    rng, wrong = np.random.default_rng(1), 0
    for _ in range(STUDIES):
        wrong += bool(claimed(simulated(rng, 6)))
    # Holm's bound is valid for any dependence, so the share of studies with a false positive is at most 5%.
    assert wrong <= stats.binom.ppf(1 - 1e-4, STUDIES, 0.05)


def test_a_planted_interaction_is_found_and_no_other() -> None:
    rng, studies = np.random.default_rng(2), 60
    names = [claimed(simulated(rng, 8, planted=0.25)) for _ in range(studies)]
    assert sum("18 × 64" in of for of in names) >= stats.binom.ppf(1e-4, studies, 0.9)
    assert sum(bool(set(of) - {"18 × 64"}) for of in names) <= stats.binom.ppf(1 - 1e-4, studies, 0.05)
