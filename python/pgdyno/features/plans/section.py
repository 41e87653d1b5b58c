"""Statements whose plan changed: a sentence for each arm, and both plans side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest

from pgdyno.analysis.case_findings import Findings
from pgdyno.features.plans.findings import PlanChange, PlanComparison, plans_of
from pgdyno.report.document import Place, Section, Table, address_of, short_title, tables_section
from pgdyno.report.json_format import Result
from pgdyno.report.telemetry_tables import shortened
from pgdyno.report.why_section import TEXT_IN_SENTENCE_MAX, short
from pgdyno.units import NO_BREAK, counted

NAMED_MAX = 2
"""Maximum number of changes in a sentence; the tables have all."""

NODES_MAX = 3
"""Maximum number of nodes of a plan in a sentence."""


def sections(findings: Findings) -> Iterator[Section]:
    """Yield the sentences and the tables of a case."""
    compared = plans_of(findings)
    said = [_sentence(one) for one in compared if one.changes]
    yield Section("plans", sentences=said, brief=said, place=Place.HEAD, after="why")
    tables = [_side_by_side(one, change) for one in compared for change in one.changes]
    found = tables_section("plan-tables", [*tables, _left_out(compared)])
    if found.tables:
        yield Section(found.id, tables=found.tables, after="results")


def addresses(findings: Findings) -> Mapping[tuple[str, str], str]:
    """Return the address of each table of plans within its case, by name of the arm and statement."""
    found, taken = {}, Counter[str]()
    for of in plans_of(findings):
        for change in of.changes:
            address = address_of(short_title(_title(change)))
            taken[address] += 1
            number = f"-{taken[address]}" if taken[address] > 1 else ""
            found[of.arm.name, change.statement] = address + number
    return found


def _sentence(of: PlanComparison) -> str:
    return f"Plan changed on {of.arm.name}: {named_changes(of)}."


def named_changes(of: PlanComparison) -> str:
    """Return what changed in the plans of the first statements, and the number of others."""
    named = [_named(change) for change in of.changes[:NAMED_MAX]]
    rest = len(of.changes) - len(named)
    more = [f"{counted(rest, 'more statement')}"] if rest else []
    return "; ".join([*named, *more])


def _named(change: PlanChange) -> str:
    some = f", in {change.differing} of {counted(change.blocks, 'block')}"
    where = some if change.differing < change.blocks else ""
    return f"{difference(change)} (“{short(change.statement, TEXT_IN_SENTENCE_MAX)}”{where})"


def difference(change: PlanChange) -> str:
    """Return the nodes that only one of the plans has: ``Seq Scan on orders → Index Scan using …``."""
    if list(change.baseline_plan) == list(change.arm_plan):  # the hashes are of whole plans
        return f"after the first {counted(len(change.arm_plan), 'line')}, which are equal"
    a, b = (Counter(_nodes(plan)) for plan in (change.baseline_plan, change.arm_plan))
    sides = [_listed(list((one - other).elements())) for one, other in ((a, b), (b, a))]
    if not any(sides):
        return "the same nodes in another order or with other conditions"
    return " → ".join(side or "no such node" for side in sides)


def _nodes(plan: Sequence[str]) -> list[str]:
    """Return the scans and other nodes, scans first."""
    nodes = [
        line.strip().removeprefix("-> ")
        for line in plan
        if not line.startswith(" ") or line.strip().startswith("-> ")
    ]
    return sorted(nodes, key=lambda node: " on " not in node)


def _listed(nodes: Sequence[str]) -> str:
    rest = len(nodes) - NODES_MAX
    return ", ".join([*nodes[:NODES_MAX], *([counted(rest, "more node")] if rest > 0 else [])])


def _side_by_side(of: PlanComparison, change: PlanChange) -> Table:
    a, b = change.baseline_plan, change.arm_plan
    rows = []
    for _, a_from, a_to, b_from, b_to in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        pairs = zip_longest(a[a_from:a_to], b[b_from:b_to], fillvalue="")
        rows += [[_indented(left), _indented(right)] for left, right in pairs]
    names = (f"A: {of.baseline.name}", f"B: {of.arm.name}")
    return Table(
        _title(change),
        names,
        rows,
        f"Generic plans by EXPLAIN without execution, after the measured part, without costs and literals. "
        f"A plan for particular values may differ. Different in {change.differing} of "
        f"{counted(change.blocks, 'block')}.",
        long=True,
    )


def _title(change: PlanChange) -> str:
    return f"Plan of {shortened(change.statement)}"


def _indented(line: str) -> str:
    """Return a line whose indentation every format keeps."""
    return NO_BREAK * (len(line) - len(line.lstrip())) + line.lstrip()


def _left_out(compared: Sequence[PlanComparison]) -> Table:
    reasons = {text: reason for of in compared for text, reason in of.left_out.items()}
    rows = [[shortened(text), reason] for text, reason in reasons.items()]
    return Table("Statements without a plan", ("statement", "reason"), rows, long=True)


RESULT = Result(
    "plans",
    dict[str, list[PlanComparison]],
    "Plans of the statements by case: one comparison per arm after the first that has plans.",
    lambda of: {case.study.case: plans_of(case) for case in of.cases},
)
