"""Outlier trials: deviation, unusual conditions, and the estimate without the most extreme block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pgdyno.analysis.case_findings import Findings
from pgdyno.features.outliers.findings import FALSE_ALARM, Cause, Deviation, OutlierTrial, outliers_of
from pgdyno.report.document import Section, Table, tables_section
from pgdyno.report.result_tables import change_with_ci
from pgdyno.units import ABSENT, decimals_of, given_percent, group_digits, signed, significant, with_unit


def sections(findings: Findings) -> Iterator[Section]:
    """Yield the table of the outlier trials of a case."""
    yield replace(tables_section("outliers", [outlier_trials(findings)]), after="latencies")


RANKED_MAX = 5
"""Number of trials shown when there is no outlier."""

NONE_UNUSUAL = "none found"


def outlier_trials(findings: Findings) -> Table:
    """Return the outlier trials; without any, a collapsed table of the most extreme trials.

    The table is empty if there are too few valid blocks.
    """
    outliers = outliers_of(findings)
    shown = outliers.outliers or [one for one in outliers.trials if one.rank > 0][:RANKED_MAX]
    numeric = (
        "block",
        findings.primary.unit,
        "deviation from arm, %",
        "deviation of ratio, %",
        "score / limit",
    )
    return Table(
        title="Outlier trials" if outliers.outliers else "Outlier trials: none",
        columns=(numeric[0], "arm", *numeric[1:], "unusual"),
        rows=[_outlier_row(one) for one in shown],
        note=_note(findings),
        numeric=frozenset(numeric),
        long=not outliers.outliers,
        dispensable=("score / limit", "deviation of ratio, %"),
    )


def _outlier_row(one: OutlierTrial) -> list[str]:
    seen = "; ".join(map(_cause, one.causes)) or NONE_UNUSUAL
    return [
        str(one.block + 1),
        one.arm.name,
        significant(one.value, 3),
        _off(one.within_arm),
        _off(one.ratio) if one.ratio else ABSENT,
        group_digits(one.rank, 1),
        seen if one.is_outlier else "",
    ]


def _off(measured: Deviation) -> str:
    return signed(measured.percent, decimals_of(measured.percent, 2), "")


def _cause(cause: Cause) -> str:
    """Return a covariate, for example ``CPU time stolen by the hypervisor 12% (otherwise 0.3%)``."""
    unit = cause.covariate.unit
    if cause.covariate.key == "server_cpu":
        more = 100 * (cause.value / cause.median - 1)
        return f"{cause.covariate.name} {signed(more, decimals_of(more, 2), '%')}"
    return f"{cause.covariate.name} {_amount(cause.value, unit)} (otherwise {_amount(cause.median, unit)})"


def _amount(value: float, unit: str) -> str:
    return with_unit(significant(value, 2), unit)


def _note(findings: Findings) -> str:
    method = (
        "Each trial is compared with the other trials of its arm, and the ratio of its block with those of "
        f"other blocks. At most {given_percent(FALSE_ALARM)} of studies without outliers name one. "
        "An outlier also deviates by more than the equivalence margin. All these trials "
        "are included in the estimates. An unusual condition is not proof of a cause."
    )
    return " ".join([method, *without_extreme_sentences(findings)])


def without_extreme_sentences(findings: Findings) -> list[str]:
    """Return a sentence for each arm: the estimate without the block of the most extreme ratio."""
    return [
        f"Without block {left.block + 1}, which has the most extreme ratio, the change of {left.arm.name} "
        f"would be {change_with_ci(left.without)} instead of {change_with_ci(left.all)}."
        for left in outliers_of(findings).without_block
    ]
