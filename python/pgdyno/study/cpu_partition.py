"""CPU partition: the cores of a machine in two sets, for two servers driven at the same time. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from pgdyno.errors import UsageError


@dataclass(frozen=True, order=True)
class Core:
    """A processor as the kernel numbers it. Two of the same ``package`` and ``core`` are threads of one
    physical core.
    """

    package: int
    core: int
    number: int


class Partition(BaseModel):
    """As many cores on either side; the ``resting`` ones are left over. ``of_one_core``: the two are threads
    of one physical core.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    cores: tuple[tuple[int, ...], tuple[int, ...]]
    resting: tuple[int, ...] = ()
    of_one_core: bool = False

    @model_validator(mode="after")
    def _are_halves(self) -> Self:
        first, second = self.cores
        if not first or len(first) != len(second) or set(first) & set(second):
            raise ValueError("two halves have as many cores each, and none in common")
        return self

    @property
    def size(self) -> int:
        """Cores of an arm."""
        return len(self.cores[0])

    @property
    def all(self) -> frozenset[int]:
        """Those of both."""
        return frozenset(core for half in self.cores for core in half)


def partition_of(cores: Iterable[Core]) -> Partition:
    """Whole physical cores in either half, neighbours together, so that a machine's two packages are apart.

    Where there is one physical core alone, its threads. Raises UsageError: there are fewer than two cores.
    """
    known = sorted(cores)
    if len(known) < 2:
        raise UsageError(
            "the schedule duet requires at least 2 cores, half of them for each server (got 1): "
            "use the schedule slices"
        )
    physical: dict[tuple[int, int], list[int]] = {}
    for core in known:
        physical.setdefault((core.package, core.core), []).append(core.number)
    groups = list(physical.values())
    one = len(groups) == 1
    if one:
        groups = [[number] for number in groups[0]]
    half = len(groups) // 2
    first, second = ([n for group in part for n in group] for part in (groups[:half], groups[-half:]))
    # Where only some threads of a core are ours, one side can have more.
    size = min(len(first), len(second))
    sides = (tuple(sorted(first[:size])), tuple(sorted(second[:size])))
    resting = sorted({core.number for core in known} - {*sides[0], *sides[1]})
    return Partition(cores=sides, resting=tuple(resting), of_one_core=one)
