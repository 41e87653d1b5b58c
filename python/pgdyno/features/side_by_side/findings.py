"""Levels and paired changes of the same arms in several results files, and what differs between the files.

Files ask the same question if they have the same load: workload, clients, rate, schedule, metric of the
verdict. Arms are the same if their specifications are equal, whatever build is behind them.

The change of a level between two files has the interval of Zou and Donner ("Construction of confidence limits
about effect measures", Statistics in Medicine 2008; MOVER): with the estimates a, b and the intervals [l, u]
of both files on the log scale, b − a − √((b − l_b)² + (u_a − a)²) … b − a + √((u_b − b)² + (a − l_a)²). It
is approximate, also with anytime-valid intervals of both files. Blocks of different files are not paired, so
the drift of the machine between the files is a part of the change, and no interval covers it. It cancels in
the change of an arm from its baseline. The difference of two such changes has the same kind of interval.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from pgdyno.analysis.case_findings import ArmFindings, Findings
from pgdyno.analysis.finding_fields import Hidden, about
from pgdyno.analysis.statistics.intervals import method_of, percent_of
from pgdyno.analysis.statistics.pooled_quantiles import BLOCKS_MIN, BlockCounts, quantile_change
from pgdyno.analysis.study_findings import StudyFindings
from pgdyno.analysis.telemetry.metrics import ALL_KINDS, PERCENTILES, SERVER_CPU, latency_key, latency_metric
from pgdyno.analysis.telemetry.percentiles import block_counts, merge_latencies, read_latencies
from pgdyno.caveats import Caveat
from pgdyno.errors import EvidenceError, UsageError
from pgdyno.features.history.changes import facts_of
from pgdyno.features.history.report import day
from pgdyno.features.hosts.identity import flat, is_copy
from pgdyno.results.reader import Evidence
from pgdyno.results.records import TrialStatus
from pgdyno.study.cases import UNLIMITED_S
from pgdyno.units import NS_PER_MS, Better, Estimate, format_duration, format_size, given_number

FILES_MAX = 20
"""Maximum number of files. More of them are a history."""

NAMED_MAX = 8
"""Maximum number of differences that a caveat names; the table has all."""

NO_REASONS = frozenset({"blocks", "the time of the study", "margin", "confidence"})
"""Differences that change no result, only how well it is known or judged. The table has them."""

P99 = latency_key(ALL_KINDS, "p99")

Place = tuple[str, str]
"""Names of a case and of an arm in a file."""


@dataclass(frozen=True)
class ReadFile:
    """A results file. ``p99``: the level with its interval, of arms with BLOCKS_MIN blocks."""

    study: StudyFindings
    p99: Mapping[Place, Estimate]


@dataclass(frozen=True)
class InFile:
    """A value in one file, and its change from the first file that has one. Both null if unknown."""

    file: str
    estimate: Annotated[Estimate | None, about("A level, or a change from the baseline in percent.")]
    change: Annotated[Estimate | None, about("In percent. Null in the first file.")]


@dataclass(frozen=True)
class AcrossFiles:
    """Values of one arm in the files. With a ``baseline``: its paired change from that arm."""

    case: str
    arm: str
    baseline: Annotated[str, about("Empty for a level.")]
    metric: str
    name: Annotated[str, about("Of the metric.")]
    better: Better
    files: Sequence[InFile]

    @property
    def changes(self) -> list[InFile]:
        """The files with a change."""
        return [of for of in self.files if of.change is not None]


@dataclass(frozen=True)
class FilesDifference:
    """A fact that is not the same in all files."""

    name: str
    values: Annotated[Mapping[str, str], about("By file.")]


@dataclass(frozen=True)
class FilesFindings:
    """Files side by side. ``left_out``: cases and arms that only some of the files have."""

    created_unix_s: Annotated[Mapping[str, float], about("By file.")]
    levels: Sequence[AcrossFiles]
    paired: Annotated[Sequence[AcrossFiles], about("Changes from the baseline of the same file.")]
    differences: Sequence[FilesDifference]
    left_out: Sequence[str]
    unfinished: Sequence[str]
    caveats: Sequence[Caveat]
    confidence: float
    studies: Hidden[Mapping[str, StudyFindings]]


def read_p99(path: Path, study: StudyFindings) -> dict[Place, Estimate]:
    """Return the p99 over all blocks of arms with enough blocks for an interval."""
    found = {}
    with Evidence(path, verify=False) as evidence:  # its findings were just read
        for case in study.cases:
            for of in case.arms:
                mine = [t.trial for t in case.trials if t.arm == of.arm.arm and t.status is TrialStatus.OK]
                if len(mine) < BLOCKS_MIN:
                    continue
                blocks = [merge_latencies(read_latencies(evidence, one).values()) for one in mine]
                each = [block.quantiles_ms()["p99"] for block in blocks]
                if any(ms is None or ms.is_bound for ms in each):
                    continue
                counts = block_counts(blocks, PERCENTILES["p99"])
                one = BlockCounts(np.ones(1), counts.totals[:, np.newaxis], counts.totals)
                plan = case.study.plan
                summary = quantile_change(one, counts, PERCENTILES["p99"]).summary(
                    plan.confidence, method_of(plan, case.trials)
                )
                low, high = (end and math.exp(end) / NS_PER_MS for end in (summary.low, summary.high))
                value = math.exp(summary.mean) / NS_PER_MS
                found[case.study.case, of.arm.name] = Estimate(
                    value, "ms", summary.n, Better.LESS, low, high, summary.confidence
                )
    return found


def find_files(files: Mapping[str, ReadFile]) -> FilesFindings:
    """Return what the files have in common, with the changes. Raises UsageError, EvidenceError."""
    if len(files) > FILES_MAX:
        raise UsageError(
            f"--as side-by-side shows at most {FILES_MAX} files (got {len(files)}): use pgdyno history DIR"
        )
    studies = {name: file.study for name, file in files.items()}
    names = list(studies)
    for i, name in enumerate(names):
        for before in names[:i]:
            if is_copy(studies[before].first.study, studies[name].first.study):
                raise EvidenceError(f"{before} and {name} are copies of one file: give one of them")
    cases = {name: {of.study.case: of for of in study.cases} for name, study in studies.items()}
    common = [case for case in cases[names[0]] if all(case in of for of in cases.values())]
    if not common:
        raise EvidenceError(f"{names[0]} and {names[-1]} have no case in common: show each of them alone")
    levels, paired, left_out = list[AcrossFiles](), list[AcrossFiles](), list[str]()
    left_out += [f"{name}: case {case}" for name, of in cases.items() for case in of if case not in common]
    for case in common:
        of_case = {name: of[case] for name, of in cases.items()}
        arms = _same_arms(of_case)
        _require_same_question(of_case, arms)
        same = {id(of) for found in arms for of in found.values()}
        left_out += [
            f"{name}: arm {of.arm.name}{f' in {case}' if case else ''}"
            for name, findings in of_case.items()
            for of in findings.arms
            if id(of) not in same
        ]
        for found in arms:
            levels += _levels(of_case, found, files)
            paired += _paired(of_case, found, arms[0])
    metrics = list(dict.fromkeys(of.metric for of in levels))
    for of_arms in (levels, paired):
        of_arms.sort(key=lambda of: metrics.index(of.metric))
    first = studies[names[0]]
    created = {name: study.first.study.created_unix_s for name, study in studies.items()}
    differences = _differences(studies, {of.arm for of in levels})
    return FilesFindings(
        created,
        levels,
        paired,
        differences,
        left_out,
        [name for name, study in studies.items() if study.first.study.ended_because is None],
        list(_caveats(created, differences)),
        first.confidence,
        studies,
    )


def _caveats(created: Mapping[str, float], differences: Sequence[FilesDifference]) -> Iterator[Caveat]:
    days = list(dict.fromkeys(day(at) for at in sorted(created.values())))
    if len(days) > 1:
        yield Caveat.of("on-different-days", days=", ".join(days))
    else:
        yield Caveat.of("at-different-times", days=days[0])
    reasons = [of.name for of in differences if of.name not in NO_REASONS]
    if reasons:
        rest = len(reasons) - NAMED_MAX
        more = f"; and {rest} more" if rest > 0 else ""
        named = "; ".join(reasons[:NAMED_MAX]) + more
        yield Caveat.of("files-differ", differences=named)


SameArm = Mapping[str, ArmFindings]
"""File → its arm with the same specification."""


def _same_arms(cases: Mapping[str, Findings]) -> list[SameArm]:
    """Return the arms that at least two files have, in the order of the files. Raises EvidenceError."""
    found: dict[str, dict[str, ArmFindings]] = {}
    for name, case in cases.items():
        seen = Counter[str]()  # arms of an A/A comparison have the same specification
        for spec, of in zip(case.study.plan.arms, case.arms, strict=True):
            key = repr(spec.model_dump(exclude={"name", "is_named"}))
            seen[key] += 1
            found.setdefault(f"{key} {seen[key]}", {})[name] = of
    same: list[SameArm] = [of for of in found.values() if len(of) > 1]
    if not same:
        listed = "; ".join(f"{name}: {', '.join(of.arm.spec for of in c.arms)}" for name, c in cases.items())
        raise EvidenceError(
            f"the files have no arm with the same specification ({listed}): measure one of them again with "
            "the arms of another, written in the same way"
        )
    return same


def _require_same_question(cases: Mapping[str, Findings], arms: Sequence[SameArm]) -> None:
    """Raise EvidenceError for the first difference of the loads of an arm."""
    for same in arms:
        (first, one), *others = ((name, _question(cases[name], of)) for name, of in same.items())
        for name, other in others:
            for what in dict.fromkeys([*one, *other]):
                here, there = one.get(what, "nothing"), other.get(what, "nothing")
                if here != there:
                    raise EvidenceError(
                        f"{first} and {name} do not ask the same question: {what} differs ({here} vs. "
                        f"{there}). Show each file alone, or measure again with the options of {first}: "
                        f"{cases[first].study.command}"
                    )


def _question(case: Findings, of: ArmFindings) -> dict[str, str]:
    """Return what determines the load of an arm, by name."""
    plan = case.study.plan
    driving = plan.driving(of.arm.arm)
    values: dict[str, Any] = {
        "workload": driving.workload.kind,
        "clients": of.arm.clients,
        **dict(flat(driving.workload.model_dump(mode="json"), "workload")),
        "pacing": driving.pacing,
        "rate": driving.rate,
        "schedule": plan.schedule,
        "capacity": plan.capacity,
        "cache state": plan.cache_state,
        "metric": case.primary.key,
    }
    return {what: str(value) for what, value in values.items()}


def _levels(
    cases: Mapping[str, Findings], same: SameArm, files: Mapping[str, ReadFile]
) -> Iterator[AcrossFiles]:
    case = next(iter(cases.values()))
    name = next(iter(same.values())).arm.name
    metrics = dict.fromkeys((case.primary, latency_metric(ALL_KINDS, "p99"), SERVER_CPU))
    for metric in metrics:
        found: dict[str, Estimate | None] = {}
        for file, of in same.items():
            if metric.key == P99:
                found[file] = files[file].p99.get((case.study.case, of.arm.name)) or _p99_alone(of)
            else:
                found[file] = of.levels.get(metric.key)
        name_of_metric = "p99 latency" if metric.key == P99 else metric.name
        if any(found.values()):
            changes = _changes(found, metric.better)
            of_metric = metric.key, name_of_metric, metric.better
            yield AcrossFiles(case.study.case, name, "", *of_metric, changes)


def _p99_alone(of: ArmFindings) -> Estimate | None:
    """Return the p99 without an interval; None if it is unknown, or only a lower bound is known."""
    ms, blocks = of.quantiles_ms(ALL_KINDS)["p99"], of.trials_by_status.get(TrialStatus.OK, 0)
    return None if ms is None or ms.is_bound else Estimate(ms.value, "ms", blocks, Better.LESS)


def _paired(cases: Mapping[str, Findings], same: SameArm, baseline: SameArm) -> Iterator[AcrossFiles]:
    """Yield the change of an arm from the baseline in each file whose baseline is the same arm.

    Unknown if the file holds it back, since an estimate without the worst blocks is biased.
    """
    found: dict[str, Estimate | None] = {}
    for file, of in same.items():
        if file not in baseline or baseline[file].arm.arm != 0 or of.arm.arm == 0:
            continue
        (comparison,) = (one for one in cases[file].comparisons if one.arm.arm == of.arm.arm)
        primary = None if comparison.is_held_back else comparison.primary
        found[file] = primary.percent if primary else None
    if sum(of is not None for of in found.values()) > 1:
        case, first = next(iter(cases.values())), next(iter(found))
        metric = case.primary
        of_files = _changes(found, metric.better)
        names = same[first].arm.name, baseline[first].arm.name
        yield AcrossFiles(case.study.case, *names, metric.key, metric.name, metric.better, of_files)


def _changes(found: Mapping[str, Estimate | None], better: Better) -> list[InFile]:
    """Return the values with their changes from the first known one."""
    known = [of for of in found.values() if of is not None and (of.unit == "%" or of.value > 0)]
    result, is_first = [], True
    for file, of in found.items():
        change = None
        if of is not None and of in known and not is_first:
            change = change_between(known[0], of, better)
        is_first = is_first and of not in known
        result.append(InFile(file, of, change))
    return result


def change_between(a: Estimate, b: Estimate, better: Better) -> Estimate:
    """Return (b − a) / a in percent, of levels or of ratios in percent, with the interval of both (MOVER).

    Without an interval if either has none, or another confidence.
    """
    mean = _log(b, b.value) - _log(a, a.value)
    n = min(a.n, b.n)
    if a.low is None or a.high is None or b.low is None or b.high is None or a.confidence != b.confidence:
        return Estimate(percent_of(mean), "%", n, better, confidence=a.confidence)
    below = math.hypot(_log(b, b.value) - _log(b, b.low), _log(a, a.high) - _log(a, a.value))
    above = math.hypot(_log(b, b.high) - _log(b, b.value), _log(a, a.value) - _log(a, a.low))
    low, high = percent_of(mean - below), percent_of(mean + above)
    return Estimate(percent_of(mean), "%", n, better, low, high, a.confidence)


def _log(of: Estimate, value: float) -> float:
    return math.log1p(value / 100) if of.unit == "%" else math.log(value)


def _differences(studies: Mapping[str, StudyFindings], arms: set[str]) -> list[FilesDifference]:
    """Return the facts that differ, without the times of the measurements."""
    facts = {name: {**_conditions(study, arms), **facts_of(study, arms)} for name, study in studies.items()}
    names = dict.fromkeys(name for of in facts.values() for name in of)
    found = [FilesDifference(name, {file: of.get(name, "") for file, of in facts.items()}) for name in names]
    return [of for of in found if len(set(of.values.values())) > 1]


def _conditions(study: StudyFindings, arms: set[str]) -> dict[str, str]:
    first = study.first
    plan = first.study.plan
    budget_s = len(study.cases) * plan.budget_s
    found = {
        "machine": str(first.study.host.get("machine", ""))[:12],
        "the time of the study": "" if plan.budget_s >= UNLIMITED_S else format_duration(budget_s),
        "blocks": str(first.blocks_max),
        "window": "" if plan.window_s is None else format_duration(plan.window_s),
        "slice": "" if plan.turn_s is None else format_duration(plan.turn_s),
        "warm-up": format_duration(plan.warmup_s),
        "retries": str(plan.retries_max),
        "margin": given_number(plan.margin),
        "confidence": given_number(plan.confidence),
        "probes": ", ".join(plan.probes),
    }
    for of in first.arms:
        size = of.arm.dataset.get("size_bytes")
        if of.arm.name in arms and size is not None:
            found[f"the data of {of.arm.name}"] = format_size(int(size))
    return found
