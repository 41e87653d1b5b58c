"""What probing has cost: CPU time of the sampler and its backends, beside what the machine had to give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgdyno.evidence.records import Json, Trial
from pgdyno.units import US_PER_S


@dataclass(frozen=True)
class ProbeCost:
    """``share``: of the cores' time while trials were measured, all arms together; None where the number of
    cores is not known. ``us_per_tx``: CPU time in µs by transactions executed meanwhile, by arm.
    """

    share: float | None
    us_per_tx: Mapping[int, float]


def probe_cost(host: Json, trials: Sequence[Trial]) -> ProbeCost | None:
    """Over these trials; None where no probes were at work, or their CPU is not known."""
    spent = [
        (trial, trial.probe_cpu_s) for trial in trials if trial.probe_cpu_s is not None and trial.measured
    ]
    if not spent:
        return None
    cores = host.get("cores")
    measured_s = _measured_s([trial for trial, _ in spent])
    given_s = cores * measured_s if isinstance(cores, int) else 0.0
    us_per_tx = {}
    for arm in dict.fromkeys(trial.arm for trial, _ in spent):
        mine = [(cpu_s, trial.transactions or 0) for trial, cpu_s in spent if trial.arm == arm]
        transactions = sum(n for _, n in mine)
        if transactions:
            us_per_tx[arm] = US_PER_S * sum(cpu_s for cpu_s, _ in mine) / transactions
    return ProbeCost(sum(cpu_s for _, cpu_s in spent) / given_s if given_s > 0 else None, us_per_tx)


def _measured_s(trials: Sequence[Trial]) -> float:
    """From the first measured slice to the last; the trials of a block that take turns share that time."""
    spans = sorted(
        (epoch_s + trial.measured[0].opened_s, epoch_s + trial.measured[-1].drained_s)
        for trial in trials
        for epoch_s in [trial.epoch_unix_s if trial.epoch_unix_s is not None else trial.started_unix_s]
    )
    total_s, until_s = 0.0, float("-inf")
    for from_s, to_s in spans:
        total_s += max(0.0, to_s - max(from_s, until_s))
        until_s = max(until_s, to_s)
    return total_s
