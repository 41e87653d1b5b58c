"""Merge of the events of several engines that execute one drive: the events of one engine. Pure.

Counts and histograms add up; percentiles come from added histograms, which are arrays in the events of the
engines (driver_histograms.py) and pairs in merged ones. Instants are on one time base.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pgdyno.engine import Event
from pgdyno.errors import EngineError
from pgdyno.fleet.driver_histograms import added_bins, quantile_ns

INSTANTS = ("at_ns", "from_ns", "to_ns", "opened_ns", "counted_from_ns", "closed_ns", "drained_ns")
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class PartsDifferError(EngineError):
    """The parts of a run contradict each other, which is an error of pgdyno."""


class _OpenIntervals:
    """Intervals of one slice and target that are not merged yet.

    ``parts``: by engine, each with the multiple at which it ends; None for the last one of a slice.
    ``reached``: number of engines by multiple.
    """

    def __init__(self, n: int) -> None:
        self.parts: list[list[tuple[int | None, Event]]] = [[] for _ in range(n)]
        self.reached: Counter[int] = Counter()

    def add(self, engine: int, end: int | None, event: Event) -> bool:
        """Add an interval. Return whether all engines have reached its end."""
        part = self.parts[engine]
        is_first = not part or part[-1][0] != end
        part.append((end, event))
        if end is None or not is_first:
            return False
        self.reached[end] += 1
        return self.reached[end] == len(self.parts)

    def take(self, until: int | None) -> list[list[Event]]:
        """Remove and return the intervals that end at this multiple or earlier; all for None."""
        taken = []
        for engine, part in enumerate(self.parts):
            n = len(part) if until is None else sum(end is not None and end <= until for end, _ in part)
            taken.append([event for _, event in part[:n]])
            self.parts[engine] = part[n:]
        return taken


class EventMerge:
    """Merges the events of ``n`` engines.

    ``shift_ns``: what is added to the instants of an engine, so that all are on the time base of the run.
    ``epoch_unix_ns``: the start of this time base.
    """

    def __init__(self, n: int, shifts_ns: Sequence[int], epoch_unix_ns: int, interval_s: float) -> None:
        self._n, self._shifts_ns, self._epoch_unix_ns = n, shifts_ns, epoch_unix_ns
        self._interval_ns = interval_s * 1e9
        self._waiting: dict[str, dict[int, Event]] = {}
        self._intervals: dict[tuple[int, int], _OpenIntervals] = {}
        self._windows_ns: dict[int, tuple[int, int]] = {}
        self._counted: list[Counter[tuple[int, str, str]]] = [Counter() for _ in range(n)]

    def add(self, engine: int, event: Event) -> list[Event]:
        """Return the merged events that are complete with this event of an engine."""
        event = self._on_time_base(engine, event)
        match event["event"]:
            case "interval" if "latency_bins" in event:  # an engine alone has none
                return self._add_interval(engine, event)
            case "error" | "interval":
                return [event]
            case "slice":
                self._count(engine, event)
            case "result":
                self._require_counts(engine, event)
        key = f"{event['event']} {event.get('target', '')} {event.get('slice', '')} {event.get('name', '')}"
        parts = self._waiting.setdefault(key, {})
        parts[engine] = event
        if len(parts) < self._n:
            return []
        del self._waiting[key]
        return self._merged([parts[i] for i in range(self._n)])

    def opens(self, slice_number: int, at_ns: int, duration_s: float) -> None:
        """Note the agreed start of a slice on the time base of the run, and its duration."""
        self._windows_ns[slice_number] = (at_ns, at_ns + round(duration_s * 1e9))

    def _on_time_base(self, engine: int, event: Event) -> Event:
        shift_ns = self._shifts_ns[engine]
        return {**event, **{key: event[key] + shift_ns for key in INSTANTS if key in event}}

    def _merged(self, parts: Sequence[Event]) -> list[Event]:
        match parts[0]["event"]:
            case "started":
                return [started(parts, self._epoch_unix_ns)]
            case "connected":
                return [connected(parts)]
            case "barrier":
                return [barrier(parts)]
            case "slice":
                rest = self._rest_of_intervals(parts[0]["slice"], parts[0]["target"])
                return [*rest, merged_slice(parts)]
            case "result":
                return [result(parts)]
            case _:
                return [parts[0]]

    def _add_interval(self, engine: int, event: Event) -> list[Event]:
        """Return the interval that all engines have reached. Its bounds are multiples of the interval since
        the start of the slice; an engine that missed one reports it with the next.
        """
        key = (event["slice"], event["target"])
        intervals = self._intervals.setdefault(key, _OpenIntervals(self._n))
        end = self._end(event)
        return [interval(intervals.take(end))] if intervals.add(engine, end, event) else []

    def _end(self, event: Event) -> int | None:
        """Return the multiple at which an interval ends.

        The last one of a slice, which ends when the slice is drained, has none.
        """
        opened_ns, closes_ns = self._windows_ns[event["slice"]]
        is_last = event["to_ns"] >= closes_ns
        return None if is_last else round((event["to_ns"] - opened_ns) / self._interval_ns)

    def _rest_of_intervals(self, slice_number: int, target: int) -> list[Event]:
        intervals = self._intervals.pop((slice_number, target), None)
        parts = [] if intervals is None else intervals.take(None)
        return [interval(parts)] if any(parts) else []

    def _count(self, engine: int, event: Event) -> None:
        if event["role"] == "measure":
            for kind, counts in event["kinds"].items():
                for name, n in counts.items():
                    self._counted[engine][event["target"], kind, name] += n

    def _require_counts(self, engine: int, event: Event) -> None:
        """Raise PartsDifferError unless the slices of an engine add up to its result."""
        found: Counter[tuple[int, str, str]] = Counter()
        for target, of in enumerate(event["targets"]):
            for kind, measured in of["kinds"].items():
                for name, n in measured["counts"].items():
                    found[target, kind, name] += n
        if event["stopped"] == "done" and +found != +self._counted[engine]:
            raise PartsDifferError(f"the slices of load generator {engine + 1} do not add up to its result")


def started(parts: Sequence[Event], epoch_unix_ns: int) -> Event:
    """Return the start of the run. It has no process ID, because it has several processes."""
    _require_equal(parts, "io")
    return {
        "event": "started",
        "epoch_unix_ns": epoch_unix_ns,
        "threads": sum(part["threads"] for part in parts),
        "io": parts[0]["io"],
    }


def connected(parts: Sequence[Event]) -> Event:
    """Return the connection of all clients. The round trip is that of the node with the longest one."""
    _require_equal(parts, "server_version")
    return {
        **parts[0],
        "clients": sum(part["clients"] for part in parts),
        "connect_s": max(part["connect_s"] for part in parts),
        "round_trip_ns": max((part["round_trip_ns"] for part in parts), key=lambda one: one["p50"]),
    }


def barrier(parts: Sequence[Event]) -> Event:
    """Return the barrier that all engines have reached."""
    totals = [part["totals"] for part in parts]
    return {
        **parts[0],
        "at_ns": max(part["at_ns"] for part in parts),
        "totals": [added(of) for of in zip(*totals, strict=True)],
    }


def interval(parts: Sequence[Sequence[Event]]) -> Event:
    """Return one interval from consecutive intervals of each engine.

    Engines report within milliseconds of each other. A bound is the mean of theirs, so that intervals stay
    contiguous.
    """
    every = [event for part in parts for event in part]
    bins = added_bins(event["latency_bins"] for event in every)
    quantiles = {name: quantile_ns(bins, quantile) for name, quantile in QUANTILES.items()}
    reported = [part for part in parts if part]
    return {
        **{key: every[0][key] for key in ("event", "slice", "target", "role")},
        "from_ns": sum(part[0]["from_ns"] for part in reported) // len(reported),
        "to_ns": sum(part[-1]["to_ns"] for part in reported) // len(reported),
        "kinds": added([event["kinds"] for event in every]),
        "latency_ns": {**quantiles, "max": int(bins[-1, 0]) if len(bins) else 0},
    }


def merged_slice(parts: Sequence[Event]) -> Event:
    """Return the slice. It closes and is drained when it is for all engines."""
    latest = {key: max(part[key] for part in parts) for key in ("closed_ns", "drained_ns", "swap_ns")}
    ended_by = {part["ended_by"] for part in parts}
    # A command reaches the engines at different times: one may have ended by time already.
    first = next((reason for reason in ("stop", "measure", "time") if reason in ended_by), "transactions")
    _require_equal(parts, "opened_ns")
    return {
        **parts[0],
        **latest,
        "ended_by": first,
        "kinds": added([part["kinds"] for part in parts]),
        "driver_cpu_ns": added([part["driver_cpu_ns"] for part in parts]),
        "abandoned": sum(part["abandoned"] for part in parts),
    }


SEVERITY = ("failed", "server-lost", "stop", "done")


def result(parts: Sequence[Event]) -> Event:
    """Return the result. Memory and lateness are those of the node with most of it."""
    drivers = [part["driver"] for part in parts]
    return {
        "event": "result",
        "stopped": next(reason for reason in SEVERITY if any(part["stopped"] == reason for part in parts)),
        "lost": next((part["lost"] for part in parts if part["lost"] is not None), None),
        "unfinished": sorted({number for part in parts for number in part["unfinished"]}),
        "left_out": sorted({number for part in parts for number in part["left_out"]}),
        "targets": [_target(of) for of in zip(*(part["targets"] for part in parts), strict=True)],
        "driver": {
            "cpu_ns": added([one["cpu_ns"] for one in drivers]),
            "memory_peak_bytes": sum(one["memory_peak_bytes"] for one in drivers),
            "wake_late_ns": {key: max(one["wake_late_ns"][key] for one in drivers) for key in WAKE_LATE},
            "threads": sum(one["threads"] for one in drivers),
            "io": drivers[0]["io"],
        },
    }


WAKE_LATE = ("p50", "p99", "max")


def _target(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    kinds = {
        kind: {
            "counts": added([part["kinds"][kind]["counts"] for part in parts]),
            "failures": added([part["kinds"][kind]["failures"] for part in parts]),
            "histograms": {
                measure: added_bins(part["kinds"][kind]["histograms"][measure] for part in parts).tolist()
                for measure in parts[0]["kinds"][kind]["histograms"]
            },
        }
        for kind in parts[0]["kinds"]
    }
    return {
        "kinds": kinds,
        "totals": added([part["totals"] for part in parts]),
        "counters": added([part["counters"] for part in parts]),
        "connections_lost": sum(part["connections_lost"] for part in parts),
        "tally": _added_tally([part["tally"] for part in parts]),
    }


CONSTANTS = "nurand_c"
"""The part of the tally of tpcc that is equal in all engines: constants of the run."""


def _added_tally(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    counts: dict[str, Any] = added(
        [{key: value for key, value in part.items() if key != CONSTANTS} for part in parts]
    )
    if CONSTANTS in parts[0]:
        _require_equal(parts, CONSTANTS)
        counts[CONSTANTS] = parts[0][CONSTANTS]
    return counts


def added(parts: Sequence[Any]) -> Any:
    """Return the sum of numbers, of lists by place, or of mappings by key, at any depth."""
    first = parts[0]
    if isinstance(first, Mapping):
        keys = dict.fromkeys(key for part in parts for key in part)
        return {key: added([part[key] for part in parts if key in part]) for key in keys}
    if isinstance(first, list):
        return [added(of) for of in zip(*parts, strict=True)]
    return sum(parts)


def _require_equal(parts: Sequence[Mapping[str, Any]], key: str) -> None:
    values = [part[key] for part in parts]
    for value in values:
        if value != values[0]:
            raise PartsDifferError(f"the load generators differ in {key}: {values[0]!r} and {value!r}")
