"""What was measured of one case, by metric, arm and block: what published figures are held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgdyno.analysis.telemetry.metrics import CAPACITY, DRIVER_CPU, NOPM, SERVER_CPU, TPM, TPS, Metric
from pgdyno.analysis.telemetry.quantities_of_parts import BY_KEY
from pgdyno.analysis.telemetry.telemetry import Telemetry, parted
from pgdyno.estimate import Better
from pgdyno.evidence.records import StudyRecord, Trial, TrialStatus

Levels = Mapping[str, str]
"""factor → the name of its level."""

EVERYWHERE: Sequence[Metric] = (TPS, TPM, NOPM, CAPACITY, SERVER_CPU, DRIVER_CPU)
"""Known of every workload that has them, whichever its verdict is about."""


@dataclass(frozen=True)
class Measured:
    """One value of one case: ``by_block`` is arm → block → value."""

    unit: str
    better: Better
    by_block: Mapping[int, Mapping[int, float]]


@dataclass(frozen=True)
class CaseValues:
    """``arms`` are the levels of each, by its number; ``values`` by the metric's key."""

    name: str
    levels: Levels
    arms: Sequence[Levels]
    values: Mapping[str, Measured]
    confidence: float


def case_values(
    study: StudyRecord,
    trials: Sequence[Trial],
    metrics: Sequence[Metric] = (),
    telemetry: Mapping[int, Telemetry] | None = None,
) -> CaseValues:
    """Of a case's ok trials. ``telemetry``: by trial id; ``metrics``: beside those known everywhere."""
    ok = [trial for trial in trials if trial.status is TrialStatus.OK]
    found: dict[str, dict[int, dict[int, float]]] = {}
    units: dict[str, tuple[str, Better]] = {}
    for metric in {metric.key: metric for metric in (*EVERYWHERE, *metrics)}.values():
        units[metric.key] = (metric.unit, metric.better)
        for trial in ok:
            if (value := metric.value(trial, trial.measured)) is not None:
                found.setdefault(metric.key, {}).setdefault(trial.arm, {})[trial.block] = value
    for trial in ok:
        of = (telemetry or {}).get(trial.trial)
        for key, value in of.values.items() if of else ():
            told = BY_KEY[parted(key)[0]]
            units[key] = (told.unit, told.better)
            found.setdefault(key, {}).setdefault(trial.arm, {})[trial.block] = value
    return CaseValues(
        name=study.case,
        levels={factor: str(level) for factor, level in study.levels.items()},
        arms=[dict(levels) for levels in study.arm_levels],
        values={key: Measured(*units[key], by_block) for key, by_block in found.items()},
        confidence=study.plan.confidence,
    )
