"""``pgdyno doctor --calibrate`` and ``--calibrations`` and ``--slice auto``: measurement noise by slice."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from pgdyno.analysis.comparison.calibration import BLOCKS_KNOWN, EFFECTS, Calibration, CalibrationResult
from pgdyno.analysis.comparison.verdict import POWER
from pgdyno.analysis.statistics.effect import percent_of
from pgdyno.cli.console import out, print_json, say
from pgdyno.cli.duration_options import parse_slice_s
from pgdyno.cli.live_view import LiveView
from pgdyno.cli.options import machine_size
from pgdyno.cli.output_files import require_writable
from pgdyno.errors import UsageError
from pgdyno.estimate import bracketed, counted, given_percent, number_text, share_text, significant
from pgdyno.interruption import Interruption
from pgdyno.lab import calibration_run, noise_history
from pgdyno.lab.noise_history import Entry, NoiseHistory, drift_of, is_of, merit_of
from pgdyno.lab.study_runner import Request
from pgdyno.probe.machine_facts import describe_host
from pgdyno.server.cache_directory import Cache
from pgdyno.study.calibration_study import SLICES_S, calibration_cases, schedules_here
from pgdyno.study.pgbench_parameters import PgbenchParameters, Script
from pgdyno.study.plan import Workload
from pgdyno.study.sizing import default_clients, default_scale, default_warehouses
from pgdyno.study.stopping_rule import VERDICT_BLOCKS_MIN
from pgdyno.study.tpcc_parameters import TpccParameters
from pgdyno.units import format_duration, parse_duration_s


def show_calibrations(as_json: bool) -> int:
    """Print the stored calibrations of all machines."""
    history = NoiseHistory(noise_history.history_path())
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
        number_text(percent_of(best[2])) if best else "–",
        significant(drift[0], 2) if drift else "–",
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

    Raises UsageError without such a calibration.
    """
    history = NoiseHistory(noise_history.history_path())
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


def slice_from_option(text: str | None, schedule: str, otherwise_s: float) -> tuple[float, str]:
    """Return the slice length, and the calibration that chose it if any. Raises UsageError."""
    if text == AUTO:
        return calibrated_slice(schedule)
    return (otherwise_s if text is None else parse_slice_s(text)), ""


@dataclass(frozen=True)
class CalibrationOptions:
    """Options of ``doctor --calibrate``; None selects a default for the machine."""

    server: Annotated[
        str | None,
        typer.Option(
            metavar="SERVER",
            help="Server of the calibration, as in `compare`. [default: the newest available]",
        ),
    ] = None
    workload: Annotated[
        Literal["pgbench", "tpcc"],
        typer.Option(help="Workload of the calibration; pgbench runs simple-update."),
    ] = "pgbench"
    clients: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Number of client connections of the calibration. [default: 4 per core]"
        ),
    ] = None
    schedule: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Schedule to calibrate: slices or duet. May be repeated. [default: all that fit this "
            "machine]",
        ),
    ] = None
    slice_length: Annotated[
        list[str] | None,
        typer.Option(
            "--slice",
            metavar="DURATION",
            help="Slice length to calibrate, 50ms to 60s. May be repeated. [default: 0.25s, 0.5s, 1s, 2s]",
        ),
    ] = None
    evidence: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Results file of the calibration; an existing one is continued. [default: a temporary file]",
        ),
    ] = None
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Seed of the calibration. [default: random]")
    ] = None


def first_given(options: CalibrationOptions) -> str | None:
    """Return the name of the first option that differs from its default."""
    names = {of.name: of.name for of in fields(options)} | {"slice_length": "slice"}
    default = CalibrationOptions()
    given = (name for name in names if getattr(options, name) != getattr(default, name))
    return next((f"--{names[name]}" for name in given), None)


def run_calibration(duration: str, asked: CalibrationOptions, *, as_json: bool, quiet: bool) -> int:
    """Measure, print and store a calibration. Return the exit status."""
    minutes = _minutes(duration)
    request = _request(asked, minutes)
    with _evidence(asked.evidence) as path, Interruption() as stop:
        if path.exists():
            say(f"continuing {path} with its server, workload and slice lengths")

        def watch_for(names: Sequence[str]) -> LiveView:
            return LiveView(names, quiet, interruption=stop)

        calibration_run.measure(path, request, minutes, watch_for, stop)
        found, status = calibration_run.calibration_outcome(path), stop.exit_status if stop.requested else 0
    if found is None:
        say("pgdyno: no result, because no block was completed: allow more time")
        return status or 1
    history = NoiseHistory(noise_history.history_path())
    before = history.calibrations()
    kept = not found.calibration.is_short
    if kept:
        history.append(found.entry)
    drift = drift_of(found.entry, before)
    if as_json:
        print_json(
            {**found.entry, "drift": drift and drift[0], "compared_with": drift and drift[1], "kept": kept}
        )
    else:
        _print(found.calibration, found.entry)
        out.print(_drift_text(drift), markup=False)
    if kept:
        say(f"stored in {history.path}; `pgdyno compare --slice auto` uses the best length")
    else:
        say(f"not stored: a calibration requires {BLOCKS_KNOWN} blocks of every length; allow more time")
    return status


