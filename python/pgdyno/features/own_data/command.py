"""``pgdyno data``: names for data of the user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from pgdyno.cli.console import out, print_json, say
from pgdyno.cli.options import Json
from pgdyno.errors import UsageError
from pgdyno.features.own_data.plan import OwnData
from pgdyno.features.own_data.source import NamedData, Selection, named_data, sweep
from pgdyno.interruption import Interruption
from pgdyno.server.cache_directory import Cache
from pgdyno.units import format_size

app = typer.Typer(help="Name, list and remove data of your own for --data.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the data.")]


@app.command("add")
def add(
    name: Name,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Dump of pg_dump (custom, directory, tar or SQL, also compressed), base backup or stopped "
            "data directory, directory with load.sql, or DSN.",
        ),
    ],
    tables: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN,…",
            help="DSN: only the tables that match a pattern of pg_dump --table, and what they need.",
        ),
    ] = None,
    schema_only: Annotated[bool, typer.Option("--schema-only", help="DSN: no rows.")] = False,
    database: Annotated[
        str | None, typer.Option(metavar="NAME", help="Backup: database to measure. [default: the only one]")
    ] = None,
    locale: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Locale of the database. [default: that of the origin, C if a dump does not name it]",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Give data a name.

    A DSN is read once, now, in one consistent snapshot and in read-only sessions. Files and directories stay
    where they are. Examples:

    \b
      pgdyno data add shop shop.dump
      pgdyno data add shop postgresql://reader@db.example/shop --tables 'orders,order_*'
    """
    options = {"database": database or "", "locale": locale or ""}
    data = OwnData.model_validate({"source": source, **options})
    selection = Selection(tuple(filter(None, (tables or "").split(","))), schema_only)
    with Interruption() as interruption:
        added = named_data(Cache.open(), say).add(name, data, selection, interruption.check)
    _print(added, as_json=as_json)


@app.command("list")
def list_names(as_json: Json = False) -> None:
    """List the named data, with form, size and origin."""
    cache = Cache.open()
    sweep(cache.data)
    store = named_data(cache)
    found = [store.read(name) for name in store.names()]
    if as_json:
        print_json({"data": [_facts(one) for one in found]})
        return
    if not found:
        say("no data have a name: add some with pgdyno data add NAME SOURCE")
        return
    table = Table("name", "form", "size", "origin", box=None)
    for one in found:
        # Text: no markup in origins, which can be any path.
        table.add_row(
            *map(Text, (one.data.name, one.data.form, format_size(one.data.size_bytes), one.origin))
        )
    out.print(table)


@app.command("show")
def show(name: Name, as_json: Json = False) -> None:
    """Show the data of a name, and the datasets that were made of them."""
    _print(named_data(Cache.open()).read(name), as_json=as_json)


@app.command("remove")
def remove(name: Name, as_json: Json = False) -> None:
    """Remove a name, with the dump that was read from a DSN and all datasets made of it.

    Files and directories of yours stay.
    """
    cache = Cache.open()
    store = named_data(cache)
    datasets = cache.cached_datasets()
    for dataset in _datasets(cache, store.read(name)):
        if not datasets.remove(dataset):
            raise UsageError(f"the dataset {dataset} is in use by another pgdyno: try again after it")
    _print(store.remove(name), as_json=as_json)


def _datasets(cache: Cache, named: NamedData) -> Iterator[str]:
    """Yield the names of the datasets made of these data."""
    for name in cache.cached_datasets().names():
        try:
            key = json.loads((cache.datasets / name / "manifest.json").read_text())["key"]
            if key["workload"] == "data" and key["scale"]["data"] == named.data.digest:
                yield name
        except (OSError, ValueError, KeyError, TypeError):
            continue


def _facts(named: NamedData) -> dict[str, object]:
    return {
        "name": named.data.name,
        "form": named.data.form,
        "path": named.data.path,
        "origin": named.origin,
        "digest": named.data.digest,
        "size_bytes": named.data.size_bytes,
        "major": named.data.major,
        "database": named.data.database,
        "locale": named.data.locale,
        "added_at": datetime.fromtimestamp(named.added_unix_s, UTC).isoformat(timespec="seconds"),
        "is_copy": named.is_copy,
        "is_there": named.is_there,
        "datasets": list(_datasets(Cache.open(), named)),
    }


def _print(named: NamedData, *, as_json: bool) -> None:
    facts = _facts(named)
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        shown = format_size(named.data.size_bytes) if name == "size_bytes" else value
        shown = ", ".join(value) if isinstance(value, list) else shown
        if shown not in (None, ""):
            label = name.removesuffix("_bytes").removesuffix("_at").replace("_", " ")
            out.print(f"{label + ':':<10} {shown}", markup=False, soft_wrap=True)
