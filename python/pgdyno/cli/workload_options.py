"""Options that choose a workload and its scripts; each command takes the groups that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from pgdyno.errors import UsageError
from pgdyno.features.own_data.options import OwnDataOptions
from pgdyno.features.sysbench.parameters import (
    BULK_INSERT_THREADS,
    STOCK,
    TABLE_SIZE,
    TABLES,
    SysbenchParameters,
    canonical_option,
    script_fields,
)
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.workloads.pgbench.parameters import (
    BUILTINS,
    PgbenchParameters,
    Script,
    script_files,
    variant_of,
    weighted,
)
from pgdyno.workloads.tpcc.parameters import TABLE_SETS_MAX, TpccParameters


def scripts_of(builtins: Iterable[str], files: Iterable[str]) -> tuple[Script, ...]:
    """Return the scripts, built-in ones first. Raises UsageError: unknown name or file, invalid weight.

    Scripts of several recordings have the mean of their coverages.
    """
    found = [script_files(text) for text in files]
    recordings = sum(any(script.share is not None for script in scripts) for scripts in found)
    return (
        *map(_builtin, builtins),
        *(
            script.model_copy(update={"share": script.share / recordings}) if script.share else script
            for scripts in found
            for script in scripts
        ),
    )


def definitions(texts: Iterable[str]) -> dict[str, str]:
    """Parse ``NAME=VALUE``; the last value of a name applies. Raises UsageError."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UsageError(f"--define must have the form NAME=VALUE (got {text!r})")
        found[name] = value
    return found


def _builtin(text: str) -> Script:
    prefix, weight = weighted(text)
    found = [name for name in BUILTINS if name.startswith(prefix)]
    if len(found) != 1:
        how = "is ambiguous" if found else "is unknown"
        raise UsageError(f"--builtin: the script {prefix!r} {how}; available: {', '.join(BUILTINS)}")
    return Script(name=found[0], weight=weight)


Kind = Literal["tpcc", "pgbench", "sysbench"]
DEFAULT_WORKLOAD: Kind = "tpcc"


@dataclass(frozen=True)
class Which:
    """Options of all commands."""

    workload: Annotated[Kind, typer.Option(help="Workload of the clients.")] = DEFAULT_WORKLOAD
    variant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="pgbench: predefined test case: default, extra-indexes, select-only, analytical or "
            "skip-some-updates. Other options override parts of it. [default: default]",
        ),
    ] = None


@dataclass(frozen=True)
class TpccData:
    """Options of the tpcc data."""

    warehouses: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="tpcc: number of warehouses, about 100 MB each. [default: in compare one per client, as far "
            "as "
            "memory allows; otherwise 1]",
        ),
    ] = None


@dataclass(frozen=True)
class PgbenchData:
    """Options of the pgbench data."""

    scale: Annotated[
        int | None,
        typer.Option(
            "--scale",
            "-s",
            metavar="N",
            help="pgbench: scale factor, 100,000 accounts (16 MB) each. [default: in compare one per client, "
            "as far as memory allows; otherwise 1]",
        ),
    ] = None
    partitions: Annotated[
        int | None,
        typer.Option(metavar="N", help="pgbench: number of partitions of pgbench_accounts. [default: 0]"),
    ] = None
    partition_method: Annotated[
        Literal["range", "hash"] | None,
        typer.Option(help="pgbench: partitioning method of --partitions. [default: range]"),
    ] = None
    fillfactor: Annotated[
        int | None,
        typer.Option(metavar="PERCENT", help="pgbench: fillfactor of the tables, 10 to 100. [default: 100]"),
    ] = None
    unlogged: Annotated[bool | None, typer.Option("--unlogged", help="pgbench: create unlogged tables.")] = (
        None
    )
    foreign_keys: Annotated[
        bool | None,
        typer.Option("--foreign-keys", help="pgbench: create foreign key constraints between the tables."),
    ] = None
    index: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE(COLUMN,…)",
            help="pgbench: additional index, for example 'pgbench_accounts (bid, abalance)'. May be "
            "repeated.",
        ),
    ] = None
    accounts_copy: Annotated[
        bool | None,
        typer.Option(
            "--accounts-copy", help="pgbench: create pgbench_accounts_copy, a copy of pgbench_accounts."
        ),
    ] = None


