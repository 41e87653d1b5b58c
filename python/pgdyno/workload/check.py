"""What a check found. A result counts only if the workload did its work; one failed check excludes a
trial."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One statement about a trial or a database, and whether it holds.

    ``statistic`` and ``p_value`` are there where the check is a statistical test; ``detail`` says in a line
    what was compared and, of a failed check, what was found first.
    """

    name: str
    passed: bool
    statistic: float | None = None
    p_value: float | None = None
    detail: str = ""
