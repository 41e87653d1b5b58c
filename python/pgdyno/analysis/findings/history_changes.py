"""Series of values of a repeated study over time, their change points, and other recorded changes.

A series contains results with the same request (``same_study``), on the same machine, fitted to the same load
and windows. The build behind a version or a directory, the kernel, and pgdyno itself may change: a history
shows their effects. Another machine, another study file or fit, or other options start another series.

Each case has a series of every arm's change from the baseline, in which the machine's own drift cancels, and
one of every arm's level.

- Changes from the baseline are tested after each file (``confirmed_changes``), and gates use them. All those
  of a study on a machine are one family. In 365 files without a change, the probability of any confirmed one
  is at most 1 − confidence.
- Levels contain the drift of the machine, so no gate uses them. They are cut by E-divisive means
  (``change_points``), as a description. Holm's correction is over their first cuts. If files were independent
  and nothing changed, the probability of any cut would be at most 1 − confidence in each evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

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
from pgdyno.analysis.statistics.confirmed_changes import detect_changes, values_min
from pgdyno.analysis.statistics.effect import holm_confidences, percent_of
from pgdyno.analysis.telemetry.metrics import METRICS
from pgdyno.estimate import Better, Estimate
from pgdyno.results.records import StudyRecord

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

    The interval assumes that the place of the change is known and that files are independent.
    ``confirmed_at`` is the index of the file that confirmed it. It is None for a change of a level, and for
    one that awaits confirmation.
    """

    at: int
    verdict: Verdict
    percent: Estimate
    p_value: float
    before: range
    after: range
    differences: Sequence[FileDifference]
    confirmed_at: int | None = None


@dataclass(frozen=True)
class HistorySeries:
    """Points in order of time. ``level`` is the level of the tests for its changes.

    ``changes`` are confirmed, except those of a level. ``awaiting`` is a change that the newest file shows
    and a further file must confirm. Below ``points_min`` points no change can be found.
    """

    key: Key
    better: Better
    points: Sequence[HistoryPoint]
    level: float
    changes: Sequence[HistoryChange]
    awaiting: HistoryChange | None = None
    points_min: int = POINTS_MIN

    @property
    def is_too_short(self) -> bool:
        """True if it has too few points for a change."""
        return len(self.points) < self.points_min


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


@dataclass
class Group:
    """Files of one study and machine, while they are read. The first one represents all."""

    first: StudyFindings
    recorded: list[Recorded] = field(default_factory=list)
    separation: Separation | None = None

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
            yield f"the extensions of {of.arm.name}", server.extensions_shown
            for name in ("CONFIGURE", "CFLAGS"):
                yield f"{name} of {of.arm.name}", server.compiled_with(name)
            for name, value in settings.get(of.arm.arm, {}).items():
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
    return StudyHistory(study.title, machine, files, of_all, confidence, group.separation, differences)


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
    reach = distributions.t_quantile((1 + confidence) / 2, n - 2) * error
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
    separation = None
    title = study.first.study.title
    for group in groups:
        if not group.is_on_machine_of(study):
            continue
        found = group.difference(study)
        if found is None:
            return group
        if group.first.first.study.title == title:
            separation = Separation(file, group.recorded[0].file, FileDifference(*found))
    groups.append(Group(study, separation=separation))
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
