"""Why: the breakdown of the change by resource and statement, and their charts.

- Charts over time, one per block: throughput with checkpoints, and the WAL rate of longer windows.
- Sentences and tables on why an arm is faster or slower, from the breakdown of time.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

import numpy as np
from markupsafe import Markup

from pgdyno.analysis import time_breakdown as of
from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.steady_state import checkpoint_starts
from pgdyno.analysis.telemetry.samples import POINTS_MAX, ThroughputPoint, rates
from pgdyno.analysis.time_breakdown import TimeBreakdown, TimePart, Waterfall
from pgdyno.hooks import Hooks
from pgdyno.report.document import Table
from pgdyno.report.plot import (
    DOTS_MAX,
    Frame,
    Panel,
    Scale,
    arm_class,
    circle,
    element,
    linear,
    plot,
    polyline,
)
from pgdyno.report.result_tables import NAME_IN_HEAD_MAX, enumeration, with_interval
from pgdyno.results.records import SampleSeries, Trial
from pgdyno.study.plan import VERDICT_BLOCKS_MIN
from pgdyno.study.schedule import Role
from pgdyno.units import (
    ABSENT,
    NO_BREAK,
    PER_MIB,
    Estimate,
    ci_text,
    counted,
    decimals_of,
    group_digits,
    share_text,
    significant,
    with_unit,
)

# ----------------------------------------------------------------------
# Charts over time, one per block: throughput with checkpoints, and the WAL rate of longer windows.
# ----------------------------------------------------------------------

WINDOW_S_MIN = 30.0
"""Minimum window with a chart of the WAL rate: the table is enough for a shorter one."""

WAL_RATE_MIN = 0.1
"""Minimum mean rate with such a chart, in MiB/s: that of reads is lower, with peaks of the server's own."""

PANELS_MAX, PANELS_MIN = 120, 4
"""Number of charts of blocks: at most over all cases, at least of each. A page of 720 blocks had 4 MB.
``pgdyno serve`` shows all of them."""

TICK_DISTANCE_MIN = 2.0
"""Minimum distance of ticks in pixels; nearer ones are merged. Without merging, 200 hours with a checkpoint
per second made a page of 84 MB."""


@dataclass(frozen=True)
class TimelineMark:
    """A triangle on the time axis of the throughput of a trial. ``title``: its tooltip."""

    trial: int
    at_s: float
    title: str


@dataclass(frozen=True)
class TimelineMarks:
    """Marks of a feature. ``note`` explains them."""

    find: Callable[[Findings], Sequence[TimelineMark]]
    note: str


TIMELINE_MARKS = Hooks[TimelineMarks]("timeline_marks")


SMALL = Frame(280.0, 38.0, 10.0, 18.0, 124.0)


def throughput_timelines(findings: Findings) -> list[Panel]:
    """Return the rate of each arm over time, with checkpoints and marks; all blocks have the same scale."""
    ticks = {trial: checkpoint_starts(series) for trial, series in findings.telemetry.series.items()}
    marks: dict[int, list[TimelineMark]] = {}
    for of_feature in TIMELINE_MARKS:
        for mark in of_feature.find(findings):
            marks.setdefault(mark.trial, []).append(mark)
    return panels(findings, findings.series, "tx/s", ticks, marks)


def wal_rates(findings: Findings) -> list[Panel]:
    """Return the WAL rate in MiB/s, from samples of the server per second; none of short windows or reads."""
    points = {trial: wal_rate(series) for trial, series in findings.telemetry.series.items()}
    every = [point.per_s for of in points.values() for point in of]
    if not every or np.mean(every) < WAL_RATE_MIN:
        return []
    return panels(findings, points, "MiB/s", {}, {})


def timeline_note(findings: Findings) -> str:
    """Return the note on the charts of the throughput."""
    parts = [
        "One panel per block, all with the same scale from zero. Each point is one driver interval, or the "
        "mean of several in long windows. Warm-up is faint."
    ]
    if any(checkpoint_starts(series) for series in findings.telemetry.series.values()):
        parts.append(
            "Ticks at the top mark checkpoint starts; one tick may stand for several and shows their number."
        )
    parts.append(shown_blocks(findings))
    parts += [of_feature.note for of_feature in TIMELINE_MARKS if of_feature.find(findings)]
    return " ".join(filter(None, parts))


