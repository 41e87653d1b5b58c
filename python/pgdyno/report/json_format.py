"""Reports as JSON: the documents of ``json_models`` and their JSON Schema."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from pgdyno.analysis.findings.capacity import Capacity
from pgdyno.analysis.findings.factor_effects import Contrast, Effects
from pgdyno.analysis.findings.gates import Gate, GateOutcome, gate_comparisons
from pgdyno.analysis.findings.history_changes import HistoryChange, HistorySeries
from pgdyno.analysis.findings.pooled_hosts import OverHosts
from pgdyno.analysis.findings.scalability import Curve, Scalability
from pgdyno.analysis.findings.source_agreement import SourceChange
from pgdyno.analysis.findings.study_findings import StudyFindings
from pgdyno.estimate import Estimate
from pgdyno.report import json_models as models
from pgdyno.report.capacity_section import capacity_change_sentence, capacity_sentence
from pgdyno.report.crash_report import crash_json
from pgdyno.report.factors_section import factor_sentence
from pgdyno.report.gate_section import gate_sentence, why_not_evaluated
from pgdyno.report.history_report import HistoryReport, history_change_sentence
from pgdyno.report.hosts_report import HostsReport
from pgdyno.report.json_case_format import VERSION, case_entry, filled
from pgdyno.report.json_text import json_text
from pgdyno.report.scalability_section import scalability_sentences
from pgdyno.report.study_report import StudyReport
from pgdyno.study.plan import Study

Document = models.CaseDocument | models.CasesDocument | models.HostsDocument | models.HistoryDocument


def to_json(report: StudyReport | HostsReport, gate: Gate | None = None) -> str:
    """Return the JSON document of a report, indented."""
    end = models.VerdictsAndGate(
        verdicts=[filled(models.NumericVerdict, of) for of in gate_comparisons(report.findings)],
        gate=_gate(gate),
    )
    if isinstance(report, HostsReport):
        return encoded(models.HostsDocument(**vars(_hosts(report)), **vars(end)))
    file = _file(report)
    kind = models.CaseDocument if isinstance(file, models.CaseFile) else models.CasesDocument
    return encoded(kind(**vars(file), **vars(end)))


def history_to_json(
    report: HistoryReport,
    outcome: GateOutcome | None,
    met: Sequence[str] = (),
    not_evaluable: Sequence[str] = (),
    awaiting: Sequence[str] = (),
) -> str:
    """Return the JSON document of a history. ``outcome`` is that of the gate, None without one.

    ``not_evaluable`` are the metrics that the gate cannot judge, ``awaiting`` the changes to be confirmed.
    """
    document = models.HistoryDocument(
        pgdyno_history=VERSION,
        skipped=[models.SkippedFile(file, reason) for file, reason in report.skipped.items()],
        histories=[
            filled(models.HistoryEntry, history, series=[_series(series) for series in history.series])
            for history in report.histories
        ],
        gate=models.HistoryGate(outcome, met, not_evaluable, awaiting) if outcome else None,
    )
    return encoded(document)


def encoded(document: Document) -> str:
    """Return the JSON of a document. NaN and infinity become null."""
    return json_text(_codec().dump_python(document, warnings=False))


def decoded(text: str) -> Document:
    """Return the document of a JSON text. Raises ValueError (pydantic) unless it matches the schema."""
    return _codec().validate_json(text, strict=True)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of all documents."""
    whole = _codec().json_schema(mode="serialization", schema_generator=_Untitled)
    return {"$schema": GenerateJsonSchema.schema_dialect, "title": "A report of pgdyno", **whole}


@cache
def _codec() -> TypeAdapter[Document]:
    config = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)
    return TypeAdapter(Document, config=config)


