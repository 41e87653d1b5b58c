"""The paragraphs on the method, made from the plan of the study."""

from __future__ import annotations

from pgdyno.analysis.findings.case_findings import Findings
from pgdyno.estimate import counted, given_number, given_percent
from pgdyno.report import steady_state_section
from pgdyno.report.result_tables import has_anytime_interval
from pgdyno.results.records import BlockStatus, StudyEnd
from pgdyno.study.capacity_search import RESOLUTION
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Schedule
from pgdyno.study.stopping_rule import VERDICT_BLOCKS_MIN
from pgdyno.units import format_duration, format_duration_range

DERIVED_FROM_TPC_C = (
    "The workload is derived from TPC-C. Its results are not comparable with published TPC results. It "
    "deviates from the standard: no full disclosure, no pricing, no durability test, and windows shorter "
    "than required. Unless stated otherwise, there are no keying and think times, and the load per warehouse "
    "exceeds the standard's limit. NOPM is committed new orders per minute. TPM is database transactions per "
    "minute, including those rolled back by design."
)

_SCHEDULES = {
    Schedule.SLICES: (
        "In each block one driver runs all arms in turn, in short slices in balanced random order, so "
        "that measurement noise affects all arms equally. The ratio of a block is the ratio of the "
        "mean rates of its arms over pairs of slices."
    ),
    Schedule.DUET: (
        "In each block both arms run at the same time, slice by slice. Each server has a CPU partition with "
        "its driver threads. The assignment is random and swapped in the next slice, so that "
        "each arm uses each partition equally often. The ratio of a block is the ratio of the "
        "mean rates of its arms over pairs of slices."
    ),
    Schedule.BLOCKS: ("In each block the arms run one after another in random order, each alone."),
    Schedule.SEQUENTIAL: "All blocks of one arm run before those of the next arm.",
}


def method_paragraphs(findings: Findings) -> list[str]:
    """Return the paragraphs on the method."""
    plan = findings.study.plan
    statistics = (
        "The block is the unit of replication. Each block gives one ratio per arm; the effect is their "
        f"geometric mean. {_interval(findings)} "
        f"The equivalence margin is {given_percent(plan.margin)}. Arms are equivalent if two one-sided "
        f"tests at {given_percent(round(1 - plan.confidence, 9))} reject a larger effect. A CI that excludes "
        "zero means faster or slower. Anything else, or fewer than "
        f"{VERDICT_BLOCKS_MIN} blocks, means undecided. The verdict is "
        f"about {findings.primary.name}. CIs of other metrics are of the same kind, descriptive and not "
        "corrected for their number."
    )
    if len(findings.arms) > 2:
        statistics += " Comparisons of several arms with the baseline are corrected by Holm's method."
    latency = (
        "Latency is the time from the scheduled start of a transaction to its end. It includes successful "
        "transactions scheduled in the counted part of a slice, even if they end later. Percentiles come "
        "from histograms merged over all blocks and are never averaged. CPU per transaction is the user and "
        "system time of all server processes, or of the driver, during the measured slices."
    )
    layout = [_SCHEDULES[plan.schedule], _partitions(plan), _restored(findings), _sizes(plan)]
    layout += [steady_state_section.warm_up_sentence(findings), steady_state_section.window_sentence(plan)]
    paragraphs = [" ".join(sentence for sentence in layout if sentence), statistics, latency]
    return [*paragraphs, _capacity(plan)] if plan.searches_capacity else paragraphs


def _capacity(plan: Study) -> str:
    return (
        f"Capacity is the highest rate of an open loop (random arrivals) with {plan.capacity}. Each block "
        "searches for it by bisection. A closed-loop run gives the first rate. Open-loop steps of all arms "
        "in turn raise or lower it until one rate meets the limit and one does not, and narrow the "
        f"bracket to {given_percent(RESOLUTION - 1)}. Failed steps and both ends of the bracket are "
        "repeated; if two results disagree, a third one decides. A rate above that of the closed loop "
        "with too few completed transactions for the percentile is not repeated. Latency is "
        "interpolated between the last two rates. A step lasts until the percentile has enough "
        "transactions; unanswered transactions exceed the limit. All other metrics are measured at the "
        "capacity found."
    )


def _partitions(plan: Study) -> str:
    """Return the CPU partitions of a duet."""
    partition = plan.cpu_partition
    if partition is None:
        return ""
    sides = " and ".join(", ".join(map(str, side)) for side in partition.cores)
    found = f"The CPU partitions are cores {sides}"
    found += ", which are SMT siblings of one physical core." if partition.of_one_core else "."
    if resting := partition.resting:
        found += (
            f" The {'core' if len(resting) == 1 else 'cores'} {', '.join(map(str, resting))} stayed idle."
        )
    return found


def _interval(findings: Findings) -> str:
    plan = findings.study.plan
    level = f"({given_percent(plan.confidence)} unless stated otherwise)"
    if not plan.needs_anytime_intervals:
        return f"Its CI {level} is Student's t on log ratios."
    blocks = counted(sum(block.status is BlockStatus.DONE for block in findings.blocks), "block")
    ended = (
        "and stopped when all verdicts were decided"
        if findings.study.ended_because is StudyEnd.VERDICT
        else ""
    )
    if not has_anytime_interval(findings):
        return (
            f"Its CI {level} is Student's t on log ratios, because the study has no interim analysis: the "
            f"first follows block {VERDICT_BLOCKS_MIN}."
        )
    first = VERDICT_BLOCKS_MIN
    analyses = f"An interim analysis followed each block from the {first}th on ({blocks} in total) {ended}"
    if not plan.stops_on_verdict:
        analyses = f"The study was resumed: its length ({blocks} in total) was not fixed in advance"
    return (
        f"Its CI {level} is on log ratios and valid at any stopping time, with any number of interim "
        "analyses (mixture t test). "
        f"{analyses.strip()}."
    )


def _restored(findings: Findings) -> str:
    """Return the state of the data at the start of a block."""
    arms = [of.arm for of in findings.arms]
    running = [arm.name for arm in arms if arm.server_facts.provider == "dsn"]
    sentences = []
    if len(running) < len(arms):
        which = "all arms" if not running else "the other arms"
        restored = f"the data of {which} is restored from the snapshot"
        sentences.append(f"Before each block, {restored} and the server is restarted.")
    if running:
        existing = findings.study.plan.into_existing
        data = "is used as it is" if existing else "is copied from the template database"
        sentences.append(f"{', '.join(running)} was already running and is not restarted; its data {data}.")
    return " ".join(reversed(sentences))


def _sizes(plan: Study) -> str:
    parts = [f"warm-up {format_duration_range(plan.warmup_min_s, plan.warmup_s)}"]
    if plan.is_together:
        slices = f"{plan.slices_per_trial()} slices of {format_duration(plan.slice_s)} per arm and block"
        found_by = plan.slice_from
        parts.append(f"{slices} (length from {found_by})" if found_by else slices)
    elif plan.window_s is not None:
        parts.append(f"measured window {format_duration(plan.window_s)} per arm and block")
    if plan.discard_s:
        parts.append(f"first {format_duration(plan.discard_s)} of each discarded")
    if plan.rate_per_s is not None:
        parts.append(f"open loop at {given_number(plan.rate_per_s)} transactions per second")
    elif plan.pacing != "none":
        parts.append(f"pacing {plan.pacing}")
    else:
        parts.append("closed loop without pacing")
    parts.append(f"seed {plan.seed}")
    sentence = ", ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}."
