"""Changes in a repeated study: series of values, change points, confirmation.

- Change points of a series: E-divisive means with a permutation test.
- Changes of the mean of a growing series, tested after each new value, with confirmation.
- Series of values of a repeated study over time, their change points, and other recorded changes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Annotated

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.finding_fields import Hidden, Length, about
from pgdyno.analysis.statistics import intervals
from pgdyno.analysis.statistics.intervals import holm_confidences, percent_of
from pgdyno.analysis.study_findings import AVERAGE, PRIMARY, StudyFindings
from pgdyno.analysis.telemetry.metrics import METRICS, is_tail
from pgdyno.features.hosts.identity import difference_of, difference_of_plans, is_copy, is_same_machine
from pgdyno.report.background import SETTINGS
from pgdyno.results.records import Json, StudyRecord
from pgdyno.units import Better, Estimate

# ----------------------------------------------------------------------
# Change points of a series: E-divisive means with a permutation test.
#
# The series is cut at the place with the largest distance between the values before and after it. The
# distance is the energy statistic of Székely and Rizzo, Q = mn/(m + n) · (2 E|X − Y| − E|X − X′| − E|Y −
# Y′|). Permutations of the series give its p-value. Each part is then cut in the same way (Matteson and
# James, "A nonparametric approach for multiple change point analysis of multivariate data", JASA 2014; used
# on nightly benchmarks of a database by Daly et al., "The use of change point detection to identify software
# performance regressions in a continuous integration system", ICPE 2020). The method assumes no distribution.
#
# The p-value of a cut is exact if values are exchangeable, that is, without a change. It is the sequential
# p-value of Besag and Clifford ("Sequential Monte Carlo p-values", Biometrika 1991), which stops permuting as
# soon as a small p-value is impossible.
# ----------------------------------------------------------------------

SEGMENT_MIN = 3

POINTS_MIN = 2 * SEGMENT_MIN
"""Minimum length of a series with a cut: the distribution of fewer values on a side is unknown."""

EXCEEDED_MAX = 20
"""Permuted series with a statistic at least as large, after which the p-value is large and precise enough."""

BATCH = 64
"""Series permuted at once, which limits unnecessary permutations."""

BATCH_VALUES = 1 << 21
"""Maximum number of distances in a batch, which limits its memory."""

SEED = 20261122
"""Fixed, so that the same series has the same change points."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Cut:
    """A cut. ``at`` is the index of the first value after it."""

    at: int
    p_value: float


def first_cut(values: Sequence[float], shuffles: int) -> Cut | None:
    """Return the first cut, also if it is not significant; None if the series is too short."""
    if len(values) < POINTS_MIN:
        return None
    distances = np.abs(np.subtract.outer(np.asarray(values), np.asarray(values)))
    q = _statistics(distances[np.newaxis])[0]
    at, _ = np.unravel_index(np.argmax(q), q.shape)
    return Cut(int(at), _permutation_p_value(distances, float(q.max()), shuffles))


def cuts(values: Sequence[float], level: float, shuffles: int) -> list[Cut]:
    """Return all significant cuts, sorted by place.

    The level of the first cut is ``level``. Each part that a cut creates has half of its level. So the
    probability of any false cut is at most ``level``.
    """
    return sorted(_within(values, 0, level, shuffles), key=lambda cut: cut.at)


def _within(values: Sequence[float], begin: int, level: float, shuffles: int) -> Iterator[Cut]:
    found = first_cut(values, shuffles)
    if found is None or found.p_value > level:
        return
    yield Cut(begin + found.at, found.p_value)
    yield from _within(values[: found.at], begin, level / 2, shuffles)
    yield from _within(values[found.at :], begin + found.at, level / 2, shuffles)


def _statistics(distances: Floats) -> Floats:
    """Return Q of the first ``at`` values against those from there to ``end``, for every pair.

    Shape: (series, at, end) for (series, n, n) distances. Minus infinity if a side has fewer than
    SEGMENT_MIN. ``end`` need not be the end of the series: after a level that fell and rose again, all values
    before and all values after a cut may hardly differ.
    """
    n = distances.shape[-1]
    block = np.zeros((len(distances), n + 1, n + 1))  # sums over the first rows and columns
    np.cumsum(np.cumsum(distances, axis=1), axis=2, out=block[:, 1:, 1:])
    whole = np.diagonal(block, axis1=1, axis2=2)
    before = whole[:, :, np.newaxis]
    between = block - before
    behind = whole[:, np.newaxis, :] - 2 * block + before
    place = np.arange(n + 1)
    m, k = place[:, np.newaxis], place[np.newaxis, :] - place[:, np.newaxis]
    allowed = (m >= SEGMENT_MIN) & (k >= SEGMENT_MIN)
    m, k = np.where(allowed, m, 2), np.where(allowed, k, 2)
    energy = 2 * between / (m * k) - before / (m * (m - 1)) - behind / (k * (k - 1))
    return np.where(allowed, m * k / (m + k) * energy, -np.inf)


