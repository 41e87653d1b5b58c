"""Outlier trials of an arm, with their distance and the conditions that were unusual.

- Covariates of a trial: conditions during its run, compared with the other trials of its arm.
- Robust scores of a few values, and the score above which a value is an outlier.
- Outlier trials of an arm with their distance and unusual covariates.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.case_findings import CaseResult, Findings
from pgdyno.analysis.comparison import Comparison
from pgdyno.analysis.finding_fields import ArmName, ShownAs, about, in_json
from pgdyno.analysis.statistics.intervals import percent_of, robust_sd, summarize
from pgdyno.analysis.statistics.series import VALUES_MIN
from pgdyno.analysis.telemetry.metrics import Metric
from pgdyno.analysis.telemetry.trial_telemetry import TrialTelemetry
from pgdyno.results.records import Arm, Trial, TrialStatus
from pgdyno.study.plan import VERDICT_BLOCKS_MIN
from pgdyno.units import PERCENT, Better, Estimate

# ----------------------------------------------------------------------
# Covariates of a trial: conditions during its run, compared with the other trials of its arm.
#
# Larger values are worse. Values are over the whole measured part. In the slices schedule, the arms of a
# block share the machine's counters.
# ----------------------------------------------------------------------

SCORE_MIN = 5.0
"""Minimum robust score: the distance from the arm's other trials, in units of their SD."""

CAUSES_MAX = 3


@dataclass(frozen=True)
class Covariate:
    """A covariate. ``least`` is the smallest relevant difference, in its unit."""

    key: str
    name: str
    unit: str
    least: float


@dataclass(frozen=True)
class Cause:
    """An unusual covariate of one trial; ``median`` is that of the arm's other trials."""

    covariate: Annotated[Covariate, ShownAs(str, attrgetter("key"))]
    value: float
    median: float

    @in_json
    def unit(self) -> str:
        """Unit of the value and the median."""
        return "µs" if self.covariate.key == "server_cpu" else self.covariate.unit


COVARIATES = (
    Covariate("steal", "CPU time stolen by the hypervisor", "%", 2.0),
    Covariate("others", "CPU used by other programs", "%", 5.0),
    Covariate("swapped", "swapped", "MiB", 1.0),
    Covariate("memory_pressure", "some work waited for memory", "%", 1.0),
    Covariate("checkpoints", "checkpoints", "", 1.0),
    Covariate("autovacuums", "tables vacuumed or analyzed by autovacuum", "", 1.0),
    Covariate("disk_write_ms", "time of a write to the disk", "ms", 0.5),
    Covariate("io_pressure", "some work waited for the disk", "%", 10.0),
    Covariate("iowait", "CPU idle, waiting for the disk", "%", 5.0),
    Covariate("cpu_pressure", "some work waited for a core", "%", 10.0),
    Covariate("restore_s", "restore of the data", "s", 2.0),
    Covariate("start_s", "start of the server", "s", 1.0),
    Covariate("driver_late_ms", "the driver woke late, 99th percentile", "ms", 1.0),
    Covariate("sampled_late_s", "latest sample of the probes", "s", 0.2),
    Covariate("failed", "transactions failed", "%", 0.5),
    Covariate("retried", "transactions retried", "%", 1.0),
    Covariate("server_cpu", "server CPU per transaction", "%", 10.0),  # percent of the usual value
)
"""Covariates in the order of reports: the most direct causes first."""


def covariates(
    trials: Sequence[Trial], telemetry: Mapping[int, TrialTelemetry]
) -> dict[int, Mapping[str, float]]:
    """Return the covariates by trial and key. Unknown values are missing.

    ``trials``: all of a case, because those that do not count use CPU time, too.
    """
    together: dict[object, list[Trial]] = {}
    for trial in trials:
        together.setdefault((trial.block, trial.epoch_unix_s), []).append(trial)
    found: dict[int, Mapping[str, float]] = {}
    for trial in trials:
        values = _own(trial)
        if (probed := telemetry.get(trial.trial)) is not None:
            values |= _telemetry_values(probed)
            values |= _machine(probed, together[trial.block, trial.epoch_unix_s])
        found[trial.trial] = {key: value for key, value in values.items() if value is not None}
    return found


def _own(trial: Trial) -> dict[str, float | None]:
    counts = trial.counts
    late_ns = trial.driver.wake_late_ns.p99 if trial.driver.wake_late_ns else None
    cpu_s = trial.server_cpu_s
    return {
        "restore_s": trial.restore_s,
        "start_s": trial.start_s,
        "driver_late_ms": None if late_ns is None else late_ns / 1e6,
        "failed": PERCENT * counts.failed / counts.all if counts.all else None,
        "retried": PERCENT * counts.retried / counts.all if counts.all else None,
        "server_cpu": None if cpu_s is None or not trial.transactions else 1e6 * cpu_s / trial.transactions,
    }