@dataclass(frozen=True)
class TpccCalls:
    """Options of the tpcc transactions."""

    calls: Annotated[
        Literal["procedures", "statements"] | None,
        typer.Option(
            help="tpcc: call server-side functions (one round trip per transaction), or send single "
            "statements. "
            "[default: procedures]"
        ),
    ] = None
    pipeline: Annotated[
        bool | None,
        typer.Option(
            "--pipeline",
            help="tpcc: with --calls statements, send statements in pipeline mode where they do not depend "
            "on "
            "each other.",
        ),
    ] = None
    isolation: Annotated[
        Literal["read committed", "repeatable read", "serializable"] | None,
        typer.Option(help="tpcc: transaction isolation level. [default: read committed]"),
    ] = None
    mix: Annotated[
        str | None,
        typer.Option(
            metavar="KIND=WEIGHT,…",
            help="tpcc: weights of new-order, payment, order-status, delivery and stock-level. Transactions "
            "that are not listed do not run. [default: deck, the mix of TPC-C]",
        ),
    ] = None


@dataclass(frozen=True)
class TpccDialect:
    """Options of the deviations from TPC-C, of data and transactions."""

    dialect: Annotated[
        Literal["spec", "hammerdb", "sysbench"] | None,
        typer.Option(
            help="tpcc: driver whose data and transactions are reproduced, with its deviations from TPC-C. "
            "[default: spec]"
        ),
    ] = None
    deviate: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="tpcc: single deviations from TPC-C, such as no-rollback,uniform-items "
            "(pgdyno docs workload-tpcc). [default: none]",
        ),
    ] = None
    table_sets: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=TABLE_SETS_MAX,
            help="tpcc with --dialect sysbench: sets of tables that share the warehouses, at most one per "
            "warehouse. [default: 1]",
        ),
    ] = None


@dataclass(frozen=True)
class PgbenchScripts:
    """Options of the pgbench scripts."""

    builtin: Annotated[
        list[str] | None,
        typer.Option(
            "--builtin",
            "-b",
            metavar="NAME[@WEIGHT]",
            help="pgbench: built-in script: tpcb-like, simple-update or select-only. May be repeated. "
            "[default: tpcb-like]",
        ),
    ] = None
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE[@WEIGHT]|DIR",
            help="pgbench: custom script file, or a directory written by `pgdyno workload`. May be repeated.",
        ),
    ] = None
    protocol: Annotated[
        Literal["simple", "extended", "prepared"] | None,
        typer.Option("--protocol", "-M", help="pgbench: query protocol. [default: simple, as in pgbench]"),
    ] = None
    define: Annotated[
        list[str] | None,
        typer.Option(
            "--define", "-D", metavar="NAME=VALUE", help="pgbench: script variable. May be repeated."
        ),
    ] = None


@dataclass(frozen=True)
class SysbenchOptions:
    """Options of sysbench: script and data."""

    script: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE.lua",
            help=f"sysbench: script of the clients: {', '.join(STOCK)}, or a Lua file. "
            "[default: oltp_read_write]",
        ),
    ] = None
    tables: Annotated[
        int | None, typer.Option(metavar="N", help=f"sysbench: number of tables. [default: {TABLES}]")
    ] = None
    table_size: Annotated[
        int | None,
        typer.Option(
            metavar="N", help=f"sysbench: rows of each table, 250 bytes each. [default: {TABLE_SIZE:,}]"
        ),
    ] = None
    opt: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="sysbench: option of the script or of its random numbers, for example point-selects=5. May "
            "be repeated.",
        ),
    ] = None
    prepare_threads: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="sysbench: threads of the script's own command prepare. "
            f"[default: 1; bulk_insert: {BULK_INSERT_THREADS}]",
        ),
    ] = None
    allow_os: Annotated[
        bool | None,
        typer.Option(
            "--allow-os",
            help="sysbench: let scripts run commands, use all of the libraries os and io, and read any file. "
            "Sleeping by os.execute needs no permission.",
        ),
    ] = None

    def with_options(self, texts: Iterable[str]) -> SysbenchOptions:
        """Return the options with ``--name=value`` of sysbench's command line."""
        return replace(self, opt=[*(self.opt or ()), *texts])


GROUPS: Mapping[type, Kind] = {
    TpccData: "tpcc",
    TpccCalls: "tpcc",
    TpccDialect: "tpcc",
    PgbenchData: "pgbench",
    PgbenchScripts: "pgbench",
    OwnDataOptions: "pgbench",
    SysbenchOptions: "sysbench",
}

FIELD_OF_OPTION = {"index": "indexes", "opt": "options", "check": "checks"}
"""Parameters whose name differs from their option."""

