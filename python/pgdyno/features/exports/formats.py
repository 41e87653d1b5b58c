"""Documents of the formats, made from the findings of a study.

- Bencher Metric Format: the JSON Schema ``bmf.json`` (draft 7) of Bencher, for its adapter ``json``.
- github-action-benchmark v1: the tools ``customBiggerIsBetter`` and ``customSmallerIsBetter``. A document has
  the metrics of one direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pgdyno.analysis.case_findings import ArmFindings
from pgdyno.analysis.comparison import Comparison
from pgdyno.analysis.study_findings import StudyFindings
from pgdyno.analysis.telemetry.metrics import ALL_KINDS, PERCENTILES_COMPARED, latency_key
from pgdyno.report.visible_text import json_text
from pgdyno.study.plan import VERDICT_BLOCKS_MIN
from pgdyno.units import Better, Estimate, ci_text, counted


@dataclass(frozen=True)
class ExportedValue:
    """A metric of an arm, or of a comparison in percent of the baseline.

    ``benchmark``: ``18``, or ``18 vs. 17``, after ``CASE: `` if there are several cases.
    """

    benchmark: str
    metric: str
    estimate: Estimate
    unit: str

    @property
    def ends(self) -> tuple[float, float] | None:
        """Ends of the interval; None if the report has none either."""
        of = self.estimate
        if of.low is None or of.high is None or of.n < VERDICT_BLOCKS_MIN:
            return None
        return of.low, of.high


def exported_values(of: StudyFindings) -> Iterator[ExportedValue]:
    """Yield the metrics of the driver and the latencies of all transactions.

    Lower bounds, and effects that are biased, are omitted.
    """
    for case in of.cases:
        place = f"{case.study.case}: " if case.study.case else ""
        latencies = [latency_key(ALL_KINDS, name) for name in PERCENTILES_COMPARED]
        wanted = [*(metric.key for metric in case.metrics), *latencies]
        for arm in case.arms:
            for key, level in _levels(arm).items():
                if key in wanted:
                    yield ExportedValue(f"{place}{arm.arm.name}", key, level, level.unit)
        for one in case.comparisons:
            pair = f"{place}{one.arm.name} vs. {one.baseline.name}"
            for key, ratio in _ratios(one).items():
                if key in wanted:
                    yield ExportedValue(pair, key, ratio, f"% of {one.baseline.name}")


def _levels(of: ArmFindings) -> dict[str, Estimate]:
    latencies = {
        latency_key(ALL_KINDS, name): Estimate(ms.value, "ms", 1, Better.LESS)
        for name, ms in of.quantiles_ms(ALL_KINDS).items()
        if ms is not None and not ms.is_bound
    }
    return {key: level for key, level in of.levels.items() if level is not None} | latencies


def _ratios(of: Comparison) -> dict[str, Estimate]:
    """Return the effects as ratios in percent, which are positive, as thresholds of ratios require."""
    if of.is_held_back:
        return {}
    found = {}
    for key, effect in of.effects.items():
        percent = effect.percent
        ends: tuple[float | None, float | None] = (None, None)
        if effect.no_interval_below is None and percent.low is not None and percent.high is not None:
            ends = (100 + percent.low, 100 + percent.high)
        found[key] = Estimate(100 + percent.value, "%", percent.n, percent.better, *ends, percent.confidence)
    return found


def bencher(values: Sequence[ExportedValue]) -> object:
    """Return the document: benchmark → measure → value with the ends of its interval."""
    found: dict[str, dict[str, Mapping[str, float]]] = {}
    for one in values:
        ends = dict(zip(("lower_value", "upper_value"), one.ends or (), strict=False))
        found.setdefault(one.benchmark, {})[one.metric] = {"value": one.estimate.value, **ends}
    return found


def custom(better: Better, values: Sequence[ExportedValue]) -> object:
    """Return the document: a list of entries with name, unit and value; range and extra describe the CI."""
    found = []
    for one in values:
        of = one.estimate
        if of.better is not better:
            continue
        entry = {"name": f"{one.benchmark}: {one.metric}", "unit": one.unit, "value": of.value}
        if one.ends:
            extra = f"{ci_text(of.confidence)}, {counted(of.n, 'block')}"
            entry |= {"range": of.interval_text, "extra": extra}
        found.append(entry)
    return found


FORMATS: Mapping[str, Callable[[Sequence[ExportedValue]], object]] = {
    "bencher": bencher,
    "customBiggerIsBetter": partial(custom, Better.MORE),
    "customSmallerIsBetter": partial(custom, Better.LESS),
}
"""Documents by the name that the other program has for the format."""


def exported(of: StudyFindings, name: str) -> str:
    """Return the text of a format of ``FORMATS``."""
    return json_text(FORMATS[name]([*exported_values(of)])) + "\n"
