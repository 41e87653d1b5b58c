"""Base class of the parameters of a workload, as stored in a study and passed to the engine.

Each workload has a module in this package. The package ``workload`` loads and checks its data on servers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from pgdyno.errors import UsageError
from pgdyno.study.tpcc_dialects import TpccDeviation

SCRIPT_BYTES_MAX = 1 << 20
"""Maximum size: a script is stored in the results file and sent to the engine with every block."""


def read_script(path: Path) -> str:
    """Return the text of a script. Raises UsageError: not readable, too large, not UTF-8."""
    try:
        with path.open("rb") as file:
            read = file.read(SCRIPT_BYTES_MAX + 1)
        if len(read) > SCRIPT_BYTES_MAX:
            raise UsageError(f"{path} is larger than 1 MiB, the maximum size of a script")
        return read.decode()
    except OSError as error:
        raise UsageError(f"cannot read the script {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 (byte {error.start})") from None


@dataclass(frozen=True)
class Pace:
    """The customary rate of a workload."""

    unit: str  # NOPM
    kind: str | None  # kind of transactions counted; None: all
    period_s: float  # period of the rate: 60 for a rate per minute

    def of(self, ok: Mapping[str, int], duration_s: float) -> float:
        """Return the rate for numbers of successful transactions by kind and a duration."""
        counted = sum(ok.values()) if self.kind is None else ok.get(self.kind, 0)
        return self.period_s * counted / duration_s


class WorkloadParameters(BaseModel):
    """A workload with its parameters. ``kind`` is its name in options and in the engine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    PACE: ClassVar[Pace]
    SMALLER: ClassVar[str]  # remedy if the data are too large, in the imperative
    HAS_PACING: ClassVar[bool]  # True if it has keying and think times

    @property
    @abstractmethod
    def size(self) -> str:
        """The size of the data as text: ``4 warehouses``."""

    @property
    @abstractmethod
    def label(self) -> str:
        """A short label of the data for file names; it need not be unique."""

    @abstractmethod
    def shape(self) -> Mapping[str, int | str]:
        """Return all parameters of the data, and no others: equal shapes mean equal data."""

    @abstractmethod
    def work(self) -> str:
        """Return what a transaction does, as text: equal texts mean that transactions are a common unit.

        The data, the protocol and the isolation are no part of it.
        """

    @abstractmethod
    def to_load(self) -> dict[str, Any]:
        """Return the part ``workload`` of a load specification (docs/reference/engine-protocol.md)."""

    @abstractmethod
    def to_drive(self) -> dict[str, Any]:
        """Return the part ``workload`` of a drive specification (docs/reference/engine-protocol.md)."""

    @property
    def deviations(self) -> Sequence[TpccDeviation]:
        """Deviations from the specification of the workload; none for a workload without one."""
        return ()

    @property
    def writes(self) -> bool:
        """False if no transaction changes data."""
        return True

    def require_clients(self, clients: int) -> None:
        """Raise ValueError if so many clients cannot run the workload."""
        del clients

    @property
    def major_min(self) -> int:
        """The oldest major version of PostgreSQL that supports the data."""
        return 10

    def require_major(self, major: int, server: str) -> None:
        """Raise UsageError if a server of this major version does not support the data."""
        if major < self.major_min:
            raise UsageError(
                f"the data require PostgreSQL {self.major_min} or newer: {server} has version {major}"
            )

    @property
    def pace(self) -> Pace:
        """The customary rate of this workload."""
        return self.PACE

    @property
    def data_name(self) -> str:
        """The name of the data with their size: ``tpcc, 4 warehouses``."""
        return f"{self.kind}, {self.size}"

    @property
    def name(self) -> str:
        """The name of the data, and of the transactions unless they are the default."""
        return self.data_name
