"""Caveats computed from the results file. They are not stored."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from pgdyno.analysis.comparison import Comparison
from pgdyno.analysis.statistics.series import autocorrelation, is_autocorrelated, is_skewed, skewness, tested
from pgdyno.caveats import Caveat, Parameter
from pgdyno.results.records import ENGINE, Arm, Counts, Kept, StudyRecord, Trial, TrialStatus
from pgdyno.study.defaults import SLICE_SHARE_MAX, Schedule
from pgdyno.study.plan import VERDICT_BLOCKS_MIN, Study
from pgdyno.units import counted, format_duration, given_number, group_digits, share_text, signed

CLUSTER_SETTINGS = ("data_checksums", "wal_segment_size", "block_size", "wal_block_size", "segment_size")
"""Settings of initdb or the compiler that change the cost of a page or a commit."""

COVERAGE_CAVEAT_BELOW = 0.8
"""Share of the recorded time that scripts need to stand for the load of a database."""

NAMES_MAX = 5
"""Maximum number of names in a sentence; the others are counted."""


UNSAFE_VALUES = {
    "fsync": "off",
    "full_page_writes": "off",
    "data_sync_retry": "on",
    "zero_damaged_pages": "on",
    "ignore_checksum_failure": "on",
    "ignore_invalid_pages": "on",
}
"""Settings that risk data loss or undetected damage. synchronous_commit = off is not one of them: it risks
only the last commits."""

IN_BADGES = frozenset({"fsync", "full_page_writes"})

WAITS_FOR_DISK = ("fsync", "synchronous_commit", "wal_sync_method")
"""Settings that determine whether a commit waits for the disk."""


def difference_caveats(baseline: Arm, arm: Arm, trials: Sequence[Trial], schedule: Schedule) -> list[Caveat]:
    """Return caveats of one arm against the baseline: safety, clusters, and several changes at once."""
    before, after = effective(baseline, trials), effective(arm, trials)
    names = {"baseline": baseline.name, "arm": arm.name}
    found = []
    if unlike := _safety(baseline, arm):
        found.append(Caveat.of("unsafe-settings", **names, difference="; ".join(unlike)))
    waits = _unequal(WAITS_FOR_DISK, before, after)
    if waits and schedule.is_together:
        found.append(Caveat.of("write-back-in-slices", **names, settings=first_names(waits)))
    clusters = [
        f"{name} is {before[name]} in {baseline.name}, {after[name]} in {arm.name}"
        for name in _unequal(CLUSTER_SETTINGS, before, after)
    ]
    if clusters:
        found.append(Caveat.of("clusters-differ", difference="; ".join(clusters)))
    things = _things(baseline, arm)
    if len(things) > 1:
        found.append(Caveat.of("several-things-changed", **names, things=", ".join(things)))
    return found


def debug_build_caveats(arm: Arm, trials: Sequence[Trial]) -> list[Caveat]:
    """Return a caveat if the arm's server is a debug build, by its settings and compiler flags."""
    flags = re.findall(r"(?<!\S)-O(?:0|g)(?!\S)", arm.server_facts.compiled_with("CFLAGS"))
    if effective(arm, trials).get("debug_assertions") == "on":
        flags.append("--enable-cassert")
    return [Caveat.of("debug-server", arm=arm.name, flags=" ".join(flags))] if flags else []


def unsafe_settings_caveats(arms: Sequence[Arm], trials: Sequence[Trial]) -> list[Caveat]:
    """Return a caveat for each arm with settings that risk data, requested or inherited from a template.

    Differences between the safety badges of the arms are reported by ``difference_caveats`` instead.
    """
    given_up = {
        arm.arm: [
            f"{name} = {value}"
            for name, value in UNSAFE_VALUES.items()
            if effective(arm, trials).get(name) == value
        ]
        for arm in arms
    }
    in_all = set.intersection(*(set(settings) for settings in given_up.values()))
    reported = {
        arm.name: [one for one in given_up[arm.arm] if one in in_all or one.split(" ")[0] not in IN_BADGES]
        for arm in arms
    }
    return [
        Caveat.of("unsafe-arm", arm=arm, settings=first_names(settings))
        for arm, settings in reported.items()
        if settings
    ]