def shown_blocks(findings: Findings) -> str:
    """Return a sentence on the blocks that charts over time omit; empty if they have all."""
    blocks = {trial.block for trial in findings.trials if findings.series.get(trial.trial)}
    if len(blocks) <= _panels_max(findings):
        return ""
    return f"{_panels_max(findings)} of {len(blocks)} blocks are shown; Explore of pgdyno serve has all."


def _panels_max(findings: Findings) -> int:
    return max(PANELS_MIN, PANELS_MAX // findings.cases)


def wal_rate(series: SampleSeries) -> list[ThroughputPoint]:
    """Return the WAL rate, averaged over samples so that there are at most POINTS_MAX points."""
    if not len(series.points) or series.points[-1, 0] - series.points[0, 0] < WINDOW_S_MIN:
        return []
    step = -(-len(series.points) // POINTS_MAX)
    found = rates(SampleSeries(series.probe, series.columns, series.points[::step]))
    per_s = found.per_s.get("lsn_bytes", np.array([])) * PER_MIB
    return [
        ThroughputPoint(float(at_s), float(rate), Role.MEASURE)
        for at_s, rate in zip(found.at_s, per_s, strict=False)
        if np.isfinite(rate)
    ]


def panels(
    findings: Findings,
    points: Mapping[int, Sequence[ThroughputPoint]],
    unit: str,
    ticks: Mapping[int, Sequence[float]],
    marks: Mapping[int, Sequence[TimelineMark]],
) -> list[Panel]:
    """Return a panel per block of values over time by trial, with ticks for checkpoints and with marks.

    Of too many blocks, those shown are spread evenly, the first and the last included.
    """
    by_block: dict[int, list[Trial]] = {}
    for trial in findings.trials:
        if points.get(trial.trial):
            by_block.setdefault(trial.block, []).append(trial)
    top = max((point.per_s for of_trial in points.values() for point in of_trial), default=0.0) * 1.05
    if top <= 0:
        return []
    names = {of.arm.arm: of.arm.name for of in findings.arms}
    blocks = sorted(by_block)
    shown = np.linspace(0, len(blocks) - 1, min(len(blocks), _panels_max(findings))).round().astype(int)
    return [
        Panel(f"block {block + 1}", _picture(by_block[block], names, points, top, unit, ticks, marks))
        for block in (blocks[at] for at in shown)
    ]


def _picture(
    trials: Sequence[Trial],
    names: Mapping[int, str],
    points: Mapping[int, Sequence[ThroughputPoint]],
    top_rate: float,
    unit: str,
    ticks: Mapping[int, Sequence[float]],
    marks: Mapping[int, Sequence[TimelineMark]],
) -> Markup:
    end = max(point.at_s for trial in trials for point in points[trial.trial])
    x = linear((0.0, end), 4, padding=0.0)
    x = replace(x, ticks=[(tick, f"{shown} s" if tick else "0") for tick, shown in x.ticks])

    def draw(x: Scale, y: Scale) -> Iterator[Markup]:
        for trial in trials:
            color = arm_class(trial.arm)
            yield from checkpoint_ticks(
                [at_s for at_s in ticks.get(trial.trial, ()) if at_s <= end], x, color
            )
            yield from (_triangle(mark, x, color) for mark in marks.get(trial.trial, ()))
            for role, kind in ((Role.WARM_UP, "faint"), (Role.MEASURE, "")):
                chosen = [point for point in points[trial.trial] if point.role is role]
                yield from _one_line(chosen, x, y, names[trial.arm], unit, f"{color} {kind}".strip())

    y = linear((0.0, top_rate), 4, title=unit, padding=0.0)
    return plot(f"{unit} over time", x, y, [draw], SMALL, class_="rates")


def checkpoint_ticks(moments: Sequence[float], x: Scale, color: str) -> list[Markup]:
    """Return a tick for each checkpoint; overlapping ticks are merged."""
    together: list[list[float]] = []
    for at_s in moments:
        if together and x(at_s) - x(together[-1][0]) < TICK_DISTANCE_MIN:
            together[-1].append(at_s)
        else:
            together.append([at_s])
    return [_tick(of, x(of[0]), color) for of in together]


def _tick(moments: Sequence[float], at: float, color: str) -> Markup:
    first = group_digits(moments[0], 0)
    one = f"checkpoint started by {first} s"
    several = f"{len(moments)} checkpoints started by {first} to {group_digits(moments[-1], 0)} s"
    title = element("title", one if len(moments) == 1 else several)
    return element("line", title, x1=at, y1=SMALL.top - 9, x2=at, y2=SMALL.top - 1, class_=f"tick {color}")


def _triangle(mark: TimelineMark, x: Scale, color: str) -> Markup:
    """Return a triangle on the axis."""
    at = x.inside(mark.at_s)
    title, low = element("title", mark.title), SMALL.bottom - 0.5
    corners = f"{at:g},{SMALL.bottom - 6:g} {at - 3.2:g},{low:g} {at + 3.2:g},{low:g}"
    return element("polygon", title, points=corners, class_=f"dot {color}")


def _one_line(
    points: Sequence[ThroughputPoint], x: Scale, y: Scale, name: str, unit: str, class_: str
) -> list[Markup]:
    if not points:
        return []
    drawn = [polyline([(x(p.at_s), y(p.per_s)) for p in points], class_=f"rate {class_}")]
    # More dots would hide the line: the others have only a tooltip.
    each = -(-len(points) // DOTS_MAX)
    radius, look = (1.7, f"dot {class_}") if each == 1 else (4.0, "hit")
    for p in points[::each]:
        title = f"{name}: {significant(p.per_s, 3)} {unit} at {group_digits(p.at_s, 1)} s"
        drawn.append(circle(x(p.at_s), y(p.per_s), radius, title, class_=look))
    return drawn


# ----------------------------------------------------------------------
# Sentences and tables on why an arm is faster or slower, from the breakdown of time.
# ----------------------------------------------------------------------

TEXT_MAX = 64
TEXT_IN_SENTENCE_MAX = 40
"""Maximum length of a statement in tables and charts, and in sentences; the JSON has the whole text."""

NAMED_MAX = 3
"""Maximum number of parts in a sentence. The table has all."""

LIKELY_P_MAX = 0.05
"""Largest p value, uncorrected for the other parts, of a largest cause that comes before certain ones."""

FACTOR_MIN = 10.0
"""Ratio of the arms from which sentences have a factor: 99.9% and 99.99% slower look alike."""

NAMED_SHARE_MIN = 0.05
"""Smallest change that a sentence names, as a share of the whole difference and of the largest change."""

_PARTS = tomllib.loads(files(__package__).joinpath("time_parts.toml").read_text("utf-8"))


def _texts(field: str) -> dict[str, str]:
    """Return the texts of the parts that have this field."""
    return {key: part[field] for key, part in _PARTS.items() if field in part}


NAMES = _texts("name")
"""Names of the parts in tables, in their order."""

IN_SENTENCES = {**{key: f"in {name}" for key, name in NAMES.items()}, **_texts("in_sentence")}

NOT_CAUSES = _texts("consequence")


def why_sentences(why: TimeBreakdown, verdict: Verdict) -> list[str]:
    """Return sentences on the whole and its parts: causes first, by direction and size.

    After a difference they name a resource and a statement, if not as significant then as the largest. An
    undecided verdict gets one text, which the first screen omits.
    """
    either = why.by_resource or why.by_statement
    assert either is not None
    whole = either.total
    is_told = verdict in {Verdict.FASTER, Verdict.SLOWER}
    if whole.difference.n < VERDICT_BLOCKS_MIN and not is_told:
        return []
    waterfalls = (("resource", why.by_resource), ("statement", why.by_statement))
    found = [one for by, of in waterfalls if of for one in _of_parts(by, of, is_told=is_told)]
    if verdict is Verdict.UNDECIDED:
        return [" ".join([_of_undecided(why, whole), *([SOME_PARTS, *found] if found else [NO_PART])])]
    return [_of_whole(why, whole), *(found or [NO_PART])]


def _of_undecided(why: TimeBreakdown, whole: TimePart) -> str:
    """Return the sentence of an undecided verdict; its CI may exclude 0 while below the noise floor."""
    return (
        f"The time breakdown of {why.arm.name} vs. {why.baseline.name} is inconclusive, too: {_what(why)} "
        f"differs by {whole.difference.signed_text} ({_basis(whole, signed=True)})."
    )


NO_PART, SOME_PARTS = "No part differs significantly.", "These parts differ significantly."


def _what(why: TimeBreakdown) -> str:
    return "the mean latency" if why.latency else "the time per transaction"


def _basis(whole: TimePart, *, signed: bool = False) -> str:
    change = whole.difference
    within = change.signed_interval_text
    if not signed and whole.significant and change.low is not None and change.high is not None:
        # The word "less" contains the sign.
        within = with_unit((change if change.value > 0 else _negated(change)).interval_text, change.unit)
    return f"{ci_text(change.confidence)} {within}, {counted(change.n, 'block')}"


def _negated(change: Estimate) -> Estimate:
    assert change.low is not None and change.high is not None
    return replace(change, value=-change.value, low=-change.high, high=-change.low)


def _of_whole(why: TimeBreakdown, whole: TimePart) -> str:
    a, b, change = why.baseline.name, why.arm.name, whole.difference
    basis, what = _basis(whole), _what(why)
    if change.n < VERDICT_BLOCKS_MIN:
        return (
            f"Too few blocks for certainty: {what} of {b} vs. {a} differs by {change.signed_text} ({basis})."
        )
    if not whole.significant:
        return f"No significant difference in {what} between {b} and {a}: {change.signed_text} ({basis})."
    (less, fast), (more, slow) = sorted(((whole.a_us, a), (whole.b_us, b)))
    if less > 0 and more / less >= FACTOR_MIN:
        size, basis = f"{significant(more / less, 3)} times as long", _basis(whole, signed=True)
        return f"{slow} needs {size} per transaction as {fast}: {change.signed_text} ({basis})."
    size = f"{_size(whole)} ({share_text(abs(change.value) / whole.a_us)}) {_more_or_less(whole)}"
    return f"{b} needs {size} per transaction than {a} ({basis})."


def _of_parts(by: str, waterfall: Waterfall, *, is_told: bool) -> list[str]:
    parts = _named(waterfall)
    largest = _largest_cause(waterfall) if is_told else []
    said = _largest(by, largest, parts)
    is_certain = any(_is_onward(part, waterfall) for part in parts)
    is_first = any(_is_onward(one, waterfall) and (_is_likely(one) or not is_certain) for one in largest)
    is_unsure = is_first and any(not one.significant for one in largest)
    found = [f"{'Significant' if is_unsure else f'By {by}'}: {_listed(parts)}."] if parts else []
    found = said + found if is_first else found + said
    for part in waterfall.parts:
        if part.key in waterfall.consequences and part.significant:
            found.append(f"{_size(part)} {_more_or_less(part)} {NOT_CAUSES[part.key]}")
    return found


def _largest(by: str, largest: Sequence[TimePart], named: Sequence[TimePart]) -> list[str]:
    """Return a sentence with the largest cause, unless it is named."""
    return [
        f"Largest {by}{'' if one.significant else ' without certainty'}: {_listed([one])} "
        f"({_basis(one, signed=True)})."
        for one in largest
        if one not in named
    ]


def _largest_cause(waterfall: Waterfall) -> list[TimePart]:
    """Return the largest cause with the direction of the whole, or the largest of all; empty without one."""

    def rank(part: TimePart) -> tuple[bool, float]:
        return _is_onward(part, waterfall), abs(part.difference.value)

    return sorted((part for part in waterfall.parts if _is_cause(part, waterfall)), key=rank)[-1:]


def _is_onward(part: TimePart, waterfall: Waterfall) -> bool:
    """Return whether a part changes in the direction of the whole."""
    return part.difference.value * waterfall.total.difference.value > 0


def _is_likely(part: TimePart) -> bool:
    """Return whether a part would be significant if it were the only one."""
    return part.p_value is not None and part.p_value <= LIKELY_P_MAX


def _is_cause(part: TimePart, waterfall: Waterfall) -> bool:
    """Return whether a part is a resource or a statement, and neither queueing nor the rest of a whole."""
    return part.key not in waterfall.consequences and part.key not in _texts("rest")


def _named(waterfall: Waterfall) -> list[TimePart]:
    """Return the significant parts except consequences: causes, then rests, each by direction and size."""
    found = [part for part in waterfall.parts if part.significant and part.key not in waterfall.consequences]
    largest = max(
        (abs(part.difference.value) for part in (waterfall.total, *found) if part.significant), default=0.0
    )
    shown = [part for part in found if abs(part.difference.value) >= NAMED_SHARE_MIN * largest]

    def rank(part: TimePart) -> tuple[bool, bool, float]:
        return not _is_cause(part, waterfall), not _is_onward(part, waterfall), -abs(part.difference.value)

    return sorted(shown, key=rank)[:NAMED_MAX]


def _listed(parts: Sequence[TimePart]) -> str:
    """Return the changes of parts, with their shares of a significant difference of the whole."""
    changes = [f"{_size(part)} {_more_or_less(part)} {_in_sentence(part.key)}" for part in parts]
    shares = [f" ({share_of_difference(part.share)})" if part.share else "" for part in parts]
    first = next((i for i, share in enumerate(shares) if "%" in share), 0)
    shares[first] = shares[first].replace("%)", "% of the difference)")
    return enumeration([change + share for change, share in zip(changes, shares, strict=True)])


def share_of_difference(share: Estimate, interval: str = "") -> str:
    """Return a share in percent with its interval, or in words unless it is between 0 and 100%.

    Parts that rise and parts that fall add up to the difference: a share beyond it is no fraction.
    """
    if share.value < 0:
        return "in the opposite direction"
    if round(share.value) > 100:
        return "more than the whole difference"
    return f"{share.value_text}{interval}" if interval else share_text(share.value / 100)


def _in_sentence(key: str) -> str:
    if key.startswith(f"{of.STATEMENT}:"):
        return f"in “{short(key.partition(':')[2], TEXT_IN_SENTENCE_MAX)}”"
    return IN_SENTENCES[key]


def _size(part: TimePart) -> str:
    # Without its interval, whose end near zero has more decimals than the value supports.
    change = part.difference
    decimals = min(2, change.decimals, max(0, decimals_of(change.value, 3)))
    return f"{group_digits(abs(change.value), decimals)}{NO_BREAK}µs"


def _more_or_less(part: TimePart) -> str:
    return "less" if part.difference.value < 0 else "more"


def short(text: str, length: int = TEXT_MAX) -> str:
    """Return a statement, shortened to ``length``."""
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"


def part_name(key: str, length: int = TEXT_MAX) -> str:
    """Return the name of a part in tables and charts."""
    kind, _, text = key.partition(":")
    return short(text, length) if kind == of.STATEMENT else NAMES[key]


@dataclass(frozen=True)
class WhyReport:
    """One arm: sentences for the top of the report, and a table for each breakdown of the time."""

    why: TimeBreakdown
    sentences: Sequence[str]
    tables: Sequence[Table]

    @property
    def causes(self) -> str:
        """The sentences on causes; empty if no part differs."""
        others = (NO_PART, *NOT_CAUSES.values())
        return " ".join(one for one in self.sentences[1:] if not one.endswith(others))

    @property
    def largest(self) -> str:
        """The largest cause by resource and by statement."""
        waterfalls = filter(None, (self.why.by_resource, self.why.by_statement))
        causes = [one for of in waterfalls for one in _largest_cause(of)]
        return "; ".join(
            f"{_listed([one])}{'' if one.significant else ' (without certainty)'}" for one in causes
        )


def why_reports(findings: Findings) -> list[WhyReport]:
    """Return a report for each arm with data from the probes."""
    verdicts = {of.arm.arm: of.verdict for of in findings.comparisons}
    return [
        WhyReport(one, why_sentences(one, verdicts[arm]), tables(one, findings))
        for arm, one in findings.time_breakdowns.items()
        if one.by_statement or one.by_resource
    ]


def tables(why: TimeBreakdown, findings: Findings) -> list[Table]:
    """Return the breakdowns of the time by resource and by statement."""
    several = f", {why.arm.name}" if len(findings.arms) > 2 else ""
    is_decided = any(
        of.arm.arm == why.arm.arm and of.verdict is not Verdict.UNDECIDED for of in findings.comparisons
    )
    found = []
    for title, waterfall, note in (
        ("by resource", why.by_resource, _note_on_resources(why)),
        ("by statement", why.by_statement, _note_on_statements(why)),
    ):
        if waterfall is not None:
            head = f"Time per transaction {title}{several}, µs"
            shares = _shares(waterfall) if is_decided else []
            sources = _sources(why) if waterfall is why.by_resource else {}
            found.append(_table(head, why, waterfall, " ".join([note, *shares]), sources))
    return found


def _table(
    title: str, why: TimeBreakdown, waterfall: Waterfall, note: str, sources: Mapping[str, str]
) -> Table:
    whole = "mean latency" if why.latency else "whole"
    names = (("A", why.baseline.name), ("B", why.arm.name))
    heads = [f"{of}: {name}" if len(name) <= NAME_IN_HEAD_MAX else of for of, name in names]
    full_names = [f"{of} is {name}." for of, name in names if len(name) > NAME_IN_HEAD_MAX]
    columns = ("part", *heads, "B − A")
    parts = [waterfall.total, *in_order(waterfall)]
    rows = [_row(part_name(part.key) if part.key else whole, part) for part in parts]
    if sources:
        rows = [[*row, sources.get(part.key, "samples")] for row, part in zip(rows, parts, strict=True)]
    return Table(
        f"{title} (lower is better)",
        (*columns, "source") if sources else columns,
        rows,
        " ".join([*full_names, note]),
        frozenset(columns[1:]),
        dispensable=(*(["source"] if sources else []), *columns[1:3]),
        breaks_first=True,
    )


def in_order(waterfall: Waterfall) -> list[TimePart]:
    """Return resources in the order of NAMES, after the statements in descending order of time."""
    place = {key: i for i, key in enumerate(NAMES)}
    return sorted(waterfall.parts, key=lambda part: (place.get(part.key, -1), -max(part.a_us, part.b_us)))


def _row(name: str, part: TimePart) -> list[str]:
    if not any(part.by_block.values()) and part.a_us == part.b_us == 0:
        return [name, "0", "0", "0"]
    mark = " *" if part.significant else ""
    return [
        name,
        _level(part.a_us),
        _level(part.b_us),
        with_interval(part.difference, part.difference.confidence) + mark,
    ]


def _level(us: float) -> str:
    return ABSENT if us == 0 else group_digits(us, min(2, decimals_of(us, 3)))


def _sources(why: TimeBreakdown) -> dict[str, str]:
    """Return the sources by part; that of the whole is the driver."""
    return {"": "driver", **dict.fromkeys(why.clocks, "clock, samples"), **_texts("source")}


def _note_on_resources(why: TimeBreakdown) -> str:
    has_queue = why.by_resource and any(part.key == of.RUNNABLE for part in why.by_resource.parts)
    said = [_NOTE, *([_QUEUE] if has_queue else [])]
    if why.clocks:
        timed = enumeration([NAMES[kind] for kind in why.clocks])
        scaled = "" if why.scaled is None else ", scaled like samples"
        said.append(
            f"{timed}: calls by the clock of the server{scaled}; waits for another process by samples."
        )
    if why.cpu_is_of_all:
        said.append("CPU time includes all server processes, because that of client backends is unknown.")
    if why.samples:
        samples = counted(round(why.samples), "sample")
        if why.scaled is None:
            said.append(f"Wait shares come from {samples} of pg_stat_activity.")
        else:
            said.append(
                f"Wait shares come from {samples} of pg_stat_activity and are scaled by "
                f"{group_digits(why.scaled, 2)} to match the kernel's measured wait time (a woken backend "
                "still shows its wait event until it gets a CPU)."
            )
    said += _too_much(why.by_resource)
    return " ".join(said)


def _note_on_statements(why: TimeBreakdown) -> str:
    said = [_NOTE, "Outside statements: parsing, commit and its WAL, protocol, network, driver."]
    said += _too_much(why.by_statement)
    if why.twice:
        said.append(
            f"{enumeration(list(why.twice))}: statements inside functions are counted twice, because "
            "pg_stat_statements before 14 does not distinguish them."
        )
    return " ".join(said)


_NOTE = (
    "*: significant; the CIs are corrected for all parts (Holm). The parts add up to the whole. "
    "Levels are as measured; B − A is scaled to the same speed of the machine in all blocks."
)
_QUEUE = "Runnable processes queue for a CPU after any wait: a consequence of the other parts, not a cause."
_TOO_MUCH = "A negative residual means that the measured parts exceed the whole by that amount."


def _shares(waterfall: Waterfall) -> list[str]:
    """Return a sentence with the shares of the named parts in the difference of the whole."""
    named = [(part, part.share) for part in _named(waterfall) if part.share]
    shares = [
        f"{_in_sentence(part.key).removeprefix('in ')} "
        f"{share_of_difference(share, f' {share.interval_text}')}"
        for part, share in named
    ]
    confidence = waterfall.total.difference.confidence
    return [f"Shares of the difference ({ci_text(confidence)}): {enumeration(shares)}."] if shares else []


def _too_much(waterfall: Waterfall | None) -> list[str]:
    parts = waterfall.parts if waterfall else ()
    return [_TOO_MUCH] if any(part.a_us < 0 or part.b_us < 0 for part in parts) else []
