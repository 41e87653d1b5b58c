"""What holds over the factors of a study, for programs.

::

    factors     {metric, names: [{name, levels, compared}], main: [contrast], interactions: [contrast],
                at: [contrast with other and at: that factor and its level], sentences}

A contrast is ``{factor, first, level, by: null or {factor, first, level}, effect, p_value, combinations,
of_combinations}``. ``effect`` is an estimate in percent whose n counts passes, of an interaction the ratio
after against the ratio before; null where it cannot be told.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pgdyno.analysis.factorial import Contrast, Effects
from pgdyno.analysis.study import StudyFindings
from pgdyno.report.factors import sentence


def over_all(findings: StudyFindings) -> dict[str, Any]:
    """The keys that a study has of itself; none of a comparison in which one thing varies."""
    return {} if findings.effects is None else {"factors": _effects(findings.effects, findings)}


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
        "sentences": [sentence(effects, factor.name, plan) for factor in factors],
    }


def _contrast(contrast: Contrast, effects: Effects) -> dict[str, Any]:
    combined = contrast.combined
    return {
        **asdict(contrast.change),
        "by": None if contrast.by is None else asdict(contrast.by),
        "effect": None if combined is None else asdict(combined.percent(effects.design.metric.better)),
        "p_value": None if combined is None else combined.spread.p_value,
        "combinations": 0 if combined is None else len(combined.names),
        "of_combinations": contrast.among,
    }
