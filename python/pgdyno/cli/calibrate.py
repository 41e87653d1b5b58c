"""``pgdyno doctor --calibrate``: how noisy this machine is, and which slices suit it."""

from __future__ import annotations

import contextlib
import re
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from pgdyno.analysis.comparison.calibration import BLOCKS_KNOWN, EFFECTS, Calibration, Measured
from pgdyno.analysis.comparison.verdict import BLOCKS_MIN, POWER
from pgdyno.analysis.statistics.effect import percent_of
from pgdyno.cli.console import out, print_json, say
from pgdyno.cli.lengths import parse_slice_s
from pgdyno.cli.live import LiveView
from pgdyno.cli.options import this_machine
from pgdyno.cli.place import require_place
from pgdyno.errors import UsageError
from pgdyno.estimate import counted, given_percent
from pgdyno.interruption import Interruption
from pgdyno.lab import calibrate, noise_history
from pgdyno.lab.noise_history import Entry, History, drift_of
from pgdyno.lab.study import Request
from pgdyno.server.cache import Cache
from pgdyno.study.calibration import SLICES_S, calibration_cases, schedules_here
from pgdyno.study.pgbench import PgbenchParameters, Script
from pgdyno.study.plan import Workload
from pgdyno.study.sizing import default_clients, default_scale, default_warehouses
from pgdyno.study.tpcc import TpccParameters
from pgdyno.units import format_duration, parse_duration_s


@dataclass(frozen=True)
class Asked:
    """What the options say; None and empty: what suits the machine."""

    duration: str
    server: str | None = None
    workload: str = "pgbench"
    clients: int | None = None
    schedules: Sequence[str] = ()
    slices: Sequence[str] = ()
    evidence: Path | None = None
    seed: int | None = None
    json: bool = False
    quiet: bool = False


def run(asked: Asked) -> int:
    """Measures, tells, remembers. Gives the exit status."""
    minutes = _minutes(asked.duration)
    request = _request(asked, minutes)
    with _evidence(asked.evidence) as path, Interruption() as stop:
        if path.exists():
            say(f"going on with {path}, with the server, load and lengths that it began with")

        def watch_for(names: Sequence[str]) -> LiveView:
            return LiveView(names, asked.quiet, interruption=stop)

        calibrate.measure(path, request, minutes, watch_for, stop)
        found, status = calibrate.outcome_of(path), stop.exit_status if stop.requested else 0
    if found is None:
        say("pgdyno: no block was done, so nothing is known")
        return status or 1
    history = History(noise_history.history_path())
    before = history.calibrations()
    kept = not found.calibration.is_short
    if kept:
        history.append(found.entry)
    drift = drift_of(found.entry, before)
    if asked.json:
        print_json(
            {**found.entry, "drift": drift and drift[0], "compared_with": drift and drift[1], "kept": kept}
        )
    else:
        _print(found.calibration, found.entry)
        out.print(_drift_text(drift), markup=False)
    if kept:
        say(f"kept in {history.path}; `pgdyno compare --slice auto` takes the best length")
    else:
        say(f"not kept: that takes {BLOCKS_KNOWN} blocks of every length, so more time")
    return status


def _minutes(text: str) -> float:
    """``10m`` and ``10min`` are minutes; a bare number is, too. Raises UsageError."""
    short = re.fullmatch(r"\s*([\d.]+)\s*m\s*", text)
    minutes = parse_duration_s(f"{short[1]}min" if short else text, bare="min") / 60
    if minutes <= 0:
        raise UsageError(f"--calibrate: {text!r} is no time to measure; for example: 10m")
    return minutes


def _request(asked: Asked, minutes: float) -> Request:
    machine = this_machine()
    here = schedules_here(machine.cores)
    for schedule in asked.schedules:
        if schedule not in here:
            raise UsageError(f"--schedule: {schedule} cannot be calibrated here; there are {', '.join(here)}")
    clients = default_clients(machine) if asked.clients is None else asked.clients
    workload: Workload
    if asked.workload == "tpcc":
        workload = TpccParameters(warehouses=default_warehouses(machine, clients, 2))
    else:
        script = Script.model_validate({"name": "simple-update"})
        workload = PgbenchParameters(scale=default_scale(machine, clients, 2), scripts=(script,))
    cases = calibration_cases(
        asked.server or calibrate.newest_at_hand(Cache.open()),
        workload,
        clients,
        schedules=list(dict.fromkeys(asked.schedules)) or here,
        slices_s=[parse_slice_s(text) for text in dict.fromkeys(asked.slices)] or SLICES_S,
        minutes=minutes,
        seed=secrets.randbelow(2**48) if asked.seed is None else asked.seed,
    )
    return Request(calibrate.TITLE, cases, "pgdyno doctor --calibrate")


