"""The caveats that follow from the evidence: not stored, since they can be recomputed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pgdyno.analysis.comparison.comparison import Comparison
from pgdyno.analysis.comparison.differences import debugged, differences, listed, unsafe
from pgdyno.analysis.comparison.verdict import BLOCKS_MIN
from pgdyno.analysis.statistics.remembering import is_remembered, memory
from pgdyno.analysis.telemetry.metrics import mixes
from pgdyno.caveats import Caveat, Code, Parameter
from pgdyno.estimate import share_text, signed
from pgdyno.evidence.records import IN_THE_LOG, STOPPED_BY, Arm, Counts, StudyRecord, Trial, TrialStatus
from pgdyno.study.mix import is_tpcc_mix
from pgdyno.study.pgbench import PgbenchParameters
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Schedule

FAILURES_SHARE_MAX = 0.01
"""More failed transactions than this, and the workload is not what was asked for."""

RETRIES_SHARE_MAX = 0.05
"""More retries than this, and the arm's contention is a good part of its result."""


SLICE_SHARE_MAX = 0.05
"""Of a slice, for the median transaction: a closed loop that starts from nothing completes none in that
time, so an effect of x on latency shows as about (1 + share) x in the rate."""


BLOCKS_TO_DISAGREE_MIN = 10
"""With fewer the bootstrap's interval is too narrow by nature (ADR 4), and its disagreement means nothing."""


REMEMBERING_ALARM = 0.05
"""The chance, at most, that a study whose blocks are independent has the caveat that they remember: over all
of its cases and arms, by Bonferroni's correction."""


def comparison_caveats(
    study: StudyRecord,
    arms: Sequence[Arm],
    trials: Sequence[Trial],
    comparisons: Sequence[Comparison],
    p50_ms: Mapping[int, float | None],
) -> list[Caveat]:
    """All of them, the gravest first. ``p50_ms`` is the median latency of each arm, by its number."""
    found = [*_of_trials(arms, trials)]
    found += _of_slices(study, arms, p50_ms)
    for comparison in comparisons:
        found += _of_comparison(comparison)
        found += differences(arms[0], comparison.arm, trials, study.plan.schedule)
    for arm in arms:
        found += debugged(arm, trials)
    found += unsafe(arms, trials)
    return found + _of_study(study) + _of_scripts(study.plan, arms)


def memory_caveats(comparisons: Sequence[Comparison], cases: int) -> list[Caveat]:
    """Blocks that follow each other more than chance would have. ``comparisons``: of one case out of so
    many.
    """
    found = []
    for comparison in comparisons:
        if comparison.primary is None:
            continue
        ratios = comparison.primary.log_ratios
        d = [ratios[block] for block in sorted(ratios)]
        if is_remembered(d, REMEMBERING_ALARM / (cases * len(comparisons))):
            told: dict[str, Parameter] = {"correlation": signed(memory(d), 2, ""), "blocks": len(d)}
            told |= {"arm": comparison.arm.name, "baseline": comparison.baseline.name}
            found.append(Caveat(Code.AUTOCORRELATED_BLOCKS, told))
    return found


def _of_trials(arms: Sequence[Arm], trials: Sequence[Trial]) -> list[Caveat]:
    found = []
    for arm in arms:
        mine = [trial for trial in trials if trial.arm == arm.arm]
        excluded = [trial for trial in mine if trial.status is TrialStatus.EXCLUDED]
        # What another arm has ended is told of that one.
        failed = [t for t in mine if t.status is TrialStatus.FAILED and STOPPED_BY not in t.driver]
        if excluded:
            names = {check.name for trial in excluded for check in trial.checks if not check.passed}
            of_log = next(
                (words for trial in excluded if (words := trial.reason.partition(IN_THE_LOG)[2])), ""
            )
            found.append(
                Caveat(
                    Code.CHECKS_FAILED_TRIALS_EXCLUDED,
                    {
                        "arm": arm.name,
                        "trials": len(excluded),
                        "checks": (listed(sorted(names)) or "not named") + (of_log and f": {of_log}"),
                    },
                )
            )
        if failed:
            found.append(
                Caveat(
                    Code.TRIALS_FAILED,
                    {"arm": arm.name, "trials": len(failed), "reason": failed[0].reason or "no reason given"},
                )
            )
        found += _of_counts(arm, mine)
    interrupted = sum(trial.status is TrialStatus.INTERRUPTED for trial in trials)
    if interrupted:
        found.append(Caveat(Code.INTERRUPTED, {"trials": interrupted}))
    return found


