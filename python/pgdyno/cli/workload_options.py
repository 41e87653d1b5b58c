"""Options that choose a workload and its scripts; each command takes the groups that it needs.

The module is imported in a process with features only (``cli/features.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import typer

from pgdyno.cli.options import OptionGroups, ParameterOptions, StudyKey, WorkloadGroup
from pgdyno.errors import UsageError
from pgdyno.hooks import Hooks
from pgdyno.study.workload_parameters import (
    DefaultSize,
    WorkloadParameters,
    parameters_by_kind,
    workload_from,
)
from pgdyno.workloads.pgbench.parameters import PgbenchParameters
from pgdyno.workloads.tpcc.parameters import TpccParameters

if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[tuple(kind for kind, of in parameters_by_kind().items() if of.HAS_OPTIONS)]

DEFAULT_WORKLOAD = "tpcc"

WORKLOAD_OPTIONS: Hooks[type[WorkloadGroup]] = Hooks("workload_options")
"""Groups of options of features: of workloads of their own, or for a workload of the core."""


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
        StudyKey("workload", "variant"),
    ] = None


class TpccData(ParameterOptions, model=TpccParameters, fields="warehouses"):
    """Options of the tpcc data."""


class TpccCalls(ParameterOptions, model=TpccParameters, fields="calls pipeline isolation mix"):
    """Options of the tpcc transactions."""


class TpccDialect(ParameterOptions, model=TpccParameters, fields="dialect deviate table_sets"):
    """Options of the deviations from TPC-C, of data and transactions."""

    def of_arm(self, load: Mapping[str, str]) -> Self:
        """Return the options with dialect and deviations of an arm."""
        return self.replaced(**{name: load[name] for name in ("dialect", "deviate") if name in load})


class PgbenchData(
    ParameterOptions,
    model=PgbenchParameters,
    fields="scale partitions partition_method fillfactor unlogged foreign_keys indexes accounts_copy",
):
    """Options of the pgbench data."""


@dataclass(frozen=True)
class PgbenchScripts(WorkloadGroup):
    """Options of the pgbench scripts."""

    KIND = "pgbench"
    SCRIPTS = "file"

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

    def values(self) -> Mapping[str, Any]:
        """Return the scripts that were named."""
        return {name: value for name, value in asdict(self).items() if value}


class PgbenchCalls(ParameterOptions, model=PgbenchParameters, fields="protocol define"):
    """Options of how the pgbench scripts run."""


class WorkloadOptions(OptionGroups):
    """All options of a workload: which one, its data and its transactions."""

    OWN: ClassVar[Sequence[type[WorkloadGroup]]] = (
        *(TpccData, TpccCalls, TpccDialect),
        *(PgbenchData, PgbenchScripts, PgbenchCalls),
    )

    def __init__(self, which: Which, *groups: WorkloadGroup) -> None:
        """Take the choice of the workload, and groups of options of workloads."""
        self.which, self.of_workloads = which, groups

    @classmethod
    def types(cls) -> Sequence[Any]:
        """Return the types of the groups: those of features follow."""
        return Which, *cls.OWN, *WORKLOAD_OPTIONS

    @property
    def given(self) -> dict[str, Any]:
        """The values that were given, by name."""
        return {name: value for group in self.of_workloads for name, value in group.values().items()}

    def parameters(self, default_size: DefaultSize) -> WorkloadParameters:
        """Return the parameters as ``chosen_parameters`` does, with aging and upgrade of the data."""
        which = self.which
        implied = [group.KIND for group in self.of_workloads if group.is_kind_implied()]
        if implied and which.workload == DEFAULT_WORKLOAD:
            which = replace(which, workload=implied[0])
        loaded = chosen_parameters(which, *self.of_workloads, default_size=default_size)
        aging = {name: value for group in self.of_workloads for name, value in group.aging().items()}
        return type(loaded).model_validate({**dict(loaded), **aging}) if aging else loaded

    def of_arm(self, load: Mapping[str, str]) -> WorkloadOptions:
        """Return the options with dialect, deviations and data of an arm. Raises UsageError."""
        return type(self)(self.which, *(group.of_arm(load) for group in self.of_workloads))

    def with_arguments(self, texts: Sequence[str]) -> WorkloadOptions:
        """Return the options with ``--name=value`` after ``--`` on the command line."""
        return type(self)(self.which, *(group.with_arguments(texts) for group in self.of_workloads))


def chosen_parameters(
    which: Which, *groups: WorkloadGroup, default_size: DefaultSize = lambda _: 1
) -> WorkloadParameters:
    """Return the workload parameters given by the options.

    ``default_size`` supplies warehouses or scale if none is given. Raises UsageError, ValidationError.
    """
    given: dict[str, Any] = {}
    for group in groups:
        values = group.values()
        if which.workload != group.KIND and values:
            name = next(iter(values))
            message = (
                f"{group.option(name)} requires --workload {group.KIND} (got --workload {which.workload})"
            )
            own = [of.SCRIPTS for of in groups if of.SCRIPTS and which.workload == of.KIND]
            raise UsageError(f"{message}: use --{own[0]}" if own and name == group.SCRIPTS else message)
        given |= values
    known = parameters_by_kind()
    parameters = known[which.workload]
    if which.variant is not None:
        if not parameters.HAS_VARIANTS:
            having = " or ".join(kind for kind, of in known.items() if of.HAS_VARIANTS)
            raise UsageError(f"--variant requires --workload {having} (got --workload {which.workload})")
        given["variant"] = which.variant
    return workload_from({"kind": which.workload, **parameters.from_options(given, default_size)})
