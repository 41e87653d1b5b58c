"""The CPU profile of one trial: how much time a transaction took in each stack of functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgdyno.units import US_PER_S

PROFILE = "profile"
"""The probe."""


Stack = tuple[str, ...]
"""From the outermost function to the innermost."""


@dataclass(frozen=True)
class Profile:
    """``us_per_tx``: microseconds of the server's CPU time by stack, per transaction. ``samples`` in all."""

    us_per_tx: Mapping[Stack, float]
    samples: int
    hz: int

    @property
    def sampled_s(self) -> float:
        """The CPU time that the samples stand for."""
        return self.samples / self.hz

    @property
    def own(self) -> dict[str, float]:
        """By function, without what it called."""
        found: dict[str, float] = {}
        for stack, us in self.us_per_tx.items():
            found[stack[-1]] = found.get(stack[-1], 0.0) + us
        return found


def profile_of(
    rows: Sequence[Mapping[str, float | int | str | None]], transactions: float | None
) -> Profile | None:
    """Of what ``probe.profile`` has written down; None where there is nothing, or no transaction."""
    if not rows or not transactions:
        return None
    hz = int(rows[0].get("hz") or 0)
    if not hz:
        return None
    us = US_PER_S / hz / transactions
    stacks = {tuple(str(row["stack"]).split(";")): us * float(row.get("n") or 0) for row in rows[1:]}
    return Profile(stacks, int(rows[0].get("samples") or 0), hz)
