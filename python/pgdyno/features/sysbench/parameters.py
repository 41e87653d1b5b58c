"""Parameters of the workload ``sysbench`` (README.md)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from pgdyno.caveats import Caveat
from pgdyno.errors import UsageError
from pgdyno.study.values import Option, Rare
from pgdyno.study.workload_parameters import DefaultSize, Pace, WorkloadParameters, read_script
from pgdyno.units import counted, group_digits

RowChange = Literal["none", "constant", "insert", "delete", "unknown"]
"""Effect of an event on the rows. none: it only reads; constant: it changes rows, and their number stays;
insert: one row more; delete: at most one row less; unknown: a custom script."""

STOCK: Mapping[str, RowChange] = {
    "oltp_point_select": "none",
    "oltp_read_only": "none",
    "oltp_read_write": "constant",
    "oltp_write_only": "constant",
    "oltp_update_index": "constant",
    "oltp_update_non_index": "constant",
    "oltp_insert": "insert",
    "oltp_delete": "delete",
    "bulk_insert": "unknown",
    "select_random_points": "none",
    "select_random_ranges": "none",
}
"""sysbench's own scripts, which the engine has."""

TABLES, TABLE_SIZE = 1, 10_000
"""Defaults of sysbench."""

ROWS_OF_TEST = 1000
"""Maximum number of rows of each table on which a script is tested."""

BULK_INSERT_THREADS = 4
"""Tables of bulk_insert: one for each thread. Other scripts prepare in one thread, as in sysbench."""

_OF_CLIENTS = {
    "threads": "--clients",
    "num-threads": "--clients",
    "time": "--minutes",
    "max-time": "--minutes",
    "events": "--transactions",
    "max-requests": "--transactions",
    "rate": "--rate",
    "tx-rate": "--rate",
    "warmup-time": "--warmup",
}
"""Options of sysbench that pgdyno has under another name."""

_OF_PROGRAM = (
    *("config-file", "db-debug", "forced-shutdown", "help", "histogram", "percentile", "report-checkpoints"),
    *("report-interval", "test", "thread-init-timeout", "thread-stack-size", "validate", "verbosity"),
    "version",
)
"""Options of the program, not of the load."""

_ON, _OFF = ("on", "true", "1", ""), ("off", "false", "0")
"""Values of switches."""

_STRING = re.compile(r"""["']([\w./-]+)["']""")
_PREPARES = re.compile(r"\bfunction\s+prepare\b|\bprepare\s*=")


def canonical_option(name: str) -> str:
    """Return the name of an option without dashes in front, and with ``-`` for ``_``."""
    return name.removeprefix("--").replace("_", "-")


def _option_text(value: Any) -> Any:
    """Return a value of a study file as sysbench's command line has it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value) if isinstance(value, int | float) else value


def script_fields(name: str, directory: Path) -> dict[str, Any]:
    """Return the fields ``script`` and ``modules`` of a stock script or a file, relative to ``directory``.

    Modules are the Lua files beside the script whose names appear in it, or in another module, as strings.
    Raises UsageError.
    """
    path = directory / name
    stock = name.removesuffix(".lua")
    if name in STOCK or (stock in STOCK and not path.exists()):
        return {"script": {"name": stock}}
    if not name.endswith(".lua") and (lua := Path(f"{path}.lua")).exists():
        path = lua
    if not path.suffix and not path.exists():
        return {"script": {"name": name}}  # refused with the list of the known names
    text = read_script(path)
    modules: dict[str, str] = {}
    beside = {file.stem: file for file in sorted(path.parent.glob("*.lua")) if file.name != path.name}
    waiting = [text]
    while waiting:
        named = set(_STRING.findall(waiting.pop()))
        for stem in sorted(beside.keys() & {one.removesuffix(".lua") for one in named} - modules.keys()):
            modules[stem] = read_script(beside[stem])
            waiting.append(modules[stem])
    return {"script": {"name": path.name, "text": text}, "modules": modules}


def options_of(texts: Iterable[str]) -> dict[str, str]:
    """Parse ``NAME=VALUE`` and ``--NAME=VALUE``; a name without value is on. Raises UsageError."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = canonical_option(name)
        if not name or name.startswith("-"):
            raise UsageError(f"an option of the script must have the form NAME=VALUE (got {text!r})")
        found[name] = value if equals else "on"
    return found


class SysbenchScript(BaseModel, frozen=True, extra="forbid"):
    """A script. Without a text, sysbench's own script of that name."""

    name: str = Field(min_length=1, description="Name; without a text, that of a script of sysbench.")
    text: str | None = Field(default=None, description="Text in Lua.")

    @model_validator(mode="after")
    def _is_known(self) -> Self:
        if self.text is None and self.name not in STOCK:
            raise ValueError(
                f"unknown sysbench script {self.name!r}: give the path of a .lua file, or one of: "
                f"{', '.join(STOCK)}"
            )
        return self


