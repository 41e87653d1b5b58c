"""Options of load generators on other nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pgdyno.cli.options import StudyKey, StudyOptions, option_from
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

    drivers: Annotated[str | None, option_from(Fleet, "drivers")] = None
    cluster: Annotated[str | None, option_from(Fleet, "address")] = None
    on_node_loss: Annotated[
        Literal["stop", "continue"] | None,
        option_from(Fleet, "on_node_loss"),
        StudyKey.of(Fleet, "on_node_loss"),
    ] = None

    def study_fields(self, in_file: Study | None) -> dict[str, Any]:
        """Return the load generators, if the options change them. Raises UsageError."""
        before = in_file.drivers if in_file else None
        plan = self.plan(before)
        return {} if plan == before else {"drivers": plan}

    def plan(self, in_file: DriversPlan | None = None) -> DriversPlan | None:
        """Return the drivers of a study, also those of its file; None: this machine. Raises UsageError."""
        every = {"address": self.cluster, "on_node_loss": self.on_node_loss}
        given = {key: value for key, value in every.items() if value is not None}
        found = in_file if self.drivers is None else parse_drivers(self.drivers)
        if found is None:
            Fleet.model_validate(given).require_drivers()
            return None
        return found.model_copy(update=given)
