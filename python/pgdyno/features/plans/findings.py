"""Comparison of the plans of two arms by statement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.comparison import ok_by_block
from pgdyno.analysis.finding_fields import ArmName, about
from pgdyno.analysis.telemetry.counters import Row
from pgdyno.results.records import Arm, Trial


@dataclass(frozen=True)
class PlanChange:
    """A statement with different plans in the same block, most frequent pair of plans.

    ``blocks`` have plans of both arms, and differ in ``differing``.
    """

    statement: str
    baseline_hash: str
    arm_hash: str
    baseline_plan: Annotated[Sequence[str], about("Lines, without costs and literals.")]
    arm_plan: Annotated[Sequence[str], about("Lines, without costs and literals.")]
    blocks: int
    differing: int


@dataclass(frozen=True)
class PlanComparison:
    """Comparison of an arm with the baseline. ``left_out``: statement → reason without a plan."""

    baseline: ArmName
    arm: ArmName
    compared: Annotated[int, about("Number of statements with plans of both arms in a block.")]
    changes: Sequence[PlanChange]
    left_out: Annotated[Mapping[str, str], about("Reason by statement without a plan.")]


def plans_of(findings: Findings) -> list[PlanComparison]:
    """Compare the plans of a case; one per arm after the first that has any."""
    rows = {trial: of.after.get("plans", ()) for trial, of in findings.telemetry.by_trial.items()}
    return compare_plans([of.arm for of in findings.arms], findings.trials, rows)


def compare_plans(
    arms: Sequence[Arm], trials: Sequence[Trial], rows: Mapping[int, Sequence[Row]]
) -> list[PlanComparison]:
    """Compare each arm after the first with the baseline, over the trials that count."""
    found = []
    for arm in arms[1:]:
        pairs: dict[str, list[tuple[Row, Row]]] = {}
        left_out: dict[str, str] = {}
        for of_arm in ok_by_block(trials).values():
            sides = [
                {str(row["statement"]): row for row in rows.get(of_arm[one].trial, ())}
                for one in (0, arm.arm)
                if one in of_arm
            ]
            for side in sides:
                left_out |= {text: str(row["reason"]) for text, row in side.items() if "reason" in row}
            if len(sides) == 2:
                for text, row in sides[0].items():
                    other = sides[1].get(text)
                    if other is not None and "hash" in row and "hash" in other:
                        pairs.setdefault(text, []).append((row, other))
        left_out = {text: why for text, why in left_out.items() if text not in pairs}
        if pairs or left_out:
            changes = [change for text, of in pairs.items() if (change := _change(text, of)) is not None]
            found.append(PlanComparison(arms[0], arm, len(pairs), changes, left_out))
    return found


def _change(text: str, pairs: Sequence[tuple[Row, Row]]) -> PlanChange | None:
    differing = [pair for pair in pairs if pair[0]["hash"] != pair[1]["hash"]]
    if not differing:
        return None
    hashes = [(str(a["hash"]), str(b["hash"])) for a, b in differing]
    most = Counter(hashes).most_common(1)[0][0]
    a, b = differing[hashes.index(most)]
    of_baseline, of_arm = (str(row["plan"]).splitlines() for row in (a, b))
    return PlanChange(text, most[0], most[1], of_baseline, of_arm, len(pairs), len(differing))
