"""Metrics that a published table may name, before a trial has values of them."""

from __future__ import annotations

import difflib

from pgdyno.analysis.telemetry.metrics import (
    ALL_KINDS,
    METRICS,
    PERCENTILES,
    is_latency,
    latency_key,
    split_key,
)
from pgdyno.report.csv_format import TRIAL_VALUES

PARTS_OF = ("statement", "relation", "wait")
"""Kinds of objects that have their own metrics."""

PER_TIMEOUT = "checkpoints.per_timeout"
"""Checkpoints per checkpoint_timeout. A fit that scales this setting with the window keeps their number."""


def unknown_metric(key: str) -> str:
    """Return the message for a metric that no trial has; empty for one that a trial may have.

    Kinds of transactions, and parts after a colon, are known after a trial only.
    """
    known = [*METRICS, *(of for values in TRIAL_VALUES for of in values.keys), PER_TIMEOUT]
    of = key if key.partition(".")[0] in PARTS_OF else split_key(key)[0]
    if of in known or (is_latency(of) and any(of.endswith(f".{name}") for name in PERCENTILES)):
        return ""
    latencies = (latency_key(ALL_KINDS, name) for name in PERCENTILES)
    close = difflib.get_close_matches(of, [*known, *latencies], 1)
    return f"unknown metric: {f'did you mean {close[0]}?' if close else 'see pgdyno docs metrics'}"
