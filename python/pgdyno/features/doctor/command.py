"""``pgdyno doctor``: find sources of measurement noise on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from pgdyno.cli.console import out, print_json, say
from pgdyno.cli.options import Json, Quiet
from pgdyno.errors import EngineError
from pgdyno.features.doctor import checks
from pgdyno.features.doctor.checks import Checked, check_machine
from pgdyno.features.doctor.machine_state import MachineState, examine_machine
from pgdyno.measure.preflight import labels_of
from pgdyno.server.build_store import system_builds
from pgdyno.server.cache_directory import Cache
from pgdyno.server.engine import build_info
from pgdyno.server.settings_catalogue import known_catalogue
from pgdyno.units import counted

WATCH_S = 3.0
"""Observation time: enough to resolve 1% of two cores in kernel ticks of 10 ms."""

SYNC_S = 1.0
"""Duration of the flush test: enough for about a hundred flushes of a slow disk."""


def doctor(
    *,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with status 1 if a check finds a problem.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> int:
    """Find sources of measurement noise on this machine, with remedies.

    Observes the machine for a few seconds and times flushes in the cache directory. Changes no settings.
    Every study runs the same checks before its first and after its last block. Examples:

    \b
      pgdyno doctor
      pgdyno doctor --strict --json
    """
    if not as_json and not quiet:
        say(f"observing this machine for {WATCH_S + SYNC_S:.0f} s …")
    cache = Cache.open()
    state = examine_machine(WATCH_S, cache.root, SYNC_S)
    found = [*check_machine(state), *_programs(cache)]
    if as_json:
        print_json(_as_json(state, found))
    else:
        for line in lines(found):
            out.print(line, markup=False, soft_wrap=True)
    return 1 if strict and any(one.caveat for one in found) else 0


def lines(found: Sequence[Checked]) -> list[str]:
    """Return one line per check: problems with their remedies first, then passed and unknown checks."""
    caveats = [one.caveat for one in found if one.caveat is not None]
    problems = counted(len(caveats), "problem") if caveats else "no problems"
    parts = [f"{problems} found in {len(found)} checks"]
    parts += [f"- {caveat.code}: {caveat.text}\n  {caveat.remedy}" for caveat in caveats]
    for heading, kind in (("ok", "fine"), ("unknown", "unknown")):
        if ones := [f"  {one.about}: {one.text}" for one in found if one.found == kind]:
            parts += ["", heading, *ones]
    return parts


def _programs(cache: Cache) -> list[Checked]:
    try:
        profile = build_info().get("profile")
    except EngineError:
        profile = None
    builds = [*system_builds(), *cache.store().cached()]
    known = {label: known_catalogue(build, cache) for build, label in labels_of(builds).items()}
    return [checks.engine(profile), *checks.server_checks(known)]


def _as_json(state: MachineState, found: Sequence[Checked]) -> dict[str, object]:
    def shown(one: Checked) -> dict[str, str | None]:
        facts = {"about": one.about, "found": one.found, "text": one.text}
        if one.caveat is None:
            return {**facts, "code": None, "remedy": None, "link": None}
        return {
            **facts,
            "code": one.caveat.code,
            "remedy": one.caveat.remedy,
            "link": one.caveat.wording.link or None,
        }

    return {"checks": [shown(one) for one in found], "machine": state.as_json()}
