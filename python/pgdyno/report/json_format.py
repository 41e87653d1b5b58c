"""The report as JSON. ``pgdyno_report`` is the version of the format; within a version, keys are only added.

::

    pgdyno_report   1 title, command, created_unix_s, ended_because (null while it runs), pgdyno_version
    percent_of      definition of the percentages, as text
    verdict         with two arms the verdict of the comparison, else null
    plan, host      as in the results file
    arms            [{name, spec, clients, server, settings_requested, safety, trials: {status: n}, levels:
                    {metric: estimate}, latency_ms: {kind: {n, p50 … max}}, counts: {kind: counts},
                    driver_memory_bytes}], baseline first
    comparisons     [{arm, baseline, verdict, sentence, margin, primary, effects: {metric or latency key:
                    effect}, telemetry: {key of docs/reference/metrics.md: effect}, statements_average, why,
                    blocks, blocks_dropped, blocks_needed, detectable_percent}]
    caveats         [{code, sentence, remedy}]
    method, derived texts
    probes          {cpu_share, us_per_transaction}: their overhead, or null
    anomalies       {trials: [{trial, block, arm, value, named, own: {off_percent, score, limit}, ratio,
                    causes}], most anomalous first, without}
    profiles        [{arm, baseline, blocks, samples, hz, functions}]

``why`` is null or ``{sentences, whole_is, unit, by_resource, by_statement, looks, …}``. ``by_resource`` and
``by_statement`` are null or ``{whole, parts: {key: {a, b, difference, low, high, confidence, n, p_value,
significant, by_block}}}``.

A study of several cases has ``over_cases`` ([{arm, baseline, sentence, verdicts: {verdict: n}, primary,
average}], average an estimate over the passes), ``changes`` (settings fitted to this machine), ``caveats``
and ``cases``: for each case a document as above, with its ``case`` (name) and ``levels``. If several factors
vary, it has ``factors`` (``json_sections.py``).

A report over several hosts has ``sentences``, ``primary``, ``over_hosts`` ([{case, arm, baseline, metric,
name, verdict (of the primary metric, else null), pooled, tau, i2, p_value, signs_differ, hosts: [{host, own,
weight}], absent}]), ``caveats`` and ``hosts`` ([{host, facts, files}]; ``files`` maps a file to a document as
above). ``pooled`` and ``own`` are estimates; the n of ``pooled`` is the number of hosts. ``tau`` is on the
natural log scale. ``case`` is empty with a single case, and "average" for the average over cases.

Every document has ``verdicts`` on the primary metric ([{case, arm, baseline, metric, verdict, percent (an
estimate or null), p_value}]) and ``gate``: null, or {conditions, holds, confidence, family, tripped,
held_back, absent (conditions), unjudged, trials_lost}. ``tripped`` and ``held_back`` are lists like
``verdicts``, with condition and sentence; ``unjudged`` has the condition.

An estimate is ``{value, low, high, confidence, unit, n, better}``; low and high are null if n is too small
for an interval. With fewer than 5 blocks, the interval is Student's t and relies on normality: the other
formats omit it, and it decides no verdict. An effect is an estimate in percent of the baseline, with
``log_ratios`` (block → natural log), ``p_value``, ``interval`` ("student", or "anytime": valid at any
stopping time) and ``bootstrap`` (null or [low, high]). Blocks count from 0, as in the results file. Unknown
values are null.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from pgdyno.analysis.comparison.paired_comparison import Comparison, Effect
from pgdyno.analysis.findings.case_findings import ArmFindings, Findings
from pgdyno.analysis.findings.gates import Gate
from pgdyno.analysis.findings.pooled_hosts import OverHosts
from pgdyno.estimate import Better, Estimate
from pgdyno.report import dips_section, noise_section, outlier_section, steady_state_section
from pgdyno.report.case_report import Headline, Report
from pgdyno.report.gate_section import as_object as gate_as_object
from pgdyno.report.gate_section import verdicts
from pgdyno.report.hidden_characters import visible_json
from pgdyno.report.hosts_report import HostsReport
from pgdyno.report.json_sections import over_all
from pgdyno.report.profile_section import as_object as profiles_as_object
from pgdyno.report.study_report import StudyReport
from pgdyno.report.why_section import WhyReport
from pgdyno.report.why_section import as_object as as_reason
from pgdyno.results.records import StudyRecord

VERSION = 1


def to_json(study: StudyReport | HostsReport, gate: Gate | None = None) -> str:
    """Return the JSON document, indented and without NaN."""
    whole = _of_hosts(study) if isinstance(study, HostsReport) else _of_study(study)
    whole |= {"verdicts": verdicts(study.findings), "gate": gate_as_object(gate)}
    return visible_json(json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False))


def _of_study(study: StudyReport) -> dict[str, Any]:
    whole = as_object(study.only) if study.only else _of_cases(study)
    if study.published:
        whole["published"] = [asdict(of) for of in study.findings.published]
    return whole | over_all(study.findings)


def _of_hosts(study: HostsReport) -> dict[str, Any]:
    """Return the pooled results, and the document of each file."""
    findings = study.findings
    first = findings.first.first
    return {
        "pgdyno_report": VERSION,
        "title": study.title,
        "command": study.command,
        "percent_of": study.percent_of,
        "sentences": [f"{headline.sentence} {headline.more}" for headline in study.headlines],
        "primary": first.primary.key,
        "over_hosts": [
            _over_hosts(over, first.study.plan.margin if over.key == first.primary.key else None)
            for over in [*findings.effects, *findings.averages, *findings.statements]
        ],
        "caveats": [asdict(caveat) for caveat in study.caveats],
        "hosts": [
            {
                "host": host.name,
                "facts": host.facts,
                "files": {file: _of_study(study.studies[file]) for file in host.studies},
            }
            for host in findings.hosts
        ],
    }


def _over_hosts(over: OverHosts, margin: float | None) -> dict[str, Any]:
    pooled = over.pooled
    several = len(pooled.hosts) > 1
    return {
        "case": over.case,
        "arm": over.arm,
        "baseline": over.baseline,
        "metric": over.key,
        "name": over.name,
        "verdict": None if margin is None else over.verdict(margin),
        "pooled": _estimate(over.percent),
        "tau": pooled.tau if several else None,
        "i2": pooled.i2,
        "p_value": pooled.p_value,
        "signs_differ": pooled.signs_differ,
        "hosts": [
            {"host": of.host, "own": _estimate(of.spread.percent(over.better)), "weight": weight}
            for of, weight in zip(pooled.hosts, pooled.weights, strict=True)
        ],
        "absent": list(over.absent),
    }


def _of_cases(study: StudyReport) -> dict[str, Any]:
    """Return the results over cases, and the document of each case."""
    first = study.findings.first
    return {
        "pgdyno_report": VERSION,
        "title": study.title,
        "command": study.command,
        "percent_of": study.percent_of,
        "changes": list(first.study.changes),
        "over_cases": [
            {
                "arm": over.arm,
                "baseline": over.baseline,
                "sentence": headline.sentence,
                "verdicts": dict(over.verdicts),
                "primary": first.primary.key,
                "average": _estimate(over.average.percent(first.primary.better)) if over.average else None,
            }
            for over, headline in zip(study.findings.over_cases, study.headlines, strict=True)
        ],
        "caveats": [asdict(caveat) for caveat in study.caveats],
        "cases": [as_object(report) for report in study.cases.values()],
    }


def as_object(report: Report) -> dict[str, Any]:
    """Return the document of one case as Python values."""
    findings, study = report.findings, report.findings.study
    reasons = {one.why.arm.arm: one for one in report.why}
    comparisons = [
        _comparison(comparison, headline, findings, reasons.get(comparison.arm.arm))
        for comparison, headline in zip(findings.comparisons, report.headlines, strict=True)
    ]
    return {
        "pgdyno_report": VERSION,
        "title": report.title,
        "case": study.case,
        "levels": study.levels,
        "command": report.command,
        "created_unix_s": study.created_unix_s,
        "ended_because": study.ended_because,
        "pgdyno_version": study.pgdyno_version,
        "host": study.host,
        "percent_of": report.percent_of,
        "verdict": comparisons[0]["verdict"] if len(comparisons) == 1 else None,
        "plan": _plan(study),
        "arms": [_arm(of, findings) for of in findings.arms],
        "comparisons": comparisons,
        "caveats": [asdict(caveat) for caveat in report.caveats],
        "method": list(report.method),
        "derived": report.derived,
        "probes": _probes(findings),
        "noise": noise_section.as_value(findings),
        "anomalies": outlier_section.as_object(findings.outliers),
        "profiles": profiles_as_object(findings),
    }


def _plan(study: StudyRecord) -> dict[str, Any]:
    plan = study.plan
    return {
        "schedule": plan.schedule,
        "workload": plan.workload.model_dump(mode="json"),
        "margin": plan.margin,
        "seed": plan.seed,
        "slice_s": plan.turn_s,
        "slices_per_arm": plan.slices_per_trial(),
        "discard_s": plan.discard_s,
        "warm_up_s": plan.warmup_s,
        "window_s": plan.window_s,
        "blocks_max": plan.blocks_max,
        "budget_s": plan.budget_s,
        "confidence": plan.confidence,
        "pacing": plan.pacing,
        "rate_per_s": plan.rate_per_s,
        "stops_on_verdict": plan.stops_on_verdict,
        "details": {
            "study": plan.model_dump(mode="json"),
            "arms": study.arm_levels,
            "why_no_aa": study.why_no_aa,
            "aa_before": study.aa_before,
            "resumed_for_more": plan.resumed_for_more,
        },
    }


def _probes(findings: Findings) -> dict[str, Any] | None:
    """Return the overhead of the probes."""
    cost = findings.telemetry.cost
    if cost is None:
        return None
    names = {of.arm.arm: of.arm.name for of in findings.arms}
    return {
        "cpu_share": cost.share,
        "us_per_transaction": {names[arm]: us for arm, us in cost.us_per_tx.items()},
    }


def _arm(of: ArmFindings, findings: Findings) -> dict[str, Any]:
    telemetry, arm = findings.telemetry, of.arm.arm
    return {
        "name": of.arm.name,
        "spec": of.arm.spec,
        "clients": of.arm.clients,
        "server": of.arm.server,
        "settings_requested": of.arm.settings_requested,
        "safety": [asdict(badge) for badge in of.arm.safety],
        "trials": dict(of.trials_by_status),
        "levels": {key: _estimate(level) for key, level in of.levels.items()},
        "latency_ms": {
            kind: {"n": int(pairs[:, 1].sum()), **of.quantiles_ms(kind)} for kind, pairs in of.latency.items()
        },
        "counts": {kind: asdict(counts) for kind, counts in of.counts.items()},
        "driver_memory_bytes": of.driver_memory_bytes,
        "telemetry": {key: _estimate(level) for key, level in telemetry.levels[arm].items()},
        "dips": dips_section.as_object(findings.dips.get(arm)),
        "not_in_version": dict(telemetry.missing.get(arm, {})),
        "steadiness": steady_state_section.as_objects(findings.steady_states, arm),
        "per_hour": {
            drift.key: {**(_estimate(drift.estimate) or {}), "percent_of_mean": _estimate(drift.percent)}
            for drift in findings.drifts[arm]
        },
    }


def _comparison(
    comparison: Comparison, headline: Headline, findings: Findings, why: WhyReport | None
) -> dict[str, Any]:
    decision, arm, telemetry = comparison.decision, comparison.arm.arm, findings.telemetry
    average = telemetry.average.get(arm)
    return {
        "arm": comparison.arm.name,
        "baseline": comparison.baseline.name,
        "verdict": comparison.verdict,
        "sentence": headline.sentence,
        "margin": comparison.margin,
        "primary": findings.primary.key,
        "effects": {key: _effect(effect) for key, effect in comparison.effects.items()},
        "telemetry": {key: _effect(effect) for key, effect in telemetry.effects[arm].items()},
        "statements_average": _estimate(average.percent(Better.LESS)) if average else None,
        "why": None if why is None else {"sentences": list(why.sentences), **as_reason(why.why)},
        "blocks": list(comparison.blocks),
        "blocks_dropped": list(comparison.dropped),
        "blocks_needed": decision.blocks_needed if decision else None,
        "detectable_percent": decision.detectable_percent if decision else None,
    }


def _effect(effect: Effect) -> dict[str, Any]:
    checked = effect.bootstrap
    return {
        **(_estimate(effect.percent) or {}),
        "p_value": effect.spread.p_value,
        "interval": effect.spread.method,
        "bootstrap": None if checked is None else [checked.low, checked.high],
        "log_ratios": {str(block): d for block, d in effect.log_ratios.items()},
    }


def _estimate(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else asdict(estimate)
