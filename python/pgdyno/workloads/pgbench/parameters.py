"""Parameters of the workload ``pgbench``, and its script files.

- Parameters of the workload ``pgbench`` (docs/reference/workload-pgbench.md).
- Files of pgbench scripts with weights, and directories of them: ``--file FILE@WEIGHT``, ``--file DIR``.
"""

from __future__ import annotations

import functools
import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from pgdyno.caveats import Caveat
from pgdyno.errors import UsageError, naming, plain_message
from pgdyno.study.values import Option, Rare
from pgdyno.study.workload_parameters import (
    SIZE_DEFAULT,
    DefaultSize,
    Pace,
    ScriptFacts,
    WorkloadParameters,
    read_script,
)
from pgdyno.units import given_percent, percent_text

# ----------------------------------------------------------------------
# Parameters of the workload ``pgbench`` (docs/reference/workload-pgbench.md).
# ----------------------------------------------------------------------

Effect = Literal["all", "accounts", "none", "unknown"]
"""Tables changed by the transaction of a script. all: an account, a teller and a branch by one amount, and
the history; accounts: an account and the history; none: nothing; unknown: a custom script."""

BUILTINS: Mapping[str, Effect] = {"tpcb-like": "all", "simple-update": "accounts", "select-only": "none"}

COPY = "pgbench_accounts_copy"

ROWS_PER_BRANCH = 100_000
ROW_BYTES = 132
ENTRY_BYTES, VALUE_BYTES, FILLER_BYTES = 13.4, 8.9, 98.0  # of an index, in pages that are 90% full
COPY_BYTES_PER_BRANCH = 15.8e6
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "pgbench_accounts": ("aid", "bid", "abalance", "filler"),
    "pgbench_branches": ("bid", "bbalance", "filler"),
    "pgbench_tellers": ("tid", "bid", "tbalance", "filler"),
    "pgbench_history": ("tid", "bid", "aid", "delta", "mtime", "filler"),
    COPY: ("aid", "bid", "abalance", "filler"),
}


def index_parts(text: str) -> tuple[str, tuple[str, ...]]:
    """Parse ``pgbench_accounts (bid, abalance)`` to table and columns. Raises ValueError."""
    found = re.fullmatch(r"\s*(\w+)\s*\(([\w\s,]+)\)\s*", text.lower())
    if not found:
        raise ValueError(
            f"{text!r} does not have the form TABLE (COLUMN, …); for example: "
            "pgbench_accounts (bid, abalance)"
        )
    table, columns = found[1], tuple(column.strip() for column in found[2].split(","))
    if table not in COLUMNS:
        raise ValueError(f"unknown table {table!r}; available: {', '.join(COLUMNS)}")
    for column in columns:
        if column not in COLUMNS[table]:
            raise ValueError(f"{table} has no column {column!r}; available: {', '.join(COLUMNS[table])}")
    if len(set(columns)) < len(columns):
        raise ValueError(f"{text!r} names a column twice")
    return table, columns


def _canonical(text: str) -> str:
    table, columns = index_parts(text)
    return f"{table} ({', '.join(columns)})"


Index = Annotated[str, AfterValidator(_canonical)]


NAMED_MAX = 4
"""Maximum number of scripts whose names are in the name of a workload."""


