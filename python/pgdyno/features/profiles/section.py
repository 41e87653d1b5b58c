"""CPU profiles: the functions with most CPU time, their changes, and differential flame graphs.

The width of a frame is the CPU time per transaction in a function and its callees, averaged over both arms.
Functions of only one arm are therefore visible. Red frames grew and blue frames shrank beyond noise. The
color is stronger if the change is a larger share of the total. Changes within noise have no color, because a
graph of two equal arms would be full of them. A tooltip has the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from markupsafe import Markup

from pgdyno.analysis.case_findings import Findings
from pgdyno.features.profiles.findings import Frame, FunctionChange, ProfileComparison, profiles_of
from pgdyno.report.document import Section, Table, tables_section
from pgdyno.report.json_format import Result
from pgdyno.report.plot import Panel, drawing, element, text
from pgdyno.report.result_tables import in_a_head
from pgdyno.study.plan import VERDICT_BLOCKS_MIN
from pgdyno.units import bracketed, counted, decimals_of, group_digits, share_text, signed, significant


def sections(findings: Findings) -> Iterator[Section]:
    """Yield the table by function and the flame graphs of a case."""
    profiles = profiles_of(findings)
    yield replace(tables_section("cpu-by-function", [cpu_by_function(findings, profiles)]), after="results")
    yield Section(
        "flames",
        "Server CPU time per transaction",
        plots=partial(flames, profiles),
        plots_size="effects",
        plots_note="Differential flame graph. The width of a frame is the CPU time of a function and its "
        "callees, averaged over both arms. Red means more CPU time than in the baseline, blue less; only "
        "differences are colored (Holm over all frames, at least five blocks). Hover over a frame for its "
        "numbers. For programs built without frame pointers, only the innermost functions and kernel "
        "functions are reliable.",
        after="latency",
    )


def cpu_by_function(findings: Findings, profiles: Sequence[ProfileComparison]) -> Table:
    """Return a row for each function and arm, most CPU time first."""
    several = len(profiles) > 1
    rows = [
        [
            change.name,
            *([profile.arm.name] if several else []),
            _us(change.baseline_us),
            _us(change.arm_us),
            _change(change),
        ]
        for profile in profiles
        for change in profile.functions
    ]
    baseline = in_a_head(findings.arms[0].arm.name, "baseline")
    arm = "arm" if several or not profiles else in_a_head(profiles[0].arm.name, "arm")
    numeric = (f"{baseline}, µs/tx", f"{arm}, µs/tx", "change, µs/tx")
    return Table(
        title=f"Server CPU time by function{findings.at_own_rates} (lower is better)",
        columns=("function", *(["arm"] if several else []), *numeric),
        rows=rows,
        note=" ".join(map(_note, profiles)) + NOTE if profiles else "",
        numeric=frozenset(numeric),
        long=True,
    )


NOTE = (
    " Self time per transaction, without callees. The CIs are corrected over the functions of an arm (Holm). "
    "In a stripped binary, a function without a symbol counts as the preceding symbol or as unknown, which "
    "can differ between versions."
)


def _note(profile: ProfileComparison) -> str:
    a, b = profile.samples
    return (
        f"{profile.arm.name}: {counted(len(profile.blocks), 'block')}, {group_digits(a, 0)} samples of "
        f"{profile.baseline.name} and {group_digits(b, 0)} of {profile.arm.name}, {profile.hz} per second of "
        f"CPU time{_covered(profile)}."
    )


def _covered(profile: ProfileComparison) -> str:
    """Return the share of the measured CPU time that the samples cover."""
    a, b = profile.covered
    if a is None or b is None:
        return ""
    return f", which cover {share_text(a)} and {share_text(b)} of the servers' CPU time"


def _us(us: float) -> str:
    return significant(us, 3) if us else "0"


def _change(change: FunctionChange) -> str:
    of = change.change
    if of.low is None or of.high is None or of.n < VERDICT_BLOCKS_MIN:
        return signed(of.value, decimals_of(of.value, 2), "")
    low, high = (signed(end, of.decimals, "") for end in (of.low, of.high))
    return f"{signed(of.value, of.decimals, '')} {bracketed(low, high)}"


WIDTH, ROW = 960.0, 16.0

NARROWEST = 1.0
"""Minimum width of a frame in pixels: narrower frames are too small for a tooltip."""

LETTER = 7.2
"""Width of a letter of a name in pixels: short names can consist of wide letters."""

STRONGEST_SHARE = 0.02
"""Change with the strongest color, as a share of all CPU time."""


def flames(profiles: Sequence[ProfileComparison]) -> list[Panel]:
    """Return one flame graph for each comparison."""
    return [
        Panel(f"{profile.arm.name} vs. {profile.baseline.name}", _picture(profile))
        for profile in profiles
        if profile.frames.mean_us
    ]


def _picture(profile: ProfileComparison) -> Markup:
    root = profile.frames
    placed = list(_placed(root, 0.0, 0, WIDTH / root.mean_us))
    depth = max(level for _, _, level, _ in placed)
    parts = [
        _drawn(frame, x, (depth - level) * ROW, width, root.mean_us) for frame, x, level, width in placed
    ]
    label = f"Differential flame graph: CPU time of {profile.arm.name} vs. {profile.baseline.name}"
    return drawing(WIDTH, (depth + 1) * ROW, label, parts, "flame")


def _placed(frame: Frame, x: float, level: int, scale: float) -> Iterator[tuple[Frame, float, int, float]]:
    """Yield (frame, x, level, width) of each visible frame."""
    width = frame.mean_us * scale
    if width < NARROWEST:
        return
    yield frame, x, level, width
    for inner in frame.within:
        yield from _placed(inner, x, level + 1, scale)
        x += inner.mean_us * scale


def _drawn(frame: Frame, x: float, y: float, width: float, total_us: float) -> Markup:
    change, name = frame.change_us, frame.name
    kind = ("grew" if change > 0 else "shrank") if frame.differs else "even"
    strength = round(0.25 + 0.65 * min(1.0, abs(change) / total_us / STRONGEST_SHARE), 2)
    noise = "" if frame.differs else ", within noise"
    times = f"{_us(frame.baseline_us)} → {_us(frame.arm_us)} µs per transaction"
    title = f"{name}: {times} ({_signed(change)}{noise})"
    place = {"x": round(x, 1), "y": y, "width": round(width, 1), "height": ROW - 1}
    opacity = strength if frame.differs else None
    parts = [
        element("title", title),
        element("rect", "", class_="frame", **place),
        element("rect", "", class_=kind, **place, fill_opacity=opacity),
    ]
    letters = int((width - 4) / LETTER)
    if letters >= 3:
        short = name if len(name) <= letters else f"{name[: letters - 1]}…"
        parts.append(text(round(x + 2, 1), y + ROW - 5, short))
    return element("g", Markup("").join(parts))


def _signed(us: float) -> str:
    return signed(us, decimals_of(us, 2), "") if us else "0"


RESULT = Result(
    "profiles",
    dict[str, list[ProfileComparison]],
    "CPU profiles by case: one comparison per arm after the first that has profiles.",
    lambda of: {case.study.case: profiles_of(case) for case in of.cases},
)
