"""Deviations of tpcc from TPC-C, and dialects that consist of them: the table ``tpcc_deviations.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from pgdyno.study.workload_parameters import Deviation

SPEC = "spec"
"""The dialect without deviations."""


@dataclass(frozen=True)
class TpccDeviation(Deviation):
    """One deviation from TPC-C.

    ``data``: it changes the data. ``broken``: consistency conditions that cannot hold. ``calls``: the only
    value of calls with which it exists. ``requires``: deviations without which it does not exist.
    """

    data: bool = False
    broken: tuple[int, ...] = ()
    calls: str = ""
    requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dialect:
    """The behavior of one driver: deviations, and the values of parameters that are not given.

    ``like``: the dialect whose deviations and values it has, too.
    """

    name: str
    about: str
    like: str = ""
    deviations: tuple[str, ...] = ()
    calls: str = ""
    isolation: str = ""
    mix: str = ""

    def parameters(self) -> dict[str, str]:
        """Return the parameters with another default in this dialect."""
        own = {"calls": self.calls, "isolation": self.isolation}
        return {name: value for name, value in own.items() if value}


def _read() -> tuple[Mapping[str, TpccDeviation], Mapping[str, Dialect]]:
    table = tomllib.loads(
        resources.files(__package__).joinpath("tpcc_deviations.toml").read_text(encoding="utf-8")
    )
    dialects = table["dialects"]
    for row in dialects.values():  # one that is like another one follows it
        base = dialects.get(row.get("like"), {})
        row |= {**base, **row, "deviations": [*base.get("deviations", ()), *row.get("deviations", ())]}
    return (
        {name: TpccDeviation(name, **_frozen(row)) for name, row in table["deviations"].items()},
        {name: Dialect(name, **_frozen(row)) for name, row in dialects.items()},
    )


def _frozen(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}


DEVIATIONS, DIALECTS = _read()

EXCLUSIVE = (
    ("constant-c", "c-redrawn"),
    ("no-rollback", "second-to-last-item"),
    ("no-rollback", "unused-item-committed"),
    ("second-to-last-item", "unused-item-committed"),
    ("no-remote-warehouse", "supply-from-all"),
    ("random-home", "home-per-transaction"),
)
"""Pairs of deviations that contradict each other."""


def canonical_deviations(text: str) -> str:
    """Return the same names once each, in the order of the table. ``-NAME`` removes one of the dialect.

    Raises ValueError for an unknown one.
    """
    names = [name for part in text.split(",") if (name := part.strip())]
    for name in names:
        if name.removeprefix("-") not in DEVIATIONS:
            raise ValueError(f"has an unknown deviation {name!r}: use {', '.join(DEVIATIONS)}")
    return ",".join(in_order(names))


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names once each, in the order of the table."""
    wanted = set(names)
    return tuple(one for name in DEVIATIONS for one in (name, f"-{name}") if one in wanted)


def deviations_of(dialect: str, deviate: str) -> Sequence[TpccDeviation]:
    """Return the deviations of a dialect and further ones, without those after a minus.

    Raises ValueError if one after a minus is not of the dialect.
    """
    of_dialect, names = DIALECTS[dialect].deviations, deviate.split(",")
    removed = [name[1:] for name in names if name.startswith("-")]
    for name in removed:
        if name not in of_dialect:
            raise ValueError(f"the dialect {dialect} has no deviation {name}: remove -{name}")
    return [DEVIATIONS[name] for name in in_order({*of_dialect, *names} - set(removed)) if name in DEVIATIONS]


def require_compatible(deviations: Iterable[TpccDeviation], calls: str, *, pipeline: bool) -> None:
    """Raise ValueError unless the deviations exist together and with these calls."""
    chosen = {one.name: one for one in deviations}
    for first, second in EXCLUSIVE:
        if first in chosen and second in chosen:
            raise ValueError(f"the deviations {first} and {second} exclude each other: remove one of them")
    for one in chosen.values():
        if one.calls and one.calls != calls:
            raise ValueError(
                f"the deviation {one.name} requires calls = {one.calls} (got {calls}): change one of them"
            )
        if missing := [name for name in one.requires if name not in chosen]:
            raise ValueError(
                f"the deviation {one.name} requires {', '.join(missing)}: use dialect = sysbench, or add them"
            )
    if pipeline and "text-protocol" in chosen:
        raise ValueError("the deviation text-protocol sends one statement at a time: remove pipeline")
