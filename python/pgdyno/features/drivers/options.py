"""Options of load generators on other nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from pgdyno.errors import UsageError
from pgdyno.features.drivers.plan import DriversPlan


@dataclass(frozen=True)
class DriverOptions:
    """Options of the nodes that generate the load. They need Ray, the extra fleet of the wheel."""

    drivers: Annotated[
        str | None,
        typer.Option(
            metavar="N|NODE,NODE",
            help="Generate the load on N nodes of a Ray cluster, chosen at random for each block, or on "
            "these nodes. Requires the extra fleet of the wheel (Ray). [default: on this machine]",
        ),
    ] = None
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Address of the Ray cluster. [default: the one on this machine]"
        ),
    ] = None
    on_node_loss: Annotated[
        Literal["stop", "continue"] | None,
        typer.Option(
            help="What to do when fewer nodes than --drivers are left: stop, or start the study again with "
            "them. [default: stop]"
        ),
    ] = None

    def plan(self, in_file: DriversPlan | None = None) -> DriversPlan | None:
        """Return the drivers of a study, also those of its file; None: this machine. Raises UsageError."""
        if self.drivers is not None:
            found = DriversPlan.of(self.drivers)
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
