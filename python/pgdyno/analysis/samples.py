"""What the series of one trial say in numbers: the values that ``quantities_of_parts.OF_SAMPLES`` defines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pgdyno.analysis.quantities import PER_MIB
from pgdyno.analysis.sampled import HOST, WAITS, Span, cpu, growth_per_s, lateness, own_spans, waits
from pgdyno.evidence.records import Series, Trial

PERCENT = 100.0

GROWN = {
    "host.disk_read_per_s": ("disk_read_bytes", PER_MIB),
    "host.disk_written_per_s": ("disk_written_bytes", PER_MIB),
    "host.disk_busy_share": ("disk_busy_s", PERCENT),
    "host.cpu_pressure": ("pressure_cpu_some_s", PERCENT),
    "host.io_pressure": ("pressure_io_some_s", PERCENT),
    "host.memory_pressure": ("pressure_memory_some_s", PERCENT),
}
"""Of the whole machine, per second: told, as shares of its CPU are, where an arm's spans are resolved."""


def keyed(key: str, part: str) -> str:
    """The key of one statement, table, index or wait."""
    return f"{key}:{part}"


def of_samples(trial: Trial, series: Mapping[str, Series]) -> tuple[dict[str, float], list[str]]:
    """Values by key over the trial's measured slices, and the names of the waits, the largest first."""
    spans = own_spans(trial.measured)
    values = _host(series[HOST], spans) if HOST in series else {}
    seen = waits(series[WAITS], spans) if WAITS in series else None
    if seen is not None:
        values |= {keyed("wait.share", name): PERCENT * share for name, share in seen.share.items()}
        if seen.backends is not None:
            values["waits.backends"] = seen.backends
    late = [found.worst_s for of in series.values() if (found := lateness(of)) is not None]
    if late:
        values["probes.late_s"] = max(late)
    return values, [] if seen is None else list(seen.share)


def _host(series: Series, spans: Sequence[Span]) -> dict[str, float]:
    shares = cpu(series, spans)
    if shares is None:
        return {}
    parts = {
        "server": shares.server,
        "driver": shares.driver,
        "rest": shares.rest,
        "steal": shares.steal,
        "iowait": shares.iowait,
        "idle": shares.idle,
    }
    values = {f"host.{name}_share": PERCENT * part for name, part in parts.items() if part is not None}
    for key, (column, scale) in GROWN.items():
        growth = growth_per_s(series, column, spans)
        if growth is not None:
            values[key] = scale * growth
    return values
