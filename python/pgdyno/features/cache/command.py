"""``pgdyno cache``: list and prune the cache."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.table import Table

from pgdyno.cli.console import out, print_json, say
from pgdyno.cli.options import Json, require_no_password
from pgdyno.errors import UsageError
from pgdyno.measure.arms import RUNNING_SERVERS
from pgdyno.server.cache_directory import Cache, Item, items, prune
from pgdyno.units import format_size, parse_duration_s

app = typer.Typer(help="List and prune the cache of servers and datasets.", no_args_is_help=True)

OfServer = Annotated[
    str | None,
    typer.Option(
        "--dsn",
        metavar="DSN",
        callback=require_no_password,
        help="Instead of the cache: the databases that pgdyno created on this running server.",
    ),
]


@app.command("list")
def list_items(dsn: OfServer = None, as_json: Json = False) -> None:
    """List the contents of the cache, with size and last use."""
    if dsn is not None:
        RUNNING_SERVERS.require("--dsn").list_databases(dsn, as_json)
        return
    cache = Cache.open()
    found = items(cache)
    if as_json:
        print_json({"root": str(cache.root), "items": [_facts(item) for item in found]})
        return
    say(f"{cache.root}: {format_size(sum(item.size_bytes for item in found))}")
    out.print(_table(found))


@app.command("prune")
def prune_items(
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Delete datasets, templates, servers and uncollected results files of fleet studies that "
            "were not used for DURATION, for example 30d or 12h; in days without a unit.",
        ),
    ] = None,
    keep: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Keep the N most recently used datasets.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the entries to delete, without deleting them.")
    ] = False,
    dsn: OfServer = None,
    as_json: Json = False,
) -> None:
    """Delete datasets, templates and leftovers of killed runs.

    Entries in use by a running pgdyno are kept. Without options, deletes all datasets and templates.
    Examples:

    \b
      pgdyno cache prune --dry-run
      pgdyno cache prune --older-than 30d --keep 4
      pgdyno cache prune --dsn postgresql://bench@db.example/postgres
    """
    if dsn is not None:
        if older_than is not None or keep is not None:
            option = "--older-than" if older_than is not None else "--keep"
            raise UsageError(f"{option} is for the cache and cannot be combined with --dsn: remove it")
        RUNNING_SERVERS.require("--dsn").prune_databases(dsn, dry_run, as_json)
        return
    older_than_s = None if older_than is None else parse_duration_s(older_than, bare="d")
    gone = prune(Cache.open(), older_than_s=older_than_s, keep=keep, dry_run=dry_run)
    if as_json:
        print_json({"dry_run": dry_run, "items": [_facts(item) for item in gone]})
        return
    verb = "would be deleted" if dry_run else "deleted"
    say(f"{len(gone)} {verb}, {format_size(sum(item.size_bytes for item in gone))}")
    if gone:
        out.print(_table(gone))


def _facts(item: Item) -> dict[str, object]:
    return {
        "kind": item.kind,
        "name": item.name,
        "size_bytes": item.size_bytes,
        "used_at": datetime.fromtimestamp(item.used_unix_s, UTC).isoformat(timespec="seconds"),
        "in_use": item.in_use,
    }


def _ago(age_s: float) -> str:
    """Return the age in the largest whole unit, as in ``12 min ago``."""
    for unit, unit_s in (("d", 86_400), ("h", 3600), ("min", 60)):
        if age_s >= unit_s:
            return f"{int(age_s // unit_s)} {unit} ago"
    return f"{int(age_s)} s ago"


def _table(found: list[Item]) -> Table:
    table = Table("type", "name", "size", "last used", box=None)
    for item in found:
        ago = "now" if item.in_use else _ago(max(0.0, time.time() - item.used_unix_s))
        table.add_row(item.kind, item.name, format_size(item.size_bytes), ago)
    return table