OPTION_OF_FIELD = {field: option for option, field in FIELD_OF_OPTION.items()}

Group = TypeVar("Group")


@dataclass(frozen=True)
class WorkloadOptions:
    """All options of a workload: which one, its data and its transactions."""

    which: Which
    tpcc_data: TpccData
    tpcc_calls: TpccCalls
    tpcc_dialect: TpccDialect
    pgbench_data: PgbenchData
    pgbench_scripts: PgbenchScripts
    own_data: OwnDataOptions
    sysbench: SysbenchOptions

    def parameters(self, default_size: Callable[[Kind], int]) -> WorkloadParameters:
        """Return the parameters as ``parameters_of`` does."""
        groups = (
            *(self.tpcc_data, self.tpcc_calls, self.tpcc_dialect),
            *(self.pgbench_data, self.pgbench_scripts, self.own_data, self.sysbench),
        )
        implied = self.own_data.source is not None and self.which.workload == DEFAULT_WORKLOAD
        which = replace(self.which, workload="pgbench") if implied else self.which
        loaded = chosen_parameters(which, *groups, default_size=default_size)
        history = self.own_data.history()
        return type(loaded).model_validate({**dict(loaded), **history}) if history else loaded

    def of_arm(self, load: Mapping[str, str]) -> WorkloadOptions:
        """Return the options with dialect, deviations and data of an arm. Raises UsageError."""
        dialect: dict[str, Any] = {name: load[name] for name in ("dialect", "deviate") if name in load}
        own = replace(self, own_data=self.own_data.of_arm(load))
        return replace(own, tpcc_dialect=replace(self.tpcc_dialect, **dialect))


OF_ANOTHER_WORKLOAD = {("script", "pgbench"): "file", ("file", "sysbench"): "script"}
"""Options by the option of another workload with the same purpose, and the workload."""


def chosen_parameters(
    which: Which, *groups: Any, default_size: Callable[[Kind], int] = lambda _: 1
) -> WorkloadParameters:
    """Return the workload parameters given by the options.

    ``default_size`` supplies warehouses or scale if none is given. Raises UsageError, ValidationError.
    """
    for group in groups:
        if GROUPS[type(group)] != which.workload and (stray := dict(_given(group))):
            name = next(iter(stray))
            name = OPTION_OF_FIELD.get(name, name).replace("_", "-")
            message = f"--{name} requires --workload {GROUPS[type(group)]} (got --workload {which.workload})"
            own = OF_ANOTHER_WORKLOAD.get((name, which.workload))
            raise UsageError(f"{message}: use --{own}" if own else message)
    given = {name: value for group in groups for name, value in _given(group)}
    if which.variant is not None and which.workload != "pgbench":
        raise UsageError(f"--variant requires --workload pgbench (got --workload {which.workload})")
    if which.workload == "sysbench":
        return _sysbench(given)
    if which.workload == "tpcc":
        return TpccParameters.model_validate({"warehouses": default_size("tpcc"), **given})
    if asked := scripts_of(given.pop("builtin", ()), given.pop("file", ())):
        given["scripts"] = asked
    if "define" in given:
        given["define"] = definitions(given["define"])
    variant = variant_of(which.variant or "default")
    wanted = {**variant.data, **variant.transactions, **given}
    if "scale" not in wanted and "data" not in wanted:
        wanted["scale"] = default_size("pgbench")
    return PgbenchParameters.model_validate(wanted)


def _sysbench(given: dict[str, Any]) -> SysbenchParameters:
    """Return the parameters of sysbench; reads the script and its modules. Raises UsageError."""
    fields = dict(given)
    if "options" in fields:
        fields["options"] = options_of(fields["options"])
    if "script" in fields:
        fields |= script_fields(fields["script"], Path())
    return SysbenchParameters.model_validate(fields)


def options_of(texts: Iterable[str]) -> dict[str, str]:
    """Parse ``NAME=VALUE`` and ``--NAME=VALUE``; a name without value is on. Raises UsageError."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = canonical_option(name)
        if not name or name.startswith("-"):
            raise UsageError(f"--opt must have the form NAME=VALUE (got {text!r})")
        found[name] = value if equals else "on"
    return found


def _given(group: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(group, OwnDataOptions):
        yield from group.of_pgbench().items()
        return
    for field in fields(group):
        value = getattr(group, field.name)
        if value not in (None, [], ()):
            yield FIELD_OF_OPTION.get(field.name, field.name), value
