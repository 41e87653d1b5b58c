"""The measurements as CSV, tidy: one row per trial and metric, for a spreadsheet, R or pandas."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.study_findings import StudyFindings
from pgdyno.analysis.time_breakdown import UNIT
from pgdyno.hooks import Hooks
from pgdyno.report.visible_text import visible
from pgdyno.report.why_section import in_order
from pgdyno.results.records import Trial, TrialStatus
from pgdyno.units import Better

COLUMNS = ("case", "block", "arm", "attempt", "status", "metric", "unit", "better", "value")


@dataclass(frozen=True)
class TrialValues:
    """Values of trials beside the metrics of the core. ``keys``: their metrics, without a part after a colon.

    ``of`` returns metric, unit and value of rows of a trial. Less is better.
    """

    keys: Sequence[str]
    of: Callable[[Findings, Trial], Iterable[tuple[str, str, float]]]


TRIAL_VALUES: Hooks[TrialValues] = Hooks("trial_values")

# A spreadsheet evaluates a cell with one of these prefixes as a formula. Names are untrusted.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def to_csv(findings: StudyFindings, lost: str = "") -> str:
    """Return the CSV document of a study with a header. Blocks count from 0.

    Excluded trials are included, with their status. The single case of a comparison has an empty name. With a
    study file, each row ends with one column per factor. If a fit ``lost`` the question of the source, the
    last column has the sentence.
    """
    more = {"lost_question": lost} if lost else {}
    return csv_text(
        [*columns_of(findings), *more], ([*row, *map(as_text, more.values())] for row in rows_of(findings))
    )


def csv_text(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a CSV document."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return visible(text.getvalue())


def columns_of(findings: StudyFindings) -> list[str]:
    """Return the columns of a study: then the factors that make its arms, and those that make its cases."""
    every = [levels for of in findings.cases for levels in _levels_by_arm(of).values()]
    return [*COLUMNS, *dict.fromkeys(factor for levels in every for factor in levels)]


def rows_of(findings: StudyFindings) -> Iterator[list[object]]:
    """Yield a row per trial and metric, with the columns of ``columns_of``."""
    factors = columns_of(findings)[len(COLUMNS) :]
    for of in findings.cases:
        levels = _levels_by_arm(of)
        for row in _rows(of):
            own = levels.get(str(row[1]), {})
            yield [as_text(of.study.case), *row, *(as_text(own.get(factor, "")) for factor in factors)]


def _levels_by_arm(findings: Findings) -> dict[str, dict[str, str]]:
    """Map the name of each arm, as written in a row, to its level by factor."""
    case, arms = findings.study.levels, findings.study.arm_levels
    return {
        as_text(of.arm.name): {factor: str(level) for factor, level in {**own, **case}.items()}
        for of, own in zip(findings.arms, arms, strict=False)
    }


def _rows(findings: Findings) -> Iterator[tuple[object, ...]]:
    names = {of.arm.arm: of.arm.name for of in findings.arms}
    for trial in findings.trials:
        if trial.status is TrialStatus.RUNNING:
            continue
        place = (trial.block, as_text(names[trial.arm]), trial.attempt, str(trial.status))
        for metric in findings.every_metric:
            value = metric.value(trial, trial.measured)
            if value is not None:
                yield (*place, as_text(metric.key), metric.unit, str(metric.better), repr(value))
        for key, unit, found in chain(
            *(values.of(findings, trial) for values in TRIAL_VALUES), _why(findings, trial)
        ):
            yield (*place, as_text(key), unit, str(Better.LESS), repr(found))


def _why(findings: Findings, trial: Trial) -> Iterator[tuple[str, str, float]]:
    """Yield the difference in time per transaction from the baseline in the same block, and its parts."""
    why = findings.time_breakdowns.get(trial.arm)
    if why is None or trial.status is not TrialStatus.OK:
        return
    for name, waterfall in (("by_resource", why.by_resource), ("by_statement", why.by_statement)):
        if waterfall is not None:
            for part in (waterfall.total, *in_order(waterfall)):
                if trial.block in part.by_block:
                    key = f"why.{name}:{part.key}" if part.key else f"why.{name}"
                    yield key, UNIT, part.by_block[trial.block]


def as_text(text: str) -> str:
    """Return an untrusted text that a spreadsheet does not evaluate."""
    return f"'{text}" if text.startswith(_FORMULA) else text
