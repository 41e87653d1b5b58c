"""``pgdyno doctor``: what on this machine disturbs measurements, and what is fine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from pgdyno.caveats import Caveat
from pgdyno.cli.console import out, print_json, say
from pgdyno.cli.options import Json
from pgdyno.engine import build_info
from pgdyno.errors import EngineError
from pgdyno.lab.doctor import programs
from pgdyno.lab.doctor.checked import Checked
from pgdyno.lab.doctor.examine import examine
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
    as_json: Json = False,
) -> int:
    """Say what on this machine disturbs measurements, and how to quiet it.

    Watches the machine for some seconds and tries flushes where the data of studies lie; every study does
    the same before it begins and when it has ended. Changes nothing. Examples:

    \b
      pgdyno doctor
      pgdyno doctor --strict --json
    """
    if not as_json:
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
    return f"- {caveat.code}: {caveat.sentence}\n  {caveat.remedy}"


def _programs(cache: Cache) -> list[Checked]:
    try:
        profile = build_info().get("profile")
    except EngineError:
        profile = None
    builds = [*system_builds(), *cache.store().cached()]
    known = {build.label: known_catalogue(build, cache) for build in builds}
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
