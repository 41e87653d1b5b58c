"""Gate conditions for pipelines, evaluated on the verdicts and intervals of a study.

A condition is met, ruled out or neither for each comparison. A gate passes only if every comparison rules its
condition out, by the verdict or, with a limit (``slower:5%``), by the interval. An undecided comparison makes
it inconclusive: the absence of a proof is no proof of absence.

A condition that is met is a claim, and many comparisons give many opportunities for a false one. So all
comparisons of the gate (every case, arm, metric and limit) are one family. A condition is met if the verdict
or the interval says so *and* Holm's test ("A simple sequentially rejective multiple test procedure", 1979)
over the family rejects the limit (0 without one). If no arm differs, the probability that a gate fails is at
most 1 − confidence, for any number of cases.

Passing needs no correction. The probability that a gate passes although a comparison meets its condition is
nominally at most (1 − confidence) / 2, because every one must pass (Berger's intersection-union test,
Technometrics 1982).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import attrgetter
from typing import Annotated

from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.finding_fields import ShownAs, about, in_json
from pgdyno.analysis.statistics.intervals import holm_confidences, with_error
from pgdyno.analysis.study_findings import AVERAGE, PRIMARY, Compared, MetricVerdict
from pgdyno.analysis.telemetry.metrics import (
    ALL_KINDS,
    LATENCY,
    METRICS,
    PERCENTILES_COMPARED,
    Metric,
    is_latency,
    latency_key,
    latency_metric,
    split_key,
)
from pgdyno.errors import CONDITION_MET, INCONCLUSIVE, PgdynoError, UsageError
from pgdyno.results.records import TrialStatus
from pgdyno.study.plan import VERDICT_BLOCKS_MIN
from pgdyno.units import Better


class GateWord(StrEnum):
    """First word of a condition."""

    SLOWER = "slower"
    FASTER = "faster"
    NOT_SAME = "not-same"
    UNDECIDED = "undecided"


MEETING = {
    GateWord.SLOWER: (Verdict.SLOWER,),
    GateWord.FASTER: (Verdict.FASTER,),
    GateWord.NOT_SAME: (Verdict.SLOWER, Verdict.FASTER),
    GateWord.UNDECIDED: (Verdict.UNDECIDED,),
}
"""Verdicts that meet a condition without a limit."""


class GateOutcome(StrEnum):
    """Outcome of a gate; the first one of this order that any comparison has."""

    FAILED = "failed"
    NOT_EVALUABLE = "not-evaluable"
    INCONCLUSIVE = "inconclusive"
    PASSED = "passed"


EXIT_STATUSES = {
    GateOutcome.FAILED: CONDITION_MET,
    GateOutcome.NOT_EVALUABLE: PgdynoError.exit_status,
    GateOutcome.INCONCLUSIVE: INCONCLUSIVE,
    GateOutcome.PASSED: 0,
}
"""Exit status of each outcome."""


class Reason(StrEnum):
    """Why a comparison neither meets a condition nor rules it out."""

    UNDECIDED = "undecided"
    NOT_SIGNIFICANT = "not-significant"
    NOISE_FLOOR = "noise-floor"
    TOO_FEW_BLOCKS = "too-few-blocks"


LOST = (TrialStatus.FAILED, TrialStatus.EXCLUDED)


@dataclass(frozen=True)
class GateCondition:
    """A condition such as ``slower``, or ``slower:latency.all.p99`` for another metric than the primary one.

    ``limit_percent`` is that of ``slower:5%``. ``asked`` is the user's text, for example ``slower:p99:5%``.
    """

    word: GateWord
    metric: str = PRIMARY
    asked: str = ""
    limit_percent: float | None = None

    @property
    def text(self) -> str:
        """The condition as the user wrote it."""
        return self.asked or (f"{self.word}:{self.metric}" if self.metric else self.word.value)

    def limit_of(self, one: MetricVerdict) -> float:
        """Return the change in percent beyond which the condition is met, 0 without a limit.

        That of ``not-same`` has the sign of the estimate.
        """
        if self.limit_percent is None or one.percent is None:
            return 0.0
        better = one.percent.better
        is_decrease = (self.word is GateWord.SLOWER) == (better is not Better.LESS)
        if self.word is GateWord.NOT_SAME:
            is_decrease = one.percent.value < 0
        return -self.limit_percent if is_decrease else self.limit_percent


ConditionText = Annotated[GateCondition, ShownAs(str, attrgetter("text"))]


@dataclass(frozen=True)
class MetCondition:
    """A condition that holds, with its comparison."""

    condition: ConditionText
    of: MetricVerdict


@dataclass(frozen=True)
class Inconclusive:
    """A condition that a comparison neither meets nor rules out."""

    condition: ConditionText
    of: MetricVerdict
    reason: Reason


@dataclass(frozen=True)
class NotEvaluable:
    """A condition that cannot be evaluated, with its comparison; None if nothing is compared."""

    condition: ConditionText
    of: MetricVerdict | None


@dataclass(frozen=True)
class Gate:
    """Result of the gate conditions. ``family`` is the number of comparisons that are corrected together.

    ``met`` are the conditions that hold. ``not_evaluable``: there are no values, or not in every block.
    ``lost`` of all ``trials`` of the compared arms failed or were excluded.
    """

    conditions: Sequence[ConditionText]
    confidence: float
    family: Annotated[int, about("Number of comparisons in the family of Holm's correction.")]
    met: Sequence[MetCondition]
    inconclusive: Sequence[Inconclusive]
    not_evaluable: Sequence[NotEvaluable]
    lost: int = 0
    trials: int = 0

    @in_json
    def outcome(self) -> GateOutcome:
        """The outcome: passed only if every comparison rules out its condition."""
        if self.met:
            return GateOutcome.FAILED
        if self.not_evaluable:
            return GateOutcome.NOT_EVALUABLE
        return GateOutcome.INCONCLUSIVE if self.inconclusive else GateOutcome.PASSED


_LIMIT = re.compile(r"(?:^|:)(\d+(?:\.\d*)?|\.\d+)%\Z")


def parse_condition(text: str) -> GateCondition:
    """Parse ``slower``, ``slower:nopm``, ``slower:p99`` (of all transactions), ``slower:p99:5%``.

    Raises UsageError.
    """
    word, _, metric = text.strip().partition(":")
    if word not in set(GateWord) or text.strip().endswith(":"):
        raise UsageError(
            f"{text!r} is not a gate condition: use one of {', '.join(GateWord)}, "
            "or add a metric, a limit or both, for example slower:p99:5%"
        )
    limit = None
    if found := _LIMIT.search(metric):
        limit, metric = float(found[1]), metric[: found.start()]
        if not 0 < limit < 100:
            raise UsageError(f"{text}: the limit must be greater than 0% and less than 100%")
        if word == GateWord.UNDECIDED:
            raise UsageError(f"{text}: undecided has no limit: remove it, or use not-same:{limit:g}%")
    key = latency_key(ALL_KINDS, metric) if metric in PERCENTILES_COMPARED else metric
    if key and key != AVERAGE:
        metric_found = find_metric(key)
        if metric_found is None:
            raise UsageError(
                f"unknown metric {metric!r}: use a key from effects or telemetry in the JSON report"
            )
        if metric_found.better is Better.NEITHER:
            raise UsageError(f"the metric {metric} has no better direction: use another metric")
    return GateCondition(GateWord(word), key, text.strip(), limit)


def find_metric(key: str) -> Metric | None:
    """Return the definition of a compared metric, also for one kind of transactions or one object."""
    for percentile in PERCENTILES_COMPARED if is_latency(key) else ():
        if key.endswith(f".{percentile}"):
            return latency_metric(key.removeprefix(f"{LATENCY}.").removesuffix(f".{percentile}"), percentile)
    return METRICS.get(split_key(key)[0])


def gate(findings: Compared, conditions: Sequence[GateCondition]) -> Gate:
    """Evaluate the conditions on a study."""
    found = {metric: findings.verdicts_on(metric) for metric in {of.metric for of in conditions}}
    lost = sum(trial.status in LOST for trial in findings.trials)
    return replace(evaluate(conditions, found, findings.confidence), lost=lost, trials=len(findings.trials))


def evaluate(
    conditions: Sequence[GateCondition], found: Mapping[str, Sequence[MetricVerdict]], confidence: float
) -> Gate:
    """Evaluate conditions. ``found``: metric of the conditions → its comparisons."""
    pairs = [(condition, one) for condition in conditions for one in found[condition.metric]]
    family = {
        (_place(one), limit): _p_value_at(one, limit)
        for condition, one in pairs
        if condition.word is not GateWord.UNDECIDED
        for limit in [condition.limit_of(one)]
    }
    levels = holm_confidences(list(family.values()), confidence)
    significant = {
        key
        for (key, p_value), level in zip(family.items(), levels, strict=True)
        if p_value is not None and p_value <= 1 - level
    }
    met: list[MetCondition] = []
    inconclusive: list[Inconclusive] = []
    not_evaluable = [NotEvaluable(condition, None) for condition in conditions if not found[condition.metric]]
    for condition, one in pairs:
        is_significant = (_place(one), condition.limit_of(one)) in significant
        match _judged(condition, one, is_significant=is_significant):
            case GateOutcome.FAILED:
                met.append(MetCondition(condition, one))
            case GateOutcome.NOT_EVALUABLE:
                not_evaluable.append(NotEvaluable(condition, one))
            case Reason() as reason:
                inconclusive.append(Inconclusive(condition, one, reason))
    return Gate(conditions, confidence, len(family), met, inconclusive, not_evaluable)


def _judged(condition: GateCondition, one: MetricVerdict, *, is_significant: bool) -> GateOutcome | Reason:
    """Return what one comparison contributes; a reason if it is inconclusive.

    ``is_significant``: whether the family rejects the limit of the condition.
    """
    if condition.word is GateWord.UNDECIDED:
        return GateOutcome.FAILED if one.verdict is Verdict.UNDECIDED else GateOutcome.PASSED
    if one.percent is None or one.partial:
        return GateOutcome.NOT_EVALUABLE
    if one.no_interval_below is not None:
        return Reason.TOO_FEW_BLOCKS
    if condition.limit_percent is None:
        if one.verdict is Verdict.UNDECIDED:
            is_below_floor = one.taken_back in MEETING[condition.word]
            return Reason.NOISE_FLOOR if is_below_floor else Reason.UNDECIDED
        is_met = one.verdict in MEETING[condition.word]
    else:
        limit = condition.limit_of(one)
        beyond = is_beyond(one, limit)
        if condition.word is GateWord.NOT_SAME and beyond is False:
            beyond = is_beyond(one, -limit)
        if beyond is None:
            return Reason.UNDECIDED
        if _is_near(one, limit):
            return Reason.NOISE_FLOOR
        is_met = beyond
    if not is_met:
        return GateOutcome.PASSED
    return GateOutcome.FAILED if is_significant else Reason.NOT_SIGNIFICANT


def is_beyond(one: MetricVerdict, limit_percent: float) -> bool | None:
    """Return whether the interval lies beyond a limit on its side of zero; None if it contains the limit."""
    percent = one.percent
    if percent is None or percent.low is None or percent.high is None or not has_interval(one):
        return None
    near, far = (percent.low, percent.high) if limit_percent > 0 else (-percent.high, -percent.low)
    if near > abs(limit_percent):
        return True
    return False if far < abs(limit_percent) else None


def has_interval(one: MetricVerdict) -> bool:
    """Return whether the interval may be shown: with fewer blocks the SD is too uncertain."""
    return one.percent is not None and one.percent.low is not None and one.blocks >= VERDICT_BLOCKS_MIN


def _is_near(one: MetricVerdict, limit_percent: float) -> bool:
    """Return whether the effect is nearer to a change in percent than the noise floor."""
    if one.floor is None or one.summary is None:
        return False
    return abs(one.summary.mean - math.log1p(limit_percent / 100)) < one.floor


def _p_value_at(one: MetricVerdict, limit_percent: float) -> float | None:
    """Return the p-value of the two-sided test of a change in percent."""
    if (known := one.summary) is None:
        return None
    distance = known.mean - math.log1p(limit_percent / 100)
    return with_error(distance, known.sd, known.n, known.confidence, known.method).p_value


def _place(one: MetricVerdict) -> tuple[str, str, str, str]:
    """Return the comparison and the metric."""
    return one.case, one.baseline, one.arm, one.metric
