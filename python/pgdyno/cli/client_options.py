"""Options of the clients: pacing, rate, retries, driver threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from pgdyno.errors import UsageError
from pgdyno.study.defaults import RETRIES_MAX
from pgdyno.study.plan import Driving, Rate
from pgdyno.study.workload_parameters import WorkloadParameters


@dataclass(frozen=True)
class ClientOptions:
    """Options for the start of transactions."""

    pacing: Annotated[
        Literal["none", "keying-and-thinking"],
        typer.Option(help="tpcc: keying and think times of TPC-C terminals, or none."),
    ] = "none"
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            "-R",
            metavar="N",
            help="Open-loop load of N transactions per second per arm, independent of response times. "
            "[default: closed loop]",
        ),
    ] = None
    arrivals: Annotated[
        Literal["constant", "poisson"] | None,
        typer.Option(help="Arrival process of --rate. [default: poisson]"),
    ] = None
    retries: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Maximum number of retries per transaction after a serialization failure or deadlock.",
        ),
    ] = RETRIES_MAX
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            "-j",
            "--jobs",
            metavar="N",
            help="Number of load generator threads. [default: one per two cores, at most one per client]",
        ),
    ] = None

    def driving(self, workload: WorkloadParameters, clients: int) -> Driving:
        """Return how the clients drive an arm. Raises UsageError, ValidationError."""
        if self.rate is None and self.arrivals is not None:
            raise UsageError(f"--arrivals {self.arrivals} requires --rate: add --rate, or remove --arrivals")
        rate = {"per_s": self.rate, "arrivals": self.arrivals or "poisson"}
        return Driving.model_validate(
            {
                "workload": workload,
                "clients": clients,
                "threads": self.threads,
                "pacing": self.pacing,
                "rate": None if self.rate is None else Rate.model_validate(rate),
                "retries_max": self.retries,
            }
        )