def _of_slices(study: StudyRecord, arms: Sequence[Arm], p50_ms: Mapping[int, float | None]) -> list[Caveat]:
    slice_s = study.plan.slice_s
    if not study.plan.is_together or study.plan.rate_per_s is not None:
        return []
    found = []
    for arm in arms:
        latency_ms = p50_ms.get(arm.arm)
        if latency_ms is not None and latency_ms / 1e3 > SLICE_SHARE_MAX * slice_s:
            share = share_text(latency_ms / 1e3 / slice_s)
            limit = share_text(SLICE_SHARE_MAX)
            names: dict[str, Parameter] = {"arm": arm.name, "latency_ms": round(latency_ms)}
            found.append(Caveat(Code.SLICES_TOO_SHORT, {**names, "share": share, "limit": limit}))
    return found


def _of_counts(arm: Arm, trials: Sequence[Trial]) -> list[Caveat]:
    counts = Counts()
    for trial in trials:
        for piece in trial.measured:
            for kind in piece.kinds.values():
                counts += kind
    if not counts.all:
        return []
    shares = (
        (Code.FAILURES_OVER_SHARE, counts.failed / counts.all, FAILURES_SHARE_MAX),
        (Code.RETRIES_OVER_SHARE, counts.retried / counts.all, RETRIES_SHARE_MAX),
    )
    return [
        Caveat(code, {"arm": arm.name, "share": share_text(share), "limit": share_text(limit)})
        for code, share, limit in shares
        if share > limit
    ]


def _of_comparison(comparison: Comparison) -> list[Caveat]:
    names = {"arm": comparison.arm.name, "baseline": comparison.baseline.name}
    found = []
    if comparison.stalled:
        found.append(Caveat(Code.NOTHING_DONE, {**names, "blocks": len(comparison.stalled)}))
    if len(comparison.blocks) < BLOCKS_MIN:
        found.append(
            Caveat(Code.FEW_BLOCKS, {**names, "blocks": len(comparison.blocks), "blocks_min": BLOCKS_MIN})
        )
    effect = comparison.primary
    enough = len(comparison.blocks) >= BLOCKS_TO_DISAGREE_MIN
    if enough and effect and effect.bootstrap and effect.is_disputed(comparison.margin):
        found.append(
            Caveat(
                Code.INTERVALS_DISAGREE,
                {
                    **names,
                    "bootstrap": effect.bootstrap.signed_interval_text,
                    "student": effect.student().percent(effect.percent.better).signed_interval_text,
                },
            )
        )
    return found


def _of_study(study: StudyRecord) -> list[Caveat]:
    plan, found = study.plan, []
    if plan.schedule is Schedule.SEQUENTIAL:
        found.append(Caveat(Code.SEQUENTIAL))
    if plan.schedule is Schedule.DUET:
        found.append(Caveat(Code.DUET))
    if study.engine.get("profile") == "debug":
        found.append(Caveat(Code.DEBUG_ENGINE))
    if plan.rate_per_s is not None:
        found.append(Caveat(Code.THROUGHPUT_FIXED, {"load": f"{plan.rate_per_s:g} transactions a second"}))
    elif plan.pacing != "none":
        found.append(Caveat(Code.THROUGHPUT_FIXED, {"load": "keying and thinking times"}))
    elif plan.workload.kind == "tpcc":
        found.append(Caveat(Code.NO_KEYING_AND_THINKING))
    if plan.workload.kind == "tpcc":
        found += [Caveat(Code.NOT_TPCC_MIX, {"mix": mix}) for mix in mixes(plan) if not is_tpcc_mix(mix)]
    return found


def _of_scripts(plan: Study, arms: Sequence[Arm]) -> list[Caveat]:
    """Of the workload pgbench."""
    found = []
    if not isinstance(plan.workload, PgbenchParameters):
        return []
    scripts = [script for script in plan.workload.scripts if script.weight]
    clients, scale = arms[0].clients, plan.workload.scale
    if clients > scale and any(script.effect == "all" for script in scripts):
        found.append(Caveat(Code.MORE_CLIENTS_THAN_BRANCHES, {"clients": clients, "scale": scale}))
    if own := [script.name for script in scripts if script.effect == "unknown"]:
        found.append(Caveat(Code.OWN_SCRIPTS_NOT_CHECKED, {"scripts": ", ".join(own)}))
    return found
