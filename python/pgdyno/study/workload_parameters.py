"""Base class of the parameters of a workload, as stored in a study and passed to the engine.

Each workload has a class in its folder (``PARAMETERS``). The package ``workloads`` loads and checks its data
on servers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from pgdyno.caveats import Caveat
from pgdyno.errors import UsageError
from pgdyno.hooks import Hooks
from pgdyno.study.arm_spec import read_bytes, utf8_text
from pgdyno.units import counted


def read_script(path: Path) -> str:
    """Return the text of a script. Raises UsageError: not readable, too large, not UTF-8."""
    return utf8_text(path, read_bytes(path, "script"))


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


@dataclass(frozen=True)
class RequiredRate:
    """A rate that an arm must keep, else it gets no verdict: at least ``share`` of ``target``."""

    pace: Pace
    target: float
    share: float


@dataclass(frozen=True)
class Deviation:
    """A deviation from a clause of the specification of a workload. ``allowed``: it permits the deviation."""

    name: str
    clause: str
    about: str
    allowed: bool = False


@dataclass(frozen=True)
class ScriptFacts:
    """A script of a workload. ``effect``: ``report/background.py`` has its text."""

    name: str
    weight: int
    is_builtin: bool
    effect: str


NOT_UPGRADED = "none"
"""Value of ``upgrade_from`` of data that the server of the arm itself loads."""

SIZE_DEFAULT = "in compare one per client, as far as memory allows; otherwise 1"
"""Default of an option for the size of the data."""

AGE_MAX = 10**9
"""Maximum number of transactions that age data: more take weeks."""


class WorkloadParameters(BaseModel):
    """A workload with its parameters. ``kind`` is its name in options and in the engine.

    The data are loaded, aged, and upgraded, in this order (ADR 22).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    upgrade_from: str = Field(
        default=NOT_UPGRADED,
        min_length=1,
        description="Server of an older version, such as 17, that loads the data; pg_upgrade upgrades them. "
        "none: the server of the arm loads them.",
    )
    upgrade_analyze: bool = Field(default=True, description="Run ANALYZE after the upgrade.")
    age: int = Field(
        default=0,
        ge=0,
        le=AGE_MAX,
        description="Number of transactions of the workload that run on the loaded data before the snapshot.",
    )

    PACE: ClassVar[Pace]
    SIZE: ClassVar[str]  # parameter of the size of the data
    UNIT_BYTES: ClassVar[float]  # size of a warehouse or of scale 1, of a workload that takes a default size
    SMALLER: ClassVar[str]  # remedy if the data are too large, in the imperative
    HAS_PACING: ClassVar[bool]  # True if it has keying and think times
    HAS_RATES: ClassVar[bool] = False  # True if it sets rates and tasks of its clients itself
    HAS_SCRIPTS: ClassVar[bool] = False  # True if the engine can check its scripts
    HAS_OPTIONS: ClassVar[bool] = True  # False if only a study file can name it
    HAS_VARIANTS: ClassVar[bool] = False  # True if a study file may name a variant
    OF_HISTORY: ClassVar[frozenset[str]] = frozenset({"upgrade_from", "upgrade_analyze", "age"})
    OMITTED: ClassVar[frozenset[str]] = frozenset()
    """Parameters that are stored only if they are not the default, so that results files equal those of
    versions without them; in addition to OF_HISTORY."""

    @model_serializer(mode="wrap")
    def _without_usual_values(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = serialize(self)
        fields = type(self).model_fields
        omitted = self.OF_HISTORY | self.OMITTED
        usual = {name for name in omitted if getattr(self, name) == fields[name].default}
        return {name: value for name, value in written.items() if name not in usual}

    @model_validator(mode="after")
    def _aging_changes_data(self) -> Self:
        if self.age and not self.writes:
            raise ValueError("age requires a workload that writes: its transactions change no data")
        return self

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

    @property
    def units(self) -> int:
        """The size of the data in units, such as warehouses."""
        return int(getattr(self, self.SIZE))

    @property
    def unit_bytes(self) -> float:
        """The size of a unit of the data with its indexes, for forecasts."""
        return self.UNIT_BYTES

    @property
    def coverage(self) -> float | None:
        """Share of the recorded time of a database that the load has; None if it is not of a recording."""
        return None

    @property
    def is_upgraded(self) -> bool:
        """True if pg_upgrade makes the data directory from one of an older version."""
        return self.upgrade_from != NOT_UPGRADED

    def before_upgrade(self) -> Self:
        """Return the workload with the data of the older server, which are analyzed."""
        return self.model_copy(update={"upgrade_from": NOT_UPGRADED, "upgrade_analyze": True})

    def before_aging(self) -> Self:
        """Return the workload with the data as they are loaded."""
        return self.before_upgrade().model_copy(update={"age": 0})

    def aging(self) -> Mapping[str, int | str]:
        """Return what happened to the data after the load; empty for freshly loaded data."""
        upgraded: dict[str, int | str] = {}
        if self.is_upgraded:
            upgraded = {"upgrade_from": self.upgrade_from, "upgrade_analyze": int(self.upgrade_analyze)}
        return {**upgraded, **({"age": self.age} if self.age else {})}

    @property
    def aging_text(self) -> str:
        """Aging and upgrade of the data, as the end of their name; empty for freshly loaded data."""
        aged = f", aged by {counted(self.age, 'transaction')}" if self.age else ""
        upgraded = f", upgraded from {self.upgrade_from}" if self.is_upgraded else ""
        without = " without ANALYZE" if self.is_upgraded and not self.upgrade_analyze else ""
        return f"{aged}{upgraded}{without}"

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

    def script_caveats(self, checked: Mapping[str, Any]) -> list[Caveat]:
        """Return the caveats of scripts that the engine has checked, from its answer. Raises UsageError."""
        del checked
        return []

    @classmethod
    def from_options(cls, given: dict[str, Any], default_size: DefaultSize) -> dict[str, Any]:
        """Return the parameters that options give. Raises UsageError.

        ``given``: their values by name. ``default_size``: warehouses or scale, if none is given.
        """
        del default_size
        return given

    @classmethod
    def variant(cls, name: str) -> Mapping[str, Any]:
        """Return the parameters of a variant, if HAS_VARIANTS. Raises UsageError for an unknown one."""
        raise NotImplementedError(name)

    def specification_caveats(self) -> list[Caveat]:
        """Return the caveats of transactions that the specification of the workload does not allow."""
        return []

    def load_caveats(self, clients: int) -> list[Caveat]:
        """Return the caveats of this load by so many clients."""
        del clients
        return []

    def kinds(self) -> Sequence[str]:
        """Return the kinds of transactions in the order of reports; kinds that are not named follow."""
        return ()

    def options_of_script(self) -> Mapping[str, str]:
        """Return the options of a script that were given, by name."""
        return {}

    def listed_scripts(self) -> Sequence[ScriptFacts]:
        """Return the scripts that clients choose by weight, for reports."""
        return ()

    def single_scripts(self) -> Mapping[str, WorkloadParameters]:
        """Return a workload for each script, by its name."""
        return {self.name: self}

    def minimal(self) -> WorkloadParameters | None:
        """Return the workload with minimal data, on which its scripts are tested before data are loaded.

        None if no script needs a test, or the data are made by others.
        """
        return None

    @property
    def deviations(self) -> Sequence[Deviation]:
        """Deviations from the specification of the workload; none for a workload without one."""
        return ()

    @property
    def writes(self) -> bool:
        """False if no transaction changes data."""
        return True

    def require_clients(self, clients: int) -> None:
        """Raise ValueError if so many clients cannot run the workload."""
        del clients

    def busy_clients(self, clients: int) -> int:
        """Return how many of the clients never pause between transactions in a closed loop."""
        return clients

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
    def required_rate(self) -> RequiredRate | None:
        """The rate of further transactions that each arm must keep."""
        return None

    @property
    def data_name(self) -> str:
        """The name of the data with their size and aging: ``tpcc, 4 warehouses``."""
        return f"{self.kind}, {self.size}{self.aging_text}"

    @property
    def name(self) -> str:
        """The name of the data, and of the transactions unless they are the default."""
        return self.data_name


DefaultSize = Callable[[type[WorkloadParameters]], int]
"""Default warehouses or scale of a workload."""

PARAMETERS: Hooks[type[WorkloadParameters]] = Hooks("parameters")
"""The classes of all workloads. A feature adds parameters to a workload by a subclass of the same kind."""


def parameters_by_kind(given: Iterable[str] = ()) -> dict[str, type[WorkloadParameters]]:
    """Return the class of each kind of workload.

    If a kind has several, one extends the other. It is the base class if this has all of the ``given``
    parameters, and otherwise the extended one. Raises TypeError for two extensions of one class.
    """
    found: dict[str, type[WorkloadParameters]] = {}
    wanted = set(given)
    for one in PARAMETERS:
        kind = one.model_fields["kind"].default
        other = found.setdefault(kind, one)
        base, extended = (one, other) if issubclass(other, one) else (other, one)
        if not issubclass(extended, base):
            raise TypeError(f"{base.__name__} and {extended.__name__} both extend the workload {kind}")
        found[kind] = base if wanted and wanted <= base.model_fields.keys() else extended
    return found


def workload_from(given: Any, *, strict: bool | None = None) -> WorkloadParameters:
    """Return the parameters of a table with ``kind``. Raises ValueError, ValidationError."""
    if isinstance(given, WorkloadParameters):
        return given
    if not isinstance(given, Mapping):
        raise ValueError("must be a table with the kind of the workload")
    known = parameters_by_kind(given)
    kind = given.get("kind")
    if not isinstance(kind, str) or kind not in known:
        raise ValueError(f"unknown workload {kind!r}; available: {', '.join(known)}")
    return known[kind].model_validate(given, strict=strict)


Workload = Annotated[SerializeAsAny[WorkloadParameters], PlainValidator(workload_from)]
"""Parameters of a registered workload, as a field of a model."""
