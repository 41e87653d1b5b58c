"""Samples of a trial: rates, wait shares, throughput over time.

- Rates, wait shares, CPU shares and lateness from the one-second series of a trial.
- Throughput over time of each trial, from the driver's intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.telemetry.metrics import OF_SAMPLES, Formula, keyed, newest_name
from pgdyno.results.records import Executed, SampleSeries, Slice, Trial
from pgdyno.study.schedule import Role
from pgdyno.units import PERCENT

# ----------------------------------------------------------------------
# Rates, wait shares, CPU shares and lateness from the one-second series of a trial.
#
# A series has the columns ``at_s`` (time of the sample since the trial's epoch), ``late_s`` (delay of the
# sample) and others. NaN is a missing value. Counters become rates; a counter that decreases was reset and
# becomes NaN.
#
# ``spans`` are intervals (from, to): an arm's own slices, in a series that continues while other arms are
# driven. A slice hardly longer than the sampling interval is not resolved. Then waits, which are of the arm's
# own server, are counted from the first slice to the last. The machine is shared by the arms, so its values
# are omitted. In a duet both arms are driven all the time.
# ----------------------------------------------------------------------

Floats = npt.NDArray[np.float64]
Span = tuple[float, float]

SERVER, WAITS, HOST = "server", "waits", "host"
SAMPLES = "samples"
"""Column of the waits: the number of samples. The other columns are sums of backends over these samples."""

BACKGROUND = "background "
"""Start of the columns of the waits with processes that have no client, by resource."""

OF_STATEMENT = "statement "
"""Start of the columns with states of client backends by statement: ``statement ID STATE``. Columns of states
include them."""

RUNNING = "running"
"""State of a backend that does not wait."""

WORKER = "worker "
"""Start of the columns with states of parallel workers: as numbers of backends that wait for them."""

WORKER_TIMES = WORKER_ON_CPU, WORKER_READY, _ = tuple(
    f"{WORKER}{of}_s" for of in ("on_cpu", "ready", "alive")
)
"""Columns of the waits: times of the workers by the kernel: on CPU, runnable, and all."""

STEPS_RESOLVED = 3
"""Minimum length of a resolved span, in samples."""

GAUGES = frozenset(
    {
        "active_backends",
        "waiting_backends",
        "autovacuum_workers",
        "oldest_xmin_age",
        "frozen_xid_age",
        "processes_running",
        "processes_blocked",
        "memory_available_bytes",
        "memory_cached_bytes",
        "memory_shared_bytes",
        "memory_dirty_bytes",
        "memory_writeback_bytes",
    }
)
"""Columns that are gauges. All others, except those of the waits, are cumulative."""


@dataclass(frozen=True)
class SampleRates:
    """Values of the counters between samples. ``at_s``: the middle of each interval."""

    at_s: Floats
    per_s: Mapping[str, Floats]


@dataclass(frozen=True)
class Waits:
    """Waits of the active backends: ``share`` of their time by wait (``running``: none), the largest first.

    The waits have the names of the newest version of PostgreSQL.

    ``backends`` is the mean number of active backends if the spans are resolved, else None.
    """

    share: Mapping[str, float]
    backends: float | None


def own_spans(slices: Iterable[Slice]) -> list[Span]:
    """Return the intervals in which an arm was driven, until its last transaction ended."""
    return [(piece.opened_s, piece.drained_s) for piece in slices]


def rates(series: SampleSeries) -> SampleRates:
    """Return each counter's increase per second from sample to sample; empty with fewer than two samples."""
    at = series.points[:, 0]
    took_s = np.diff(at)
    per_s = {}
    for name in series.columns[2:]:
        if name not in GAUGES:
            grown = np.diff(series.column(name))
            with np.errstate(divide="ignore", invalid="ignore"):
                per_s[name] = np.where((grown >= 0) & (took_s > 0), grown / took_s, np.nan)
    return SampleRates((at[:-1] + at[1:]) / 2, per_s)


