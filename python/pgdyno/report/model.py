"""What a report says, in words and tables: the same in every form, so that no form can say something else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pgdyno.analysis.comparison.comparison import Comparison
from pgdyno.analysis.comparison.verdict import BLOCKS_MIN, POWER, Verdict
from pgdyno.analysis.study.findings import Findings
from pgdyno.analysis.telemetry.metrics import CAPACITY
from pgdyno.caveats import WORDINGS, Caveat, Code, Severity
from pgdyno.estimate import (
    NO_BREAK,
    Better,
    Estimate,
    confidence_percent,
    counted,
    decimals_of,
    given_percent,
    grouped,
    share_text,
)
from pgdyno.report import (
    anomalies,
    background,
    dips,
    noise,
    steadiness,
    tables,
    telemetry,
    telemetry_of_parts,
    why,
)
from pgdyno.report.method import DERIVED_FROM_TPC_C, how_it_was_measured
from pgdyno.report.profile import cpu_by_function
from pgdyno.report.tables import Table
from pgdyno.report.why import WhyReport
from pgdyno.study.arm_names import LEFT_OUT

LIKE_IT_MAX = 3
"""Of the same caveat on many trials so many are shown, and the rest counted."""


SAID_ONCE_OF_ALL_ARMS = frozenset(
    {
        Code.WINDOW_WITHOUT_CHECKPOINT,
        Code.SERVER_NOT_RESTARTED,
        Code.DATA_NOT_RESTORED,
        Code.DEBUG_SERVER,
        Code.UNSAFE_ARM,
        Code.FEW_BLOCKS,
        Code.STEAL,
        Code.DRIVER_BUSY,
        Code.DRIVER_LATE,
        Code.CHECKPOINT_IN_SLICES,
        Code.AUTOVACUUM_IN_SLICES,
    }
)
"""Caveats that read well of several arms of a block, or of the study, in one sentence."""


UNFINISHED = "The study is still running, or ended without notice: this is what it has found so far."


@dataclass(frozen=True)
class Headline:
    """The verdict on one arm: a claim and what it rests on.

    ``more`` says what to do about an undecided one, or what sets several hosts apart; else it is empty.
    """

    verdict: Verdict
    claim: str
    basis: str
    more: str

    @property
    def sentence(self) -> str:
        """Both in one plain sentence."""
        return f"{self.claim} ({self.basis})."


@dataclass(frozen=True)
class ShownCaveat:
    """A caveat in words, with where it was seen."""

    code: Code
    severity: Severity
    sentence: str
    remedy: str

    @classmethod
    def of(cls, caveat: Caveat, place: str = "") -> ShownCaveat:
        """``place`` precedes the text: ``Block 3: ``."""
        return cls(caveat.code, caveat.severity, place + caveat.text, caveat.remedy)


@dataclass(frozen=True)
class Report:
    """Everything that is said. ``findings`` are for charts and for the forms that give raw numbers."""

    title: str
    findings: Findings
    headlines: Sequence[Headline]
    why: Sequence[WhyReport]
    dips: Sequence[str]  # sentences
    unfinished: str  # that the study has not ended; empty where it has
    percent_of: str  # of what the percentages are
    results: Sequence[Table]
    caveats: Sequence[ShownCaveat]
    safety: Sequence[str]  # sentences: what is given up, and by which arms
    background: Sequence[Table]
    method: Sequence[str]  # paragraphs
    noise: str  # what hidden A/A blocks say of the machine
    probes: str  # what the probes themselves cost; empty where there were none
    derived: str  # the statement the TPC asks for; empty for other workloads
    command: str

    @property
    def tables(self) -> Sequence[Table]:
        """All of them, in the order in which they are read."""
        return [*self.results, *self.background]


def build(findings: Findings) -> Report:
    """Word the findings."""
    baseline = findings.arms[0].arm
    tpcc = findings.study.plan.workload.get("kind") == "tpcc"
    reasons = why.build(findings)
    results = [
        tables.levels(findings),
        tables.latencies(findings),
        tables.latency_changes(findings),
        anomalies.trials_that_stand_out(findings),
        *(table for one in reasons for table in one.tables),
        dips.table(findings),
        telemetry_of_parts.drifts(findings),
        telemetry.brief(findings),
        telemetry_of_parts.statements(findings),
        cpu_by_function(findings),
        tables.safety(findings),
        tables.checks(findings),
        noise.table(findings),
    ]
    behind = [
        steadiness.table(findings),
        telemetry_of_parts.relations(findings),
        *telemetry.groups(findings),
        background.scripts(findings),
        background.workload(findings),
        background.transactions(findings),
        background.failures(findings),
        background.settings(findings),
        background.settings_of_some(findings),
        background.servers(findings),
        background.trials(findings),
        background.host(findings),
        background.machine(findings),
    ]
    return Report(
        title=findings.study.title,
        findings=findings,
        headlines=[_headline(comparison, findings) for comparison in findings.comparisons],
        why=reasons,
        dips=dips.sentences(findings),
        unfinished=UNFINISHED if findings.study.ended_because is None else "",
        percent_of=f"Percentages are (B − A) / A, where A is {baseline.name}, the baseline."
        f"{_full_names(findings)}",
        results=[table for table in results if table.rows],
        caveats=_shown_caveats(findings),
        safety=tables.given_up(findings),
        background=[table for table in behind if table.rows],
        method=how_it_was_measured(findings),
        noise=noise.sentence(findings),
        probes=telemetry.probes_cost(findings),
        derived=DERIVED_FROM_TPC_C if tpcc else "",
        command=findings.study.command,
    )


def _full_names(findings: Findings) -> str:
    """Of arms whose names leave something out."""
    arms = [of.arm for of in findings.arms]
    return "".join(f" {arm.name} is {arm.spec}." for arm in arms if LEFT_OUT in arm.name)


def _headline(comparison: Comparison, findings: Findings) -> Headline:
    a, b, effect = comparison.baseline.name, comparison.arm.name, comparison.primary
    margin = f"margin {given_percent(comparison.margin)}"
    if effect is None:
        claim = f"Undecided whether {b} is faster or slower than {a}"
        return Headline(Verdict.UNDECIDED, claim, f"no block counts yet; {margin}", "")
    estimate = effect.percent
    interval = estimate.signed_interval_text
    match comparison.verdict:
        case Verdict.FASTER | Verdict.SLOWER as verdict:
            # "4.0 % slower" has its sign in the word, so neither the number nor the interval has one.
            size = f"{_size(estimate.value, estimate.decimals)}{NO_BREAK}%"
            claim = f"{b} is {size} {verdict} than {a}"
            if estimate.better is Better.LESS:
                direction = "lower" if estimate.value < 0 else "higher"
                claim = f"{b} is {verdict} than {a}: its {findings.primary.name} is {size} {direction}"
            near, far = sorted(abs(end) for end in (estimate.low or 0.0, estimate.high or 0.0))
            interval = f"{_size(near, estimate.decimals)} … {_size(far, estimate.decimals)}{NO_BREAK}%"
        case Verdict.SAME:
            claim = f"{b} is as fast as {a}, within the margin: {estimate.signed_text}"
        case _:
            claim = f"Undecided whether {b} is faster or slower than {a}: {tables.change_text(estimate, '%')}"
    if effect.key == CAPACITY.key:
        claim = _capacity_claim(comparison.verdict, a, b, estimate)
    known = estimate.low is not None and estimate.n >= BLOCKS_MIN
    basis = f"{confidence_percent(estimate.confidence)} interval {interval}" if known else "no interval yet"
    if estimate.better is Better.LESS and comparison.verdict in {Verdict.SAME, Verdict.UNDECIDED}:
        basis = f"{findings.primary.name}, {basis}"
    basis = f"{basis}, {counted(estimate.n, 'block')}; {margin}"
    return Headline(comparison.verdict, claim, basis, _more(comparison, findings.block_s))


def _capacity_claim(verdict: Verdict, a: str, b: str, estimate: Estimate) -> str:
    """Of a capacity that each block has searched for: nobody calls it fast."""
    size = f"{_size(estimate.value, estimate.decimals)}{NO_BREAK}%"
    match verdict:
        case Verdict.FASTER:
            return f"{b} has a capacity {size} larger than {a}"
        case Verdict.SLOWER:
            return f"{b} has a capacity {size} smaller than {a}"
        case Verdict.SAME:
            return f"{b} has the same capacity as {a}, within the margin: {estimate.signed_text}"
        case _:
            change = tables.change_text(estimate, "%")
            return f"Undecided whether {b} has a larger or smaller capacity than {a}: {change}"


def _size(percent: float, decimals: int) -> str:
    return grouped(abs(percent), decimals)


def _more(comparison: Comparison, block_s: float | None) -> str:
    decision = comparison.decision
    if decision is None or decision.blocks_needed is None:
        return ""
    n = len(comparison.blocks)
    if n < BLOCKS_MIN:
        # A spread that so few have shown foretells nothing.
        least = BLOCKS_MIN - n
        minutes = f" ({_roughly(least * block_s)})" if block_s else ""
        return f"An interval needs {BLOCKS_MIN} blocks, {least} more{minutes}."
    minutes = f" ({_roughly(decision.blocks_needed * block_s)})" if block_s else ""
    sentence = f"About {counted(decision.blocks_needed, 'more block')}{minutes} should decide it."
    if decision.detectable_percent is not None:
        sentence += (
            " The blocks so far would have found an effect of "
            f"{share_text(decision.detectable_percent / 100)} or more "
            f"with a chance of {given_percent(POWER)}."
        )
    return sentence


def _roughly(duration_s: float) -> str:
    """A forecast deserves no seconds."""
    if duration_s < 90:
        return f"about {max(1, round(duration_s / 10)) * 10}{NO_BREAK}s"
    minutes = duration_s / 60
    if minutes < 100:
        return f"about {round(minutes)}{NO_BREAK}min"
    return f"about {grouped(minutes / 60, decimals_of(minutes / 60, 2))}{NO_BREAK}h"


def _shown_caveats(findings: Findings) -> list[ShownCaveat]:
    by_code: dict[Code, list[Caveat]] = {}
    for caveat in findings.caveats:
        by_code.setdefault(caveat.code, []).append(caveat)
    blocks = {trial.trial: trial.block for trial in findings.trials}
    names = [of.arm.name for of in findings.arms]
    found = []
    for caveats in by_code.values():
        alike: dict[object, list[Caveat]] = {}
        for caveat in caveats:
            alike.setdefault(_alike(caveat, blocks), []).append(caveat)
        groups = list(alike.values())
        found += [_shown_caveat(group, names, blocks) for group in groups[:LIKE_IT_MAX]]
        rest = sum(map(len, groups[LIKE_IT_MAX:]))
        if rest:
            first = ShownCaveat.of(caveats[0])
            found.append(replace(first, sentence=f"{first.code}: {counted(rest, 'more trial')}."))
    return by_severity(found)


def by_severity(caveats: Iterable[ShownCaveat]) -> list[ShownCaveat]:
    """The most severe first, then in the order of ``caveats.toml``."""
    severities, codes = list(Severity), list(WORDINGS)
    return sorted(caveats, key=lambda caveat: (severities.index(caveat.severity), codes.index(caveat.code)))


def _alike(caveat: Caveat, blocks: Mapping[int, int]) -> object:
    """Return the key by which caveats are merged."""
    if caveat.code not in SAID_ONCE_OF_ALL_ARMS:
        return id(caveat)
    place = blocks.get(caveat.trial) if caveat.trial is not None else None
    return place, tuple(sorted((key, value) for key, value in caveat.parameters.items() if key != "arm"))


def _shown_caveat(alike: Sequence[Caveat], names: Sequence[str], blocks: Mapping[int, int]) -> ShownCaveat:
    """Merge equal caveats of several arms into one; its arms are in the order of the study."""
    first = alike[0]
    place = ""
    if first.trial is not None:
        place = f"Block {blocks[first.trial] + 1}: " if first.trial in blocks else "In a repeated trial: "
    if len(alike) == 1:
        return ShownCaveat.of(first, place)
    seen = {str(caveat.parameters["arm"]) for caveat in alike}
    listed = tables.listed([name for name in names if name in seen] or sorted(seen))
    whole = Caveat(first.code, {**first.parameters, "arm": listed})
    return ShownCaveat.of(whole, place)
