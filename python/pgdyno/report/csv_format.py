"""The measurements as CSV, tidy: one row per trial and metric, for a spreadsheet, R or pandas."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.throughput_dips import Dip
from pgdyno.analysis.time_breakdown import UNIT
from pgdyno.features.crash.sections import CrashReport
from pgdyno.features.hosts.sections import HostsReport
from pgdyno.report.study_report import StudyReport
from pgdyno.report.visible_text import visible
from pgdyno.report.why_section import in_order
from pgdyno.results.records import Trial, TrialStatus
from pgdyno.units import Better

COLUMNS = ("case", "block", "arm", "attempt", "status", "metric", "unit", "better", "value")

# A spreadsheet evaluates a cell with one of these prefixes as a formula. Names are untrusted.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


COLUMNS_OF_HOSTS = ("host", "file", *COLUMNS)


def to_csv(study: StudyReport | HostsReport) -> str:
    """Return the CSV document with a header. Blocks count from 0.

    Excluded trials are included, with their status. The single case of a comparison has an empty name. With
    several hosts, each row starts with host and file. With a study file, each row ends with one column per
    factor. If a fit lost the question of the source, the last column is ``lost_question``.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    lost = ("lost_question",) if study.lost else ()
    if isinstance(study, HostsReport):
        writer.writerow((*COLUMNS_OF_HOSTS, *_factors(next(iter(study.studies.values()))), *lost))
        for host in study.findings.hosts:
            for file in host.studies:
                place = (_plain(host.name), _plain(file))
                own = (_plain(study.studies[file].lost),) if lost else ()
                writer.writerows((*place, *row, *own) for row in _rows_of_study(study.studies[file]))
    else:
        writer.writerow((*COLUMNS, *_factors(study), *lost))
        own = (_plain(study.lost),) if lost else ()
        writer.writerows((*row, *own) for row in _rows_of_study(study))
    return visible(text.getvalue())


CRASH_COLUMNS = (
    *("arm", "crash", "load_s", "acknowledged", "lost", "loss_window_ms", "in_doubt", "in_doubt_present"),
    *("holes", "phantoms", "damaged", "corruptions", "recovery_s", "replayed_bytes"),
)


def crash_to_csv(report: CrashReport) -> str:
    """Return a row per crash. Crashes count from 0, and unknown values are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CRASH_COLUMNS)
    names = {arm.arm: arm.name for arm in report.arms}
    for of in report.crashes:
        counts = {} if of.audit is None else asdict(of.audit)
        window_s = counts.get("loss_window_s")
        values = {
            **counts,
            "arm": _plain(names[of.arm]),
            "crash": of.number,
            "load_s": of.active_s,
            "acknowledged": of.acknowledged,
            "loss_window_ms": None if window_s is None else 1000 * window_s,
            "corruptions": len(of.corruption),
            "recovery_s": of.recovery_s,
            "replayed_bytes": of.replayed_bytes,
        }
        writer.writerow(["" if values.get(name) is None else values[name] for name in CRASH_COLUMNS])
    return visible(text.getvalue())


def _rows_of_study(study: StudyReport) -> Iterator[tuple[object, ...]]:
    factors = _factors(study)
    for name, report in study.cases.items():
        levels = _levels_by_arm(report.findings)
        for row in _rows(report.findings):
            own = levels.get(str(row[1]), {})
            yield (_plain(name), *row, *(_plain(own.get(factor, "")) for factor in factors))


def _factors(study: StudyReport) -> list[str]:
    """Return the factors that make the arms, then those that make the cases."""
    every = [of for report in study.cases.values() for of in _levels_by_arm(report.findings).values()]
    return list(dict.fromkeys(factor for levels in every for factor in levels))


def _levels_by_arm(findings: Findings) -> dict[str, dict[str, str]]:
    """Map the name of each arm, as written in a row, to its level by factor."""
    case, arms = findings.study.levels, findings.study.arm_levels
    return {
        _plain(of.arm.name): {factor: str(level) for factor, level in {**own, **case}.items()}
        for of, own in zip(findings.arms, arms, strict=False)
    }


def _rows(findings: Findings) -> Iterator[tuple[object, ...]]:
    names = {of.arm.arm: of.arm.name for of in findings.arms}
    for trial in findings.trials:
        if trial.status is TrialStatus.RUNNING:
            continue
        place = (trial.block, _plain(names[trial.arm]), trial.attempt, str(trial.status))
        for metric in findings.every_metric:
            value = metric.value(trial, trial.measured)
            if value is not None:
                yield (*place, _plain(metric.key), metric.unit, str(metric.better), repr(value))
        for key, unit, found in (*_dips(findings, trial), *_why(findings, trial)):
            yield (*place, _plain(key), unit, str(Better.LESS), repr(found))


def _dips(findings: Findings, trial: Trial) -> Iterator[tuple[str, str, float]]:
    """Yield the values of all dips of a trial, then of each cause of the arm's dips, even if 0."""
    of = findings.dips.get(trial.arm)
    if of is None or trial.trial not in of.trials:
        return
    groups: list[tuple[str, Sequence[Dip]]] = [("", of.dips)]
    groups += [(f":{one.event}", of.of(one.event)) for one in of.coincidences if one.is_cause]
    if of.unexplained:
        groups.append((":unexplained", of.unexplained))
    for suffix, dips in groups:
        own = [dip for dip in dips if dip.trial == trial.trial]
        yield f"dips.n{suffix}", "dips", len(own)
        yield f"dips.time{suffix}", "s", sum(dip.to_s - dip.from_s for dip in own)
        yield f"dips.lost{suffix}", "tx", sum(dip.lost for dip in own)


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


def _plain(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text