def _telemetry_values(probed: TrialTelemetry) -> dict[str, float | None]:
    def total(*keys: str) -> float | None:
        known = [probed.values[key] for key in keys if key in probed.values]
        return sum(known) if known else None

    return {
        "checkpoints": total("checkpoints.timed", "checkpoints.requested"),
        "autovacuums": total("relations.autovacuums", "relations.autoanalyzes"),
        "sampled_late_s": total("probes.late_s"),
    }


def _machine(probed: TrialTelemetry, beside: Sequence[Trial]) -> dict[str, float | None]:
    """Return the machine's covariates. ``beside`` are the trials measured at the time, including this one."""
    grew, elapsed_s = probed.machine, probed.elapsed_s

    def per(name: str, of: float | None, scale: float = PERCENT) -> float | None:
        return scale * grew[name] / of if name in grew and of else None

    parts = [grew.get(f"cpu_{name}_s") for name in ("busy", "idle", "iowait")]
    known = [part for part in parts if part is not None]
    every_s = sum(known) if len(known) == len(parts) else None
    others_s = _others_s(grew, beside)
    swapped = [grew[name] for name in ("swap_in_bytes", "swap_out_bytes") if name in grew]
    return {
        "steal": per("cpu_steal_s", every_s),
        "iowait": per("cpu_iowait_s", every_s),
        "others": PERCENT * others_s / every_s if others_s is not None and every_s else None,
        "swapped": sum(swapped) / 2**20 if swapped else None,
        "cpu_pressure": per("pressure_cpu_some_s", elapsed_s),
        "io_pressure": per("pressure_io_some_s", elapsed_s),
        "memory_pressure": per("pressure_memory_some_s", elapsed_s),
        "disk_write_ms": per("disk_write_s", grew.get("disk_writes"), 1e3),
    }


def _others_s(grew: Mapping[str, float], beside: Sequence[Trial]) -> float | None:
    """Return the CPU time not used by the servers, the driver or pgdyno."""
    servers = [trial.server_cpu_s for trial in beside]
    ours = [grew.get(name) for name in ("driver_cpu_s", "pgdyno_cpu_s")]
    known = [used for used in (*servers, *ours) if used is not None]
    if "cpu_busy_s" not in grew or len(known) < len(servers) + len(ours):
        return None
    return max(0.0, grew["cpu_busy_s"] - grew.get("cpu_steal_s", 0.0) - sum(known))


def causes(
    trial: int, others: Sequence[int], known: Mapping[int, Mapping[str, float]], *, slow: bool
) -> list[Cause]:
    """Return the covariates that were larger in a slow trial than in ``others``, or smaller in a fast one."""
    found: list[Cause] = []
    for covariate in COVARIATES:
        key = covariate.key
        usual = [known[other][key] for other in others if key in known[other]]
        if key not in known[trial] or not usual:
            continue
        standing = outlier_scores([known[trial][key], *usual])[0]
        if _is_unusual(covariate, standing, slow=slow):
            found.append(Cause(covariate, standing.value, standing.median))
    return found[:CAUSES_MAX]


def _is_unusual(covariate: Covariate, standing: OutlierScore, *, slow: bool) -> bool:
    """Return whether the value is unusual. Without a score (all others equal) the distance decides."""
    least = covariate.least
    if covariate.key == "server_cpu":
        least *= abs(standing.median) / PERCENT
    off = standing.off if slow else -standing.off
    return off >= least and (standing.score is None or abs(standing.score) >= SCORE_MIN)


# ----------------------------------------------------------------------
# Robust scores of a few values, and the score above which a value is an outlier.
#
# The score of a value is its distance from the median of the *other* values, in units of their ``robust_sd``.
# The value is excluded from its own reference, so it cannot mask itself. With few other values the SD is
# imprecise, and the limits are wide.
# ----------------------------------------------------------------------

FALSE_ALARM = 0.05
"""Maximum share of studies with a false outlier, if every group of values is normally distributed."""

SIZES = (5, 6, 7, 8, 10, 12, 15, 20, 30, 50, 100)
ALPHAS = (0.05, 0.025, 0.0166, 0.0125, 0.01, 0.005)