def effective(arm: Arm, trials: Sequence[Trial]) -> Mapping[str, str]:
    """Return the arm's settings as read in its last trial; empty if unknown."""
    known = [trial.settings for trial in trials if trial.arm == arm.arm and trial.settings]
    return known[-1] if known else {}


def first_names(names: Sequence[str]) -> str:
    """Return the first NAMES_MAX names and the number of the others."""
    rest = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {rest} more" if rest > 0 else "")


def _unequal(names: Sequence[str], before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the names that both servers have with different values."""
    return [name for name in names if name in before and name in after and before[name] != after[name]]


def _things(baseline: Arm, arm: Arm) -> list[str]:
    """Return the requested differences. All settings count as one, because they are tuned together."""
    things = []
    versions = [of.server_facts.version for of in (baseline, arm)]
    if versions[0] != versions[1]:
        things.append(f"version {versions[0]} vs. {versions[1]}")
    added = [of.server_facts.extensions_shown for of in (baseline, arm)]
    if added[0] != added[1]:
        things.append("extensions")
    elif versions[0] == versions[1] and baseline.server_facts.build_id != arm.server_facts.build_id:
        things.append("server")
    before, after = baseline.settings_requested, arm.settings_requested
    settings = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if added[0] != added[1]:  # an extension adds its own libraries
        settings = [name for name in settings if name != "shared_preload_libraries"]
    if settings:
        things.append(f"settings {first_names(settings)}")
    if baseline.workload != arm.workload or baseline.clients != arm.clients:
        things.append("workload")
    return things


def _safety(baseline: Arm, arm: Arm) -> list[str]:
    kept = {badge.name: badge for badge in baseline.safety}
    safest = list(Kept)
    found: dict[str, dict[str, None]] = {}
    for badge in arm.safety:
        other = kept.get(badge.name, badge)
        if badge.kept != other.kept:
            is_less = safest.index(badge.kept) > safest.index(other.kept)
            of, least = ("less safe", badge) if is_less else ("safer", other)
            found.setdefault(of, {})[least.text or f"{least.name}: {least.kept.words}"] = None
    return [f"{of} ({'; '.join(_without_parts([*texts]))})" for of, texts in found.items()]


def _without_parts(texts: Sequence[str]) -> list[str]:
    """Return the texts that no other one begins with."""
    return [text for text in texts if not any(one != text and one.startswith(text) for one in texts)]


FAILURES_SHARE_MAX = 0.01
"""Share of failed transactions above which the workload is not the requested one."""

SKIPPED_SHARE_MAX = 0.01
"""Share of skipped arrivals above which an open loop is overloaded: its rate is not the requested one."""

RETRIES_SHARE_MAX = 0.05
"""Share of retries above which contention determines a good part of the arm's result."""


BLOCKS_TO_DISAGREE_MIN = 10
"""With fewer blocks the bootstrap interval is too narrow (ADR 4), so a disagreement is meaningless."""


BLOCKS_ALARM = 0.05
"""Maximum probability of ``autocorrelated-blocks`` in a study with independent blocks, and of
``skewed-blocks`` in one with symmetric noise, over all its cases and arms by Bonferroni's correction."""


def comparison_caveats(
    study: StudyRecord,
    arms: Sequence[Arm],
    trials: Sequence[Trial],
    comparisons: Sequence[Comparison],
    p50_ms: Mapping[int, float | None],
) -> list[Caveat]:
    """Return the caveats of all comparisons. ``p50_ms`` is the median latency by arm."""
    found = [*_trial_caveats(arms, trials), *_warm_up_extended(study.plan, trials)]
    found += _slice_caveats(study, arms, p50_ms)
    for comparison in comparisons:
        found += _comparison_caveats(comparison, study.plan)
        found += difference_caveats(arms[0], comparison.arm, trials, study.plan.schedule)
    for arm in arms:
        found += debug_build_caveats(arm, trials)
    found += unsafe_settings_caveats(arms, trials)
    return found + _study_caveats(study) + study.plan.workload.load_caveats(arms[0].clients)


def block_caveats(comparisons: Sequence[Comparison], cases: int) -> list[Caveat]:
    """Return caveats for autocorrelated or skewed blocks. ``comparisons`` are of one of ``cases`` cases."""
    found = []
    for comparison in comparisons:
        if comparison.primary is None:
            continue
        ratios = comparison.primary.log_ratios
        d = [ratios[block] for block in sorted(ratios)]
        alarm = BLOCKS_ALARM / (cases * len(comparisons))
        names = {"arm": comparison.arm.name, "baseline": comparison.baseline.name}
        if is_autocorrelated(d, alarm):
            lag_1 = signed(autocorrelation(d), 2, "")
            found.append(Caveat.of("autocorrelated-blocks", **names, correlation=lag_1, blocks=len(d)))
        if is_skewed(d, alarm):
            found.append(
                Caveat.of(
                    "skewed-blocks",
                    **names,
                    skewness=signed(skewness(tested(d)), 1, ""),
                    blocks=len(tested(d)),
                )
            )
    return found


def _trial_caveats(arms: Sequence[Arm], trials: Sequence[Trial]) -> list[Caveat]:
    found = []
    for arm in arms:
        mine = [trial for trial in trials if trial.arm == arm.arm]
        excluded = [trial for trial in mine if trial.status is TrialStatus.EXCLUDED]
        # A failure that another arm caused is reported for that arm.
        failed = [t for t in mine if t.status is TrialStatus.FAILED and t.driver.stopped_by in {None, ENGINE}]
        if excluded:
            names = {check.name for trial in excluded for check in trial.checks if not check.passed}
            of_log = next((trial.log_error for trial in excluded if trial.log_error), "")
            found.append(
                Caveat.of(
                    "checks-failed-trials-excluded",
                    arm=arm.name,
                    trials=len(excluded),
                    checks=(first_names(sorted(names)) or "not named") + (of_log and f": {of_log}"),
                )
            )
        if failed:
            found.append(
                Caveat.of(
                    "trials-failed",
                    arm=arm.name,
                    trials=len(failed),
                    reason=failed[0].full_reason or "no reason given",
                )
            )
        found += _count_caveats(arm, mine)
    interrupted = sum(trial.status is TrialStatus.INTERRUPTED for trial in trials)
    if interrupted:
        found.append(Caveat.of("interrupted", trials=interrupted))
    return found


def _warm_up_extended(plan: Study, trials: Sequence[Trial]) -> Iterator[Caveat]:
    blocks = {trial.block for trial in trials if trial.status is TrialStatus.SUPERSEDED}
    if blocks:
        times = max(trial.driver.warm_up.times for trial in trials if trial.driver.warm_up is not None)
        longest = format_duration(times * plan.warmup_s)
        yield Caveat.of("warm-up-extended", longest=longest, blocks=len(blocks))


def _slice_caveats(
    study: StudyRecord, arms: Sequence[Arm], p50_ms: Mapping[int, float | None]
) -> list[Caveat]:
    plan = study.plan
    # The only slice of a block is the window, which may have few transactions of a phase: index creations.
    slice_s = plan.slice_s if plan.is_together else plan.window_s if plan.workload.HAS_RATES else None
    if slice_s is None or plan.rate_per_s is not None:
        return []
    found = []
    for arm in arms:
        latency_ms = p50_ms.get(arm.arm)
        if latency_ms is not None and latency_ms / 1e3 > SLICE_SHARE_MAX * slice_s:
            share = share_text(latency_ms / 1e3 / slice_s)
            limit = share_text(SLICE_SHARE_MAX)
            shown_ms = round(latency_ms)
            found.append(
                Caveat.of("slices-too-short", arm=arm.name, latency_ms=shown_ms, share=share, limit=limit)
            )
    return found


def skips_arrivals(trials: Sequence[Trial]) -> bool:
    """Return True if more than a few arrivals of the trials of an arm were skipped."""
    counts = Counts.total(trial.counts for trial in trials)
    return counts.skipped > SKIPPED_SHARE_MAX * counts.all


def _count_caveats(arm: Arm, trials: Sequence[Trial]) -> list[Caveat]:
    counts = Counts.total(trial.counts for trial in trials)
    if not counts.all:
        return []
    shares = (
        ("failures-over-share", counts.failed / counts.all, FAILURES_SHARE_MAX),
        ("arrivals-skipped", counts.skipped / counts.all, SKIPPED_SHARE_MAX),
        ("retries-over-share", counts.retried / counts.all, RETRIES_SHARE_MAX),
    )
    return [
        Caveat.of(name, arm=arm.name, share=share_text(share), limit=share_text(limit))
        for name, share, limit in shares
        if share > limit
    ]


def _comparison_caveats(comparison: Comparison, plan: Study) -> list[Caveat]:
    names = {"arm": comparison.arm.name, "baseline": comparison.baseline.name}
    found = []
    if comparison.stalled:
        blocks = len(comparison.stalled)
        if plan.searches_capacity:
            found.append(Caveat.of("no-capacity", **names, limit=plan.limit_text, blocks=blocks))
        else:
            found.append(Caveat.of("nothing-done", **names, blocks=blocks))
    if comparison.censored:
        found.append(Caveat.of("median-not-observed", **names, blocks=len(comparison.censored)))
    if comparison.failed:
        found.append(Caveat.of("blocks-lost-by-failure", **names, failures=comparison.failures_text))
    for of in comparison.missed_rates:
        counts: dict[str, Parameter] = {"arm": of.arm.name, "below": of.below, "blocks": of.blocks}
        rates = {"rate": group_digits(of.rate, 0), "target": group_digits(of.target, 0), "unit": of.unit}
        found.append(Caveat.of("rate-missed", transactions=of.kind, **counts, **rates))
    if comparison.bias is not None and comparison.is_unsteady:
        found.append(Caveat.of("warm-up-bias", **names, bias=comparison.bias.text))
    if len(comparison.blocks) < VERDICT_BLOCKS_MIN and not comparison.censored:
        found.append(
            Caveat.of("few-blocks", **names, blocks=len(comparison.blocks), blocks_min=VERDICT_BLOCKS_MIN)
        )
    effect = comparison.primary
    enough = len(comparison.blocks) >= BLOCKS_TO_DISAGREE_MIN
    if enough and effect and effect.is_disputed(comparison.margin):
        found.append(Caveat.of("intervals-disagree", **names))
    return found


def _study_caveats(study: StudyRecord) -> list[Caveat]:
    plan, found = study.plan, []
    if plan.schedule is Schedule.SEQUENTIAL:
        found.append(Caveat.of("sequential"))
    if plan.schedule is Schedule.DUET:
        found.append(Caveat.of("duet"))
    if study.engine_facts.profile == "debug":
        found.append(Caveat.of("debug-engine"))
    coverage = plan.workload.coverage
    if coverage is not None and coverage < COVERAGE_CAVEAT_BELOW:
        found.append(Caveat.of("low-coverage", coverage=f"{math.floor(coverage * 100)}%"))
    if plan.rate_per_s is not None:
        found.append(
            Caveat.of("throughput-fixed", load=f"{given_number(plan.rate_per_s)} transactions per second")
        )
    elif plan.pacing != "none":
        found.append(Caveat.of("throughput-fixed", load="keying and think times"))
    elif plan.workload.HAS_PACING and not plan.searches_capacity:
        found.append(Caveat.of("no-keying-and-thinking"))
    workloads = [plan.driving(arm).workload for arm in range(len(plan.arms))]
    for workload in workloads:
        found += [one for one in workload.specification_caveats() if one not in found]
    for spec, workload in zip(plan.arms, workloads, strict=True):
        if own := workload.deviations:
            words = counted(len(own), "deviation")
            found.append(Caveat.of("tpcc-deviations", arm=spec.name, deviations=words))
    return found
