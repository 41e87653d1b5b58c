"""Histograms of several engines. Pure.

Engines write a histogram as pairs (value in ns, count). A node sends them as arrays, because thousands of
small lists would take most of the coordinator's CPU time. All have the layout of
crates/driver/src/record/histogram.rs, so equal bins have equal values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pgdyno.engine import Event

Histogram = NDArray[np.int64]
"""Pairs of a value in ns and its count, by value: n rows of 2 columns."""


def histogram(pairs: ArrayLike) -> Histogram:
    """Return a histogram of pairs."""
    return np.asarray(pairs, np.int64).reshape(-1, 2)


def packed(event: Event) -> Event:
    """Return an event of an engine with its histograms as arrays."""
    match event["event"]:
        case "interval" if "latency_bins" in event:
            return {**event, "latency_bins": histogram(event["latency_bins"])}
        case "result":
            return {**event, "targets": [_packed_target(target) for target in event["targets"]]}
        case _:
            return event


def _packed_target(target: dict[str, Any]) -> dict[str, Any]:
    kinds = {
        kind: {**of, "histograms": {name: histogram(bins) for name, bins in of["histograms"].items()}}
        for kind, of in target["kinds"].items()
    }
    return {**target, "kinds": kinds}


def added_bins(every: Iterable[Histogram]) -> Histogram:
    """Return the sum of histograms."""
    pairs = np.concatenate(list(every))
    values, counts = pairs[np.argsort(pairs[:, 0], kind="stable")].T
    starts = np.flatnonzero(np.diff(values, prepend=-1))
    return np.column_stack((values[starts], np.add.reduceat(counts, starts) if len(counts) else counts))


def quantile_ns(bins: Histogram, quantile: float) -> int:
    """Return the quantile as the engine computes it: the bin that contains the value of that rank; 0 if the
    histogram is empty.
    """
    if not len(bins):
        return 0
    reached = np.cumsum(bins[:, 1])
    rank = max(1, math.ceil(quantile * int(reached[-1])))
    return int(bins[np.searchsorted(reached, rank), 0])
