"""CPU profiles in words: the functions that took the most time, and what an arm changes in them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pgdyno.analysis.causes.cpu_profiles import FunctionChange, ProfileComparison
from pgdyno.analysis.comparison.verdict import BLOCKS_MIN
from pgdyno.analysis.findings.case_findings import Findings
from pgdyno.estimate import bracketed, counted, decimals_of, grouped, signed
from pgdyno.report.tables import NAME_IN_HEAD_MAX, Table

ON_TERMINAL_MAX = 8


def cpu_by_function(findings: Findings) -> Table:
    """A row a function, and with several arms an arm; those with the most time first."""
    profiles = findings.profiles
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
    baseline = short_name(findings.arms[0].arm.name, "baseline")
    arm = "arm" if several or not profiles else short_name(profiles[0].arm.name, "arm")
    numeric = (f"{baseline}, µs/tx", f"{arm}, µs/tx", "change, µs/tx")
    return Table(
        title=f"Server CPU time by function{findings.at_own_rates} (lower is better)",
        columns=("function", *(["arm"] if several else []), *numeric),
        rows=rows,
        note=" ".join(map(_note, profiles)) + NOTE if profiles else "",
        numeric=frozenset(numeric),
        long=True,
        rows_on_terminal=ON_TERMINAL_MAX,
    )


def short_name(name: str, instead: str) -> str:
    """Of a column whose cells are short."""
    return name if len(name) <= NAME_IN_HEAD_MAX else instead


NOTE = (
    " In the function itself, without what it calls, per transaction. Intervals hold together over an arm's "
    "functions (Holm). A function that a stripped program does not name counts as the one before it, or as "
    "unknown; a name may be another one's in another version."
)


def _note(profile: ProfileComparison) -> str:
    a, b = profile.samples
    return (
        f"Of {profile.arm.name}: {counted(len(profile.blocks), 'block')}, {grouped(a, 0)} samples of "
        f"{profile.baseline.name} and {grouped(b, 0)} of {profile.arm.name}, {profile.hz} in a second of CPU"
        f"{_covered(profile)}."
    )


def _covered(profile: ProfileComparison) -> str:
    """What share of the CPU time that was counted the samples stand for."""
    a, b = profile.covered
    if a is None or b is None:
        return ""
    return f", which cover {100 * a:.0f} and {100 * b:.0f}% of the servers' CPU time"


def _us(us: float) -> str:
    return grouped(us, decimals_of(us, 3)) if us else "0"


def _change(change: FunctionChange) -> str:
    of = change.change
    if of.low is None or of.high is None or of.n < BLOCKS_MIN:
        return signed(of.value, decimals_of(of.value, 2), "")
    low, high = (signed(end, of.decimals, "") for end in (of.low, of.high))
    return f"{signed(of.value, of.decimals, '')} {bracketed(low, high)}"


def as_object(findings: Findings) -> list[dict[str, Any]]:
    """For JSON. The stacks are in the evidence."""
    return [
        {
            "arm": profile.arm.name,
            "baseline": profile.baseline.name,
            "blocks": list(profile.blocks),
            "samples": list(profile.samples),
            "covered": list(profile.covered),
            "hz": profile.hz,
            "functions": [asdict(change) for change in profile.functions],
        }
        for profile in findings.profiles
    ]
