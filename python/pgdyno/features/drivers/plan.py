"""Load generators on other nodes: part of the plan of a study."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pgdyno.errors import UsageError
from pgdyno.study.sizing import MAX_CLIENTS, MAX_THREADS

DRIVERS_MAX = 1000
"""Maximum number of load generators."""

PER_GENERATOR = {"clients": MAX_CLIENTS, "threads": MAX_THREADS}
"""Maximum numbers of one load generator, per arm."""


def too_many_for(what: str, count: int, n: int) -> str:
    """Return why ``n`` load generators cannot have so many clients or threads, with the remedy."""
    limit = PER_GENERATOR[what]
    per, of = ("", "") if n == 1 else (" per load generator", f" for {n}")
    return (
        f"--{what} must be between 1 and {limit}{per} (got {count}{of}): use --drivers={-(-count // limit)}, "
        f"or fewer {what}"
    )


class DriversPlan(BaseModel):
    """``n`` load generators per block, on nodes of a Ray cluster.

    ``nodes``: names of the nodes to choose from; empty: all. ``address``: of the cluster; empty: that of
    this machine. ``on_node_loss``: what follows when fewer than ``n`` nodes are left.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    n: int = Field(ge=1, le=DRIVERS_MAX)
    nodes: tuple[str, ...] = ()
    address: str = ""
    on_node_loss: Literal["stop", "continue"] = "stop"

    @model_validator(mode="after")
    def _nodes_are_enough(self) -> Self:
        if len(set(self.nodes)) < len(self.nodes):
            raise ValueError(f"--drivers must name each node once (got {', '.join(self.nodes)})")
        if self.nodes and self.n > len(self.nodes):
            raise ValueError(f"--drivers={self.n} requires as many nodes (got {len(self.nodes)})")
        return self

    @classmethod
    def of(
        cls, text: str, address: str = "", on_node_loss: Literal["stop", "continue"] = "stop"
    ) -> DriversPlan:
        """Return the plan for a number or names of nodes. Raises UsageError, ValidationError."""
        names = [part.strip() for part in text.split(",")]
        if not all(names):
            raise UsageError(f"--drivers must be a number or names of nodes, NAME,NAME (got {text!r})")
        common = {"address": address, "on_node_loss": on_node_loss}
        if len(names) == 1 and text.strip().lstrip("-").isdigit():
            return cls.model_validate({"n": int(text), **common})
        return cls.model_validate({"n": len(names), "nodes": tuple(names), **common})
