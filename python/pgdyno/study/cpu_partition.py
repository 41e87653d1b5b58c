"""CPU partition: the cores of a machine in two sets, for two servers driven at the same time. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from pgdyno.errors import UsageError


@dataclass(frozen=True, order=True)
class Core:
    """A logical CPU with its kernel number. CPUs with equal ``package`` and ``core`` are SMT siblings."""

    package: int
    core: int
    number: int


class Partition(BaseModel):
    """Two sets of cores of equal size; ``resting`` cores stay idle.

    ``of_one_core``: both sets are SMT siblings of one physical core.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    cores: tuple[tuple[int, ...], tuple[int, ...]]
    resting: tuple[int, ...] = ()
    of_one_core: bool = False

    @model_validator(mode="after")
    def _are_disjoint_and_equal(self) -> Self:
        first, second = self.cores
        if not first or len(first) != len(second) or set(first) & set(second):
            raise ValueError("the two CPU partitions must be disjoint and of equal size")
        return self

    @property
    def size(self) -> int:
        """Number of cores per arm."""
        return len(self.cores[0])

    @property
    def all(self) -> frozenset[int]:
        """The cores of both partitions."""
        return frozenset(core for side in self.cores for core in side)


def partition_of(cores: Iterable[Core]) -> Partition:
    """Divide the cores in two sets of whole physical cores.

    Adjacent cores stay together, so that two packages are separate. A single physical core is divided into
    its SMT siblings. Raises UsageError with fewer than two cores.
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
    # If only some SMT siblings of a core are available, one side can have more.
    size = min(len(first), len(second))
    sides = (tuple(sorted(first[:size])), tuple(sorted(second[:size])))
    resting = sorted({core.number for core in known} - {*sides[0], *sides[1]})
    return Partition(cores=sides, resting=tuple(resting), of_one_core=one)