def waits(series: SampleSeries, spans: Sequence[Span]) -> Waits | None:
    """Return the waits; None without samples in the spans, or without active backends.

    A sample covers the time since the previous one. If it lies partly in a span, it is weighted by that part.
    """
    if len(series.points) < 2 or not spans:
        return None
    within, resolved = resolvable(series, spans)
    weight = overlap(series, within)
    samples = float(np.nansum(weight * series.column(SAMPLES)))
    seen: dict[str, float] = {}
    for name in client_waits(series):
        event = newest_name(name.removeprefix(WORKER))
        seen[event] = seen.get(event, 0.0) + float(np.nansum(weight * series.column(name)))
    active = sum(seen.values())
    if not samples or not active:
        return None
    share = {name: n / active for name, n in sorted(seen.items(), key=lambda item: -item[1]) if n > 0}
    return Waits(share, active / samples if resolved else None)


def client_waits(series: SampleSeries) -> list[str]:
    """Return the columns with states of client backends, and of their parallel workers."""
    others = (SAMPLES, *WORKER_TIMES)
    starts = (BACKGROUND, OF_STATEMENT)
    return [name for name in series.columns[2:] if name not in others and not name.startswith(starts)]


def cpu(series: SampleSeries, spans: Sequence[Span]) -> dict[str, float]:
    """Return the CPU shares from the host's series, which add up to 1.

    ``rest`` is everything except server and driver, including pgdyno's sampling. The share of a server or
    driver elsewhere is missing. Empty without CPU times or if the spans are not resolved: otherwise the CPU
    time of other arms in between would be attributed to this arm.
    """
    if len(series.points) < 2 or not spans or not resolvable(series, spans)[1]:
        return {}
    names = ("busy", "idle", "iowait", "steal")
    known = {name: growth_per_s(series, f"cpu_{name}_s", spans) for name in names}
    known |= {name: growth_per_s(series, f"{name}_cpu_s", spans) for name in ("server", "driver")}
    grew = {name: value for name, value in known.items() if value is not None}
    every = sum(grew.get(name, 0.0) for name in ("busy", "idle", "iowait"))  # busy includes steal
    if not grew.keys() >= {*names} or every <= 0:
        return {}
    rest = grew.pop("busy") - sum(grew.get(name, 0.0) for name in ("steal", "server", "driver"))
    grew["rest"] = max(0.0, rest)  # clocks of different resolution can exceed the total slightly
    return {name: value / every for name, value in grew.items()}


def growth_per_s(series: SampleSeries, column: str, spans: Sequence[Span]) -> float | None:
    """Return the increase of a counter per second of the spans, interpolated between samples.

    Time before the first sample and after the last one is excluded. None if the counter is missing, or was
    reset between the first span and the last.
    """
    at, values = series.points[:, 0], series.column(column)
    there = np.isfinite(values)
    if not there.all():
        at, values = at[there], values[there]
    if len(at) < 2:
        return None
    begin, end = np.searchsorted(at, spans[0][0]), np.searchsorted(at, spans[-1][1], side="right")
    driven = values[begin:end]
    if (driven[1:] < driven[:-1]).any():
        return None
    edges_s = np.clip(np.array(spans), at[0], at[-1])
    took_s = float(np.sum(edges_s[:, 1] - edges_s[:, 0]))
    edges = np.interp(edges_s, at, values)
    return float(np.sum(edges[:, 1] - edges[:, 0])) / took_s if took_s > 0 else None


def gauge(series: SampleSeries, column: str, spans: Sequence[Span]) -> Floats | None:
    """Return the samples of a gauge; None without samples, or if they do not resolve the spans."""
    if not spans or not resolvable(series, spans)[1]:
        return None
    at, values = series.points[:, 0], series.column(column)
    inside = np.zeros(len(at), dtype=bool)
    for from_s, to_s in spans:
        inside |= (at >= from_s) & (at <= to_s)
    found = values[inside & np.isfinite(values)]
    return found if len(found) else None


def resolvable(series: SampleSeries, spans: Sequence[Span]) -> tuple[list[Span], bool]:
    """Return the spans if the samples resolve them, else one span from the first to the last."""
    if min(to_s - from_s for from_s, to_s in spans) >= STEPS_RESOLVED * series.step_s:
        return list(spans), True
    return [(spans[0][0], spans[-1][1])], len(spans) == 1


