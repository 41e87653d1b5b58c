"""Series of values of a repeated study over time, their change points, and other recorded changes.

A series contains results with the same request (``same_study``), on the same machine, fitted to the same load
and windows. The build behind a version or a directory, the kernel, and pgdyno itself may change: a history
shows their effects. Another machine, another study file or fit, or other options start another series.

Each case has a series of every arm's change from the baseline, in which the machine's own drift cancels, and
one of every arm's level. All series of a study on a machine are one family. Holm's correction is over their
first cuts, so the probability of any false change is at most 1 − confidence if nothing changed. In a series
with a true change, the probability of a further false one is at most the level of the first cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pgdyno.analysis.comparison.verdict import Verdict
from pgdyno.analysis.findings.case_findings import Findings
from pgdyno.analysis.findings.gates import PRIMARY, gate_comparisons
from pgdyno.analysis.findings.pooled_hosts import AVERAGE
from pgdyno.analysis.findings.study_findings import StudyFindings
from pgdyno.analysis.findings.study_identity import (
    difference_of,
    difference_of_plans,
    is_copy,
    is_same_machine,
)
from pgdyno.analysis.statistics import distributions
from pgdyno.analysis.statistics.change_points import POINTS_MIN, Cut, cuts, first_cut
from pgdyno.analysis.statistics.effect import holm_confidences, percent_of
from pgdyno.analysis.telemetry.metrics import METRICS
from pgdyno.estimate import Better, Estimate
from pgdyno.results.records import StudyRecord

POINTS_MAX = 400
"""Maximum number of files in a series, the newest ones: the time of permutations grows quadratically."""

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

    what: str
    before: str
    after: str


@dataclass(frozen=True)
class HistoryChange:
    """A change. ``at``: index of the first file with it; ``percent``: mean after vs. mean before.

    The interval assumes that the place of the change is known and that files are independent.
    """

    at: int
    verdict: Verdict
    percent: Estimate
    p_value: float
    before: range
    after: range
    differences: Sequence[FileDifference]


@dataclass(frozen=True)
class HistorySeries:
    """Points in order of time. ``level`` is the level of the tests for its changes."""

    key: Key
    better: Better
    points: Sequence[HistoryPoint]
    level: float
    changes: Sequence[HistoryChange]

    @property
    def is_too_short(self) -> bool:
        """True if it has too few points for a change."""
        return len(self.points) < POINTS_MIN


@dataclass(frozen=True)
class Recorded:
    """Values of one file for a history. ``facts`` are possible reasons for a change, by name."""

    file: str
    created_unix_s: float
    values: Mapping[Key, Estimate]
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Separation:
    """Difference between the first ``file`` of a group and that of an earlier group on the same machine."""

    file: str
    before: str
    difference: FileDifference


@dataclass(frozen=True)
class StudyHistory:
    """History of one study on one machine. ``machine`` is its number, from 1, and its processor.

    ``apart`` is the reason why it is not part of another history.
    """

    title: str
    machine: str
    files: Sequence[str]
    series: Sequence[HistorySeries]
    confidence: float
    apart: Separation | None = None


@dataclass
class Group:
    """Files of one study and machine, while they are read. The first one represents all."""

    first: StudyFindings
    recorded: list[Recorded] = field(default_factory=list)
    apart: Separation | None = None

    def is_on_machine_of(self, study: StudyFindings) -> bool:
        """Return whether the study is of the same machine."""
        return is_same_machine(self.first.first.study.host, study.first.study.host)

    def difference(self, study: StudyFindings) -> tuple[str, str, str] | None:
        """Return the first difference in the request or in fitted values, or None."""
        return difference_of(self.first, study) or difference_of_plans(self.first, study)


def record(file: str, study: StudyFindings, metrics: Sequence[str] = ()) -> Recorded:
    """Return the record of one file. ``metrics`` are keys besides the primary metric."""
    created = study.first.study.created_unix_s
    values: dict[Key, Estimate] = {}
    for metric in (PRIMARY, *metrics):
        several = len(study.cases) > 1 and metric == PRIMARY
        for one in [*gate_comparisons(study, metric), *(gate_comparisons(study, AVERAGE) if several else [])]:
            if one.percent is not None:
                values[Key(one.case, one.arm, one.baseline, one.metric, one.name)] = one.percent
        for case in study.cases:
            values |= _levels(case, metric or case.primary.key)
    return Recorded(file, created, values, dict(_facts(study)))


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


def _facts(study: StudyFindings) -> Iterable[tuple[str, str]]:
    first = study.first.study
    yield "pgdyno", first.pgdyno_version
    yield from ((f"the engine's {name}", str(value)) for name, value in vars(first.engine_facts).items())
    yield from ((f"the machine's {name.replace('_', ' ')}", str(first.host.get(name))) for name in HOST_FACTS)
    for case in study.cases:
        place = f", {case.study.case}" if case.study.case else ""
        settings = {trial.arm: trial.settings for trial in case.trials}
        for of in case.arms:
            server = of.arm.server_facts
            yield f"the server of {of.arm.name}", server.version or ""
            yield f"the build of {of.arm.name}", server.version_text or ""
            for name in ("CONFIGURE", "CFLAGS"):
                yield f"{name} of {of.arm.name}", server.compiled_with(name)
            for name, value in settings.get(of.arm.arm, {}).items():
                yield f"{name} of {of.arm.name}{place}", str(value)


def find_history(group: Group, machine: str) -> StudyHistory:
    """Return the series of a group with their changes."""
    ordered = sorted(group.recorded, key=lambda one: one.created_unix_s)[-POINTS_MAX:]
    keys = list(dict.fromkeys(key for one in ordered for key in one.values))
    rows = {key: [one for one in ordered if key in one.values] for key in keys}
    points = {
        key: [HistoryPoint(one.file, one.created_unix_s, one.values[key], key.is_change) for one in of]
        for key, of in rows.items()
    }
    study = group.first.first.study
    alpha = 1 - study.plan.confidence
    shuffles = min(SHUFFLES_MAX, max(SHUFFLES_MIN, math.ceil(SHUFFLES_PER_LEVEL * len(keys) / alpha)))
    found = {key: first_cut([point.log for point in of], shuffles) for key, of in points.items()}
    p_values = [cut.p_value if cut else None for cut in found.values()]
    levels = [1 - confidence for confidence in holm_confidences(p_values, study.plan.confidence)]
    series = []
    for key, level in zip(keys, levels, strict=True):
        values = [point.log for point in points[key]]
        cut = cuts(values, level, shuffles) if found[key] else []
        better = points[key][-1].estimate.better
        changes = _changes(values, cut, better, rows[key], study.plan.confidence)
        series.append(HistorySeries(key, better, points[key], level, changes))
    files = [one.file for one in ordered]
    return StudyHistory(study.title, machine, files, series, study.plan.confidence, group.apart)


def _changes(
    values: Sequence[float],
    found: Sequence[Cut],
    better: Better,
    recorded: Sequence[Recorded],
    confidence: float,
) -> list[HistoryChange]:
    edges = [0, *(cut.at for cut in found), len(values)]
    changes = []
    for i, cut in enumerate(found):
        before, after = range(edges[i], cut.at), range(cut.at, edges[i + 2])
        percent = _percent(
            values[before.start : before.stop], values[after.start : after.stop], better, confidence
        )
        good = percent.value > 0 if better is Better.MORE else percent.value < 0
        verdict = Verdict.FASTER if good else Verdict.SLOWER
        differences = _differences(recorded[cut.at - 1], recorded[cut.at])
        changes.append(HistoryChange(cut.at, verdict, percent, cut.p_value, before, after, differences))
    return changes


def _percent(before: Sequence[float], after: Sequence[float], better: Better, confidence: float) -> Estimate:
    """Return the change between means of logs, with Welch's interval.

    ("The generalization of Student's problem", Biometrika 1947.)
    """
    mean = float(np.mean(after) - np.mean(before))
    x, y = (float(np.var(of, ddof=1)) / len(of) for of in (before, after))
    n = len(before) + len(after)
    if x + y == 0:
        reach = 0.0
    else:
        freedom = (x + y) ** 2 / (x**2 / (len(before) - 1) + y**2 / (len(after) - 1))
        reach = distributions.t_quantile((1 + confidence) / 2, freedom) * math.sqrt(x + y)
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
    apart = None
    title = study.first.study.title
    for group in groups:
        if not group.is_on_machine_of(study):
            continue
        found = group.difference(study)
        if found is None:
            return group
        if group.first.first.study.title == title:
            apart = Separation(file, group.recorded[0].file, FileDifference(*found))
    groups.append(Group(study, apart=apart))
    return groups[-1]


def histories(groups: Sequence[Group]) -> list[StudyHistory]:
    """Return the histories in the order in which studies and machines first occur."""
    machines: list[StudyFindings] = []
    found = []
    for group in groups:
        study = group.first.first.study
        known = [i for i, of in enumerate(machines) if is_same_machine(of.first.study.host, study.host)]
        if not known:
            machines.append(group.first)
        number = (known or [len(machines) - 1])[0] + 1
        found.append(find_history(group, f"{number}: {study.host_facts.processor or 'unknown'}"))
    return found
