"""Data and invariants of the user.

- Data and invariants of the user: where the data come from, and queries that must return no row.
- The workload pgbench with data and invariants of the user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from psycopg import ProgrammingError
from pydantic import BaseModel, Field, PrivateAttr, model_validator

from pgdyno.caveats import Caveat
from pgdyno.errors import UsageError
from pgdyno.study.arm_spec import has_secrets
from pgdyno.study.values import Option
from pgdyno.study.workload_parameters import DefaultSize
from pgdyno.workloads.pgbench.parameters import PgbenchParameters

# ----------------------------------------------------------------------
# Data and invariants of the user: where the data come from, and queries that must return no row.
# ----------------------------------------------------------------------

Form = Literal["", "archive", "plain", "scripts", "backup"]
"""archive: a custom, directory or tar dump; plain: an SQL file; scripts: a directory with load.sql; backup: a
base backup or data directory. Empty until the source is read."""


FOUND = ("name", "form", "path", "digest", "size_bytes", "major")
"""Fields of OwnData that the user does not give."""


def _as_given(schema: dict[str, Any]) -> None:
    """Leave out of the schema of study files what is found."""
    for name in FOUND:
        del schema["properties"][name]


class OwnData(BaseModel, frozen=True, extra="forbid", json_schema_extra=_as_given):
    """Data of the user. ``source`` and the options are given. The other fields describe what was found there;
    they are filled in before the data are loaded.
    """

    source: str = Field(min_length=1, description="Dump, directory, DSN, or name given by pgdyno data add.")
    analyze: bool = Field(default=True, description="Run ANALYZE before the snapshot.")
    database: str = Field(default="", description="Database to measure. [default: the only one]")
    locale: str = Field(
        default="",
        description="Locale of the database. [default: that of the origin, C if a dump does not name it]",
    )
    name: str = Field(default="", description="Name of the data.")
    form: Form = Field(default="", description="Form of the source.")
    path: str = Field(default="", description="Absolute path of the source.")
    digest: str = Field(default="", description="Digest of the content.")
    size_bytes: int = Field(default=0, ge=0, description="Size of the source.")
    major: int | None = Field(default=None, description="Major version of the origin, if known.")

    @model_validator(mode="before")
    @classmethod
    def _source_alone(cls, given: Any) -> Any:
        """Accept a source alone, and drop the list of columns that older versions masked."""
        if isinstance(given, dict):
            return {name: value for name, value in given.items() if name != "masked"}
        return {"source": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _has_no_password(self) -> Self:
        try:
            if is_connection_string(self.source) and has_secrets(self.source):
                raise ValueError("the source must not contain a password: put it in ~/.pgpass or PGPASSWORD")
        except ProgrammingError:
            raise ValueError("the connection string is malformed") from None
        return self

    @property
    def label(self) -> str:
        """The name of the data, or their source until it is read."""
        return self.name or self.source

    def shape(self) -> Mapping[str, int | str]:
        """Return everything that determines the data."""
        return {
            "data": self.digest or self.source,
            "analyze": int(self.analyze),
            "database": self.database,
            "locale": self.locale,
        }


def is_connection_string(source: str) -> bool:
    """Return whether a source is a DSN: a URI, or keyword=value."""
    return re.match(r"postgres(ql)?://|[a-z_]+\s*=", source) is not None


class Invariant(BaseModel, frozen=True, extra="forbid"):
    """A file of queries, each of which must return no row."""

    name: str = Field(min_length=1, description="Name in reports.")
    text: str = Field(min_length=1, description="Queries, separated by semicolons.")

    @model_validator(mode="after")
    def _has_a_query(self) -> Self:
        if not self.queries():
            raise ValueError(f"{self.name} contains no query")
        return self

    def queries(self) -> tuple[str, ...]:
        """Return the queries of the file, without comments in front."""
        from pgdyno.features.dumps.dump import pieces_of  # noqa: PLC0415 - only with invariants

        pieces = pieces_of(self.text.encode().splitlines(keepends=True))
        found = (piece.removesuffix(b";").strip() for _, piece, _ in pieces if not piece.startswith(b"/*"))
        return tuple(query.decode() for query in found if query)


# ----------------------------------------------------------------------
# The workload pgbench with data and invariants of the user.
# ----------------------------------------------------------------------


class OwnDataParameters(PgbenchParameters):
    """The workload pgbench with data of the user, with invariants of the user, or with both."""

    OMITTED: ClassVar[frozenset[str]] = frozenset({"data", "checks"})

    data: OwnData | None = Field(
        default=None,
        description="Data of your own instead of the pgbench tables: a dump, a directory, a DSN or a name "
        "(Measure your own database).",
    )
    checks: Annotated[tuple[Invariant, ...], Option(names=("--check",))] = Field(
        default=(), description="Queries that must return no row after a trial: tables with name and text."
    )

    _samples: Mapping[str, tuple[str, ...]] = PrivateAttr(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _own_data_have_no_scale(cls, given: Any) -> Any:
        """Set the scale of own data, which is also the value of :scale, as in pgbench with custom scripts."""
        if isinstance(given, dict) and given.get("data") is not None:
            return {**given, "scale": given.get("scale", 1)}
        return given

    @model_validator(mode="after")
    def _own_data_stand_alone(self) -> Self:
        """Raise ValueError for parameters and scripts of the pgbench tables."""
        if self.data is None:
            return self
        builtin = next((script.name for script in self.scripts if script.text is None), None)
        if builtin is not None:
            raise ValueError(
                f"--data requires scripts of your own (got {builtin}): add --file FILE and remove --builtin"
            )
        of_own_data = {"scale": 1, "fillfactor": 100}
        for name, value in super().shape().items():
            if value != of_own_data.get(name, "" if isinstance(value, str) else 0):
                option = "index" if name == "indexes" else name.replace("_", "-")
                raise ValueError(f"--{option} is for the pgbench tables: remove it or --data")
        return self

    @classmethod
    def from_options(cls, given: dict[str, Any], default_size: DefaultSize) -> dict[str, Any]:
        """Return the parameters that options give. Raises UsageError."""
        return super().from_options({"scale": 1, **given} if "data" in given else given, default_size)

    @property
    def size(self) -> str:
        """The size of the data as text, or the name of the data of the user."""
        return super().size if self.data is None else f"data {self.data.label}"

    @property
    def data_name(self) -> str:
        """The name of the data with their size."""
        return super().data_name if self.data is None else f"{self.size}{self.aging_text}"

    @property
    def unit_bytes(self) -> float:
        """The size of a branch, or of the source of the data of the user."""
        return super().unit_bytes if self.data is None else float(max(1, self.data.size_bytes))

    @property
    def label(self) -> str:
        """A label of the data for file names."""
        if self.data is None:
            return super().label
        return re.sub(r"[^a-z0-9]+", "-", self.data.label.lower()).strip("-")

    def require_major(self, major: int, server: str) -> None:
        """Raise UsageError if the server cannot have the data: a backup is of one major version."""
        super().require_major(major, server)
        is_backup = self.data is not None and self.data.form == "backup" and not self.is_upgraded
        if self.data is not None and is_backup and self.data.major != major:
            raise UsageError(
                f"the data {self.data.label} are a backup of PostgreSQL {self.data.major}, and {server} has "
                f"version {major}: use servers of version {self.data.major}, a dump (pg_dump), or "
                f"data=pg_upgrade:{self.data.major} for this arm"
            )

    def before_upgrade(self) -> Self:
        """Return the workload with the data of the older server, which are analyzed."""
        before = super().before_upgrade()
        if self.data is None or not self.is_upgraded:
            return before
        return before.model_copy(update={"data": self.data.model_copy(update={"analyze": True})})

    def shape(self) -> Mapping[str, int | str]:
        """Return the parameters of the data."""
        return super().shape() if self.data is None else self.data.shape()

    def script_caveats(self, checked: Mapping[str, Any]) -> list[Caveat]:
        """Return no caveat of the pgbench tables for data of the user."""
        return super().script_caveats(checked) if self.data is None else []

    def minimal(self) -> Self | None:
        """Return the scripts of the user at scale 1. Those of own data are tested on these data."""
        return super().minimal() if self.data is None else None

    def with_sample_values(self, samples: Mapping[str, tuple[str, ...]]) -> Self:
        r"""Return a copy that drives with these values of ``\sample``, by source. They are never stored."""
        drawn = self.model_copy()
        drawn._samples = samples
        return drawn

    def to_drive(self) -> dict[str, Any]:
        """Return the parameters of the load, with the values of its samples."""
        return {**super().to_drive(), **({"samples": self._samples} if self._samples else {})}
