"""Base class of the parameters of a workload, as stored in a study and passed to the engine.

Each workload has a module beside this one. What is done with its data and trials on a server is the
package ``workload``'s business.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from pgdyno.errors import UsageError


@dataclass(frozen=True)
class Pace:
    """The rate that people know a workload by."""

    unit: str  # NOPM
    kind: str | None  # which kind of transactions it counts; None: all
    period_s: float  # in which they are counted: 60 of a rate per minute

    def of(self, ok: Mapping[str, int], duration_s: float) -> float:
        """Of so many successful transactions by kind in that time."""
        counted = sum(ok.values()) if self.kind is None else ok.get(self.kind, 0)
        return self.period_s * counted / duration_s


class WorkloadParameters(BaseModel):
    """One workload with its parameters. ``kind`` is its name, for the user and for the engine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    PACE: ClassVar[Pace]
    SMALLER: ClassVar[str]  # what to do where the data are too big, in the imperative
    HAS_PACING: ClassVar[bool]  # whether its clients can key and think

    @property
    @abstractmethod
    def size(self) -> str:
        """Of the data, in words: ``4 warehouses``."""

    @property
    @abstractmethod
    def label(self) -> str:
        """Of the data, short and fit for a file's name; unequal data may have the same."""

    @abstractmethod
    def shape(self) -> Mapping[str, int | str]:
        """Every parameter that shapes the data, and no other: equal shapes are equal data."""

    @abstractmethod
    def to_load(self) -> dict[str, Any]:
        """The part ``workload`` of the engine's load (docs/reference/engine-protocol.md)."""

    @abstractmethod
    def to_drive(self) -> dict[str, Any]:
        """The part ``workload`` of the engine's drive (docs/reference/engine-protocol.md)."""

    @property
    def major_min(self) -> int:
        """The oldest PostgreSQL that can hold the data."""
        return 10

    def require_major(self, major: int, server: str) -> None:
        """Raises UsageError where that server, of this major version, is too old for the data."""
        if major < self.major_min:
            raise UsageError(
                f"the data require PostgreSQL {self.major_min} or newer: {server} has version {major}"
            )

    @property
    def pace(self) -> Pace:
        """The rate that these clients are known by."""
        return self.PACE

    @property
    def data_name(self) -> str:
        """Of the data, with their size: ``tpcc, 4 warehouses``."""
        return f"{self.kind}, {self.size}"

    @property
    def name(self) -> str:
        """Of the data, and of what runs if that is not the usual."""
        return self.data_name
