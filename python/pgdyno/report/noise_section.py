"""Measurement noise: one sentence for the terminal, a table for the other formats."""

from __future__ import annotations

from collections.abc import Sequence

from pgdyno.analysis.comparison.measurement_noise import FLOOR_BLOCKS_MIN, Noise, floor_text, signed_percent
from pgdyno.analysis.comparison.verdict import POWER
from pgdyno.analysis.comparison.verdict_forecast import LessNoise
from pgdyno.analysis.findings.case_findings import Findings
from pgdyno.analysis.statistics.effect import percent_of
from pgdyno.estimate import ABSENT, bracketed, counted, given_percent, share_text, significant
from pgdyno.report.result_tables import Table
from pgdyno.study.stopping_rule import VERDICT_BLOCKS_MIN

TITLE = "Measurement noise"


def noise_sentence(findings: Findings) -> str:
    """Return the noise and the noise floor in one sentence."""
    noise = findings.noise
    if noise.sd is None:
        return f"Measurement noise: no A/A blocks ({noise.why_no_aa})."
    if noise.n == 1:
        only = f"the only A/A block differs by {_size(noise.sd)} from 0"
        return f"Measurement noise: {only}; {_floor(findings)}."
    sd = f"between-block SD of identical arms (A/A) {_size(noise.sd)} ({_basis(noise)})"
    return f"Measurement noise: {sd}; {_floor(findings)}; {_judged(noise)}."


def noise_table(findings: Findings) -> Table:
    """Return the table of the noise. None of its values is a result of an arm."""
    noise = findings.noise
    columns = ("quantity", "value", f"{given_percent(noise.confidence)} CI", "A/A blocks")
    if noise.sd is None:
        return Table(TITLE, columns, [], "", said_elsewhere=True)
    blocks = blocks_of_floor(findings)
    interval = bracketed(*map(_size, noise.sd_interval)) if noise.sd_interval else ABSENT
    rows = [["between-block standard deviation (SD)", _size(noise.sd), interval, str(noise.n)]]
    floor, found = noise.floor(blocks), noise.detectable(blocks)
    if floor is not None:
        rows.append([f"noise floor of {counted(blocks, 'block')}", floor_text(floor), "", str(noise.n)])
    if found is not None:
        rows.append(
            [f"smallest detectable effect, {given_percent(POWER)} power", _size(found), "", str(noise.n)]
        )
    if summary := noise.summary:
        known = summary.low is not None and summary.high is not None and summary.n >= VERDICT_BLOCKS_MIN
        interval = bracketed(signed_percent(summary.low or 0.0), signed_percent(summary.high or 0.0))
        what = f"A/A comparison in this study: {noise.verdict if known else 'too few blocks'}"
        rows.append([what, signed_percent(summary.mean), interval if known else ABSENT, str(summary.n)])
    if alarms := noise.alarms:
        low, high = (share_text(end) for end in alarms.interval)
        what = f"false alarms among series of {VERDICT_BLOCKS_MIN} A/A blocks"
        called = f"{alarms.false_alarms} of {alarms.series}"
        rows.append([what, called, bracketed(low, high), str(VERDICT_BLOCKS_MIN * alarms.series)])
    return Table(
        TITLE,
        columns,
        rows,
        "From A/A blocks, which compare identical arms: a second server of the same build, settings "
        "and data. They enter no other number of this report. Identical arms exceed the noise floor "
        f"with {given_percent(1 - noise.confidence)} probability in a study of that many blocks, fixed in "
        "advance. An effect below the noise floor is not called a difference." + _before(noise),
        numeric=frozenset(columns[1:]),
        said_elsewhere=True,
    )


def less_noise_text(found: Sequence[LessNoise]) -> str:
    """Return changes that can reduce the noise, for example ``--schedule duet, or a quieter machine (…)``."""
    words = {
        LessNoise.DUET: "--schedule duet",
        LessNoise.SLICES: "--schedule slices",
        LessNoise.FEWER_CLIENTS: "fewer clients",
        LessNoise.QUIETER_MACHINE: "a quieter machine (pgdyno doctor lists what disturbs this one)",
    }
    *first, last = [words[one] for one in found]
    return f"{', '.join(first)} or {last}" if first else last


def blocks_of_floor(findings: Findings) -> int:
    """Return the largest number of blocks of a comparison."""
    return max((len(comparison.blocks) for comparison in findings.comparisons), default=0)


def _size(log_ratio: float) -> str:
    return f"{significant(percent_of(log_ratio), 2)}%"


def _basis(noise: Noise) -> str:
    n = counted(noise.n, "A/A block")
    return f"{n}, {len(noise.before)} of them from earlier studies" if noise.before else n


def _before(noise: Noise) -> str:
    if noise.left_out:
        return f" {counted(noise.left_out, 'A/A block')} of earlier studies are excluded: their SD differs."
    if not noise.before:
        return ""
    return (
        f" {counted(len(noise.before), 'A/A block')} are from earlier studies on this machine with the "
        "same load, slices and window."
    )


def _floor(findings: Findings) -> str:
    blocks = blocks_of_floor(findings)
    floor = findings.noise.floor(blocks)
    if floor is None:
        return f"a noise floor needs {FLOOR_BLOCKS_MIN} A/A blocks"
    return f"noise floor of {counted(blocks, 'block')} {floor_text(floor)}"


def _judged(noise: Noise) -> str:
    if noise.summary is None or noise.summary.n < VERDICT_BLOCKS_MIN:
        return "too few A/A blocks in this study for a verdict"
    if noise.is_false_alarm:
        return f"A/A verdict: {noise.verdict}, a false alarm"
    return f"A/A verdict: {noise.verdict}, no false alarm"
