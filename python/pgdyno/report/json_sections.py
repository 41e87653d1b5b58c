"""JSON of the results over the cases of a study: factors, capacity, scalability.

::

    factors      {metric, names: [{name, levels, compared}], main: [contrast], interactions: [contrast],
                 at: [contrast with other and at: that factor and its level], sentences}
    scalability  {metric, curves: [{name, levels, passes, rate_of_one, sigma, kappa, contention, coherency,
                 knee, peak, measured, fitted, lack_of_fit: {f, p_value}, left_out}], differences: [{curve,
                 baseline, rate_of_one, sigma, kappa, peak, ratios}], untold, sentences}
    capacity     {limit, arms: [{name, capacity, by_pass, passes_above, passes_below, latency_ms: {rate:
                 estimate}, sentence}], changes: [{arm, baseline, effect, verdict, sentence}]}

A contrast is ``{factor, first, level, by: null or {factor, first, level}, effect, p_value, combinations,
of_combinations}``. ``effect`` is an estimate in percent whose n counts passes, or null if unknown. For an
interaction, it is the change of the ratio.

All values of a curve are estimates except ``fitted``. ``measured``, ``fitted`` and ``ratios`` are by number
of clients. Sigma is in percent, kappa per million. A knee or peak without a ``high`` has no upper limit.
A latency without a value is infinite: too many transactions were unanswered.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from pgdyno.analysis.findings.capacity import Capacity
from pgdyno.analysis.findings.factor_effects import Contrast, Effects
from pgdyno.analysis.findings.scalability import Curve, Scalability
from pgdyno.analysis.findings.study_findings import StudyFindings
from pgdyno.estimate import Estimate
from pgdyno.report import capacity_section, scalability_section
from pgdyno.report.factors_section import factor_sentence


def over_all(findings: StudyFindings) -> dict[str, Any]:
    """Return the keys of a study with several factors; empty if a single factor varies."""
    found = {}
    if findings.capacity is not None:
        found["capacity"] = _capacity(findings.capacity)
    if findings.effects is not None:
        found["factors"] = _effects(findings.effects, findings)
    if findings.scalability is not None:
        found["scalability"] = _scalability(findings.scalability, findings)
    return found


def _effects(effects: Effects, findings: StudyFindings) -> dict[str, Any]:
    plan, factors = findings.first.study.plan, effects.design.factors
    return {
        "metric": effects.design.metric.key,
        "names": [asdict(factor) for factor in factors],
        "main": [_contrast(contrast, effects) for contrast in effects.main],
        "interactions": [_contrast(contrast, effects) for contrast in effects.interactions],
        "at": [
            {**_contrast(contrast, effects), "other": other, "at": level}
            for (_, other), found in effects.at.items()
            for level, contrast in found
        ],
        "sentences": [factor_sentence(effects, factor.name, plan) for factor in factors],
    }


def _contrast(contrast: Contrast, effects: Effects) -> dict[str, Any]:
    combined = contrast.combined
    return {
        **asdict(contrast.change),
        "by": None if contrast.by is None else asdict(contrast.by),
        "effect": None if combined is None else asdict(combined.percent(effects.design.metric.better)),
        "p_value": None if combined is None else combined.spread.p_value,
        "combinations": 0 if combined is None else len(combined.names),
        "of_combinations": contrast.combinations,
    }


def _capacity(found: Capacity) -> dict[str, Any]:
    return {
        "limit": found.text,
        "arms": [
            {
                "name": kept.name,
                "capacity": _estimate(kept.capacity),
                "by_pass": {str(number): rate for number, rate in kept.by_pass.items()},
                "passes_above": kept.above,
                "passes_below": kept.below,
                "latency_ms": {f"{rate:g}": _estimate(level) for rate, level in kept.latency_ms.items()},
                "sentence": capacity_section.capacity_sentence(kept, found),
            }
            for kept in found.arms
        ],
        "changes": [
            {
                "arm": change.name,
                "baseline": change.baseline,
                "effect": _estimate(change.percent),
                "verdict": change.decision.verdict,
                "sentence": capacity_section.capacity_change_sentence(change),
            }
            for change in found.changes
        ],
    }


def _scalability(found: Scalability, findings: StudyFindings) -> dict[str, Any]:
    return {
        "metric": found.metric.key,
        "curves": [_curve(curve) for curve in found.curves],
        "differences": [
            {
                "curve": of.name,
                "baseline": of.baseline,
                "rate_of_one": _estimate(of.rate_of_one),
                "sigma": _estimate(of.sigma),
                "kappa": _estimate(of.kappa),
                "peak": _estimate(of.peak),
                "ratios": {str(clients): _estimate(ratio) for clients, ratio in of.ratios.items()},
            }
            for of in found.differences
        ],
        "untold": list(found.without_curve),
        "sentences": scalability_section.scalability_sentences(found, findings.first.study.plan),
    }


def _curve(curve: Curve) -> dict[str, Any]:
    return {
        "name": curve.name,
        "levels": dict(curve.levels),
        "passes": list(curve.passes),
        "rate_of_one": _estimate(curve.rate_of_one),
        "sigma": _estimate(curve.sigma),
        "kappa": _estimate(curve.kappa),
        "contention": _estimate(curve.contention),
        "coherency": _estimate(curve.coherency),
        "knee": _estimate(curve.knee),
        "peak": _estimate(curve.peak),
        "measured": {str(clients): _estimate(level) for clients, level in curve.measured.items()},
        "fitted": {str(clients): float(curve.law.at(clients)[0]) for clients in curve.clients},
        "lack_of_fit": {"f": curve.fitting.f, "p_value": curve.fitting.p_value},
        "left_out": list(curve.left_out),
    }


def _estimate(estimate: Estimate | None) -> dict[str, Any] | None:
    """Return an estimate for JSON, with null for infinity."""
    if estimate is None:
        return None
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in asdict(estimate).items()
    }