LIMITS: tuple[tuple[float, ...], ...] = (
    (14.0, 20.1, 24.8, 28.5, 31.7, 45.2),
    (13.1, 18.8, 23.2, 26.7, 30.2, 43.4),
    (8.3, 10.7, 12.5, 13.8, 15.0, 19.1),
    (8.2, 10.6, 12.3, 13.6, 14.7, 19.0),
    (6.5, 8.0, 9.0, 9.7, 10.4, 12.7),
    (5.7, 6.8, 7.6, 8.1, 8.6, 10.1),
    (4.9, 5.7, 6.2, 6.5, 6.8, 7.8),
    (4.6, 5.2, 5.6, 5.8, 6.0, 6.8),
    (4.2, 4.6, 4.9, 5.0, 5.2, 5.6),
    (4.0, 4.3, 4.5, 4.6, 4.7, 5.0),
    (3.9, 4.1, 4.3, 4.3, 4.4, 4.7),
)
"""Score that the largest of n normal values (rows: n in SIZES) exceeds with a probability from ALPHAS,
rounded up. Simulated in ``tests/test_outlier_trials.py``."""


@dataclass(frozen=True)
class OutlierScore:
    """Comparison of one value with the others: ``off`` is its distance from their median.

    ``score`` is None if there are too few others or they are all equal.
    """

    value: float
    median: float
    off: float
    score: float | None


def outlier_scores(values: Sequence[float]) -> list[OutlierScore]:
    """Return each value's comparison with the others."""
    every = np.asarray(values, dtype=np.float64)
    return [_standing(value, np.delete(every, i)) for i, value in enumerate(values)]


def _standing(value: float, others: npt.NDArray[np.float64]) -> OutlierScore:
    if not len(others):
        return OutlierScore(value, value, 0.0, None)
    median = float(np.median(others))
    sd = float(robust_sd(others))
    enough = len(others) >= VALUES_MIN - 1 and sd > 0
    return OutlierScore(value, median, value - median, (value - median) / sd if enough else None)


def limit(n: int, groups: int) -> float:
    """Return the limit for the largest score in a group of ``n`` values of a study with ``groups`` groups.

    The probabilities of a false alarm add up to at most FALSE_ALARM (Bonferroni). Between the entries of the
    table the larger limit is used.
    """
    alpha = FALSE_ALARM / max(1, groups)
    row = LIMITS[max(0, bisect_right(SIZES, n) - 1)]
    fitting = [entry for entry, of in zip(row, ALPHAS, strict=True) if of <= alpha]
    # For more groups than in the table, the last entry is extrapolated conservatively, like the tail of few
    # values.
    return min(fitting) if fitting else row[-1] * ALPHAS[-1] / alpha


# ----------------------------------------------------------------------
# Outlier trials of an arm with their distance and unusual covariates.
#
# No trial is dropped. The estimate without the most extreme block is reported for comparison.
#
# A trial is compared with the other trials of its arm by the logarithm of its primary metric. The block's log
# ratio to the baseline is compared, too, because noise common to all arms of a block cancels in it. It counts
# for that one of the two trials that is more extreme in its own arm. A trial is an *outlier* if a score
# exceeds its limit and its distance exceeds the study's margin.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class Deviation:
    """Distance in percent, and the score with its limit. ``score`` is None with too few values."""

    percent: float
    score: float | None
    limit: float

    @property
    def share(self) -> float:
        """Score divided by its limit: an outlier is above 1."""
        return 0.0 if self.score is None else abs(self.score) / self.limit

    def is_outlier(self, margin: float) -> bool:
        """Return whether it is an outlier, and its distance exceeds the margin."""
        return self.share > 1 and abs(math.log1p(self.percent / PERCENT)) > math.log1p(margin)


@dataclass(frozen=True)
class OutlierTrial:
    """Comparison of one trial. ``within_arm`` is with the arm's other trials.

    ``ratio`` is of its block's ratio with those of other blocks, if it is attributed to this trial.
    ``causes`` are determined for outliers.
    """

    trial: int
    block: int
    arm: ArmName
    value: float
    within_arm: Deviation
    ratio: Deviation | None
    is_outlier: bool
    causes: Sequence[Cause]

    @property
    def rank(self) -> float:
        """Sort key: larger for more extreme trials."""
        return max(self.within_arm.share, self.ratio.share if self.ratio else 0.0)


@dataclass(frozen=True)
class WithoutBlock:
    """Change of an arm without the block with the most extreme ratio.

    ``all`` is the change with it, by the same method.
    """

    arm: ArmName
    block: int
    all: Estimate
    without: Estimate


@dataclass(frozen=True)
class OutlierTrials:
    """Trials that count, the most extreme first."""

    trials: Annotated[Sequence[OutlierTrial], about("All trials that count, the most extreme first.")]
    without_block: Sequence[WithoutBlock]

    @property
    def outliers(self) -> list[OutlierTrial]:
        """The outliers."""
        return [trial for trial in self.trials if trial.is_outlier]


