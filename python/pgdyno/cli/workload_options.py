"""Options that choose a workload and its scripts; each command takes the groups that it needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from pgdyno.cli.options import ModelOptions, option_name
from pgdyno.errors import UsageError
from pgdyno.features.own_data.options import OwnDataOptions
from pgdyno.features.sysbench.parameters import (
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
from pgdyno.workloads.tpcc.parameters import TpccParameters


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
        if re.search("[\udc80-\udcff]", text):
            raise UsageError(f"--define {name} is not UTF-8: {value}")
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


class TpccData(ModelOptions, model=TpccParameters, fields="warehouses"):
    """Options of the tpcc data."""


class TpccCalls(ModelOptions, model=TpccParameters, fields="calls pipeline isolation mix"):
    """Options of the tpcc transactions."""


class TpccDialect(ModelOptions, model=TpccParameters, fields="dialect deviate table_sets"):
    """Options of the deviations from TPC-C, of data and transactions."""


class PgbenchData(
    ModelOptions,
    model=PgbenchParameters,
    fields="scale partitions partition_method fillfactor unlogged foreign_keys indexes accounts_copy",
):
    """Options of the pgbench data."""


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


class PgbenchCalls(ModelOptions, model=PgbenchParameters, fields="protocol define"):
    """Options of how the pgbench scripts run."""


class SysbenchOptions(
    ModelOptions,
    model=SysbenchParameters,
    fields="script tables table_size options prepare_threads allow_os",
):
    """Options of sysbench: script and data."""

    def with_options(self, texts: Iterable[str]) -> SysbenchOptions:
        """Return the options with ``--name=value`` of sysbench's command line."""
        return self.with_(options=[*self.given.get("options", ()), *texts])


@dataclass(frozen=True)
class WorkloadOptions:
    """All options of a workload: which one, its data and its transactions."""

    which: Which
    tpcc_data: TpccData
    tpcc_calls: TpccCalls
    tpcc_dialect: TpccDialect
    pgbench_data: PgbenchData
    pgbench_scripts: PgbenchScripts
    pgbench_calls: PgbenchCalls
    own_data: OwnDataOptions
    sysbench: SysbenchOptions

    def parameters(self, default_size: Callable[[Kind], int]) -> WorkloadParameters:
        """Return the parameters as ``parameters_of`` does."""
        groups = (
            *(self.tpcc_data, self.tpcc_calls, self.tpcc_dialect),
            *(self.pgbench_data, self.pgbench_scripts, self.pgbench_calls, self.own_data, self.sysbench),
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
        return replace(own, tpcc_dialect=self.tpcc_dialect.with_(**dialect))


OF_ANOTHER_WORKLOAD = {("script", "pgbench"): "file", ("file", "sysbench"): "script"}
"""Options by the option of another workload with the same purpose, and the workload."""


WorkloadGroup = ModelOptions | PgbenchScripts | OwnDataOptions


def chosen_parameters(
    which: Which, *groups: WorkloadGroup, default_size: Callable[[Kind], int] = lambda _: 1
) -> WorkloadParameters:
    """Return the workload parameters given by the options.

    ``default_size`` supplies warehouses or scale if none is given. Raises UsageError, ValidationError.
    """
    for group in groups:
        kind = group.MODEL.model_fields["kind"].default if isinstance(group, ModelOptions) else "pgbench"
        if kind != which.workload and (stray := _given(group)):
            name = next(iter(stray))
            message = f"{_option(group, name)} requires --workload {kind} (got --workload {which.workload})"
            own = OF_ANOTHER_WORKLOAD.get((name, which.workload))
            raise UsageError(f"{message}: use --{own}" if own else message)
    given = {name: value for group in groups for name, value in _given(group).items()}
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
    if "options" in given:
        given["options"] = options_of(given["options"])
    if "script" in given:
        given |= script_fields(given["script"], Path())
    return SysbenchParameters.model_validate(given)


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


def _given(group: WorkloadGroup) -> dict[str, Any]:
    if isinstance(group, ModelOptions):
        return group.given
    if isinstance(group, OwnDataOptions):
        return group.of_pgbench()
    return {name: value for name, value in asdict(group).items() if value}


def _option(group: WorkloadGroup, name: str) -> str:
    if isinstance(group, ModelOptions):
        return option_name(group.MODEL, name)
    return "--check" if name == "checks" else f"--{name}"
