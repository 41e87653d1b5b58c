"""Options of the data: those of the user, and what happens to any data before they are measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import typer

from pgdyno.cli.options import StudyKey, StudyOptions, WorkloadGroup
from pgdyno.errors import UsageError, naming
from pgdyno.study.cases import cases_of
from pgdyno.study.study_file import StudyFile
from pgdyno.study.workload_parameters import AGE_MAX, read_script

PG_UPGRADE = "pg_upgrade:"
"""Start of a value of --data that names no source, but the server from which data are upgraded."""

SWITCHES = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


@dataclass(frozen=True)
class OwnDataOptions(WorkloadGroup):
    """Options of data of the user, for pgbench scripts, and of aging and upgrade of any data."""

    KIND = "pgbench"
    IN_COMPARISONS_ONLY = True

    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE|pg_upgrade:OLD",
            help="pgbench: data of your own: a dump, a backup, a directory with load.sql, a DSN that is read "
            "once, or a name (`pgdyno data`). Requires --file and implies --workload pgbench. "
            "pg_upgrade:OLD, for any workload: the server OLD loads the data, and pg_upgrade upgrades them. "
            "May be given once for each.",
        ),
    ] = None
    age: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=AGE_MAX,
            help="Run N transactions of the workload on the loaded data before the snapshot, with the same "
            "seed for all arms. [default: 0]",
        ),
        StudyKey("workload", "age"),
    ] = None
    check: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.sql",
            help="pgbench: queries that must return no row after each trial. May be repeated.",
        ),
    ] = None
    no_analyze: Annotated[
        bool,
        typer.Option("--no-analyze", help="Do not run ANALYZE before the snapshot of --data."),
        StudyKey("workload.data", "analyze", "false"),
    ] = False

    @property
    def source(self) -> str | None:
        """The source of own data. Raises UsageError for several."""
        return _only([text for text in self.data or () if not text.startswith(PG_UPGRADE)], "source")

    @property
    def upgrade_from(self) -> str | None:
        """The server from which the data are upgraded. Raises UsageError for several, or none after the
        colon.
        """
        given = [text.removeprefix(PG_UPGRADE) for text in self.data or () if text.startswith(PG_UPGRADE)]
        if "" in given:
            raise UsageError(f"--data {PG_UPGRADE} names no server: for example {PG_UPGRADE}17")
        return _only(given, "server to upgrade from")

    def values(self) -> Mapping[str, Any]:
        """Return the parameters of pgbench. Raises UsageError."""
        found: dict[str, Any] = {}
        if self.source is not None:
            found["data"] = {"source": self.source, "analyze": not self.no_analyze}
        elif self.no_analyze and self.upgrade_from is None:
            raise UsageError("--no-analyze requires --data: remove it")
        if self.check:
            with naming("--check"):
                found["checks"] = [{"name": str(path), "text": read_script(path)} for path in self.check]
        return found

    def option(self, name: str) -> str:
        """Return the long spelling of an option."""
        return "--check" if name == "checks" else f"--{name}"

    def is_kind_implied(self) -> bool:
        """Return whether data of the user are named."""
        return self.source is not None

    def aging(self) -> dict[str, Any]:
        """Return the parameters of any workload about aging and upgrade of its data. Raises UsageError."""
        found: dict[str, Any] = {} if self.age is None else {"age": self.age}
        if self.upgrade_from is not None:
            found |= {"upgrade_from": self.upgrade_from, "upgrade_analyze": not self.no_analyze}
        return found

    def of_arm(self, load: Mapping[str, str]) -> Self:
        """Return the options with those of one arm: data, analyze and age. Raises UsageError."""
        own = self
        if "data" in load:
            if not load["data"].startswith(PG_UPGRADE):
                raise UsageError(
                    f"data={load['data']}: the data of one arm can only be {PG_UPGRADE}OLD; use --data for "
                    "all arms"
                )
            source = () if self.source is None else (self.source,)
            own = replace(own, data=[*source, load["data"]])
        if "age" in load:
            if not load["age"].isdecimal() or len(load["age"]) > len(str(AGE_MAX)):
                raise UsageError(f"age={load['age']}: give a number of transactions, at most {AGE_MAX:,}")
            own = replace(own, age=int(load["age"]))
        if "analyze" in load:
            if (is_on := SWITCHES.get(load["analyze"].lower())) is None:
                raise UsageError(f"analyze={load['analyze']}: use on or off")
            if not own.data:
                raise UsageError(
                    f"analyze={load['analyze']} requires data of your own, or data={PG_UPGRADE}OLD: remove it"
                )
            own = replace(own, no_analyze=not is_on)
        return own


def _only(given: Sequence[str], what: str) -> str | None:
    if len(given) > 1:
        raise UsageError(f"--data names more than one {what} ({', '.join(given)}): keep one")
    return given[0] if given else None


@dataclass(frozen=True)
class OtherData(StudyOptions):
    """The option of ``run`` for other data than those of the study."""

    COMMANDS: ClassVar = {"run": "evidence"}

    data: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE|pg_upgrade:OLD",
            help="Data of your own instead of those of the study (pgbench only), or data that the server OLD "
            "loads and pg_upgrade upgrades.",
        ),
    ] = None

    def changed(self, file: StudyFile) -> StudyFile:
        """Return the study with other data of its workload. Raises UsageError."""
        if self.data is None:
            return file
        if self.data.startswith(PG_UPGRADE):
            if "upgrade_from" in file.factors:
                raise UsageError(
                    f"--data {self.data} requires a study in which upgrade_from is no factor: remove it"
                )
            other = {"upgrade_from": self.data.removeprefix(PG_UPGRADE)}
        elif file.workload.get("kind") != "pgbench" or "data" in file.factors:
            raise UsageError(
                "--data requires a study of pgbench scripts in which data is no factor: remove it"
            )
        else:
            other = {"data": self.data}
        changed = file.model_copy(update={"workload": {**file.workload, **other}})
        with naming("--data"):
            cases_of(changed)  # reports what does not fit the data
        return changed
