"""Parameters of the workload ``linkbench`` (README.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from pgdyno.caveats import Caveat
from pgdyno.study.values import Option, Rare
from pgdyno.study.workload_parameters import Pace, WorkloadParameters
from pgdyno.units import group_digits

MIXES: Mapping[str, Mapping[str, float]] = {
    "2011": {
        "get_node": 12.9326683,
        "get_links_list": 50.7119145,
        "multiget_link": 0.5261142,
        "count_link": 4.8863567,
        "add_link": 8.9886601,
        "update_link": 8.0122125,
        "delete_link": 2.9907664,
        "add_node": 2.5732789,
        "update_node": 7.366437,
        "delete_node": 1.0115914,
    },
    "fork": {
        "get_node": 43.9869,
        "get_links_list": 22.57039,
        "multiget_link": 12.14725,
        "count_link": 4.27898,
        "add_link": 5.35038,
        "update_link": 4.75589,
        "delete_link": 0.98401,
        "add_node": 2.61198,
        "update_node": 3.06256,
        "delete_node": 0.25166,
    },
}
"""Percent of the operations by edition."""

NODES = 1_000_000
"""Default number of nodes: a tenth of that of LinkBench."""


LINK_BYTES = 260.0
"""Size of a link with its index entries."""

LINKS_OF_FIRST_NODE = {"2011": 961_964, "fork": 4_181_356}
"""Links of the node with most links, in a graph of any size, with the distributions that are executed."""


class LinkBenchParameters(WorkloadParameters):
    """Size, edition and distributions of the graph."""

    PACE: ClassVar[Pace] = Pace("tx/s", None, 1.0)
    SMALLER: ClassVar[str] = "use a smaller --nodes"
    SIZE: ClassVar[str] = "nodes"
    UNIT_BYTES: ClassVar[float] = 1500.0  # a node with its links, counts and keys
    HAS_PACING: ClassVar[bool] = False

    kind: Literal["linkbench"] = "linkbench"
    nodes: Annotated[int, Option("N", default=f"{NODES:,}")] = Field(
        default=NODES,
        ge=100,
        le=2_000_000_000,
        description="Number of nodes, about 1.5 kB each with their links: maxid1 - 1 of LinkBench.",
    )
    edition: Annotated[Literal["fork", "2011"], Rare()] = Field(
        default="fork",
        description="Data and mix of operations: of the fork of LinkBench with PostgreSQL support, or of "
        "Facebook's program of 2011.",
    )
    distributions: Annotated[Literal["executed", "configured"], Rare()] = Field(
        default="executed",
        description="Distributions of data and operations: as LinkBench executes them, or as its "
        "configuration files describe them.",
    )

    @property
    def size(self) -> str:
        """The number of nodes as text."""
        return f"{group_digits(self.nodes, 0)} nodes"

    @property
    def label(self) -> str:
        """A label of the data for file names."""
        return f"nodes{self.nodes}"

    @property
    def name(self) -> str:
        """The name with edition and size."""
        return f"{self.kind} {self.edition}, {self.size}{self.aging_text}"

    @property
    def unit_bytes(self) -> float:
        """The size of a node, with its share of the links of the first one."""
        is_executed = self.distributions == "executed"
        first = LINKS_OF_FIRST_NODE[self.edition] if is_executed else 0
        return self.UNIT_BYTES + LINK_BYTES * first / self.nodes

    def shape(self) -> Mapping[str, int | str]:
        """Return the parameters of the data."""
        return {"nodes": self.nodes, "edition": self.edition, "distributions": self.distributions}

    def work(self) -> str:
        """Return edition and distributions: they determine mix and operations."""
        return json.dumps([self.edition, self.distributions])

    def specification_caveats(self) -> list[Caveat]:
        """Return a caveat for distributions that LinkBench does not execute."""
        is_executed = self.distributions == "executed"
        return [] if is_executed else [Caveat.of("linkbench-as-configured")]

    def kinds(self) -> Sequence[str]:
        """Return the operations, reads first."""
        return tuple(MIXES[self.edition])

    def to_load(self) -> dict[str, Any]:
        """Return the parameters of the data."""
        return {"kind": self.kind, **self.shape()}

    def to_drive(self) -> dict[str, Any]:
        """Return the parameters of the operations; the engine reads the number of nodes from the data."""
        return {"kind": self.kind, "edition": self.edition, "distributions": self.distributions}