class _Untitled(GenerateJsonSchema):
    """Without titles, which repeat the names of the fields."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


def _file(study: StudyReport) -> models.CaseFile | models.CasesFile:
    findings = study.findings
    tables = models.StudyTables(
        lost_question=study.lost or None,
        published=findings.published if study.published else None,
        published_notes=findings.source_notes if study.published else None,
        published_changes=[_published_change(one) for one in findings.source_changes] or None,
        published_not_repeated=findings.not_repeated or None,
        capacity=_capacity(findings.capacity) if findings.capacity else None,
        durability=crash_json(study.crashes) if study.crashes else None,
        factors=_factors(findings.effects, findings) if findings.effects else None,
        scalability=_scalability(findings.scalability, findings) if findings.scalability else None,
    )
    if study.only:
        return models.CaseFile(**vars(case_entry(study.only)), **vars(tables))
    return models.CasesFile(**vars(_cases(study)), **vars(tables))


def _published_change(one: SourceChange) -> models.PublishedChangeEntry:
    return filled(models.PublishedChangeEntry, one, agreement=one.agreement.value)


def _hosts(report: HostsReport) -> models.HostsEntry:
    findings, first = report.findings, report.findings.first.first
    return filled(
        models.HostsEntry,
        report,
        pgdyno_report=VERSION,
        sentences=[f"{headline.sentence} {headline.more}" for headline in report.headlines],
        primary=first.primary.key,
        over_hosts=[
            _over_hosts(over, first.study.plan if over.key == first.primary.key else None)
            for over in [*findings.effects, *findings.averages, *findings.statements]
        ],
        hosts=[
            models.HostEntry(
                host.name, host.facts, {file: _file(report.studies[file]) for file in host.studies}
            )
            for host in findings.hosts
        ],
    )


def _over_hosts(over: OverHosts, plan: Study | None) -> models.OverHostsEntry:
    pooled = over.pooled
    return filled(
        models.OverHostsEntry,
        over,
        metric=over.key,
        verdict=over.verdict(plan) if plan else None,
        pooled=over.percent,
        tau=pooled.tau if len(pooled.hosts) > 1 else None,
        i2=pooled.i2,
        p_value=pooled.p_value,
        signs_differ=pooled.signs_differ,
        hosts=[
            models.HostShare(of.host, of.summary.percent(over.better), weight)
            for of, weight in zip(pooled.hosts, pooled.weights, strict=True)
        ],
    )


def _cases(study: StudyReport) -> models.CasesEntry:
    first = study.findings.first
    return filled(
        models.CasesEntry,
        study,
        pgdyno_report=VERSION,
        changes=first.study.changes,
        over_cases=[
            filled(
                models.OverCasesEntry,
                over,
                sentence=headline.sentence,
                verdicts=dict(over.verdicts),
                primary=first.primary.key,
                average=over.average.percent(first.primary.better) if over.average else None,
            )
            for over, headline in zip(study.findings.over_cases, study.headlines, strict=True)
        ],
        cases=[case_entry(report) for report in study.cases.values()],
    )


def _gate(of: Gate | None) -> models.GateEntry | None:
    if of is None:
        return None
    return filled(
        models.GateEntry,
        of,
        conditions=[condition.text for condition in of.conditions],
        met=[
            filled(models.GateVerdict, one.of, condition=one.condition.text, sentence=gate_sentence(one.of))
            for one in of.met
        ],
        inconclusive=[
            filled(
                models.InconclusiveVerdict,
                one.of,
                condition=one.condition.text,
                sentence=gate_sentence(one.of),
                reason=one.reason,
            )
            for one in of.inconclusive
        ],
        conditions_not_evaluable=list(dict.fromkeys(one.condition.text for one in of.not_evaluable)),
        not_evaluable=[
            filled(
                models.NotEvaluableVerdict,
                one.of,
                condition=one.condition.text,
                reason=why_not_evaluated(one),
            )
            for one in of.not_evaluable
            if one.of is not None
        ],
        trials_lost=of.lost,
    )


def _factors(effects: Effects, findings: StudyFindings) -> models.FactorsEntry:
    plan, factors = findings.first.study.plan, effects.design.factors
    return models.FactorsEntry(
        metric=effects.design.metric.key,
        factors=factors,
        main=[_contrast(contrast, effects) for contrast in effects.main],
        interactions=[_contrast(contrast, effects) for contrast in effects.interactions],
        not_compared=effects.not_compared,
        simple_effects=[
            models.ConditionalContrast(**vars(_contrast(contrast, effects)), other=other, at=level)
            for (_, other), found in effects.simple_effects.items()
            for level, contrast in found
        ],
        sentences=[factor_sentence(effects, factor.name, plan) for factor in factors],
    )


def _contrast(contrast: Contrast, effects: Effects) -> models.ContrastEntry:
    combined = contrast.combined
    return filled(
        models.ContrastEntry,
        contrast.change,
        by=contrast.by,
        effect=combined and combined.percent(effects.design.metric.better),
        p_value=combined and combined.summary.p_value,
        combinations=len(combined.names) if combined else 0,
        of_combinations=contrast.combinations,
    )


def _capacity(found: Capacity) -> models.CapacityEntry:
    return models.CapacityEntry(
        limit=found.text,
        arms=[
            filled(
                models.ArmCapacityEntry,
                kept,
                capacity=_unbounded(kept.capacity),
                passes_above=kept.above,
                passes_below=kept.below,
                latency_ms={f"{rate:g}": _unbounded(level) for rate, level in kept.latency_ms.items()},
                sentence=capacity_sentence(kept, found),
            )
            for kept in found.arms
        ],
        changes=[
            filled(
                models.CapacityChangeEntry,
                change,
                arm=change.name,
                effect=_unbounded(change.percent),
                verdict=change.decision.verdict,
                sentence=capacity_change_sentence(change),
            )
            for change in found.changes
        ],
    )


def _scalability(found: Scalability, findings: StudyFindings) -> models.ScalabilityEntry:
    return filled(
        models.ScalabilityEntry,
        found,
        metric=found.metric.key,
        curves=[_curve(curve) for curve in found.curves],
        differences=[
            filled(
                models.CurveDifferenceEntry,
                of,
                curve=of.name,
                rate_of_one=_unbounded(of.rate_of_one),
                sigma=_unbounded(of.sigma),
                kappa=_unbounded(of.kappa),
                peak=_unbounded(of.peak),
                ratios={clients: _unbounded(ratio) for clients, ratio in of.ratios.items()},
            )
            for of in found.differences
        ],
        sentences=scalability_sentences(found, findings.first.study.plan),
    )


def _curve(curve: Curve) -> models.CurveEntry:
    return filled(
        models.CurveEntry,
        curve,
        rate_of_one=_unbounded(curve.rate_of_one),
        sigma=_unbounded(curve.sigma),
        kappa=_unbounded(curve.kappa),
        contention=_unbounded(curve.contention),
        coherency=_unbounded(curve.coherency),
        knee=_unbounded(curve.knee),
        peak=_unbounded(curve.peak),
        measured={clients: _unbounded(level) for clients, level in curve.measured.items()},
        fitted={clients: float(curve.law.at(clients)[0]) for clients in curve.clients},
        lack_of_fit=filled(models.LackOfFitEntry, curve.fitting),
    )


def _unbounded(of: Estimate | None) -> models.UnboundedEstimate | None:
    return models.UnboundedEstimate(**vars(of)) if of else None


def _series(series: HistorySeries) -> models.SeriesEntry:
    return filled(
        models.SeriesEntry,
        series.key,
        better=series.better,
        level=series.level,
        points=[
            filled(models.PointEntry, of.estimate, file=of.file, created_unix_s=of.created_unix_s)
            for of in series.points
        ],
        changes=[_change(series, change) for change in series.changes],
        awaiting=_change(series, series.awaiting) if series.awaiting else None,
    )


def _change(series: HistorySeries, change: HistoryChange) -> models.HistoryChangeEntry:
    at = change.confirmed_at
    return filled(
        models.HistoryChangeEntry,
        change,
        file=series.points[change.at].file,
        confirmed_by=None if at is None else series.points[at].file,
        files_before=len(change.before),
        files_since=len(change.after),
        sentence=history_change_sentence(series, change),
    )