class Script(BaseModel, frozen=True, extra="forbid"):
    """A script. Without a text, the built-in script of that name."""

    name: str = Field(min_length=1, description="Name; without a text, that of a built-in script.")
    weight: int = Field(default=1, ge=0, le=2**31 - 1, description="Relative frequency.")
    text: str | None = Field(default=None, description="Text in the language of pgbench.")
    effect: Effect = Field(default="unknown", description="Tables that the transaction changes.")
    share: float | None = Field(
        default=None, ge=0, le=1, description="Share of the execution time of the recorded statements."
    )

    @model_serializer(mode="wrap")
    def _without_absent_share(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit an absent share, so that results files equal those of versions without shares."""
        written: dict[str, Any] = serialize(self)
        return {name: value for name, value in written.items() if value is not None or name != "share"}

    @model_validator(mode="before")
    @classmethod
    def _builtin_is_known(cls, given: Any) -> Any:
        """Set the effect of a built-in script. Accept ``select-only@9`` and ``select-only``."""
        if isinstance(given, str):
            name, at, weight = given.partition("@")
            is_weighted = at and re.fullmatch(r"\d{1,10}", weight)
            given = {"name": name, "weight": int(weight)} if is_weighted else {"name": given}
        if not isinstance(given, dict) or given.get("text") is not None:
            return given
        name = str(given.get("name"))
        if name not in BUILTINS:
            raise ValueError(f"unknown pgbench script {name!r}; available: {', '.join(BUILTINS)}")
        return {**given, "effect": BUILTINS[name]}

    def to_drive(self) -> dict[str, Any]:
        """Return the script as the engine reads it."""
        named = {"builtin": self.name} if self.text is None else {"name": self.name, "text": self.text}
        return {**named, "weight": self.weight}


class PgbenchParameters(WorkloadParameters):
    """Tables and scripts of pgbench, with the defaults of pgbench."""

    PACE: ClassVar[Pace] = Pace("tx/s", None, 1.0)
    SMALLER: ClassVar[str] = "use a smaller --scale"
    SIZE: ClassVar[str] = "scale"
    UNIT_BYTES: ClassVar[float] = 16e6  # accounts of one branch with their primary key, rounded up
    HAS_PACING: ClassVar[bool] = False
    HAS_SCRIPTS: ClassVar[bool] = True
    HAS_VARIANTS: ClassVar[bool] = True

    kind: Literal["pgbench"] = "pgbench"
    scale: Annotated[int, Option("N", ("--scale", "-s"), SIZE_DEFAULT)] = Field(
        ge=1, le=214_748_364, description="Scale factor, 100,000 accounts (16 MB) each."
    )
    partitions: Annotated[int, Rare("N")] = Field(
        default=0, ge=0, le=100_000, description="Number of partitions of pgbench_accounts."
    )
    partition_method: Annotated[Literal["range", "hash"] | None, Rare(default="range")] = Field(
        default=None, description="Partitioning method of --partitions."
    )
    fillfactor: Annotated[int, Rare("PERCENT")] = Field(
        default=100, ge=10, le=100, description="Fillfactor of the tables, 10 to 100."
    )
    unlogged: Annotated[bool, Rare()] = Field(default=False, description="Create unlogged tables.")
    foreign_keys: Annotated[bool, Rare()] = Field(
        default=False, description="Create foreign key constraints between the tables."
    )
    indexes: Annotated[tuple[Index, ...], Rare("TABLE(COLUMN,…)", ("--index",), is_repeated=True)] = Field(
        default=(), description="Additional index, such as 'pgbench_accounts (bid, abalance)'."
    )
    accounts_copy: Annotated[bool, Rare()] = Field(
        default=False, description="Create pgbench_accounts_copy, a copy of pgbench_accounts."
    )
    scripts: tuple[Script, ...] = Field(
        default=(Script(name="tpcb-like"),),
        min_length=1,
        max_length=128,
        description="Scripts of the clients, chosen by weight. [default: tpcb-like]",
    )
    protocol: Annotated[
        Literal["simple", "extended", "prepared"],
        Option(names=("--protocol", "-M"), default="simple, as in pgbench"),
    ] = Field(default="simple", description="Query protocol.")
    define: Annotated[dict[str, str], Option("NAME=VALUE", ("--define", "-D"), is_repeated=True)] = Field(
        default_factory=dict, description="Variable of the scripts."
    )

    @property
    def coverage(self) -> float | None:
        return coverage_of(self.scripts)

    @model_validator(mode="before")
    @classmethod
    def _partitions_have_a_method(cls, given: Any) -> Any:
        """Set the default method, so that equal data have equal parameters."""
        if isinstance(given, dict) and given.get("partitions") and given.get("partition_method") is None:
            return {**given, "partition_method": "range"}
        return given

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        if self.partition_method is not None and self.partitions == 0:
            raise ValueError("--partition-method requires --partitions")
        if len(set(self.indexes)) < len(self.indexes):
            raise ValueError("an index is given twice: remove one of them")
        if not self.accounts_copy and any(index_parts(text)[0] == COPY for text in self.indexes):
            raise ValueError(f"an index of {COPY} requires --accounts-copy")
        names = [script.name for script in self.scripts]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(
                f"the script {twice[0]} is given twice: give it once, with the sum of the weights"
            )
        if not any(script.weight for script in self.scripts):
            raise ValueError("every script has the weight 0: give at least one a greater weight")
        return self

    @property
    def size(self) -> str:
        """The size of the data as text."""
        return f"scale {self.scale}"

    @property
    def label(self) -> str:
        """A label of scale and non-default parameters of the data."""
        parts = {
            f"scale{self.scale}": True,
            f"{self.partition_method}{self.partitions}": self.partitions,
            f"fillfactor{self.fillfactor}": self.fillfactor != 100,
            "unlogged": self.unlogged,
            "foreignkeys": self.foreign_keys,
            f"indexes{len(self.indexes)}": self.indexes,
            "copy": self.accounts_copy,
        }
        return "-".join(part for part, is_there in parts.items() if is_there)

    @property
    def name(self) -> str:
        """The name with scripts, or their number if there are many, and size."""
        n = len(self.scripts)
        scripts = " + ".join(script.name for script in self.scripts) if n <= NAMED_MAX else f"{n} scripts"
        return f"{self.kind} {scripts}, {self.size}{self.aging_text}"

    @property
    def unit_bytes(self) -> float:
        """The size of a branch with its indexes and the copy of its accounts."""
        tables = self.UNIT_BYTES + ROWS_PER_BRANCH * ROW_BYTES * (100 / self.fillfactor - 1)
        return tables + self.added_unit_bytes

    @property
    def added_unit_bytes(self) -> float:
        """The size of the additional indexes of a branch and of the copy of its accounts."""
        size = COPY_BYTES_PER_BRANCH if self.accounts_copy else 0.0
        for index in self.indexes:
            table, columns = index_parts(index)
            if table in ("pgbench_accounts", COPY):
                values = sum(FILLER_BYTES if column == "filler" else VALUE_BYTES for column in columns)
                size += ROWS_PER_BRANCH * (ENTRY_BYTES + values)
        return size

    @property
    def major_min(self) -> int:
        """Oldest PostgreSQL version: partitioned tables have primary keys since 11, and can be referenced
        since 12.
        """
        if self.partitions == 0:
            return super().major_min
        return 12 if self.foreign_keys else 11

    @property
    def effects(self) -> frozenset[Effect]:
        """The effects of all scripts with a weight above 0."""
        return frozenset(script.effect for script in self.scripts if script.weight)

    @property
    def writes(self) -> bool:
        """False if every script only reads."""
        return self.effects != {"none"}

    def shape(self) -> Mapping[str, int | str]:
        """Return the parameters of the data, with the indexes sorted."""
        return {
            "scale": self.scale,
            "partitions": self.partitions,
            "partition_method": self.partition_method or "",
            "fillfactor": self.fillfactor,
            "unlogged": int(self.unlogged),
            "foreign_keys": int(self.foreign_keys),
            "indexes": "; ".join(sorted(self.indexes)),
            "accounts_copy": int(self.accounts_copy),
        }

    def work(self) -> str:
        """Return the scripts with their relative frequencies, and the variables that they may read."""
        total = sum(script.weight for script in self.scripts)
        scripts = [(script.text or script.name, script.weight / total) for script in self.scripts]
        own = [script for script in scripts if script[1]]
        return json.dumps([sorted(own), self.define if self._reads_variables else {}], sort_keys=True)

    @property
    def _reads_variables(self) -> bool:
        """True if a script is not built in."""
        return any(script.text is not None for script in self.scripts)

    def to_load(self) -> dict[str, Any]:
        """Return the parameters of the pgbench tables; additional indexes and the copy are made later."""
        sizes = ("kind", "scale", "partitions", "partition_method")
        return {name: getattr(self, name) for name in (*sizes, "fillfactor", "unlogged", "foreign_keys")}

    def script_caveats(self, checked: Mapping[str, Any]) -> list[Caveat]:
        """Return a caveat if the scripts read :scale, and it is set by the data."""
        if checked["samples"]:
            of = checked["samples"][0]
            raise UsageError(
                f"{of['script']}: {of['command']}: \\sample requires --data, because its values are those of "
                "your own tables; use \\set with random() for the pgbench tables"
            )
        own_only = all(script.text is not None for script in self.scripts)
        if own_only and checked["reads_scale"] and self.scale > 1 and "scale" not in self.define:
            return [Caveat.of("scale-of-the-data", scale=self.scale)]
        return []

    def load_caveats(self, clients: int) -> list[Caveat]:
        """Return that clients wait for each other's branches, and that rows of scripts are not checked."""
        found = []
        scripts = [script for script in self.scripts if script.weight]
        if clients > self.scale and any(script.effect == "all" for script in scripts):
            found.append(Caveat.of("more-clients-than-branches", clients=clients, scale=self.scale))
        if own := [script.name for script in scripts if script.effect == "unknown"]:
            found.append(Caveat.of("own-scripts-not-checked", scripts=", ".join(own)))
        return found

    def kinds(self) -> Sequence[str]:
        """Return the names of the scripts."""
        return [script.name for script in self.scripts]

    @classmethod
    def from_options(cls, given: dict[str, Any], default_size: DefaultSize) -> dict[str, Any]:
        """Return the parameters that options give; they override parts of a variant. Raises UsageError."""
        own = dict(given)
        if asked := scripts_of(own.pop("builtin", ()), own.pop("file", ())):
            own["scripts"] = asked
        if "define" in own:
            own["define"] = definitions(own["define"])
        with naming("--variant"):
            wanted = {**cls.variant(own.pop("variant", "default")), **own}
        if "scale" not in wanted:
            wanted["scale"] = default_size(cls)
        return wanted

    @classmethod
    def variant(cls, name: str) -> Mapping[str, Any]:
        """Return the parameters of a variant. Raises UsageError with a list of the known variants."""
        known = variants()
        if name not in known:
            listed = "; ".join(f"{one}: {about}" for one, (about, _) in known.items())
            raise UsageError(f"unknown pgbench variant {name!r}; available: {listed}")
        return known[name][1]

    def listed_scripts(self) -> Sequence[ScriptFacts]:
        """Return the scripts with their weights."""
        return [ScriptFacts(one.name, one.weight, one.text is None, one.effect) for one in self.scripts]

    def single_scripts(self) -> Mapping[str, Self]:
        """Return a workload for each script, by its name."""
        return {one.name: self.model_copy(update={"scripts": (one,)}) for one in self.scripts}

    def minimal(self) -> Self | None:
        """Return the scripts of the user at scale 1."""
        own = tuple(script for script in self.scripts if script.text is not None and script.weight)
        return self.model_copy(update={"scripts": own, "scale": 1}) if own else None

    def to_drive(self) -> dict[str, Any]:
        """Return the parameters of the load, always with the scale of the data."""
        return {
            "kind": self.kind,
            "scripts": [script.to_drive() for script in self.scripts],
            "scale": self.scale,
            "protocol": self.protocol,
            "define": self.define,
        }


PARAMETERS = PgbenchParameters


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


@functools.cache
def variants() -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    """Return all variants by name: what they are, and the fields of PgbenchParameters that they change.

    The first four compared PostgreSQL 11 with 12 in 2019, the last one 10 with 15 in 2022.
    """
    tpcb_like, simple_update, select_only = (
        {"scripts": (Script(name=name),)} for name in ("tpcb-like", "simple-update", "select-only")
    )
    analytical = {"scripts": tuple(map(_read_only, _ANALYTICAL)), "accounts_copy": True}
    prepared = {"protocol": "prepared", "indexes": ("pgbench_accounts (bid, abalance)",)}
    return {
        "default": ("tpcb-like, the default of pgbench", tpcb_like),
        "extra-indexes": ("tpcb-like with four additional indexes", {"indexes": _EXTRA_INDEXES, **tpcb_like}),
        "select-only": ("select-only", select_only),
        "analytical": ("four queries over all accounts and a copy of them", analytical),
        "skip-some-updates": (
            "simple-update, prepared, with an index of accounts by branch and balance",
            {**simple_update, **prepared},
        ),
    }


# ----------------------------------------------------------------------
# Files of pgbench scripts with weights, and directories of them: ``--file FILE@WEIGHT``, ``--file DIR``.
#
# ``pgdyno workload`` writes the directories. Their list ``workload.toml`` has the weights, and the share of
# each script in the recorded time. Only files in the list are replaced.
# ----------------------------------------------------------------------

LIST = "workload.toml"
MARK = "# Written by pgdyno workload"
"""Beginning of a list that pgdyno wrote, and may replace."""

SCRIPTS_MAX = 128
"""Maximum number of scripts of a workload, as in pgbench."""

STUB = "-- stub:"
"""Beginning of a line that marks a value that the user has to edit."""

COVERAGE_MIN = 0.5
"""Smallest share of the recorded time that the scripts of a recording have, unless less is accepted."""

ROUNDING = 1e-4
"""Maximum error of a sum of shares in a list: 128 shares have six decimals."""

WEIGHT_DIGITS_MAX = 10
"""Digits of the largest weight, 2**31 - 1; Python refuses numbers with thousands of digits."""


def script_files(text: str) -> tuple[Script, ...]:
    """Return the script of ``FILE@WEIGHT``, or those of a directory. Raises UsageError."""
    if Path(text).is_dir():
        return read_directory(Path(text))
    name, weight = (text, 1) if Path(text).is_file() else weighted(text)
    if Path(name).is_dir():
        raise UsageError(f"{text!r}: the directory has weights in its {LIST}: remove @{weight}")
    return (Script(name=name, weight=weight, text=_edited(Path(name))),)


def scripts_of(builtins: Iterable[str], files: Iterable[str]) -> tuple[Script, ...]:
    """Return the scripts, built-in ones first. Raises UsageError: unknown name or file, invalid weight.

    Scripts of several recordings have the mean of their coverages. A name that several have begins with its
    directory.
    """
    with naming("--file"):
        found = [(Path(text), script_files(text)) for text in files]
    recordings = sum(any(script.share is not None for script in scripts) for _, scripts in found)
    names = Counter(script.name for _, scripts in found for script in scripts)
    given = []
    for path, scripts in found:
        for script in scripts:
            share = script.share / recordings if script.share else script.share
            name = f"{path}/{script.name}" if names[script.name] > 1 and path.is_dir() else script.name
            given.append(script.model_copy(update={"share": share, "name": name}))
    return (*map(_builtin, builtins), *given)


def definitions(texts: Iterable[str]) -> dict[str, str]:
    """Parse ``NAME=VALUE``; the last value of a name applies. Raises UsageError."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UsageError(f"--define must have the form NAME=VALUE (got {text!r})")
        if re.search("[\udc80-\udcff]", text):
            raise UsageError(f"--define {name} is not UTF-8: {value}")
        found[name] = value
    return found


def _builtin(text: str) -> Script:
    prefix, weight = weighted(text)
    found = [name for name in BUILTINS if name.startswith(prefix)]
    if len(found) != 1:
        how = "is ambiguous" if found else "is unknown"
        raise UsageError(f"--builtin: the script {prefix!r} {how}; available: {', '.join(BUILTINS)}")
    return Script(name=found[0], weight=weight)


def _edited(path: Path) -> str:
    """Return the text of a script. Raises UsageError if a value is still a stub."""
    text = read_script(path)
    stubs = [line for line in text.splitlines() if line.startswith(STUB)]
    if stubs:
        more = f" (and {len(stubs) - 1} more in this file)" if len(stubs) > 1 else ""
        raise UsageError(
            f"{path} contains an unedited stub{more}: {stubs[0].removeprefix(STUB).strip()}; or remove "
            f"the script from {LIST}"
        )
    return text


def weighted(text: str) -> tuple[str, int]:
    """Split at the last @, as pgbench does; the weight is 1 without one. Raises UsageError."""
    name, at, weight = text.rpartition("@")
    if not at:
        return text, 1
    if not weight.isdecimal() or len(weight) > WEIGHT_DIGITS_MAX or int(weight) >= 2**31:
        raise UsageError(
            f"invalid weight {weight!r} in {text!r}: give an integer from 0 to {2**31 - 1}, as in {name}@2"
        )
    return name, int(weight)


class _Listed(BaseModel, frozen=True, extra="forbid"):
    """A script in the list."""

    file: str = Field(pattern=r"^[A-Za-z0-9_.-]+\.sql$")
    weight: int = Field(default=1, ge=0, le=2**31 - 1)
    share: float | None = Field(default=None, ge=0, le=1)


class _List(BaseModel, frozen=True, extra="forbid"):
    """The list. ``coverage_min``: smallest share of the recorded time that its scripts must have."""

    coverage_min: float = Field(default=COVERAGE_MIN, ge=0, le=1)
    scripts: tuple[_Listed, ...] = Field(min_length=1, max_length=SCRIPTS_MAX)


def read_directory(directory: Path) -> tuple[Script, ...]:
    """Return the scripts of a directory, named as their files without suffix.

    Raises UsageError, also if the scripts have a smaller share of the recorded time than the list accepts.
    """
    listed = read_list(directory)
    scripts = tuple(
        Script(
            name=one.file.removesuffix(".sql"),
            weight=one.weight,
            text=_edited(directory / one.file),
            share=one.share,
        )
        for one in listed.scripts
    )
    coverage = coverage_of(scripts)
    if coverage is not None and coverage + ROUNDING < listed.coverage_min:
        raise UsageError(
            f"the scripts of {directory} cover {percent_text(coverage, 1)} of the recorded time, less than "
            f"{given_percent(listed.coverage_min)}: restore removed scripts, or accept the coverage with "
            f"coverage_min = {math.floor(coverage * 100) / 100:g} before the first [[scripts]] in {LIST}"
        )
    return scripts


def coverage_of(scripts: Iterable[Script]) -> float | None:
    """Return the share of the recorded time that the scripts have; None if they are not of a recording."""
    shares = [one.share if one.weight else 0.0 for one in scripts if one.share is not None]
    return min(1.0, sum(shares)) if shares else None


def read_list(directory: Path) -> _List:
    """Return the list of a directory. Raises UsageError."""
    path = directory / LIST
    try:
        with path.open("rb") as file:
            return _List.model_validate(tomllib.load(file))
    except FileNotFoundError:
        raise UsageError(
            f"{directory} has no {LIST}: name the script files, or a directory written by pgdyno workload"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UsageError(f"{path}: {place}: {plain_message(first['msg'])}") from None