def find_outlier_trials(
    arms: Sequence[Arm],
    trials: Sequence[Trial],
    comparisons: Sequence[Comparison],
    metric: Metric,
    telemetry: Mapping[int, TrialTelemetry],
    margin: float,
    cases: int = 1,
) -> OutlierTrials:
    """Return the outlier trials of a case. False alarms are limited over all ``cases`` (Bonferroni)."""
    counted = [trial for trial in trials if trial.status is TrialStatus.OK]
    known = covariates(trials, telemetry)
    groups = cases * (len(arms) + len(comparisons))
    values = {t.trial: value for t in counted if (value := metric.value(t, t.measured))}
    own: dict[int, Deviation] = {}
    for arm in arms:
        mine = [trial.trial for trial in counted if trial.arm == arm.arm and trial.trial in values]
        own |= _measured(mine, [math.log(values[trial]) for trial in mine], groups)
    ratios = _ratios(counted, comparisons, own, groups)
    found = []
    for trial in counted:
        if trial.trial not in own:
            continue
        others = [of.trial for of in counted if of.arm == trial.arm and of.trial != trial.trial]
        of_block = ratios.get(trial.trial)
        is_outlier = any(of is not None and of.is_outlier(margin) for of in (own[trial.trial], of_block))
        slow = _is_less(trial, own[trial.trial], of_block, margin) == (metric.better is not Better.LESS)
        found.append(
            OutlierTrial(
                trial=trial.trial,
                block=trial.block,
                arm=arms[trial.arm],
                value=values[trial.trial],
                within_arm=own[trial.trial],
                ratio=of_block,
                is_outlier=is_outlier,
                causes=causes(trial.trial, others, known, slow=slow) if is_outlier else (),
            )
        )
    without = [left for comparison in comparisons if (left := _without(comparison)) is not None]
    return OutlierTrials(sorted(found, key=lambda one: (not one.is_outlier, -one.rank)), without)


def _is_less(trial: Trial, own: Deviation, of_block: Deviation | None, margin: float) -> bool:
    """Return whether the trial's value is too low.

    The ratio decides if it is an outlier, because the value also contains the noise common to the block's
    arms.
    """
    if of_block is not None and of_block.is_outlier(margin):
        return (of_block.percent < 0) == (trial.arm != 0)
    return own.percent < 0


def _measured(keys: Sequence[int], logs: Sequence[float], groups: int) -> dict[int, Deviation]:
    return {
        key: Deviation(percent_of(standing.off), standing.score, limit(len(logs), groups))
        for key, standing in zip(keys, outlier_scores(logs), strict=True)
    }


def _ratios(
    trials: Sequence[Trial], comparisons: Sequence[Comparison], own: Mapping[int, Deviation], groups: int
) -> dict[int, Deviation]:
    """Return the ratios by the trial to which they are attributed: the more extreme one in its own arm."""
    places = {(trial.block, trial.arm): trial.trial for trial in trials}
    found: dict[int, Deviation] = {}
    for comparison in comparisons:
        if comparison.primary is None:
            continue
        logs = comparison.primary.log_ratios
        for block, measured in _measured(list(logs), list(logs.values()), groups).items():
            pair = [places.get((block, arm)) for arm in (0, comparison.arm.arm)]
            here = [trial for trial in pair if trial is not None and trial in own]
            if not here:
                continue
            answers = max(here, key=lambda trial: own[trial].share)
            if answers not in found or found[answers].share < measured.share:
                found[answers] = measured
    return found


def _without(comparison: Comparison) -> WithoutBlock | None:
    """Return the changes; None if too few blocks would remain for an interval."""
    effect = comparison.primary
    if effect is None or len(effect.log_ratios) <= VERDICT_BLOCKS_MIN:
        return None
    logs = effect.log_ratios
    by_block: dict[int, OutlierScore] = dict(zip(logs, outlier_scores(list(logs.values())), strict=True))
    farthest = max(by_block, key=lambda block: abs(by_block[block].off))
    confidence, better = effect.summary.confidence, effect.percent.better
    rest = [d for block, d in logs.items() if block != farthest]
    return WithoutBlock(
        arm=comparison.arm,
        block=farthest,
        all=effect.percent,
        without=summarize(rest, confidence, effect.summary.method).percent(better),
    )


def _find(findings: Findings) -> OutlierTrials:
    return find_outlier_trials(
        [of.arm for of in findings.arms],
        findings.trials,
        findings.comparisons,
        findings.metrics[0],
        findings.telemetry.by_trial,
        findings.study.plan.margin,
        findings.cases,
    )


RESULT = CaseResult("outliers", OutlierTrials, "", "noise", _find)


def outliers_of(findings: Findings) -> OutlierTrials:
    """Return the outlier trials of a case."""
    found: OutlierTrials = findings.feature_findings[RESULT.name]
    return found
