"""Conditions of the measurement: noise, steady state.

- Measurement noise: one sentence for the terminal, a table for the other formats.
- The steady-state table: warm-ups, trends, steps and checkpoint cycles; and sentences on the warm-ups.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.comparison import POWER, LessNoise
from pgdyno.analysis.measurement_noise import FLOOR_BLOCKS_MIN, Noise, floor_text, signed_percent
from pgdyno.analysis.statistics.intervals import percent_of
from pgdyno.analysis.steady_state import SteadyState, Trend, WarmUps
from pgdyno.report.document import Table
from pgdyno.report.result_tables import with_interval
from pgdyno.study.plan import VERDICT_BLOCKS_MIN, Study
from pgdyno.units import ABSENT, bracketed, counted, format_duration, given_percent, share_text, significant

# ----------------------------------------------------------------------
# Measurement noise: one sentence for the terminal, a table for the other formats.
# ----------------------------------------------------------------------

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
    blocks = findings.blocks_max
    interval = bracketed(*map(_size, noise.sd_interval)) if noise.sd_interval else ABSENT
    rows = [["between-block standard deviation (SD)", _size(noise.sd), interval, str(noise.n)]]
    floor, found = findings.noise_floor, noise.detectable(blocks)
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
    floor = findings.noise_floor
    if floor is None:
        return f"a noise floor needs {FLOOR_BLOCKS_MIN} A/A blocks"
    return f"noise floor of {counted(findings.blocks_max, 'block')} {floor_text(floor)}"


def _judged(noise: Noise) -> str:
    if noise.summary is None or noise.summary.n < VERDICT_BLOCKS_MIN:
        return "too few A/A blocks in this study for a verdict"
    if noise.is_false_alarm:
        return f"identical arms were found {noise.verdict}: a false alarm"
    return f"identical arms were found {noise.verdict}: no false alarm"


# ----------------------------------------------------------------------
# The steady-state table: warm-ups, trends, steps and checkpoint cycles; and sentences on the warm-ups.
# ----------------------------------------------------------------------

WARM_UP, BY_EVIDENCE = "warm-up", "ended at steady state"
CHANGE, OF_EFFECT = "trend over the window, %", "trend of the effect, %"
STEPS, CHECKPOINTS, CYCLES = "trials with a step", "checkpoints", "whole cycles"


def steady_state_table(findings: Findings) -> Table:
    """Return a row for each arm; columns without values are left out."""
    usual = findings.study.plan.confidence
    rows = [_steady_state_row(of, usual) for of in findings.steady_states]
    columns = [name for name in rows[0] if any(row[name] != ABSENT for row in rows)] if rows else []
    known = len(columns) > 1
    return Table(
        "Steady state",
        columns,
        [[row[name] for name in columns] for row in rows] if known else [],
        "Trend: change of the least-squares line from start to end of a window, mean over trials. "
        "Checkpoints: mean number started in a window. Whole cycles: in the window with the fewest.",
        numeric=frozenset(columns[1:]),
        dispensable=(STEPS, BY_EVIDENCE, CYCLES),
        long=True,
    )


def _steady_state_row(of: SteadyState, usual: float) -> dict[str, str]:
    warm, cycles = of.warm_ups, of.cycles
    return {
        "arm": of.arm.name,
        WARM_UP: ABSENT if warm is None else _range(warm),
        BY_EVIDENCE: ABSENT if warm is None else f"{warm.ended_steady} of {warm.trials}",
        CHANGE: _change(of.rate_trend, usual),
        OF_EFFECT: _change(of.effect_trend, usual),
        STEPS: f"{len(of.steps)} of {of.tested}" if of.tested else ABSENT,
        CHECKPOINTS: ABSENT if cycles is None else significant(cycles.checkpoints, 3),
        CYCLES: ABSENT if cycles is None else str(cycles.complete_cycles),
    }


def _change(trend: Trend | None, usual: float) -> str:
    return ABSENT if trend is None else with_interval(trend.percent, usual)


def _range(warm: WarmUps) -> str:
    ends = [format_duration(seconds) for seconds in (warm.shortest_s, warm.longest_s)]
    return " to ".join(dict.fromkeys(ends))


def warm_up_sentence(findings: Findings) -> str:
    """Return how adaptive warm-ups ended; empty for warm-ups of a fixed length."""
    if findings.study.plan.warmup_min_s is None:
        return ""
    known = [of.warm_ups for of in findings.steady_states if of.warm_ups is not None]
    trials, ended_steady = (sum(getattr(of, name) for of in known) for name in ("trials", "ended_steady"))
    if not trials:
        return ""
    rest = "" if ended_steady == trials else "; the others reached the maximum warm-up time"
    return (
        "The warm-up of a block ends when the rates of all arms are at steady state: MSER truncates at most "
        "a third of each series, and its last three quarters have no significant trend. "
        f"This was so in {ended_steady} of {counted(trials, 'trial')}{rest}."
    )


def window_sentence(plan: Study) -> str:
    """Return how windows of whole checkpoint cycles started; empty for other windows."""
    wanted = plan.checkpoints
    if wanted is None:
        return ""
    return (
        f"A window lasts {counted(wanted, 'checkpoint cycle')} of the longest checkpoint_timeout. It starts "
        "right after a forced checkpoint, so its first cycle writes no pages of the warm-up."
    )