def _minutes(text: str) -> float:
    """Parse ``10m``, ``10min`` or ``10`` as minutes. Raises UsageError."""
    short = re.fullmatch(r"\s*([\d.]+)\s*m\s*", text)
    minutes = parse_duration_s(f"{short[1]}min" if short else text, bare="min") / 60
    if minutes <= 0:
        raise UsageError(f"--calibrate must be greater than 0 (got {text!r}); for example: 10m")
    return minutes


def _request(asked: CalibrationOptions, minutes: float) -> Request:
    machine = machine_size()
    here = schedules_here(machine.cores)
    for schedule in asked.schedule or ():
        if schedule not in here:
            raise UsageError(
                f"--schedule must be one of {', '.join(here)} on this machine (got {schedule!r})"
            )
    clients = default_clients(machine) if asked.clients is None else asked.clients
    workload: Workload
    if asked.workload == "tpcc":
        workload = TpccParameters(warehouses=default_warehouses(machine, clients, 2))
    else:
        script = Script.model_validate({"name": "simple-update"})
        workload = PgbenchParameters(scale=default_scale(machine, clients, 2), scripts=(script,))
    cases = calibration_cases(
        asked.server or calibration_run.newest_available(Cache.open()),
        workload,
        clients,
        schedules=list(dict.fromkeys(asked.schedule or here)),
        slices_s=[parse_slice_s(text) for text in dict.fromkeys(asked.slice_length or ())] or SLICES_S,
        minutes=minutes,
        seed=secrets.randbelow(2**48) if asked.seed is None else asked.seed,
    )
    return Request(calibration_run.TITLE, cases, "pgdyno doctor --calibrate")


@contextlib.contextmanager
def _evidence(asked: Path | None) -> Iterator[Path]:
    """Yield the path of the evidence. The default is a file that the next pgdyno removes after a kill."""
    if asked is not None:
        require_writable(asked)
        yield asked
        return
    with Cache.open().live_runs().open("calibration") as run:
        yield run.path / "calibration.sqlite"


def _print(calibration: Calibration, entry: Entry) -> None:
    heading = f"{entry['server']}, {entry['workload']}, {counted(entry['clients'], 'client')}, against itself"
    out.print(Text(heading, style="bold"))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("schedule")
    wanted = [f"min to {given_percent(effect)}" for effect in EFFECTS]
    for column in ("slice", "blocks", "SD × √min, %", "without restarts", *wanted, "lost, %"):
        table.add_column(column, justify="right")
    best = calibration.best()
    for one in calibration.measured:
        within = one.within()
        cells = [
            one.schedule,
            format_duration(one.slice_s),
            str(one.blocks),
            _merit(calibration, one),
            number_text(within and percent_of(within)),
            *(number_text(calibration.minutes(one, effect)) for effect in EFFECTS),
            number_text(100 * one.lost_share if one.units else None),
        ]
        table.add_row(*map(Text, cells), style="bold" if one is best else "")
    out.print(table)
    for line in _sentences(calibration):
        out.print(line, markup=False)


def _merit(calibration: Calibration, one: CalibrationResult) -> str:
    """Format the figure of merit with its interval."""
    merit, interval = calibration.merit(one), calibration.merit_interval(one)
    value = number_text(merit and percent_of(merit))
    ends = [number_text(percent_of(end)) for end in interval or ()]
    return f"{value} {bracketed(*ends)}" if ends else value


def _sentences(calibration: Calibration) -> Iterator[str]:
    if calibration.is_short:
        yield f"Choosing the best length requires {BLOCKS_KNOWN} blocks of every length."
    else:
        yield (
            "Minutes: time until a study that stops at its verdict detects a true difference "
            f"({given_percent(POWER)} power), including restores, restarts and A/A blocks. "
            f"{_restarts(calibration)}"
        )
    if (alarms := calibration.alarms) is None:
        yield f"False positives: unknown with fewer than {VERDICT_BLOCKS_MIN} blocks of a length."
    else:
        low, high = (share_text(end) for end in alarms.interval)
        rate = share_text(alarms.false_alarms / alarms.series)
        yield (
            f"False positives: {alarms.false_alarms} of {alarms.series} series of {VERDICT_BLOCKS_MIN} blocks"
            f" show a difference ({rate}, 95% CI {bracketed(low, high)}); 5% are expected at random."
        )
    yield from _best(calibration)


def _best(calibration: Calibration) -> Iterator[str]:
    best = calibration.best()
    if best is None:
        return
    took = [
        f"{given_percent(effect)} in about {number_text(minutes)} min"
        for effect in EFFECTS
        if (minutes := calibration.minutes(best, effect)) is not None
    ]
    yield f"Best on this machine: {_name(best)}{': ' if took else ''}{' and '.join(took)}."
    if equal := calibration.like_best():
        yield f"Not significantly different from the best: {', '.join(map(_name, equal))}."


def _name(one: CalibrationResult) -> str:
    return f"{one.schedule} of {format_duration(one.slice_s)}"


def _restarts(calibration: Calibration) -> str:
    if not calibration.restarts_show:
        return "The effect of restores and restarts is below the noise between slices."
    sd = number_text(percent_of(calibration.sd_restart))
    return f"Restores and restarts alone cause a between-block SD of {sd}%."


def _drift_text(drift: tuple[float, int] | None) -> str:
    if drift is None:
        return "This machine has no earlier calibration with the same server and workload."
    ratio, n = drift
    of = "in its last calibration" if n == 1 else f"in the median of its last {n} calibrations"
    return f"The noise of this machine is {significant(ratio, 2)} times as large as {of}."