def overlap(series: SampleSeries, spans: Sequence[Span]) -> Floats:
    """Return the share of each sample's time, since the previous sample, that lies in the spans."""
    at, step = series.points[:, 0], series.step_s
    begins = np.concatenate([[at[0] - step], at[:-1]])
    # After a gap, a sample covers at most two steps.
    begins = np.maximum(begins, at - 2 * step)
    inside = np.zeros(len(at))
    for from_s, to_s in spans:
        inside += np.clip(np.minimum(at, to_s) - np.maximum(begins, from_s), 0.0, None)
    return inside / np.where(at > begins, at - begins, 1.0)


OWN_IN_DUET = "host.server_share"


def of_samples(
    trial: Trial, series: Mapping[str, SampleSeries], *, is_duet: bool = False
) -> tuple[dict[str, float], list[str]]:
    """Return values by key over the trial's measured slices, and the names of the waits, the largest first.

    In a duet both arms are driven all the time, so an arm has one span, which is always resolved. Of the
    machine's values, only the CPU time of the server's own processes belongs to this arm.
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
    if late_s := [float(of.points[:, 1].max()) for of in series.values() if len(of.points)]:
        values["probes.late_s"] = max(late_s)  # the largest delay of a sample
    return values, [] if seen is None else list(seen.share)


def _host(series: SampleSeries, spans: Sequence[Span]) -> dict[str, float]:
    shares = cpu(series, spans)
    if not shares:
        return {}
    values = {f"host.{name}_share": PERCENT * share for name, share in shares.items()}
    for metric in OF_SAMPLES:
        if metric.formula is not None and (value := _of_series(metric.formula, series, spans)) is not None:
            values[metric.key] = value * metric.formula.scale
    return values


_GAUGES: Mapping[str, Callable[[Floats], float]] = {
    "sampled_minimum": np.min,
    "sampled_mean": np.mean,
    "sampled_maximum": np.max,
}


def _of_series(formula: Formula, series: SampleSeries, spans: Sequence[Span]) -> float | None:
    """Return a rate or gauge of the whole machine, like its CPU shares only if the spans are resolved."""
    (column,) = formula.columns
    if formula.kind == "sampled_rate":
        return growth_per_s(series, column, spans)
    samples = gauge(series, column, spans)
    return None if samples is None else float(_GAUGES[formula.kind](samples))


# ----------------------------------------------------------------------
# Throughput over time of each trial, from the driver's intervals.
# ----------------------------------------------------------------------

POINTS_MAX = 360
"""Maximum number of points of one trial: more than a chart can show, and enough for a slope."""


@dataclass(frozen=True, slots=True)
class ThroughputPoint:
    """Rate of one interval, or of several in long windows, at its middle since the trial's epoch."""

    at_s: float
    per_s: float
    role: Role


def throughput_points(executed: Executed) -> list[ThroughputPoint]:
    """Return the transactions per second that ended as designed (ok or intentional rollback)."""
    lasting = executed.from_s < executed.to_s
    measured = executed.measured[lasting]
    from_s, to_s, n = (column[lasting] for column in executed[1:])
    if not len(n):
        return []
    firsts = _firsts(measured, math.ceil(len(n) / POINTS_MAX))
    lasts = np.append(firsts[1:], len(n)) - 1
    point = np.repeat(np.arange(len(firsts)), lasts - firsts + 1)  # of each interval
    at_s = (from_s[firsts] + to_s[lasts]) / 2
    per_s = np.bincount(point, n) / np.bincount(point, to_s - from_s)
    roles = [Role.MEASURE if one else Role.WARM_UP for one in measured[firsts].tolist()]
    return list(map(ThroughputPoint, at_s.tolist(), per_s.tolist(), roles))


def _firsts(measured: npt.NDArray[np.bool_], together: int) -> npt.NDArray[np.int64]:
    """Return the first interval of each point: at a change of role, and after a fixed number of intervals."""
    edges = [0, *(np.flatnonzero(np.diff(measured)) + 1).tolist(), len(measured)]
    return np.concatenate([np.arange(*ends, together) for ends in pairwise(edges)])
