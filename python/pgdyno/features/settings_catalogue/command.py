"""``pgdyno settings``: show settings profiles and explain settings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from pgdyno.cli.console import out, print_json, say
from pgdyno.cli.options import Json, complete_profile, complete_server
from pgdyno.errors import UsageError
from pgdyno.measure.machine import machine_resources
from pgdyno.results.records import Guarantee
from pgdyno.server.build_store import resolve_build, system_builds
from pgdyno.server.builds import Build
from pgdyno.server.cache_directory import Cache
from pgdyno.server.safety import safety
from pgdyno.server.settings import (
    PROFILES,
    RESERVED,
    Definition,
    ProfileInput,
    profile_named,
    request,
    validate,
)
from pgdyno.server.settings_catalogue import Catalogue, catalogue
from pgdyno.study.arm_spec import read_files

app = typer.Typer(help="Show settings profiles and explain settings.", no_args_is_help=True)

OfServer = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="SERVER",
        help="Server as in `compare`. [default: the newest installed]",
        autocompletion=complete_server,
    ),
]


@app.command("list")
def list_profiles(as_json: Json = False) -> None:
    """List the settings profiles and their sources."""
    if as_json:
        print_json([{"name": p.name, "title": p.title, "source": p.source} for p in PROFILES.values()])
        return
    table = Table("profile", "description", "source", box=None)
    for profile in PROFILES.values():
        table.add_row(f"@{profile.name}", profile.title, profile.source)
    out.print(table)


@app.command("show")
def show_profile(
    profile: Annotated[
        str,
        typer.Argument(
            metavar="PROFILE|FILE",
            help="Name of a profile, see `pgdyno settings list`, or a settings file.",
            autocompletion=complete_profile,
        ),
    ],
    server: OfServer = None,
    servers_at_once: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Number of servers that share the memory; 2 in a comparison of two arms."
        ),
    ] = 1,
    as_json: Json = False,
) -> None:
    """Show the settings of a profile on this machine, or those of a file that an arm would have.

    Includes their effect on durability and data safety. Examples:

    \b
      pgdyno settings show starter --servers-at-once 2
      pgdyno settings show ./tuned.conf --server 17
    """
    name = profile.removeprefix("@")
    files = read_files([name], Path())
    title, source = (f"settings of {name}", name) if files else _described(name)
    cache = Cache.open()
    build, known = _known(cache, server)
    fit = ProfileInput(
        machine_resources(cache.root),
        build.version,
        known.definitions,
        servers_at_once,
        library_dir=known.library_dir,
    )
    requested = request([name], {}, fit, files=files)
    settings = requested.settings
    judged = safety({**known.initial, **settings})
    if as_json:
        badges = {key: {"kept": badge.kept, "reason": badge.text} for key, badge in judged.badges.items()}
        print_json(
            {
                "profile": name,
                "server": build.label,
                "settings": dict(settings),
                "skipped": dict(requested.skipped.get(name, {})),
                "safety": badges,
            }
        )
        return
    say(f"{title}; for {build.label}; source: {source}")
    for note in requested.notes:
        say(note, wrap=True)
    for name, value in settings.items():
        out.print(f"{name} = {value}", markup=False)
    out.print(_badges(judged.badges.values()))
    out.print(f"checkpoints: {judged.checkpoint_distance}", markup=False)


def _described(profile: str) -> tuple[str, str]:
    """Return title and source. Raises UsageError for an unknown profile."""
    found = profile_named(profile)
    return found.title, found.source


@app.command("explain")
def explain(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a setting.")],
    server: OfServer = None,
    as_json: Json = False,
) -> None:
    """Explain a setting, from the server's pg_settings.

    Includes the effect of each value on durability and data safety. Example:

    \b
      pgdyno settings explain synchronous_commit --server 17
    """
    build, known = _known(Cache.open(), server)
    definition = _definition(name, known, build)
    if as_json:
        print_json(_facts(definition, known))
        return
    for key, text in _lines(definition, known, build):
        out.print(f"{key:<9} {text}", markup=False, soft_wrap=True)


def _known(cache: Cache, server: str | None) -> tuple[Build, Catalogue]:
    store = cache.store(say)
    if server is None:
        here = [*system_builds(), *store.cached()]
        build = max(here, key=lambda one: one.version) if here else resolve_build("18", store=store)
    else:
        build = resolve_build(server, store=store)
    return build, catalogue(build, cache)


def _definition(name: str, known: Catalogue, build: Build) -> Definition:
    definition = known.definitions.get(name.lower())
    if definition is None:
        validate({name: ""}, known.definitions, build.version)  # its message has the nearest name
        raise UsageError(
            f"{name} is a setting of an extension, which PostgreSQL {build.version} does not list"
        )
    return definition


def _facts(definition: Definition, known: Catalogue) -> dict[str, object]:
    return {
        "name": definition.name,
        "type": definition.vartype,
        "unit": definition.unit,
        "min": definition.min_val,
        "max": definition.max_val,
        "values": list(definition.enumvals),
        "initial": known.initial.get(definition.name),
        "context": definition.context,
        "category": definition.category,
        "description": definition.short_desc,
        "owned": RESERVED.get(definition.name),
        "safety": {value: list(badges) for value, badges in _prices(definition, known)},
    }


def _lines(definition: Definition, known: Catalogue, build: Build) -> list[tuple[str, str]]:
    described = " ".join(text for text in (definition.short_desc, definition.extra_desc) if text)
    lines = [(definition.name, described), ("group", definition.category), ("type", _kind(definition))]
    lines.append(("initially", known.initial.get(definition.name) or "(empty)"))
    lines.append(("changed", CONTEXTS.get(definition.context, definition.context)))
    if definition.name in RESERVED:
        lines.append(("reserved", f"set by pgdyno: {RESERVED[definition.name]}"))
    for value, badges in _prices(definition, known):
        lines += [("safety", f"{value}: {one.name}: {one.kept}. {one.text}") for one in badges.values()]
    lines.append(("server", build.label))
    return lines


CONTEXTS = {
    "internal": "never: fixed when PostgreSQL is built or the cluster is initialized",
    "postmaster": "at server start",
    "sighup": "by reloading the configuration",
    "superuser-backend": "at the start of a session, by a superuser",
    "backend": "at the start of a session",
    "superuser": "at any time, by a superuser",
    "user": "at any time",
}


def _kind(definition: Definition) -> str:
    if definition.enumvals:
        return "one of " + ", ".join(definition.enumvals)
    if definition.min_val is None or definition.max_val is None:
        return definition.vartype
    low, high = (definition.bare_in(float(bound)) for bound in (definition.min_val, definition.max_val))
    unit = f"; the unit of a number without one is {definition.unit}" if definition.unit else ""
    return f"{definition.vartype} from {low} to {high}{unit}"


def _prices(definition: Definition, known: Catalogue) -> list[tuple[str, dict[str, Guarantee]]]:
    """Return the guarantees lost by each value of a boolean or enum, compared with a new cluster."""
    values = definition.enumvals or (("on", "off") if definition.vartype == "bool" else ())
    before = safety(known.initial).given_up
    prices = []
    for value in values:
        given_up = safety({**known.initial, definition.name: value}).given_up
        if lost := {key: badge for key, badge in given_up.items() if badge != before.get(key)}:
            prices.append((value, lost))
    return prices


def _badges(badges: Iterable[Guarantee]) -> Table:
    table = Table("safety", "kept", "", box=None)
    for badge in badges:
        table.add_row(badge.name, badge.kept, badge.text)
    return table
