"""Options of load generators on other nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pgdyno.cli.options import StudyOptions, option_from
from pgdyno.errors import UsageError
from pgdyno.study.plan import DriversPlan, Study
from pgdyno.study.study_file import Fleet


def parse_drivers(text: str) -> DriversPlan:
    """Return the load generators for a number or names of nodes. Raises UsageError, ValidationError."""
    names = [part.strip() for part in text.split(",")]
    if not all(names):
        raise UsageError(f"--drivers must be a number or names of nodes, NAME,NAME (got {text!r})")
    if len(names) == 1 and text.strip().lstrip("-").isdigit():
        return DriversPlan(n=int(text))
    return DriversPlan(n=len(names), nodes=tuple(names))


@dataclass(frozen=True)
class DriverOptions(StudyOptions):
    """Options of the nodes that generate the load. They need Ray, the extra fleet of the wheel."""

    COMMANDS: ClassVar = {"compare": "evidence", "run": "evidence"}

    drivers: Annotated[
        str | None,
        option_from(Fleet, "drivers"),
    ] = None
    cluster: Annotated[str | None, option_from(Fleet, "address")] = None
    on_node_loss: Annotated[Literal["stop", "continue"] | None, option_from(Fleet, "on_node_loss")] = None

    def study_fields(self, in_file: Study | None) -> dict[str, Any]:
        """Return the load generators, if the options change them. Raises UsageError."""
        before = in_file.drivers if in_file else None
        plan = self.plan(before)
        return {} if plan == before else {"drivers": plan}

    def plan(self, in_file: DriversPlan | None = None) -> DriversPlan | None:
        """Return the drivers of a study, also those of its file; None: this machine. Raises UsageError."""
        if self.drivers is not None:
            found = parse_drivers(self.drivers)
        elif in_file is not None:
            found = in_file
        elif (option := self._first()) is not None:
            raise UsageError(f"{option} requires --drivers: add it, or remove {option}")
        else:
            return None
        given = {"address": self.cluster, "on_node_loss": self.on_node_loss}
        return found.model_copy(update={key: value for key, value in given.items() if value is not None})

    def _first(self) -> str | None:
        if self.cluster is not None:
            return f"--cluster {self.cluster}"
        return None if self.on_node_loss is None else f"--on-node-loss {self.on_node_loss}"
