"""Clients, the driver's threads and rates: as many for each core as at the source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pgdyno.study.file import StudyFile
from pgdyno.study.fitting.change import Change
from pgdyno.study.fitting.levels import changed_values, with_levels
from pgdyno.study.sizing import MAX_CLIENTS

MOST = {"clients": MAX_CLIENTS, "threads": 256}


def fit_clients(file: StudyFile, cores: float) -> tuple[StudyFile, list[Change]]:
    """``cores``: ours divided by the source's. Levels that become equal become one."""
    changes: list[Change] = []
    if cores == 1:
        return file, changes
    for name in ("clients", "threads", "rate"):
        file = _fit_one(file, name, _scaled_by(name, cores), changes)
    return file, changes


def _scaled_by(name: str, cores: float) -> Callable[[Any], Any]:
    def whole(number: int) -> int:
        return min(MOST[name], max(1, int(number * cores + 0.5)))

    def rate(number: float) -> float:
        return float(f"{number * cores:.3g}")

    return rate if name == "rate" else whole


def _fit_one(file: StudyFile, name: str, scaled: Callable[[Any], Any], changes: list[Change]) -> StudyFile:
    why = "as many for each core as at the source"
    fixed = getattr(file.drive, name)
    if fixed is not None and scaled(fixed) != fixed:
        changes.append(Change(f"drive.{name}", f"{fixed:g}", f"{scaled(fixed):g}", why))
        file = file.model_copy(update={"drive": file.drive.model_copy(update={name: scaled(fixed)})})
    if name in file.factors:
        before = file.factors[name]
        mapped = changed_values(before, scaled)
        if [level.value for level in mapped.levels] == [level.value for level in before]:
            return file
        if len(mapped.levels) < len(before):
            why += "; levels that are the same now are one"
        changes.append(Change(f"factors.{name}", _listed(before), _listed(mapped.levels), why))
        file = with_levels(file, name, mapped)
    return file


def _listed(levels: Any) -> str:
    return ", ".join(f"{level.value:g}" for level in levels)
