"""What is said of the machine's noise: one sentence for the terminal, a table for the other forms."""

from __future__ import annotations

from typing import Any

from pgdyno.analysis.comparison.noise import FLOOR_BLOCKS_MIN, Noise, floor_text, signed_percent
from pgdyno.analysis.comparison.verdict import BLOCKS_MIN, POWER
from pgdyno.analysis.statistics.effect import percent_of
from pgdyno.analysis.study.findings import Findings
from pgdyno.estimate import ABSENT, NO_BREAK, counted, given_percent, share_text
from pgdyno.report.tables import Table

TITLE = "The machine's noise"


def sentence(findings: Findings) -> str:
    """In one line or two of a terminal."""
    noise = findings.noise
    if noise.sd is None:
        return f"Noise: no A/A block, {noise.why_none}."
    if noise.n == 1:
        met = f"in the one A/A block an arm differed from itself by {_size(noise.sd)}"
        return f"Noise: {met}; {_floor(findings)}."
    varied = f"an arm against itself varied by {_size(noise.sd)} from block to block"
    return f"Noise: {varied} (standard deviation, {_rests_on(noise)}); {_floor(findings)}; {_judged(noise)}."


def table(findings: Findings) -> Table:
    """Nothing of it is an arm's result."""
    noise = findings.noise
    columns = ("what", "value", f"{given_percent(noise.confidence)} interval", "A/A blocks")
    if noise.sd is None:
        return Table(TITLE, columns, [], "", said_elsewhere=True)
    blocks = _blocks(findings)
    interval = " … ".join(map(_size, noise.sd_interval)) if noise.sd_interval else ABSENT
    rows = [["spread of a block (standard deviation)", _size(noise.sd), interval, str(noise.n)]]
    floor, found = noise.floor(blocks), noise.detectable(blocks)
    if floor is not None:
        rows.append([f"noise floor of {counted(blocks, 'block')}", floor_text(floor), "", str(noise.n)])
    if found is not None:
        rows.append([f"found with a chance of {given_percent(POWER)}", _size(found), "", str(noise.n)])
    if spread := noise.spread:
        known = spread.low is not None and spread.high is not None and spread.n >= BLOCKS_MIN
        interval = f"{signed_percent(spread.low or 0.0)} … {signed_percent(spread.high or 0.0)}"
        what = f"an arm against itself, in this study: {noise.verdict if known else 'too few to judge'}"
        rows.append([what, signed_percent(spread.mean), interval if known else ABSENT, str(spread.n)])
    if alarms := noise.alarms:
        low, high = (share_text(end) for end in alarms.interval)
        what = f"series of {BLOCKS_MIN} A/A blocks that were called different"
        told = f"{alarms.called} of {alarms.series}"
        rows.append([what, told, f"{low} … {high}", str(BLOCKS_MIN * alarms.series)])
    return Table(
        TITLE,
        columns,
        rows,
        "From A/A blocks, in which an arm met a twin of its own: a second server of the same build, settings "
        "and data. They are in no other number of this report. The noise floor is what arms that are the "
        f"same show with a chance of {given_percent(1 - noise.confidence)} in a study of so many blocks, "
        "fixed beforehand: an effect under it is not called a difference." + _before(noise),
        numeric=frozenset(columns[1:]),
        said_elsewhere=True,
    )


def as_value(findings: Findings) -> dict[str, Any]:
    """For JSON: percentages as numbers."""
    noise, blocks = findings.noise, _blocks(findings)
    spread = noise.spread
    return {
        "why_none": noise.why_none or None,
        "sentence": sentence(findings),
        "sd_percent": _percent(noise.sd),
        "sd_interval_percent": [_percent(end) for end in noise.sd_interval] if noise.sd_interval else None,
        "aa_blocks": len(noise.log_ratios),
        "aa_blocks_before": len(noise.before),
        "aa_blocks_left_out": noise.left_out,
        "blocks": blocks,
        "floor_percent": _percent(noise.floor(blocks)),
        "detectable_percent": _percent(noise.detectable(blocks)),
        "verdict": noise.verdict if spread is not None and spread.n >= BLOCKS_MIN else None,
        "false_alarm": noise.is_false_alarm,
        "alarms": _alarms(noise),
        "log_ratios": list(noise.log_ratios),
    }


def _alarms(noise: Noise) -> dict[str, Any] | None:
    found = noise.alarms
    if found is None:
        return None
    return {"called": found.called, "series": found.series, "rate_interval": list(found.interval)}


def _percent(log_ratio: float | None) -> float | None:
    return None if log_ratio is None else percent_of(log_ratio)


def _blocks(findings: Findings) -> int:
    """Of the comparison that has most."""
    return max((len(comparison.blocks) for comparison in findings.comparisons), default=0)


def _size(log_ratio: float) -> str:
    return f"{percent_of(log_ratio):.2g}{NO_BREAK}%"


def _rests_on(noise: Noise) -> str:
    n = counted(noise.n, "A/A block")
    return f"{n}, {len(noise.before)} of them of earlier studies" if noise.before else n


def _before(noise: Noise) -> str:
    if noise.left_out:
        return (
            f" {counted(noise.left_out, 'A/A block')} of earlier studies are left out: the noise was another."
        )
    if not noise.before:
        return ""
    return (
        f" {counted(len(noise.before), 'A/A block')} of it are of earlier studies of this machine, with the "
        "same load, slices and window."
    )


def _floor(findings: Findings) -> str:
    blocks = _blocks(findings)
    floor = findings.noise.floor(blocks)
    if floor is None:
        return f"a noise floor needs {FLOOR_BLOCKS_MIN} of them"
    return f"noise floor of {counted(blocks, 'block')} {floor_text(floor)}"


def _judged(noise: Noise) -> str:
    if noise.spread is None or noise.spread.n < BLOCKS_MIN:
        return "too few in this study to be judged as arms are"
    if noise.is_false_alarm:
        return f"judged as arms are, it was called {noise.verdict} than itself: a false alarm"
    return f"judged as arms are: {noise.verdict}, no false alarm"
