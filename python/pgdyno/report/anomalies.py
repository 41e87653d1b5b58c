"""Trials that stand out from the others of their arm: which, by how much, what was different in them, and
what the estimate would be without the block that is the farthest off.
"""

from __future__ import annotations

from typing import Any

from pgdyno.analysis.causes.anomalies import Anomalies, Anomaly, Measured
from pgdyno.analysis.causes.circumstances import Cause
from pgdyno.analysis.causes.outlying import FALSE_ALARM, VALUES_MIN
from pgdyno.analysis.study.findings import Findings
from pgdyno.estimate import ABSENT, NO_BREAK, decimals_of, given_percent, grouped, signed
from pgdyno.report.tables import Table, with_interval

RANKED_MAX = 5
"""Of trials that do not stand out so many are shown: somebody may want to know which came nearest."""

NOTHING_SEEN = "nothing seen that explains it"


def trials_that_stand_out(findings: Findings) -> Table:
    """Those that are named; where none is, those that come nearest, in a folded table. Empty where too few
    blocks count.
    """
    anomalies = findings.anomalies
    shown = anomalies.named or [one for one in anomalies.trials if one.rank > 0][:RANKED_MAX]
    numeric = ("block", findings.primary.unit, "off its arm, %", "ratio off, %", "score / limit")
    return Table(
        title="Trials that stand out" if anomalies.named else "Trials that stand out: none",
        columns=(numeric[0], "arm", *numeric[1:], "what was different"),
        rows=[_row(one) for one in shown],
        note=_note(findings),
        numeric=frozenset(numeric),
        long=not anomalies.named,
        dispensable=("score / limit", "ratio off, %"),
    )


def _row(one: Anomaly) -> list[str]:
    seen = "; ".join(map(_cause, one.causes)) or NOTHING_SEEN
    return [
        str(one.block + 1),
        one.arm.name,
        grouped(one.value, decimals_of(one.value, 3)),
        _off(one.own),
        _off(one.ratio) if one.ratio else ABSENT,
        f"{one.rank:.1f}",
        seen if one.named else "",
    ]


def _off(measured: Measured) -> str:
    return signed(measured.off_percent, decimals_of(measured.off_percent, 2), "")


def _cause(cause: Cause) -> str:
    """``CPU time stolen by the hypervisor 12 % (else 0.3 %)``."""
    unit = cause.circumstance.unit
    if cause.circumstance.key == "server_cpu":
        more = 100 * (cause.value / cause.usual - 1)
        return f"{cause.circumstance.name} {signed(more, decimals_of(more, 2), '%')}"
    return f"{cause.circumstance.name} {_amount(cause.value, unit)} (else {_amount(cause.usual, unit)})"


def _amount(value: float, unit: str) -> str:
    return f"{grouped(value, decimals_of(value, 2))}{NO_BREAK if unit else ''}{unit}"


def _note(findings: Findings) -> str:
    said = (
        "Each trial is held against the others of its arm, and its block's ratio against those of the other "
        "blocks. Of studies without anything unusual these limits name a trial in at most "
        f"{given_percent(FALSE_ALARM)}; and it must be off by more than the margin. All of these trials "
        "count: what was different is no proof that it was the cause."
    )
    return " ".join([said, *without(findings)])


def without(findings: Findings) -> list[str]:
    """What the estimates would be without the block that is the farthest off, a sentence each arm."""
    usual, unit = findings.study.plan.confidence, f"{NO_BREAK}%"
    return [
        f"Without block {left.block + 1}, whose ratio is the farthest off, the change of {left.arm.name} "
        f"would be {with_interval(left.without, usual)}{unit} rather than "
        f"{with_interval(left.all, usual)}{unit}, both by Student's t."
        for left in findings.anomalies.without
    ]


def as_object(anomalies: Anomalies) -> dict[str, Any]:
    """For JSON: every trial that counts, the most anomalous first."""
    return {
        "values_min": VALUES_MIN,
        "trials": [
            {
                "trial": one.trial,
                "block": one.block,
                "arm": one.arm.name,
                "value": one.value,
                "named": one.named,
                "own": _measured(one.own),
                "ratio": _measured(one.ratio) if one.ratio else None,
                "causes": [
                    {
                        "what": cause.circumstance.key,
                        "value": cause.value,
                        "usual": cause.usual,
                        "unit": "µs" if cause.circumstance.key == "server_cpu" else cause.circumstance.unit,
                    }
                    for cause in one.causes
                ],
            }
            for one in anomalies.trials
        ],
        "without": [
            {
                "arm": left.arm.name,
                "block": left.block,
                "change_percent": left.without.value,
                "low": left.without.low,
                "high": left.without.high,
            }
            for left in anomalies.without
        ],
    }


def _measured(measured: Measured) -> dict[str, float | None]:
    return {"off_percent": measured.off_percent, "score": measured.score, "limit": measured.limit}