@contextlib.contextmanager
def _evidence(asked: Path | None) -> Iterator[Path]:
    """Where it is written; without a place of its own it is gone when it has been told."""
    if asked is not None:
        require_place(asked)
        yield asked
        return
    with tempfile.TemporaryDirectory(prefix="pgdyno-calibration-") as folder:
        yield Path(folder) / "calibration.sqlite"


def _print(calibration: Calibration, entry: Entry) -> None:
    heading = f"{entry['server']}, {entry['workload']}, {counted(entry['clients'], 'client')}, against itself"
    out.print(Text(heading, style="bold"))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("schedule")
    wanted = [f"min to {given_percent(effect)}" for effect in EFFECTS]
    for column in ("slice", "blocks", "sd × √min, %", "without restarts", *wanted, "lost, %"):
        table.add_column(column, justify="right")
    best = calibration.best()
    for one in calibration.measured:
        within = one.within()
        cells = [
            one.schedule,
            format_duration(one.slice_s),
            str(one.blocks),
            _merit(calibration, one),
            number(within and percent_of(within)),
            *(number(calibration.minutes(one, effect)) for effect in EFFECTS),
            number(100 * one.lost_share if one.units else None),
        ]
        table.add_row(*map(Text, cells), style="bold" if one is best else "")
    out.print(table)
    for line in _sentences(calibration):
        out.print(line, markup=False)


def _merit(calibration: Calibration, one: Measured) -> str:
    """With its interval."""
    merit, interval = calibration.merit(one), calibration.merit_interval(one)
    value = number(merit and percent_of(merit))
    return value + (f" ({' … '.join(number(percent_of(end)) for end in interval)})" if interval else "")


def number(value: float | None) -> str:
    """Three digits, whole ones where there are more; a dash for what is not known."""
    return "–" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _sentences(calibration: Calibration) -> Iterator[str]:
    if calibration.is_short:
        yield f"Below {BLOCKS_KNOWN} blocks of every length none is called the best."
    else:
        yield (
            f"Minutes until a true difference is found with a chance of {given_percent(POWER)} by a study "
            "that stops on its verdict; restores, restarts and A/A blocks included. "
            f"{_restarts(calibration)}"
        )
    if (alarms := calibration.alarms) is None:
        yield f"False alarms: not known below {BLOCKS_MIN} blocks of a length."
    else:
        low, high = (100 * end for end in alarms.interval)
        rate = 100 * alarms.called / alarms.series
        yield (
            f"False alarms: of {alarms.series} series of {BLOCKS_MIN} blocks {alarms.called} were called "
            f"different ({rate:.2g} %, interval {low:.2g} … {high:.2g} %); chance calls 5 %."
        )
    yield from _best(calibration)


def _best(calibration: Calibration) -> Iterator[str]:
    best = calibration.best()
    if best is None:
        return
    took = [
        f"{given_percent(effect)} in about {number(minutes)} min"
        for effect in EFFECTS
        if (minutes := calibration.minutes(best, effect)) is not None
    ]
    yield f"Best here: {_name(best)}{': ' if took else ''}{' and '.join(took)}."
    if alike := calibration.like_best():
        yield f"Not to be told apart from it by these blocks: {', '.join(map(_name, alike))}."


def _name(one: Measured) -> str:
    return f"{one.schedule} of {format_duration(one.slice_s)}"


def _restarts(calibration: Calibration) -> str:
    if not calibration.restarts_show:
        return "What restores and restarts alone do to a block does not show in the noise of its slices."
    sd = number(percent_of(calibration.sd_restart))
    return f"Restores and restarts alone make a block differ by {sd} % (standard deviation)."


def _drift_text(drift: tuple[float, int] | None) -> str:
    if drift is None:
        return "There is no earlier calibration of this machine with this server and load to compare with."
    ratio, n = drift
    of = "its last calibration" if n == 1 else f"the median of its last {n} calibrations"
    return f"This machine today is {ratio:.2g} × as noisy as {of}."
