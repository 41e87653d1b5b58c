"""Simulation of nightly results. ``python -m bench history`` prints its figures.

Series are tested after every night, as ``pgdyno history`` tests them.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy.signal import lfilter

from bench.noise import Floats
from bench.stopping import SEED, table, titled
from pgdyno.features.history.changes import (
    AFTER_MIN,
    BEFORE_MIN,
    NIGHTS,
    POINTS_MIN,
    detect_changes,
    first_cut,
    log_bayes_factors,
    values_min,
)
from pgdyno.study.defaults import CONFIDENCE

MONTH = 31
FAMILY = 6
FAMILIES = 1000
PATHS = 1000
FIRST = BEFORE_MIN + AFTER_MIN
SHIFTS = (1, 2, 3, 5, 10)
BASELINES = (14, 30, 90)
AFTERWARDS = 90
AT_ONCE = 250
"""Paths tested together, which limits memory."""

Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]
"""(rng, (paths, nights)) → values with SD 1."""


def _gaussian(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return rng.normal(size=shape)


def _heavy_tails(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return np.asarray(rng.standard_t(3, shape) / math.sqrt(3))


def _skewed(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return rng.exponential(size=shape) - 1


def _outliers(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return rng.normal(size=shape) * np.where(rng.random(shape) < 0.05, 6, 1)


def autocorrelated(share: float) -> Draw:
    """Return a first-order autoregressive series."""

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
        fresh = rng.normal(size=shape)
        fresh[:, 1:] *= math.sqrt(1 - share**2)
        return np.asarray(lfilter([1.0], [1.0, -share], fresh, axis=1))

    return draw


def _random_walk(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return np.cumsum(rng.normal(0, 0.3, shape), axis=1)


INDEPENDENT: Mapping[str, Draw] = {
    "Gaussian": _gaussian,
    "heavy tails (t with 3 degrees of freedom)": _heavy_tails,
    "skewed (exponential)": _skewed,
    "one night in 20 with 6 times the SD": _outliers,
}

MACHINES: Mapping[str, Draw] = {
    "drift of the machine: autocorrelation 0.3": autocorrelated(0.3),
    "drift of the machine: autocorrelation 0.6": autocorrelated(0.6),
    "drift of the machine: random walk": _random_walk,
}
"""Drift of the machine that both arms share. Each night adds noise of each arm with half of its variance."""


def both_arms(machine: Draw) -> Callable[[np.random.Generator, tuple[int, int]], tuple[Floats, Floats]]:
    """Return a drawing of the changes from the baseline, and of the levels of the arm, as logs."""

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Floats, Floats]:
        drift = machine(rng, shape)
        baseline, arm = (drift + rng.normal(0, math.sqrt(0.5), shape) for _ in range(2))
        return arm - baseline, arm

    return draw


def p_values(values: Floats) -> Floats:
    """Return the p-value for confirmation after each night, from the first that has one."""
    found = []
    for part in np.array_split(values, -(-len(values) // AT_ONCE)):
        nights = [log_bayes_factors(part[:, :n]) for n in range(FIRST, part.shape[1] + 1)]
        sums = [np.minimum(*(np.logaddexp.reduce(of, axis=-1) for of in both)) for both in nights]
        found.append(NIGHTS * np.exp(-np.array(sums).T))
    return np.concatenate(found)


def alarms(found: Floats, series: int, nights: int) -> float:
    """Return the share of families of so many series with any change confirmed within so many nights.

    ``found`` are p-values. If no series changed, the first one that Holm's test confirms is at most
    α / series.
    """
    smallest = found[:, : nights - FIRST + 1].reshape(-1, series * (nights - FIRST + 1)).min(axis=1)
    return float((smallest <= (1 - CONFIDENCE) / series).mean())


def false_alarms(families: int) -> list[list[str]]:
    """Return a row per kind of noise: one and several series, within a month and a year, and levels."""
    rows, shape = [], (families * FAMILY, NIGHTS)
    for name, draw in INDEPENDENT.items():
        rows.append([name, *_shares(draw(np.random.default_rng(SEED), shape)), "–"])
    for name, machine in MACHINES.items():
        changes, levels = both_arms(machine)(np.random.default_rng(SEED), shape)
        rows.append([name, *_shares(changes), _percent(alarms(p_values(levels[:families]), 1, NIGHTS))])
    return rows


def _shares(values: Floats) -> list[str]:
    found = p_values(values)
    return [_percent(alarms(found, series, nights)) for series in (1, FAMILY) for nights in (MONTH, NIGHTS)]


def nights_to_confirm(before: int, shift: float, paths: int) -> list[str]:
    """Return the median and the 90th percentile of the nights from the change to its confirmation.

    First for one series, then for one of several.
    """
    values = np.random.default_rng(SEED).normal(size=(paths, before + AFTERWARDS))
    values[:, before:] += shift
    found, cells = p_values(values)[:, before - FIRST + 1 :], []
    for series in (1, FAMILY):
        confirmed = found <= (1 - CONFIDENCE) / series
        nights = np.where(confirmed.any(axis=1), confirmed.argmax(axis=1) + 1.0, np.inf)
        needed = [float(np.quantile(nights, share, method="inverted_cdf")) for share in (0.5, 0.9)]
        cells += [f"{of:.0f}" if math.isfinite(of) else f"> {AFTERWARDS}" for of in needed]
    return cells


def further_changes(paths: int) -> float:
    """Return the share of years with one change of 3 SDs in which a further one is confirmed."""
    values = np.random.default_rng(SEED).normal(size=(paths, NIGHTS))
    values[:, 60:] += 3
    return float(np.mean([len(detect_changes(of[np.newaxis], CONFIDENCE)[0].confirmed) > 1 for of in values]))


def daily_tests(paths: int) -> float:
    """Return the share of months in which a test for a cut at 5%, repeated each night, finds one."""
    alpha, found = 1 - CONFIDENCE, 0
    for of in np.random.default_rng(SEED).normal(size=(paths, MONTH)):
        seen = (first_cut(list(of[:n]), 999) for n in range(POINTS_MIN, MONTH + 1))
        found += any(cut is not None and cut.p_value <= alpha for cut in seen)
    return found / paths


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def report(families: int = FAMILIES, paths: int = PATHS) -> str:
    """Return the tables in Markdown, each below its title."""
    alarm_head = (
        "Noise",
        "Month",
        "Year",
        f"Month, {FAMILY} series",
        f"Year, {FAMILY} series",
        "Levels, year",
    )
    delay_head = ("Files before", "Change", "Median", "90%", "Median, 6 series", "90%, 6 series")
    delays = [
        [str(before), f"{shift} SD", *nights_to_confirm(before, shift, paths)]
        for before in BASELINES
        for shift in SHIFTS
    ]
    memory = [
        [f"{share}", _percent(alarms(p_values(drawn), 1, NIGHTS))]
        for share in (0.1, 0.2, 0.3)
        for drawn in [autocorrelated(share)(np.random.default_rng(SEED), (paths, NIGHTS))]
    ]
    return titled(
        {
            "False alarms": table(alarm_head, false_alarms(families)),
            "False alarms of one autocorrelated series": table(("Autocorrelation", "Year"), memory),
            "False alarms of E-divisive means after each night of a month": _percent(daily_tests(paths // 2)),
            "Years with a further change after a true one": _percent(further_changes(paths)),
            f"Nights to confirmation, after at least {values_min(1 - CONFIDENCE)} files": table(
                delay_head, delays
            ),
        }
    )


def main(arguments: Sequence[str]) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench history", description=__doc__)
    parser.parse_args(arguments)
    print(report())
    return 0