def _permutation_p_value(distances: Floats, seen: float, shuffles: int) -> float:
    rng, n = np.random.default_rng(SEED), len(distances)
    limit = seen - 1e-12 * abs(seen)  # a permuted series may be the same, with another rounding of its sum
    exceeded = 0
    batch = max(1, min(BATCH, BATCH_VALUES // n**2))
    for done in range(0, shuffles, batch):
        size = min(batch, shuffles - done)
        orders = rng.permuted(np.tile(np.arange(n), (size, 1)), axis=1)
        shuffled = distances[orders[:, :, np.newaxis], orders[:, np.newaxis, :]]
        as_large = np.max(_statistics(shuffled), axis=(1, 2)) >= limit
        if exceeded + np.count_nonzero(as_large) >= EXCEEDED_MAX:
            last = int(np.flatnonzero(as_large)[EXCEEDED_MAX - exceeded - 1])
            return EXCEEDED_MAX / (done + last + 1)
        exceeded += int(np.count_nonzero(as_large))
    return (exceeded + 1) / (shuffles + 1)


# ----------------------------------------------------------------------
# Changes of the mean of a growing series, tested after each new value, with confirmation.
#
# A test at 5% after each night raises a false alarm sooner or later. Here the Shiryaev–Roberts procedure
# bounds the false alarms of all nights together. Let t be the pooled two-sample t statistic of the k newest
# values against the m values before them, n = m + k, ν = n − 2. For a change δ, in SDs of a value, drawn from
# N(0, g), t / √r has Student's distribution. The Bayes factor of a change after value m is the ratio of the
# densities::
#
#     BF_{m,n} = r^(−1/2) ((1 + t²/ν) / (1 + t²/(r ν)))^((ν + 1)/2),        r = 1 + g m k / n
#
# If nothing changes and values are independent and Gaussian, BF_{m,n} is a martingale in n with mean 1, for
# any mean and SD: it is the likelihood ratio of the maximal invariant under shifts and scales (Pérez-Ortiz,
# Lardy, de Heide and Grünwald, "E-statistics, group invariance and anytime-valid testing", Annals of
# Statistics 2024). The sum R_n over all places m is a nonnegative submartingale with mean at most n. By
# Doob's inequality it reaches c within N values with a probability of at most N / c. So the p-value 365 / R_n
# is at most α on any of 365 nights with a probability of at most α, and the mean time to that is at least 365
# / α nights (Roberts, "A comparison of some control chart procedures", Technometrics 1966; Shin, Ramdas and
# Rinaldo, "E-detectors: a nonparametric framework for sequential change detection", New England Journal of
# Statistics in Data Science 2024). R_n depends on the values only, so another evaluation of the same values
# gives the same result.
#
# **Confirmation.** One outlier can make R_n as large as it likes. A change is therefore confirmed only if it
# is also significant without the most extreme value of the shorter segment: at least two values must show it.
# With a few values left in that segment, their mean has the tails of single values. ν is then at most FREEDOM
# per value left. Both conditions only reduce false alarms, so the bound holds. They keep false alarms rare if
# tails are heavy or skewed, which ``python -m bench history`` measures (README.md).
# ----------------------------------------------------------------------

NIGHTS = 365
"""Values to which the level of the test applies: a year of nights."""

BEFORE_MIN = 5
"""Minimum number of values before a change: fewer hardly estimate the SD."""

AFTER_MIN = 2
"""Minimum number of values after a confirmed change."""

PRIOR = 10.0
"""g. Chosen by simulation: with 4 a large change of a short series needs up to two nights more, with 30 a
change of one SD two. Every value gives a valid test."""

ROUNDING = 1e-12
"""Share of the total sum of squares below which a sum within segments is rounding."""

FREEDOM = 12
"""Maximum degrees of freedom per value of the shorter segment. Chosen by simulation: with 20, years of six
series with outliers have twice the false alarms; with 8 a large change needs up to a night more."""

Ints = npt.NDArray[np.int_]


@dataclass(frozen=True)
class ConfirmedCut(Cut):
    """A confirmed change. ``confirmed_at`` is the index of the value that confirmed it."""

    confirmed_at: int


@dataclass
class SeriesChanges:
    """Confirmed changes of a growing series, and one that awaits confirmation. ``level`` is that of the next
    one, and ``begin`` the index of the first value after the last confirmed change.
    """

    confirmed: list[ConfirmedCut] = field(default_factory=list)
    awaiting: Cut | None = None
    level: float = 1.0
    values: list[float] = field(default_factory=list)
    begin: int = 0
    newest: tuple[Cut, Cut] | None = None

    def add(self, value: float) -> None:
        """Add a value and test for a change since ``begin``."""
        self.values.append(value)
        self.newest = newest_changes(np.array(self.values[self.begin :]))

    def judge(self) -> None:
        """Confirm the change, or let it await confirmation."""
        self.awaiting = None
        if self.newest is None:
            return
        found, confirmed = (Cut(self.begin + cut.at, cut.p_value) for cut in self.newest)
        if confirmed.p_value <= self.level:
            self.confirmed.append(ConfirmedCut(confirmed.at, confirmed.p_value, len(self.values) - 1))
            self.begin, self.newest = confirmed.at, None
        elif found.p_value <= self.level:
            self.awaiting = found


def log_bayes_factors(values: Floats) -> tuple[Floats, Floats]:
    """Return ln BF of a change at each place: with all values, and for confirmation.

    ``values`` is (…, n), oldest first; both results are (…, n − BEFORE_MIN), for BEFORE_MIN to n − 1 values
    before the change. The second is minus infinity if the values that remain do not show a change in the same
    direction.
    """
    n = values.shape[-1]
    x = values - values[..., :1]  # a constant series becomes exactly 0
    before = np.arange(BEFORE_MIN, n)
    after = n - before
    sums, squares = np.cumsum(x, axis=-1), np.cumsum(x * x, axis=-1)
    head, total = sums[..., before - 1], squares[..., -1:]
    tail = sums[..., -1:] - head
    floor = ROUNDING * (total - sums[..., -1:] ** 2 / n) + np.finfo(float).tiny
    change = tail / after - head / before
    within = np.maximum(total - head**2 / before - tail**2 / after, floor)
    whole = _log_bayes_factor(change, within, before, after, n - 2)

    of_after, rises = after <= before, change > 0
    backwards = x[..., ::-1]
    extreme_after = np.where(rises, _highest(backwards, after), -_highest(-backwards, after)) * of_after
    extreme_before = np.where(rises, -_highest(-x, before), _highest(x, before)) * ~of_after
    head, tail = head - extreme_before, tail - extreme_after
    before, after = before - ~of_after, np.maximum(after - of_after, 1)
    left = tail / after - head / before
    total = total - extreme_before**2 - extreme_after**2
    within = np.maximum(total - head**2 / before - tail**2 / after, floor)
    freedom = np.minimum(n - 3, FREEDOM * np.minimum(before, after))
    confirmed = _log_bayes_factor(left, within, before, after, freedom)
    shown = (np.arange(n - BEFORE_MIN, 0, -1) >= AFTER_MIN) & (np.sign(left) == np.sign(change))
    return whole, np.where(shown, confirmed, -np.inf)


def _highest(x: Floats, first: Ints) -> Floats:
    """Return the highest of the first so many values."""
    found: Floats = np.maximum.accumulate(x, axis=-1)[..., first - 1]
    return found


def _log_bayes_factor(
    change: Floats, within: Floats, before: Ints, after: Ints, freedom: Ints | int
) -> Floats:
    """Return ln BF for the difference of the means and the sum of squares within both segments."""
    size = before * after / (before + after)
    r, x = 1 + PRIOR * size, size * change**2 / within * (before + after - 2) / freedom  # x = t² / ν
    found: Floats = (freedom + 1) / 2 * np.log((1 + x) / (1 + x / r)) - np.log(r) / 2
    return found


def newest_changes(values: Floats) -> tuple[Cut, Cut] | None:
    """Return the change as of the newest value, tested with all values, and tested for confirmation.

    Each is at its most likely place. None if the series is too short.
    """
    if len(values) < BEFORE_MIN + AFTER_MIN:
        return None
    whole, without = log_bayes_factors(values)
    p_value = _p_value(whole)
    confirmed = Cut(BEFORE_MIN + int(np.argmax(whole[: 1 - AFTER_MIN])), max(p_value, _p_value(without)))
    return Cut(BEFORE_MIN + int(np.argmax(whole)), p_value), confirmed


def _p_value(log_factors: Floats) -> float:
    return math.exp(min(0.0, math.log(NIGHTS) - float(np.logaddexp.reduce(log_factors))))


def detect_changes(values: Floats, confidence: float) -> list[SeriesChanges]:
    """Return the changes that tests after each night have confirmed, for each series.

    ``values`` is (series, nights), oldest first, with NaN for a missing value; indexes of the result count
    the values of a series. After a confirmed change a series starts anew. Holm's correction is over all
    series, on each night. So in 365 nights without a change the probability of any confirmed one is at most
    1 − confidence.
    """
    series = [SeriesChanges() for _ in values]
    for night in values.T:
        new = [(one, float(value)) for one, value in zip(series, night, strict=True) if not math.isnan(value)]
        for one, value in new:
            one.add(value)
        p_values = [one.newest[1].p_value if one.newest else None for one in series]
        for one, held in zip(series, holm_confidences(p_values, confidence), strict=True):
            one.level = 1 - held
        for one, _ in new:
            one.judge()
    return series


@lru_cache(maxsize=256)
def values_min(level: float) -> int:
    """Return the number of values below which no change of any size can be confirmed at this level."""
    n = BEFORE_MIN + AFTER_MIN
    while _p_value_min(n) > level:
        n += 1
    return n


def _p_value_min(n: int) -> float:
    """Return the p-value of a change without noise, at the best place in n values."""
    steps = [np.arange(n) >= at for at in range(BEFORE_MIN, n - AFTER_MIN + 1)]
    found = [newest_changes(step.astype(float)) for step in steps]
    return min(confirmed.p_value for _, confirmed in filter(None, found))


# ----------------------------------------------------------------------
# Series of values of a repeated study over time, their change points, and other recorded changes.
#
# A series contains results with the same request (``same_study``), on the same machine, fitted to the same
# load and windows. The build behind a version or a directory, the kernel, and pgdyno itself may change: a
# history shows their effects. Another machine, another study file or fit, or other options start another
# series.
#
# Each case has a series of every arm's change from the baseline, in which the machine's own drift cancels,
# and one of every arm's level.
#
# - Changes from the baseline are tested after each file, and gates use them. All those of a study on a
#   machine are one family. In 365 files without a change, the probability of any
#   confirmed one is at most 1 − confidence.
# - Levels contain the drift of the machine, so no gate uses them. They are cut by E-divisive means, as a
#   description. Holm's correction is over their first cuts. If files were independent and nothing changed,
#   the probability of any cut would be at most 1 − confidence in each evaluation.
# ----------------------------------------------------------------------

POINTS_MAX = 400
"""Maximum number of files in which levels are cut, the newest ones: permutations take quadratic time."""

SHUFFLES_MIN = 999
SHUFFLES_PER_LEVEL = 10
"""The smallest p-value is a tenth of the level of its test."""
SHUFFLES_MAX = 20_000

HOST_FACTS = (
    "processor",
    "cores",
    "memory_bytes",
    "swap_bytes",
    "kernel",
    "os",
    "architecture",
    "file_system",
)
"""Facts of the machine that may be the reason for a change, without its momentary load."""


@dataclass(frozen=True)
class Key:
    """Identity of a series. ``baseline`` is empty for an arm's own level."""

    case: str
    arm: str
    baseline: str
    metric: str
    name: str

    @property
    def is_change(self) -> bool:
        """True if the values are changes from the baseline in percent."""
        return bool(self.baseline)


@dataclass(frozen=True)
class HistoryPoint:
    """Value of one file: a level, or a change in percent of the baseline if ``is_change``.

    A level may be in percent, too.
    """

    file: str
    created_unix_s: float
    estimate: Estimate
    is_change: bool

    @property
    def log(self) -> float:
        """Logarithm of the level or of the ratio."""
        value = self.estimate.value
        return math.log1p(value / 100) if self.is_change else math.log(value)


@dataclass(frozen=True)
class FileDifference:
    """Difference between the file in which a change appeared and the previous one."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class HistoryChange:
    """A change. ``at``: index of the first file with it; ``percent``: mean after vs. mean before.

    The interval assumes that the place of the change is known and that files are independent. A percentile
    above the median has none, because rare events can determine it.
    ``confirmed_at`` is the index of the file that confirmed it. It is None for a change of a level, and for
    one that awaits confirmation.
    """

    at: Annotated[int, about("Index of the first file with the change, from 0.")]
    verdict: Verdict
    percent: Estimate
    p_value: float
    before: Annotated[Length[range], about("Number of files before the change.")]
    after: Annotated[Length[range], about("Number of files since.")]
    differences: Sequence[FileDifference]
    confirmed_at: int | None = None


@dataclass(frozen=True)
class HistorySeries:
    """Points in order of time. ``level`` is the level of the tests for its changes.

    ``changes`` are confirmed, except those of a level. ``awaiting`` is a change that the newest file shows
    and a further file must confirm. Below ``points_min`` points no change can be found. ``biased``: files
    that are left out, because an arm failed or was not steady.
    """

    key: Key
    better: Better
    points: Sequence[HistoryPoint]
    level: float
    changes: Sequence[HistoryChange]
    awaiting: HistoryChange | None = None
    points_min: int = POINTS_MIN
    biased: Sequence[str] = ()

    @property
    def is_too_short(self) -> bool:
        """True if it has too few points for a change."""
        return len(self.points) < self.points_min


@dataclass(frozen=True)
class Recorded:
    """Values of one file for a history. ``facts`` are possible reasons for a change, by name.

    ``biased``: keys without a value, because an arm failed or was not steady.
    """

    file: str
    created_unix_s: float
    values: Mapping[Key, Estimate]
    facts: Mapping[str, str]
    biased: Collection[Key] = ()


@dataclass(frozen=True)
class Separation:
    """Difference between the first ``file`` of a group and that of an earlier group on the same machine."""

    file: str
    before: str
    difference: FileDifference


@dataclass(frozen=True)
class StudyHistory:
    """History of one study on one machine. ``machine`` is its number, from 1, and its processor.

    ``separation`` is the reason why it is not part of another history. ``differences`` has the files that
    record other builds, settings or facts of the machine than the previous one.
    """

    title: str
    machine: str
    files: Sequence[str]
    series: Sequence[HistorySeries]
    confidence: float
    separation: Separation | None = None
    differences: Mapping[str, Sequence[FileDifference]] = field(default_factory=dict)
    lacking: Hidden[Sequence[Key]] = ()
    """Changes that the newest file lacks (``Recorded.biased``), also those that no file has."""


@dataclass
class Group:
    """Files of one study and machine, while they are read. The first one represents all."""

    first: StudyFindings
    recorded: list[Recorded] = field(default_factory=list)
    separation: Separation | None = None


def record(file: str, study: StudyFindings, metrics: Sequence[str] = ()) -> Recorded:
    """Return the record of one file. ``metrics`` are keys besides the primary metric."""
    created = study.first.study.created_unix_s
    values: dict[Key, Estimate] = {}
    biased = set()
    lost = {
        (case.study.case, of.baseline.name, of.arm.name)
        for case in study.cases
        for of in case.comparisons
        if of.lost_by_an_arm
    }
    for metric in (PRIMARY, *metrics):
        several = len(study.cases) > 1 and metric == PRIMARY
        for one in [*study.verdicts_on(metric), *(study.verdicts_on(AVERAGE) if several else [])]:
            key = Key(one.case, one.arm, one.baseline, one.metric, one.name)
            # An effect that changes in the windows does so in every file. An average would lack its case.
            if one.partial if one.case == AVERAGE else (one.case, one.baseline, one.arm) in lost:
                biased.add(key)
            elif one.percent is not None:
                values[key] = one.percent
        for case in study.cases:
            values |= _levels(case, metric or case.primary.key)
    return Recorded(file, created, values, facts_of(study), biased)


def _levels(case: Findings, metric: str) -> dict[Key, Estimate]:
    """Return the levels greater than 0: others cannot be in a series of ratios."""
    found = {}
    known = case.telemetry.metrics.get(metric) or METRICS.get(metric)
    name = known.name if known else metric
    for of in case.arms:
        level = of.levels.get(metric) or case.telemetry.levels.get(of.arm.arm, {}).get(metric)
        if level is not None and level.value > 0:
            found[Key(case.study.case, of.arm.name, "", metric, name)] = level
    return found


def facts_of(study: StudyFindings, arms: Collection[str] | None = None) -> dict[str, str]:
    """Return versions, settings and facts of the machine by name. ``arms``: only of these; None for all."""
    return dict(_facts(study, arms))


def _facts(study: StudyFindings, arms: Collection[str] | None) -> Iterable[tuple[str, str]]:
    first = study.first.study
    yield "pgdyno", first.pgdyno_version
    yield from ((f"the engine's {name}", str(value)) for name, value in vars(first.engine_facts).items())
    yield from ((f"the machine's {name.replace('_', ' ')}", str(first.host.get(name))) for name in HOST_FACTS)
    for case in study.cases:
        place = f", {case.study.case}" if case.study.case else ""
        settings = {trial.arm: trial.settings for trial in case.trials}
        for of in (one for one in case.arms if arms is None or one.arm.name in arms):
            server = of.arm.server_facts
            yield f"the server of {of.arm.name}", server.version or ""
            yield f"the build of {of.arm.name}", server.version_text or ""
            yield f"the extensions of {of.arm.name}", server.extensions_shown
            for name in ("CONFIGURE", "CFLAGS"):
                yield f"{name} of {of.arm.name}", server.compiled_with(name)
            for name, value in settings.get(of.arm.arm, {}).items():
                if name in SETTINGS["not_set"]:  # paths of the run, and what other facts say
                    continue
                yield f"{name} of {of.arm.name}{place}", str(value)


def find_history(group: Group, machine: str) -> StudyHistory:
    """Return the series of a group with their changes."""
    ordered = sorted(group.recorded, key=lambda one: one.created_unix_s)
    keys = list(dict.fromkeys(key for one in ordered for key in one.values))
    study, confidence = group.first.first.study, group.first.first.study.plan.confidence
    rows = {key: [one for one in ordered if key in one.values] for key in keys}
    series = {
        key: HistorySeries(
            key,
            of[-1].values[key].better,
            [HistoryPoint(one.file, one.created_unix_s, one.values[key], key.is_change) for one in of],
            1 - confidence,
            (),
            biased=[one.file for one in ordered if key in one.biased],
        )
        for key, of in rows.items()
    }
    found = [
        *_tested([of for of in series.values() if of.key.is_change], ordered, rows, confidence),
        *_described([of for of in series.values() if not of.key.is_change], rows, confidence),
    ]
    series |= {of.key: of for of in found}
    files = [one.file for one in ordered]
    differences = {after.file: _differences(before, after) for before, after in pairwise(ordered)}
    differences = {file: of for file, of in differences.items() if of}
    of_all = list(series.values())
    lacking = [key for key in ordered[-1].biased if key.is_change]
    return StudyHistory(
        study.title, machine, files, of_all, confidence, group.separation, differences, lacking
    )


def _tested(
    series: Sequence[HistorySeries],
    ordered: Sequence[Recorded],
    rows: Mapping[Key, Sequence[Recorded]],
    confidence: float,
) -> Iterable[HistorySeries]:
    """Return the series of changes from the baseline, tested after each file."""
    values = np.full((len(series), len(ordered)), np.nan)
    for row, of in zip(values, series, strict=True):
        row[[of.key in one.values for one in ordered]] = [point.log for point in of.points]
    points_min = values_min((1 - confidence) / max(1, len(series)))
    for of, found in zip(series, detect_changes(values, confidence), strict=True):
        changes = _changes(of, found.confirmed, rows[of.key], confidence)
        changes = [
            replace(change, confirmed_at=cut.confirmed_at)
            for change, cut in zip(changes, found.confirmed, strict=True)
        ]
        awaiting = None
        if found.awaiting:
            awaiting = _changes(of, [*found.confirmed, found.awaiting], rows[of.key], confidence)[-1]
        yield replace(of, level=found.level, changes=changes, awaiting=awaiting, points_min=points_min)


def _described(
    series: Sequence[HistorySeries], rows: Mapping[Key, Sequence[Recorded]], confidence: float
) -> Iterable[HistorySeries]:
    """Return the series of levels with the cuts among their newest points."""
    shuffles = math.ceil(SHUFFLES_PER_LEVEL * len(series) / (1 - confidence))
    shuffles = min(SHUFFLES_MAX, max(SHUFFLES_MIN, shuffles))
    values = [[point.log for point in of.points[-POINTS_MAX:]] for of in series]
    first = [first_cut(of, shuffles) for of in values]
    levels = holm_confidences([cut.p_value if cut else None for cut in first], confidence)
    for of, one, newest, held in zip(series, first, values, levels, strict=True):
        begin = len(of.points) - len(newest)
        found = cuts(newest, 1 - held, shuffles) if one else []
        moved = [replace(cut, at=begin + cut.at) for cut in found]
        yield replace(of, level=1 - held, changes=_changes(of, moved, rows[of.key], confidence))


def _changes(
    series: HistorySeries, found: Sequence[Cut], recorded: Sequence[Recorded], confidence: float
) -> list[HistoryChange]:
    values = [point.log for point in series.points]
    edges = [0, *(cut.at for cut in found), len(values)]
    changes = []
    for i, cut in enumerate(found):
        before, after = range(edges[i], cut.at), range(cut.at, edges[i + 2])
        percent = _percent(
            values[before.start : before.stop], values[after.start : after.stop], series.better, confidence
        )
        if is_tail(series.key.metric):
            percent = replace(percent, low=None, high=None)
        good = percent.value > 0 if series.better is Better.MORE else percent.value < 0
        verdict = Verdict.FASTER if good else Verdict.SLOWER
        differences = _differences(recorded[cut.at - 1], recorded[cut.at])
        changes.append(HistoryChange(cut.at, verdict, percent, cut.p_value, before, after, differences))
    return changes


def _percent(before: Sequence[float], after: Sequence[float], better: Better, confidence: float) -> Estimate:
    """Return the change between means of logs, with Student's interval from a common SD.

    A newly confirmed change has two files after it, and one that awaits confirmation may have one.
    """
    n = len(before) + len(after)
    squares = sum(float(np.var(of)) * len(of) for of in (before, after))
    error = math.sqrt(squares / (n - 2) * (1 / len(before) + 1 / len(after)))
    mean = float(np.mean(after) - np.mean(before))
    reach = intervals.t_quantile((1 + confidence) / 2, n - 2) * error
    low, high = percent_of(mean - reach), percent_of(mean + reach)
    return Estimate(percent_of(mean), "%", n, better, low, high, confidence)


def _differences(one: Recorded, other: Recorded) -> list[FileDifference]:
    names = dict.fromkeys([*one.facts, *other.facts])
    facts = [(name, one.facts.get(name, ""), other.facts.get(name, "")) for name in names]
    return [FileDifference(name, before, after) for name, before, after in facts if before != after]


def group_files(
    found: Iterable[tuple[str, StudyFindings]], metrics: Sequence[str], skipped: dict[str, str]
) -> list[Group]:
    """Group the files by study and machine.

    Reads one file at a time and keeps only the first of each group. Unused files and their reasons are added
    to ``skipped``.
    """
    groups: list[Group] = []
    known: dict[str, StudyRecord] = {}
    for file, study in found:
        first = study.first.study
        twice = [name for name, seen in known.items() if is_copy(seen, first)]
        if first.ended_because is None:
            skipped[file] = "its study has not ended"
        elif twice:
            skipped[file] = f"it is a copy of {twice[0]}"
        elif not (recorded := record(file, study, metrics)).values:
            skipped[file] = "no block counts"
        else:
            known[file] = first
            _group_of(groups, study, file).recorded.append(recorded)
    return groups


def _group_of(groups: list[Group], study: StudyFindings, file: str) -> Group:
    separation, own = None, study.first.study
    for group in groups:
        first = group.first.first.study
        if not is_same_machine(first.host, own.host):
            continue
        found = difference_of(group.first, study) or difference_of_plans(group.first, study)
        if found is None:
            return group
        if first.title == own.title:
            separation = Separation(file, group.recorded[0].file, FileDifference(*found))
    groups.append(Group(study, separation=separation))
    return groups[-1]


def histories(groups: Sequence[Group]) -> list[StudyHistory]:
    """Return the histories in the order in which studies and machines first occur."""
    machines: list[Json] = []
    found = []
    for group in groups:
        study = group.first.first.study
        known = [i for i, of in enumerate(machines) if is_same_machine(of, study.host)]
        if not known:
            machines.append(study.host)
        number = (known or [len(machines) - 1])[0] + 1
        found.append(find_history(group, f"{number}: {study.host_facts.processor or 'unknown'}"))
    return found
