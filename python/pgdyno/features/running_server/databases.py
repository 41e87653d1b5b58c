"""Output of ``pgdyno cache --dsn``: the databases of pgdyno on a running server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from pgdyno.cli.console import out, print_json, say
from pgdyno.features.running_server.remote import OwnDatabase, Remote
from pgdyno.server.connections import Dsn
from pgdyno.units import counted, format_size


def list_databases(dsn: str, as_json: bool) -> None:
    """Print the databases. Raises ConnectError."""
    _print_databases(Remote(Dsn(dsn)).describe_databases(), "", as_json)


def prune_databases(dsn: str, dry_run: bool, as_json: bool) -> None:
    """Drop the unused databases of studies, unless ``dry_run``, and print them. Raises ConnectError,
    DatasetError.
    """
    remote = Remote(Dsn(dsn))
    databases = remote.describe_databases() if dry_run else remote.prune()
    free = [of for of in databases if of.is_of_study and not of.in_use]
    _print_databases(free, " would be dropped" if dry_run else " dropped", as_json)


def _print_databases(found: Sequence[OwnDatabase], verb: str, as_json: bool) -> None:
    if as_json:
        print_json({"databases": [asdict(of) for of in found]})
        return
    size = format_size(sum(of.size_bytes for of in found))
    say(f"{counted(len(found), 'database')}{verb}, {size}")
    table = Table("name", "purpose", "size", "", box=None)
    for of in found:
        # Text: no markup in names and comments, which others can set.
        cells = (of.name, of.purpose, format_size(of.size_bytes), _state(of))
        table.add_row(*map(Text, cells))
    if found:
        out.print(table)


def _state(of: OwnDatabase) -> str:
    return "in use" if of.in_use else "" if of.is_of_study else "kept: not of a study"
