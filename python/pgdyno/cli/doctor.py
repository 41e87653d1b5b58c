"""``pgdyno doctor``: what on this machine disturbs measurements, and what is fine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from pgdyno.caveats import Caveat
from pgdyno.cli.calibrate import Asked
from pgdyno.cli.calibrate import run as run_calibration
from pgdyno.cli.calibrations import show
from pgdyno.cli.console import out, print_json, say
from pgdyno.cli.options import Json, Quiet
from pgdyno.engine import build_info
from pgdyno.errors import EngineError, UsageError
from pgdyno.lab.doctor import programs
from pgdyno.lab.doctor.checked import Checked
from pgdyno.lab.doctor.examine import examine
from pgdyno.lab.wanted import labels_of
from pgdyno.probe.machine.state import State, examine_machine
from pgdyno.server.cache import Cache
from pgdyno.server.catalogue import known_catalogue
from pgdyno.server.find import system_builds

WATCH_S = 3.0
"""Long enough for a share of a hundredth of two cores, in the kernel's ticks of 10 ms."""

SYNC_S = 1.0
"""Some hundred flushes of a slow disk."""


def doctor(
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with status 1 where something disturbs measurements.")
    ] = False,
    calibrate: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Measure this machine's noise for so long, such as 10m: a server against itself, in "
            "slices of several lengths. It is remembered.",
        ),
    ] = None,
    calibrations: Annotated[
        bool, typer.Option("--calibrations", help="Show the calibrations that are remembered.")
    ] = False,
    server: Annotated[
        str | None,
        typer.Option(metavar="SERVER", help="To calibrate with. [default: the newest at hand]"),
    ] = None,
    workload: Annotated[
        Literal["pgbench", "tpcc"],
        typer.Option(help="To calibrate with; of pgbench simple-update. [default: pgbench]"),
    ] = "pgbench",
    clients: Annotated[
        int | None, typer.Option(metavar="N", help="To calibrate with. [default: 4 per core]")
    ] = None,
    schedule: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="To calibrate (may be repeated). [default: all there are]"),
    ] = None,
    slice_length: Annotated[
        list[str] | None,
        typer.Option(
            "--slice",
            metavar="DURATION",
            help="To calibrate (may be repeated). [default: 0.25s, 0.5s, 1s, 2s]",
        ),
    ] = None,
    evidence: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Keep what the calibration measured; where it is there, go on with it."
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Of the calibration. [default: drawn]")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> int:
    """Say what on this machine disturbs measurements, and how to quiet it.

    Watches the machine for some seconds and tries flushes where the data of studies lie; every study does
    the same before it begins and when it has ended. Changes nothing. Examples:

    \b
      pgdyno doctor
      pgdyno doctor --strict --json
      pgdyno doctor --calibrate 10m
    """
    if strict and (calibrations or calibrate is not None):
        raise UsageError("--strict is about what disturbs this machine now: leave --calibrate away")
    if calibrations and calibrate is not None:
        raise UsageError("--calibrations shows earlier ones, --calibrate makes one: ask for one of them")
    if calibrations:
        return show(as_json)
    if calibrate is not None:
        return run_calibration(
            Asked(
                duration=calibrate,
                server=server,
                workload=workload,
                clients=clients,
                schedules=schedule or (),
                slices=slice_length or (),
                evidence=evidence,
                seed=seed,
                json=as_json,
                quiet=quiet,
            )
        )
    of_calibration = {
        "--server": server,
        "--workload": workload if workload != "pgbench" else None,
        "--clients": clients,
        "--schedule": schedule,
        "--slice": slice_length,
        "--evidence": evidence,
        "--seed": seed,
    }
    if given := [name for name, value in of_calibration.items() if value not in (None, [])]:
        raise UsageError(f"{given[0]} is of a calibration: add --calibrate 10m")
    if not as_json and not quiet:
        say(f"watching this machine for {WATCH_S + SYNC_S:.0f} s …")
    cache = Cache.open()
    state = examine_machine(WATCH_S, cache.root, SYNC_S)
    found = [*examine(state), *_programs(cache)]
    if as_json:
        print_json(_as_json(state, found))
    else:
        for line in lines(found):
            out.print(line, markup=False, soft_wrap=True)
    return 1 if strict and any(one.caveat for one in found) else 0


def lines(found: Sequence[Checked]) -> list[str]:
    """Findings with their remedies first, then what is fine and what is not known, a line each."""
    caveats = [one.caveat for one in found if one.caveat is not None]
    told = [_told(caveat) for caveat in caveats]
    rest = [(kind, [one for one in found if one.found == kind]) for kind in ("fine", "unknown")]
    heading = f"{len(caveats)} of {len(found)} checks found what disturbs measurements" if caveats else ""
    parts = [heading or f"none of {len(found)} checks found anything that disturbs measurements", *told]
    for kind, ones in rest:
        parts += ["", kind, *(f"  {one.about}: {one.text}" for one in ones)] if ones else []
    return parts


def _told(caveat: Caveat) -> str:
    return f"- {caveat.code}: {caveat.text}\n  {caveat.remedy}"


def _programs(cache: Cache) -> list[Checked]:
    try:
        profile = build_info().get("profile")
    except EngineError:
        profile = None
    builds = [*system_builds(), *cache.store().cached()]
    known = {label: known_catalogue(build, cache) for build, label in labels_of(builds).items()}
    return [programs.engine(profile), *programs.servers(known)]


def _as_json(state: State, found: Sequence[Checked]) -> dict[str, object]:
    return {
        "checks": [
            {
                "about": one.about,
                "found": one.found,
                "text": one.text,
                "code": one.caveat.code if one.caveat else None,
                "remedy": one.caveat.remedy if one.caveat else None,
            }
            for one in found
        ],
        "machine": state.as_json(),
    }
