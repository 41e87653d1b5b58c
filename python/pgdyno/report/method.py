"""How it was measured, in sentences made from the plan: what a reader needs to believe or to object."""

from __future__ import annotations

from pgdyno.analysis.comparison.verdict import BLOCKS_MIN
from pgdyno.analysis.study.findings import Findings
from pgdyno.estimate import counted, given_percent
from pgdyno.evidence.records import BlockStatus, Ending, Plan, Schedule
from pgdyno.report import steadiness
from pgdyno.study.search import RESOLUTION
from pgdyno.units import format_duration

DERIVED_FROM_TPC_C = (
    "The workload is derived from TPC-C. Its results are not comparable with published TPC results. It "
    "deviates from "
    "the standard: no full disclosure, no pricing, no durability test, windows shorter than required, and, "
    "unless said "
    "otherwise below, clients that neither key nor think and more load per warehouse than the standard "
    "allows. "
    "NOPM are new orders committed per minute, TPM database transactions (with those rolled back by "
    "design) per minute."
)

_SCHEDULES = {
    Schedule.SLICES: (
        "In each block one driver, connected to all servers, drove the arms in turn in short slices in "
        "random balanced order, so that the machine's noise hit all alike. A block's ratio is that of the "
        "arms' mean rates over the pairs of slices."
    ),
    Schedule.DUET: (
        "In each block both arms were driven at the same time, slice by slice, each server on its half of "
        "the cores, with the driver's threads for it. Which arm had which half was drawn, and the other way "
        "round in the next slice, so that each had each half as often. A block's ratio is that of the arms' "
        "mean rates over the pairs of slices."
    ),
    Schedule.BLOCKS: ("In each block every arm ran alone, one after the other in random order."),
    Schedule.SEQUENTIAL: "All blocks of one arm ran before the next arm's.",
}


def how_it_was_measured(findings: Findings) -> list[str]:
    """Paragraphs."""
    plan = findings.study.plan
    statistics = (
        "The block is the unit of replication. Each gives one ratio per arm; the effect is their geometric "
        f"mean, {_interval(findings)} "
        f"The margin is {given_percent(plan.margin)}: an interval within it means same, one on one side of "
        "zero faster or "
        f"slower, anything else undecided, as does having fewer than {BLOCKS_MIN} blocks. The verdict is "
        "about "
        f"{findings.primary.name}. Intervals of the other metrics are {_of_others(plan)}for reading, each by "
        "itself."
    )
    if len(findings.arms) > 2:
        statistics += " Against the one baseline, several arms are corrected after Holm."
    latency = (
        "Latency counts from the intended start of a transaction to its end, of those that succeeded and "
        "were intended in the counted part of a slice, also when they ended after its close; percentiles "
        "are read from histograms merged over all blocks, never averaged. CPU per transaction is user and "
        "system time of all processes of the server, and of the driver, over the measured slices."
    )
    laid_out = [_SCHEDULES[plan.schedule], _halves(plan), _restored(findings), _sizes(plan)]
    laid_out += [steadiness.how_it_ended(findings), steadiness.how_windows_began(plan)]
    told = [" ".join(sentence for sentence in laid_out if sentence), statistics, latency]
    return [*told, _capacity(plan)] if plan.searches_capacity else told


def _capacity(plan: Plan) -> str:
    limit = plan.details["study"]["capacity"]
    return (
        f"Capacity is the highest rate of an open loop (arrivals at random) with {limit}. Each block "
        "searched for it: a closed loop says where to begin; then come steps of an open loop, all arms in "
        "turn, at rates that go up or down until one keeps the limit and one misses it, and that halve what "
        f"is between them until they are {given_percent(RESOLUTION - 1)} apart. A miss is tried again before "
        "it counts, except beyond the rate of the closed loop where too few were answered for a percentile. "
        "Between the two rates the latency is interpolated. A step lasts until it has the "
        "transactions that its percentile needs; what was never answered has missed the limit. Everything "
        "else was measured at the rate that was found."
    )


def _halves(plan: Plan) -> str:
    """Of a duet."""
    halves = plan.details.get("study", {}).get("halves")
    if not halves:
        return ""
    sides = " and ".join(", ".join(map(str, half)) for half in halves["cores"])
    found = f"The halves were the cores {sides}"
    found += ", which are threads of one physical core." if halves["of_one_core"] else "."
    if resting := halves["resting"]:
        found += f" The {'core' if len(resting) == 1 else 'cores'} {', '.join(map(str, resting))} rested."
    return found


def _interval(findings: Findings) -> str:
    plan = findings.study.plan
    said = f"({given_percent(plan.confidence)} unless said otherwise)"
    if not plan.may_be_looked_at_again:
        return f"its interval {said} Student's t on the log ratios, checked by a BCa bootstrap."
    blocks = counted(sum(block.status is BlockStatus.DONE for block in findings.blocks), "block")
    ended = "and stopped when all was decided" if findings.study.ended_because is Ending.VERDICT else ""
    looked = f"The study looked after each block from the {BLOCKS_MIN}th on, {blocks} in all, {ended}".strip(
        ", "
    )
    if not plan.stops_on_verdict:
        looked = f"The study was resumed for more: its length, {blocks} in all, was not fixed beforehand"
    return (
        f"its interval {said} one on the log ratios that is valid at any stopping time, however often one "
        "looks (a t test by a mixture of effects): wider than Student's, which a BCa bootstrap checks. "
        f"{looked}."
    )


def _of_others(plan: Plan) -> str:
    return "Student's, " if plan.may_be_looked_at_again else ""


def _restored(findings: Findings) -> str:
    """What each block began with."""
    arms = [of.arm for of in findings.arms]
    running = [arm.name for arm in arms if arm.server.get("provider") == "dsn"]
    study = findings.study.plan.details.get("study", {})
    sentences = []
    if len(running) < len(arms):
        which = "every arm" if not running else "the other arms"
        sentences.append(f"Before it {which} had pristine data restored and the server started afresh.")
    if running:
        existing = study.get("into_existing")
        data = "was used as it was" if existing else "got a fresh copy of a pristine database"
        sentences.append(f"{', '.join(running)} ran already and was not restarted; it {data}.")
    return " ".join(reversed(sentences))


def _sizes(plan: Plan) -> str:
    parts = []
    if warm_up := steadiness.warm_up_text(plan):
        parts.append(warm_up)
    if plan.slices_per_arm is not None and plan.slice_s is not None:
        slices = f"{plan.slices_per_arm} slices of {format_duration(plan.slice_s)} per arm and block"
        found_by = plan.details.get("study", {}).get("slice_from")
        parts.append(f"{slices} (the best length by {found_by})" if found_by else slices)
    elif plan.window_s is not None:
        parts.append(f"measured window {format_duration(plan.window_s)} per arm and block")
    if plan.discard_s:
        parts.append(f"the first {format_duration(plan.discard_s)} of each discarded")
    if plan.rate_per_s is not None:
        parts.append(f"open loop at {plan.rate_per_s:g} transactions a second")
    elif plan.pacing != "none":
        parts.append(f"pacing {plan.pacing}")
    else:
        parts.append("closed loop without pacing")
    parts.append(f"seed {plan.seed}")
    sentence = ", ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}."