class SysbenchParameters(WorkloadParameters):
    """Script, options and tables of sysbench, with the defaults of sysbench."""

    PACE: ClassVar[Pace] = Pace("tx/s", None, 1.0)
    SMALLER: ClassVar[str] = "use a smaller --table-size"
    SIZE: ClassVar[str] = "table_size"
    UNIT_BYTES: ClassVar[float] = 250.0  # a row of sbtest with its keys
    HAS_PACING: ClassVar[bool] = False
    HAS_SCRIPTS: ClassVar[bool] = True

    kind: Literal["sysbench"] = "sysbench"
    script: Annotated[SysbenchScript, Option("NAME|FILE.lua", default="oltp_read_write")] = Field(
        default=SysbenchScript(name="oltp_read_write"),
        description=f"Script of the clients: {', '.join(STOCK)}, or a Lua file.",
    )
    modules: dict[str, str] = Field(
        default_factory=dict, description="Texts of modules that the script loads with require, by name."
    )
    tables: Annotated[int | None, Option("N", default=str(TABLES))] = Field(
        default=None, ge=1, le=10_000, description="Number of tables."
    )
    table_size: Annotated[int | None, Option("N", default=f"{TABLE_SIZE:,}")] = Field(
        default=None, ge=1, le=2**31 - 1, description="Rows of each table, 250 bytes each."
    )
    options: Annotated[dict[str, str], Rare("NAME=VALUE", ("--opt",), is_repeated=True)] = Field(
        default_factory=dict,
        description="Option of the script or of its random numbers, for example point-selects=5.",
    )
    prepare_threads: Annotated[int | None, Rare("N", default=f"1; bulk_insert: {BULK_INSERT_THREADS}")] = (
        Field(default=None, ge=1, le=1000, description="Threads of the script's own command prepare.")
    )
    allow_os: Annotated[bool, Rare()] = Field(
        default=False,
        description="Let scripts run commands, use all of the libraries os and io, and read any file. "
        "Sleeping by os.execute needs no permission.",
    )

    @model_validator(mode="before")
    @classmethod
    def _canonical(cls, given: Any) -> Any:
        """Use one spelling for options, and the fields for those that are fields."""
        if not isinstance(given, Mapping):
            return given
        fields = dict(given)
        if isinstance(fields.get("script"), str):
            fields["script"] = {"name": fields["script"]}
        if not isinstance(fields.get("options"), Mapping):
            return fields
        options = {canonical_option(name): _option_text(value) for name, value in fields["options"].items()}
        for option, field in (("tables", "tables"), ("table-size", "table_size")):
            text = options.get(option)
            if isinstance(text, str) and text.isdecimal() and fields.get(field) is None:
                fields[field] = int(options.pop(option))
        if options.get("allow-os") in (*_ON, *_OFF) and fields.get("allow_os") is None:
            fields["allow_os"] = options.pop("allow-os") in _ON
        if options.get("db-driver") == "pgsql":
            del options["db-driver"]
        return {**fields, "options": dict(sorted(options.items()))}

    @field_validator("options")
    @classmethod
    def _options_are_of_the_load(cls, options: dict[str, str]) -> dict[str, str]:
        for name, value in options.items():
            if name in _OF_CLIENTS:
                raise ValueError(f"pgdyno has another option for {name}: use {_OF_CLIENTS[name]}")
            if name in _OF_PROGRAM:
                raise ValueError(f"{name} is an option of the program pgdyno-sysbench: remove it")
            if name in ("tables", "table-size"):
                raise ValueError(f"{name} must be a number and may be given once: use --{name}")
            if name == "allow-os":
                raise ValueError("allow-os must be on or off and may be given once: use --allow-os")
            if name.startswith("pgsql-") and name != "pgsql-variant":
                raise ValueError(f"the arm names the server: remove {name}")
            if name.startswith("mysql-") or name == "db-driver":
                raise ValueError(f"the only driver is pgsql: remove {name}")
            if name == "rand-seed" and not value.isdecimal():
                raise ValueError(f"rand-seed must be a whole number (got {value!r})")
        return options

    @classmethod
    def from_options(cls, given: dict[str, Any], default_size: DefaultSize) -> dict[str, Any]:
        """Return the parameters that options give; reads the script and its modules. Raises UsageError."""
        del default_size
        own = dict(given)
        if "options" in own:
            own["options"] = options_of(own["options"])
        return own | script_fields(own["script"], Path()) if "script" in own else own

    @property
    def _is_bulk_insert(self) -> bool:
        return self.script.text is None and self.script.name == "bulk_insert"

    @property
    def threads_of_prepare(self) -> int:
        """Threads of a script's own command prepare."""
        return self.prepare_threads or (BULK_INSERT_THREADS if self._is_bulk_insert else 1)

    @property
    def has_own_data(self) -> bool:
        """True if the script's command prepare makes the data: they are not the tables sbtest1, sbtest2, …"""
        if self.script.text is None:
            return self._is_bulk_insert
        return any(_PREPARES.search(text) for text in (self.script.text, *self.modules.values()))

    @property
    def row_change(self) -> RowChange:
        """Effect of an event on the number of rows."""
        if self.script.text is not None:
            return "unknown"
        change = STOCK[self.script.name]
        # A failed event may have deleted its row already if no transaction holds its statements together.
        is_split = change == "constant" and self.options.get("skip-trx") in _ON
        return "unknown" if is_split else change

    @property
    def writes(self) -> bool:
        """False if no event changes data."""
        return self.row_change != "none"

    @property
    def n_tables(self) -> int:
        """Number of tables."""
        return self.tables or TABLES

    @property
    def n_rows(self) -> int:
        """Rows of each table."""
        return self.table_size or TABLE_SIZE

    def require_clients(self, clients: int) -> None:
        """Raise ValueError if bulk_insert has no table for each client."""
        if self._is_bulk_insert and clients > self.threads_of_prepare:
            raise ValueError(
                f"bulk_insert needs a table for each of the {clients} clients: "
                f"use fewer clients, or set prepare_threads to {clients}"
            )

    def minimal(self) -> Self | None:
        """Return a script of the user on small tables of sysbench."""
        if self.script.text is None or self.has_own_data:
            return None
        return self.model_copy(update={"table_size": min(ROWS_OF_TEST, self.n_rows)})

    @property
    def size(self) -> str:
        """The size of the data as text."""
        if self.has_own_data:
            given = {"tables": self.tables, "table-size": self.table_size, "scale": self.options.get("scale")}
            named = [f"{name} {value}" for name, value in given.items() if value is not None]
            return ", ".join(named) or "data of the script"
        return f"{counted(self.n_tables, 'table')} of {group_digits(self.n_rows, 0)} rows"

    @property
    def label(self) -> str:
        """A label of the data for file names."""
        if self.has_own_data:
            return re.sub(r"[^a-z0-9]+", "", self.script.name.rpartition("/")[2].lower().removesuffix(".lua"))
        return f"tables{self.n_tables}x{self.n_rows}"

    @property
    def name(self) -> str:
        """The name with script and size."""
        return f"{self.kind} {self.script.name}, {self.size}{self.aging_text}"

    @property
    def units(self) -> int:
        """The rows of a table. Those of a script are as many as its options say, which may be wrong."""
        return self.n_rows

    @property
    def unit_bytes(self) -> float:
        """The size of a row of every table."""
        return self.n_tables * self.UNIT_BYTES

    def _is_on(self, option: str) -> int:
        return int(self.options.get(option, "on") in _ON)

    def shape(self) -> Mapping[str, int | str]:
        """Return the parameters of the data: of a script's own data, everything that its prepare sees."""
        if not self.has_own_data:
            return {
                "tables": self.n_tables,
                "table_size": self.n_rows,
                "auto_inc": self._is_on("auto-inc"),
                "create_secondary": self._is_on("create-secondary"),
            }
        texts = json.dumps([self.script.name, self.script.text, sorted(self.modules.items())])
        return {
            "script": hashlib.sha256(texts.encode()).hexdigest()[:16],
            "options": json.dumps(self.options_of_script(), sort_keys=True),
            "prepare_threads": self.threads_of_prepare,
        }

    def load_caveats(self, clients: int) -> list[Caveat]:
        """Return that the rows of a script of the user are not checked."""
        del clients
        if self.row_change != "unknown":
            return []
        return [Caveat.of("own-scripts-not-checked", scripts=self.script.name)]

    def options_of_script(self) -> dict[str, str]:
        """Return all options with the tables, by name."""
        sizes = {"tables": self.tables, "table-size": self.table_size}
        return {**self.options, **{name: str(n) for name, n in sizes.items() if n is not None}}

    def work(self) -> str:
        """Return script, modules and options, except those of the data."""
        of_data = ("auto-inc", "create-secondary", "rand-seed")
        options = {name: value for name, value in self.options.items() if name not in of_data}
        return json.dumps(
            [self.script.text or self.script.name, sorted(self.modules.items()), sorted(options.items())]
        )

    def to_load(self) -> dict[str, Any]:
        """Return the parameters of the tables, or the script whose command prepare makes the data."""
        if self.has_own_data:
            return {**self.to_drive(), "kind": "sysbench-script", "threads": self.threads_of_prepare}
        shape = self.shape()
        switches = {name: bool(shape[name]) for name in ("auto_inc", "create_secondary")}
        return {"kind": self.kind, **shape, **switches}

    def to_drive(self) -> dict[str, Any]:
        """Return the parameters of the load."""
        options = self.options_of_script()
        seed = options.pop("rand-seed", None)
        named = {"stock": self.script.name} if self.script.text is None else self.script.model_dump()
        return {
            "kind": self.kind,
            "script": named,
            "modules": self.modules,
            "options": options,
            "random_seed": None if seed in (None, "0") else int(seed),
            "allow_os": self.allow_os,
        }
