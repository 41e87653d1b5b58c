"""The steady-state table: warm-ups, trends, steps and checkpoint cycles; and sentences on the warm-ups."""

from __future__ import annotations

from pgdyno.analysis.findings.case_findings import Findings
from pgdyno.analysis.steady_state.stationarity import Trend
from pgdyno.analysis.steady_state.steady_state_findings import SteadyState, WarmUps
from pgdyno.estimate import ABSENT, counted, significant
from pgdyno.report.result_tables import Table, with_interval
from pgdyno.study.plan import Study
from pgdyno.units import format_duration

WARM_UP, BY_EVIDENCE = "warm-up", "ended at steady state"
CHANGE, OF_EFFECT = "trend over the window, %", "trend of the effect, %"
STEPS, CHECKPOINTS, CYCLES = "trials with a step", "checkpoints", "whole cycles"


def steady_state_table(findings: Findings) -> Table:
    """Return a row for each arm; columns without values are left out."""
    usual = findings.study.plan.confidence
    rows = [_row(of, usual) for of in findings.steady_states]
    columns = [name for name in rows[0] if any(row[name] != ABSENT for row in rows)] if rows else []
    known = len(columns) > 1
    return Table(
        "Steady state",
        columns,
        [[row[name] for name in columns] for row in rows] if known else [],
        "Trend: change of the least-squares line from start to end of a window, mean over trials. "
        "Checkpoints: mean number started in a window. Whole cycles: minimum over windows.",
        numeric=frozenset(columns[1:]),
        dispensable=(STEPS, BY_EVIDENCE, CYCLES),
        long=True,
    )


def _row(of: SteadyState, usual: float) -> dict[str, str]:
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
