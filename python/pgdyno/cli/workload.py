"""The options that say which workload and how: in groups, of which each command takes those that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, TypeVar

import typer

from pgdyno.cli import scripts
from pgdyno.errors import UsageError
from pgdyno.study.pgbench import PgbenchParameters
from pgdyno.study.tpcc import TpccParameters
from pgdyno.study.variants import variant_of
from pgdyno.study.workload import WorkloadParameters

Kind = Literal["tpcc", "pgbench"]


@dataclass(frozen=True)
class Which:
    """Of all commands."""

    workload: Annotated[Kind, typer.Option(help="What the clients do.")] = "tpcc"
    variant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="pgbench: a ready-made test case: default, extra-indexes, select-only, analytical or "
            "skip-some-updates. Options given besides override its parts.",
        ),
    ] = None


@dataclass(frozen=True)
class TpccData:
    """What shapes tpcc's data."""

    warehouses: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="tpcc: size of the data, about 100 MB each. [default: for compare one per client, if memory "
            "allows, else 1]",
        ),
    ] = None


@dataclass(frozen=True)
class PgbenchData:
    """What shapes pgbench's data."""

    scale: Annotated[
        int | None,
        typer.Option(
            "--scale",
            "-s",
            metavar="N",
            help="pgbench: size of the data, 100 000 accounts or 16 MB each. [default: for compare one per "
            "client, if memory allows, else 1]",
        ),
    ] = None
    partitions: Annotated[
        int | None, typer.Option(metavar="N", help="pgbench: of the accounts. [default: 0]")
    ] = None
    partition_method: Annotated[
        Literal["range", "hash"] | None, typer.Option(help="pgbench: with --partitions. [default: range]")
    ] = None
    fillfactor: Annotated[
        int | None, typer.Option(metavar="PERCENT", help="pgbench: of the tables' pages. [default: 100]")
    ] = None
    unlogged: Annotated[
        bool | None, typer.Option("--unlogged", help="pgbench: tables that no crash leaves, without WAL.")
    ] = None
    foreign_keys: Annotated[
        bool | None, typer.Option("--foreign-keys", help="pgbench: between the tables.")
    ] = None
    index: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE(COLUMN,…)",
            help="pgbench: a further index, such as 'pgbench_accounts (bid, abalance)'; may be repeated.",
        ),
    ] = None
    accounts_copy: Annotated[
        bool | None,
        typer.Option("--accounts-copy", help="pgbench: a copy of the accounts, pgbench_accounts_copy."),
    ] = None


@dataclass(frozen=True)
class TpccCalls:
    """How tpcc's transactions are called."""

    calls: Annotated[
        Literal["procedures", "statements"] | None,
        typer.Option(
            help="tpcc: server-side functions, one round trip a transaction, or one round trip a statement. "
            "[default: procedures]"
        ),
    ] = None
    pipeline: Annotated[
        bool | None,
        typer.Option(
            "--pipeline",
            help="tpcc: with --calls statements, send together what does not need an answer first.",
        ),
    ] = None
    isolation: Annotated[
        Literal["read committed", "repeatable read", "serializable"] | None,
        typer.Option(help="tpcc: of every transaction. [default: read committed]"),
    ] = None
    mix: Annotated[
        str | None,
        typer.Option(
            metavar="KIND=WEIGHT,…",
            help="tpcc: weights of new-order, payment, order-status, delivery and stock-level; kinds that "
            "are not named do not run. [default: deck, TPC-C's mix]",
        ),
    ] = None


@dataclass(frozen=True)
class PgbenchScripts:
    """What pgbench's clients run."""

    builtin: Annotated[
        list[str] | None,
        typer.Option(
            "--builtin",
            "-b",
            metavar="NAME[@WEIGHT]",
            help="pgbench: tpcb-like, simple-update or select-only; may be repeated. [default: tpcb-like]",
        ),
    ] = None
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file", "-f", metavar="FILE[@WEIGHT]", help="pgbench: a script of your own; may be repeated."
        ),
    ] = None
    protocol: Annotated[
        Literal["simple", "extended", "prepared"] | None,
        typer.Option(
            "--protocol", "-M", help="pgbench: how statements are sent. [default: simple, as pgbench]"
        ),
    ] = None
    define: Annotated[
        list[str] | None,
        typer.Option("--define", "-D", metavar="NAME=VALUE", help="pgbench: a variable of the scripts."),
    ] = None


GROUPS: Mapping[type, Kind] = {
    TpccData: "tpcc",
    TpccCalls: "tpcc",
    PgbenchData: "pgbench",
    PgbenchScripts: "pgbench",
}

FIELD_OF_OPTION = {"index": "indexes"}
"""Where a parameter is not named as the option that gives it."""

Group = TypeVar("Group")


def parameters_of(
    which: Which, *groups: Any, default_size: Callable[[Kind], int] = lambda _: 1
) -> WorkloadParameters:
    """The parameters that the options ask for; its validation says what is wrong with them.

    ``default_size`` is asked for warehouses or scale where none is given. Raises UsageError, ValidationError.
    """
    for group in groups:
        if GROUPS[type(group)] != which.workload and (stray := dict(_given(group))):
            name = next(iter(stray)).replace("_", "-")
            raise UsageError(f"--{name} is for the workload {GROUPS[type(group)]}, not for {which.workload}")
    given = {name: value for group in groups for name, value in _given(group)}
    if which.workload == "tpcc":
        if which.variant is not None:
            raise UsageError("--variant is for the workload pgbench, not for tpcc")
        return TpccParameters.model_validate({"warehouses": default_size("tpcc"), **given})
    if asked := scripts.scripts_of(given.pop("builtin", ()), given.pop("file", ())):
        given["scripts"] = asked
    if "define" in given:
        given["define"] = scripts.definitions(given["define"])
    variant = variant_of(which.variant or "default")
    wanted = {**variant.data, **variant.transactions, **given}
    if "scale" not in wanted:
        wanted["scale"] = default_size("pgbench")
    return PgbenchParameters.model_validate(wanted)


def _given(group: Any) -> Iterator[tuple[str, Any]]:
    for field in fields(group):
        value = getattr(group, field.name)
        if value not in (None, [], ()):
            yield FIELD_OF_OPTION.get(field.name, field.name), value
