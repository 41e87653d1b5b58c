"""What the series of one trial say in numbers: the values that ``quantities_of_parts.OF_SAMPLES`` defines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pgdyno.analysis.telemetry.sampled import (
    HOST,
    SERVER,
    WAITS,
    Floats,
    Span,
    cpu,
    gauge,
    growth_per_s,
    lateness,
    own_spans,
    waits,
)
from pgdyno.evidence.records import Series, Trial
from pgdyno.units import PER_MIB, PERCENT

GROWN = {
    "host.disk_read_per_s": ("disk_read_bytes", PER_MIB),
    "host.disk_written_per_s": ("disk_written_bytes", PER_MIB),
    "host.disk_busy_share": ("disk_busy_s", PERCENT),
    "host.cpu_pressure": ("pressure_cpu_some_s", PERCENT),
    "host.io_pressure": ("pressure_io_some_s", PERCENT),
    "host.memory_pressure": ("pressure_memory_some_s", PERCENT),
    "host.swapped_in_per_s": ("swap_in_bytes", PER_MIB),
    "host.swapped_out_per_s": ("swap_out_bytes", PER_MIB),
    "host.network_in_per_s": ("network_in_bytes", PER_MIB),
    "host.network_out_per_s": ("network_out_bytes", PER_MIB),
}
"""Of the whole machine, per second: told, as shares of its CPU are, where an arm's spans are resolved."""

GAUGED: Mapping[str, tuple[str, Callable[[Floats], float]]] = {
    "host.memory_available": ("memory_available_bytes", np.min),
    "host.page_cache": ("memory_cached_bytes", np.mean),
    "host.memory_dirty": ("memory_dirty_bytes", np.max),
}
"""As GROWN, of what is so much at a moment: which of its samples is told."""


OWN_IN_DUET = "host.server_share"


def keyed(key: str, part: str) -> str:
    """The key of one statement, table, index or wait."""
    return f"{key}:{part}"


def of_samples(
    trial: Trial, series: Mapping[str, Series], *, is_duet: bool = False
) -> tuple[dict[str, float], list[str]]:
    """Values by key over the trial's measured slices, and the names of the waits, the largest first.

    In a duet both arms are driven all the time. So an arm's spans are one, which any samples resolve; but of
    the machine's numbers the CPU time of the server's own processes alone is this arm's.
    """
    spans = own_spans(trial.measured)
    if is_duet and spans:
        spans = [(spans[0][0], spans[-1][1])]
    values = _host(series[HOST], spans) if HOST in series else {}
    if is_duet:
        values = {key: value for key, value in values.items() if key == OWN_IN_DUET}
    seen = waits(series[WAITS], spans) if WAITS in series else None
    if seen is not None:
        values |= {keyed("wait.share", name): PERCENT * share for name, share in seen.share.items()}
        if seen.backends is not None:
            values["waits.backends"] = seen.backends
    if SERVER in series and (waiting := gauge(series[SERVER], "waiting_backends", spans)) is not None:
        values["locks.waiting_backends"] = float(np.mean(waiting))
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
    for key, (column, of) in GAUGED.items():
        if (samples := gauge(series, column, spans)) is not None:
            values[key] = PER_MIB * float(of(samples))
    return values
