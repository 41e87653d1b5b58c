"""Predefined variants of the pgbench workload: test cases of published experiments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from pgdyno.errors import UsageError
from pgdyno.study.pgbench_parameters import Script


@dataclass(frozen=True)
class Variant:
    """A variant: non-default fields of PgbenchParameters."""

    name: str
    about: str
    data: Mapping[str, Any]
    transactions: Mapping[str, Any]


def _read_only(name: str) -> Script:
    file = resources.files(__package__).joinpath("scripts", f"{name}.sql")
    return Script(name=name, text=file.read_text(encoding="utf-8"), effect="none")


_ANALYTICAL = (
    "average_of_even_branches",
    "distinct_accounts",
    "even_accounts_with_copy",
    "sum_of_tenth_branches",
)

_EXTRA_INDEXES = (
    "pgbench_accounts (bid)",
    "pgbench_history (tid)",
    "pgbench_history (bid, aid)",
    "pgbench_history (mtime)",
)


def variants() -> dict[str, Variant]:
    """Return all variants by name.

    The first four compared PostgreSQL 11 with 12 in 2019, the last one 10 with 15 in 2022.
    """
    tpcb_like, simple_update, select_only = (
        {"scripts": (Script(name=name),)} for name in ("tpcb-like", "simple-update", "select-only")
    )
    analytical = {"scripts": tuple(_read_only(name) for name in _ANALYTICAL)}
    every = (
        Variant("default", "tpcb-like, the default of pgbench", {}, tpcb_like),
        Variant(
            "extra-indexes", "tpcb-like with four additional indexes", {"indexes": _EXTRA_INDEXES}, tpcb_like
        ),
        Variant("select-only", "select-only", {}, select_only),
        Variant(
            "analytical",
            "four queries over all accounts and a copy of them",
            {"accounts_copy": True},
            analytical,
        ),
        Variant(
            "skip-some-updates",
            "simple-update, prepared, with an index of accounts by branch and balance",
            {"indexes": ("pgbench_accounts (bid, abalance)",)},
            {**simple_update, "protocol": "prepared"},
        ),
    )
    return {variant.name: variant for variant in every}


def variant_of(name: str) -> Variant:
    """Return the variant of that name. Raises UsageError with a list of the known variants."""
    known = variants()
    if name not in known:
        listed = "; ".join(f"{one.name}: {one.about}" for one in known.values())
        raise UsageError(f"unknown pgbench variant {name!r}; available: {listed}")
    return known[name]
