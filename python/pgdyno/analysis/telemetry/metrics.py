"""Compared metrics with unit, better direction, and function for their value in a trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pgdyno.estimate import Better
from pgdyno.results.records import Slice, Trial
from pgdyno.study.capacity_search import SearchStep, capacity, parse_limit
from pgdyno.study.plan import Study
from pgdyno.study.tpcc_parameters import TpccParameters, has_new_orders
from pgdyno.units import S_PER_MIN, US_PER_S

Value = Callable[[Trial, Sequence[Slice]], float | None]


@dataclass(frozen=True)
class Metric:
    """One metric.

    ``value(trial, slices)`` returns the value over these measured slices. It is None if the results file
    lacks it, or if it is not positive and so has no logarithm.
    """

    key: str
    name: str
    label: str  # short, with the unit
    unit: str
    better: Better
    value: Value


def _rate(count: int, slices: Sequence[Slice], per_s: float) -> float | None:
    counted_s = sum(piece.counted_s for piece in slices)
    return per_s * count / counted_s if counted_s > 0 and count > 0 else None


def _new_orders_per_minute(_trial: Trial, slices: Sequence[Slice]) -> float | None:
    # Committed ones only, as counted by Δ Σ d_next_o_id, without intentional rollbacks.
    committed = sum(piece.kinds["new_order"].ok for piece in slices if "new_order" in piece.kinds)
    return _rate(committed, slices, S_PER_MIN)


def _executed(slices: Sequence[Slice]) -> int:
    return sum(counts.executed for piece in slices for counts in piece.kinds.values())


def _transactions_per_minute(_trial: Trial, slices: Sequence[Slice]) -> float | None:
    return _rate(_executed(slices), slices, S_PER_MIN)


def _transactions_per_second(_trial: Trial, slices: Sequence[Slice]) -> float | None:
    return _rate(_executed(slices), slices, 1.0)


def _per_transaction_us(cpu_s: float | None, transactions: int | None) -> float | None:
    return US_PER_S * cpu_s / transactions if cpu_s and transactions else None


def _server_cpu(trial: Trial, _slices: Sequence[Slice]) -> float | None:
    # CPU time is read before the first and after the last measured slice. It includes discarded starts.
    return _per_transaction_us(trial.server_cpu_s, trial.transactions)


def _driver_cpu(trial: Trial, _slices: Sequence[Slice]) -> float | None:
    return _per_transaction_us(trial.driver_cpu_s, trial.transactions)


NOPM = Metric("nopm", "new orders per minute", "NOPM", "NOPM", Better.MORE, _new_orders_per_minute)
TPM = Metric("tpm", "transactions per minute", "TPM", "TPM", Better.MORE, _transactions_per_minute)
TPS = Metric("tps", "transactions per second", "tx/s", "tx/s", Better.MORE, _transactions_per_second)
SERVER_CPU = Metric(
    "server_cpu", "server CPU per transaction", "server CPU, µs/tx", "µs", Better.LESS, _server_cpu
)
DRIVER_CPU = Metric(
    "driver_cpu", "driver CPU per transaction", "driver CPU, µs/tx", "µs", Better.LESS, _driver_cpu
)


def _capacity(trial: Trial, _slices: Sequence[Slice]) -> float | None:
    sought = trial.driver.get("capacity")
    if not isinstance(sought, Mapping):
        return None
    tried = [
        SearchStep(step["rate_per_s"], math.inf if step["latency_ms"] is None else step["latency_ms"])
        for step in sought["steps"]
    ]
    return capacity(tried, parse_limit(sought["limit"]))


CAPACITY = Metric(
    "capacity", "capacity within the latency limit", "capacity, tx/s", "tx/s", Better.MORE, _capacity
)
"""For a study that searches for the capacity in every block."""


MEDIAN_LATENCY = "median_latency"
"""Key of the metric that replaces throughput under a fixed load."""


def of_plan(plan: Study, median_ms: Mapping[int, float | None]) -> Sequence[Metric]:
    """Return the metrics of a study, the primary one (of the verdict) first.

    The primary metric is throughput if the server determines it. Under a fixed load it is the median latency.
    If each block searches for the capacity, it is the capacity, and the other metrics are measured at that
    rate. ``median_ms`` is of each ok trial, over all kinds.
    """
    chosen = _of_workload(plan)
    if plan.searches_capacity:
        return CAPACITY, SERVER_CPU, DRIVER_CPU
    return (_median_latency(median_ms), *chosen) if plan.load_is_fixed else chosen


def _median_latency(median_ms: Mapping[int, float | None]) -> Metric:
    def value(trial: Trial, _slices: Sequence[Slice]) -> float | None:
        return median_ms.get(trial.trial)

    return Metric(MEDIAN_LATENCY, "median latency", "median latency, ms", "ms", Better.LESS, value)


def _of_workload(plan: Study) -> Sequence[Metric]:
    """Return the throughput and CPU metrics. NOPM is omitted if the mix of some arm has no new orders."""
    if plan.workload.kind != "tpcc":
        return TPS, SERVER_CPU, DRIVER_CPU
    if all(has_new_orders(mix) for mix in mixes(plan)):
        return NOPM, TPM, SERVER_CPU, DRIVER_CPU
    return TPM, SERVER_CPU, DRIVER_CPU


def mixes(plan: Study) -> Sequence[str]:
    """Return the different mixes of the arms of a study of tpcc."""
    workloads = [plan.driving(arm).workload for arm in range(len(plan.arms))]
    return list(dict.fromkeys(of.mix for of in workloads if isinstance(of, TpccParameters)))
