"""``pgdyno doctor --calibrations`` and ``--slice auto``: stored calibrations."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from pgdyno.analysis.statistics.effect import percent_of
from pgdyno.cli.calibrate import number
from pgdyno.cli.console import out, print_json
from pgdyno.cli.lengths import parse_slice_s
from pgdyno.errors import UsageError
from pgdyno.estimate import counted
from pgdyno.lab import noise_history
from pgdyno.lab.noise_history import Entry, History, drift_of, is_of, merit_of
from pgdyno.probe.host_facts import describe_host
from pgdyno.server.cache_directory import Cache
from pgdyno.units import format_duration


def show(as_json: bool) -> int:
    """Print the stored calibrations of all machines."""
    history = History(noise_history.history_path())
    entries = history.calibrations()
    host = describe_host(Cache.open().root)
    if as_json:
        values = [{**entry, "is_this_machine": is_of(entry, host)} for entry in entries]
        print_json({"path": str(history.path), "calibrations": values})
        return 0
    if not entries:
        out.print(
            f"no calibration in {history.path}: run pgdyno doctor --calibrate 10m",
            markup=False,
            soft_wrap=True,
        )
        return 0
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in ("time (UTC)", "machine", "server and workload", "best", "SD × √min, %", "× median before"):
        table.add_column(column, justify="right" if column[0] in "S×" else "left")
    for entry in entries:
        table.add_row(*map(Text, _row(entry, entries, host)))
    out.print(table)
    return 0


def _row(entry: Entry, entries: Sequence[Entry], host: dict[str, Any]) -> list[str]:
    best = best_of(entry)
    drift = drift_of(entry, entries)
    machine = entry["machine"]
    return [
        datetime.fromtimestamp(entry["at_unix_s"], UTC).strftime("%Y-%m-%d %H:%M"),
        "this one" if is_of(entry, host) else f"{machine['cores']} cores, {machine['kernel']}",
        f"{entry['server']}, {entry['workload']}, {counted(entry['clients'], 'client')}",
        f"{best[0]} of {format_duration(best[1])}" if best else "–",
        number(percent_of(best[2])) if best else "–",
        f"{drift[0]:.2g}" if drift else "–",
    ]


def best_of(entry: Entry, schedule: str | None = None) -> tuple[str, float, float] | None:
    """Return schedule, slice length and figure of merit of the best measurement."""
    known = [
        (merit, name, slice_s)
        for name, slice_s in entry["best"].items()
        if schedule in (None, name) and (merit := merit_of(entry, name, slice_s)) is not None
    ]
    merit, name, slice_s = min(known, default=(0.0, "", 0.0))
    return (name, slice_s, merit) if known else None


def calibrated_slice(schedule: str) -> tuple[float, str]:
    """Return the best slice length by this machine's latest calibration, and its source as text.

    Raises UsageError if there is none.
    """
    history = History(noise_history.history_path())
    for entry in reversed(history.calibrations(describe_host(Cache.open().root))):
        if (best := best_of(entry, schedule)) is not None:
            when = datetime.fromtimestamp(entry["at_unix_s"], UTC).strftime("%Y-%m-%d %H:%M UTC")
            load = f"{entry['server']}, {entry['workload']}, {counted(entry['clients'], 'client')}"
            return best[1], f"the calibration of {when} ({load})"
    raise UsageError(
        f"--slice auto requires a calibration of this machine with the schedule {schedule}: run "
        "pgdyno doctor --calibrate 10m"
    )


AUTO = "auto"


def asked_slice(text: str | None, schedule: str, otherwise_s: float) -> tuple[float, str]:
    """Return the slice length, and the calibration that chose it if any. Raises UsageError."""
    if text == AUTO:
        return calibrated_slice(schedule)
    return (otherwise_s if text is None else parse_slice_s(text)), ""
