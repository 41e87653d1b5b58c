"""One case as the dataclass for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, TypeVar

from pgdyno.analysis.causes.outlier_trials import OutlierTrials
from pgdyno.analysis.causes.throughput_dips import ArmDips
from pgdyno.analysis.causes.time_breakdown import TimePart, Waterfall
from pgdyno.analysis.comparison.paired_comparison import Comparison, Effect
from pgdyno.analysis.comparison.query_changes import QueryChange, QueryChanges
from pgdyno.analysis.findings.case_findings import ArmFindings, Findings
from pgdyno.analysis.findings.driver_node_findings import driver_node_summaries
from pgdyno.analysis.statistics.effect import percent_of
from pgdyno.analysis.statistics.outliers import VALUES_MIN
from pgdyno.analysis.steady_state.stationarity import Trend
from pgdyno.analysis.telemetry.metrics import latency_key
from pgdyno.estimate import Better
from pgdyno.report import json_case_models as models
from pgdyno.report.case_report import Headline, Report
from pgdyno.report.noise_section import blocks_of_floor, noise_sentence
from pgdyno.report.query_section import query_sentence
from pgdyno.report.why_section import WhyReport, in_order
from pgdyno.results.records import StudyRecord
from pgdyno.study.stopping_rule import VERDICT_BLOCKS_MIN

VERSION: Literal[2] = 2
"""Version of the format."""


Filled = TypeVar("Filled")


def filled(kind: type[Filled], source: object, **others: Any) -> Filled:
    """Return a dataclass with the attributes of ``source`` for its fields, except for ``others``."""
    names = [field.name for field in fields(kind) if field.name not in others]  # type: ignore[arg-type]
    return kind(**{name: getattr(source, name) for name in names}, **others)


def case_entry(report: Report) -> models.CaseEntry:
    """Return the document of one case."""
    findings, study = report.findings, report.findings.study
    reasons = {one.why.arm.arm: one for one in report.why}
    comparisons = [
        _comparison(comparison, headline, findings, reasons.get(comparison.arm.arm))
        for comparison, headline in zip(findings.comparisons, report.headlines, strict=True)
    ]
    return filled(
        models.CaseEntry,
        report,
        pgdyno_report=VERSION,
        case=study.case,
        levels=study.levels,
        created_unix_s=study.created_unix_s,
        ended_because=study.ended_because,
        pgdyno_version=study.pgdyno_version,
        host=study.host,
        verdict=comparisons[0].verdict if len(comparisons) == 1 else None,
        coverage=study.plan.workload.coverage,
        plan=_plan(study),
        arms=[_arm(of, findings) for of in findings.arms],
        driver_nodes=driver_node_summaries(findings.trials),
        comparisons=comparisons,
        probes=_probes(findings),
        noise=_noise(findings),
        outlier_trials=_outlier_trials(findings.outliers),
        profiles=[
            filled(models.ProfileEntry, of, arm=of.arm.name, baseline=of.baseline.name)
            for of in findings.profiles
        ],
    )


def _plan(study: StudyRecord) -> models.PlanEntry:
    plan = study.plan
    return filled(
        models.PlanEntry,
        plan,
        workload=plan.workload.model_dump(mode="json"),
        slice_s=plan.turn_s,
        slices_per_arm=plan.slices_per_trial(),
        warm_up_s=plan.warmup_s,
        details=models.PlanDetails(
            study=plan.model_dump(mode="json"),
            arms=study.arm_levels,
            why_no_aa=study.why_no_aa,
            aa_before=study.aa_before,
            resumed_for_more=plan.resumed_for_more,
        ),
    )


def _probes(findings: Findings) -> models.ProbesEntry | None:
    cost = findings.telemetry.cost
    if cost is None:
        return None
    names = {of.arm.arm: of.arm.name for of in findings.arms}
    return models.ProbesEntry(cost.share, {names[arm]: us for arm, us in cost.us_per_tx.items()})


def _arm(of: ArmFindings, findings: Findings) -> models.ArmEntry:
    telemetry, arm = findings.telemetry, of.arm.arm
    return filled(
        models.ArmEntry,
        of.arm,
        deviations=[
            filled(models.DeviationEntry, one) for one in findings.study.plan.driving(arm).workload.deviations
        ],
        trials=of.trials_by_status,
        levels=of.levels,
        latency_ms={
            kind: {
                "n": latencies.n,
                **{name: ms and ms.value for name, ms in latencies.quantiles_ms().items()},
            }
            for kind, latencies in of.latency.items()
        },
        lower_bounds={
            **of.bounds,
            **{
                latency_key(kind, name): ms.value
                for kind, latencies in of.latency.items()
                for name, ms in latencies.quantiles_ms().items()
                if ms is not None and ms.is_bound
            },
        },
        counts=of.counts,
        driver_memory_bytes=of.driver_memory_bytes,
        telemetry=telemetry.levels[arm],
        dips=_dips(findings.dips.get(arm)),
        not_in_version=telemetry.missing.get(arm, {}),
        steady_state=_steady_state(findings, arm),
        per_hour={
            drift.key: filled(models.SlopeEntry, drift.estimate, percent_of_mean=drift.percent)
            for drift in findings.drifts[arm]
        },
    )


def _dips(of: ArmDips | None) -> models.DipsEntry | None:
    if of is None:
        return None
    return filled(
        models.DipsEntry,
        of,
        n=len(of.dips),
        share_of_time=of.share_of_time(of.dips),
        share_of_transactions=of.share_of_transactions(of.dips),
        unexplained=len(of.unexplained),
        dips=[filled(models.DipEntry, dip) for dip in of.dips],
    )


def _steady_state(findings: Findings, arm: int) -> models.SteadyStateEntry | None:
    of = next((one for one in findings.steady_states if one.arm.arm == arm), None)
    if of is None:
        return None
    warm = of.warm_ups
    return models.SteadyStateEntry(
        warm_up=filled(models.WarmUpsEntry, warm, never_steady=warm.unsteady) if warm else None,
        rate_trend=_trend(of.rate_trend),
        effect_trend=_trend(of.effect_trend),
        steps=of.steps,
        checkpoints=of.cycles,
    )


def _trend(of: Trend | None) -> models.TrendEntry | None:
    if of is None:
        return None
    return filled(
        models.TrendEntry, of.percent, p_value=of.p_value, window_s=of.span_s, truncation_s=of.truncation_s
    )


def _comparison(
    comparison: Comparison, headline: Headline, findings: Findings, why: WhyReport | None
) -> models.ComparisonEntry:
    decision, arm, telemetry = comparison.decision, comparison.arm.arm, findings.telemetry
    average = telemetry.average.get(arm)
    return filled(
        models.ComparisonEntry,
        comparison,
        arm=comparison.arm.name,
        baseline=comparison.baseline.name,
        sentence=headline.sentence,
        primary=findings.primary.key,
        effects=_effects(comparison.effects),
        telemetry=_effects(telemetry.effects[arm]),
        statements_average=average.percent(Better.LESS) if average else None,
        queries=[_queries(of) for of in findings.queries if of.arm.arm == arm],
        why=_why(why) if why else None,
        blocks_dropped=comparison.dropped,
        blocks_needed=decision.blocks_needed if decision else None,
        detectable_percent=decision.detectable_percent if decision else None,
    )


def _effects(effects: Mapping[str, Effect]) -> dict[str, models.EffectEntry]:
    return {key: _change(effect) for key, effect in effects.items()}


def _change(of: Effect | QueryChange) -> models.EffectEntry:
    return filled(
        models.EffectEntry,
        of.percent,
        p_value=of.summary.p_value,
        interval=of.summary.method,
        log_ratios=of.log_ratios,
    )


def _queries(of: QueryChanges) -> models.QueriesEntry:
    changes = [filled(models.QueryEntry, one, change=_change(one)) for one in of.changes]
    return filled(models.QueriesEntry, of, sentence=query_sentence(of), changes=changes)


def _why(of: WhyReport) -> models.WhyEntry:
    why = of.why
    return models.WhyEntry(
        sentences=of.sentences,
        total_is="mean latency" if why.latency else "clients × time / transactions",
        unit="µs per transaction",
        by_resource=_waterfall(why.by_resource),
        by_statement=_waterfall(why.by_statement),
        wait_samples=why.samples,
        waits_multiplied_by=why.scaled,
        cpu_of_all_processes=why.cpu_is_of_all,
        nested_statements_counted_twice=why.twice,
    )


def _waterfall(of: Waterfall | None) -> models.WaterfallEntry | None:
    if of is None:
        return None
    return models.WaterfallEntry(_part(of.total), {part.key: _part(part) for part in in_order(of)})


def _part(part: TimePart) -> models.TimePartEntry:
    change = part.difference
    return filled(
        models.TimePartEntry,
        part,
        baseline=part.a_us,
        arm=part.b_us,
        difference=change.value,
        low=change.low,
        high=change.high,
        confidence=change.confidence,
        n=change.n,
    )


def _noise(findings: Findings) -> models.NoiseEntry:
    noise, blocks, alarms = findings.noise, blocks_of_floor(findings), findings.noise.alarms
    interval, summary = noise.sd_interval, noise.summary
    return models.NoiseEntry(
        why_no_aa=noise.why_no_aa or None,
        sentence=noise_sentence(findings),
        sd_percent=_percent(noise.sd),
        sd_interval_percent=(percent_of(interval[0]), percent_of(interval[1])) if interval else None,
        aa_blocks=len(noise.log_ratios),
        aa_blocks_before=len(noise.before),
        aa_blocks_left_out=noise.left_out,
        blocks=blocks,
        floor_percent=_percent(noise.floor(blocks)),
        detectable_percent=_percent(noise.detectable(blocks)),
        verdict=noise.verdict if summary is not None and summary.n >= VERDICT_BLOCKS_MIN else None,
        false_alarm=noise.is_false_alarm,
        aa_series=filled(models.AaSeriesEntry, alarms, rate_interval=alarms.interval) if alarms else None,
        log_ratios=noise.log_ratios,
    )


def _percent(log_ratio: float | None) -> float | None:
    return None if log_ratio is None else percent_of(log_ratio)


def _outlier_trials(found: OutlierTrials) -> models.OutlierTrialsEntry:
    return models.OutlierTrialsEntry(
        trials_min=VALUES_MIN,
        trials=[
            filled(
                models.OutlierEntry,
                one,
                arm=one.arm.name,
                causes=[
                    models.CauseEntry(
                        covariate=cause.covariate.key,
                        value=cause.value,
                        median=cause.median,
                        unit="µs" if cause.covariate.key == "server_cpu" else cause.covariate.unit,
                    )
                    for cause in one.causes
                ],
            )
            for one in found.trials
        ],
        without_block=[
            models.WithoutBlockEntry(
                arm=left.arm.name,
                block=left.block,
                change_percent=left.without.value,
                low=left.without.low,
                high=left.without.high,
            )
            for left in found.without_block
        ],
    )
