"""Options of ``run`` for a fleet of hosts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import typer

from pgdyno.cli.options import RunCall, StudyOptions
from pgdyno.errors import UsageError

ADDRESS = re.compile(r"auto|\S+:[0-9]{1,5}")
"""Address of a Ray cluster: of this machine, or of its head."""


@dataclass(frozen=True)
class FleetOptions(StudyOptions):
    """Options that run a study on the nodes of a Ray cluster."""

    COMMANDS: ClassVar = {"run": ""}
    READ_ON_RESUME = True

    fleet: Annotated[
        str | None,
        typer.Option(
            metavar="[ADDRESS]",
            help="Run the study on every node of a Ray cluster at once, and pool the results. ADDRESS: "
            "HOST:PORT of its head. [default: the cluster of this machine]",
        ),
    ] = None
    spread: Annotated[
        Literal["cases"] | None,
        typer.Option(
            help="With --fleet, distribute the cases over the hosts. Without it, each host has all."
        ),
    ] = None
    share_machines: Annotated[
        bool,
        typer.Option(
            "--share-machines",
            help="With --fleet, use all nodes of a machine at once. They disturb each other.",
        ),
    ] = False

    @classmethod
    def spelled(cls, args: list[str], _command: str) -> list[str]:
        """Return the arguments with the address ``auto`` after a ``--fleet`` without one."""
        following = zip(args, [*args[1:], ""], strict=False)
        return [
            "--fleet=auto" if arg == "--fleet" and not ADDRESS.fullmatch(after) else arg
            for arg, after in following
        ]

    def run_elsewhere(self, call: RunCall) -> int | None:
        """Run or resume the study on the hosts. Raises UsageError, FleetError."""
        if self.fleet is None:
            option = "--spread" if self.spread else "--share-machines" if self.share_machines else None
            if option:
                raise UsageError(f"{option} requires --fleet: add --fleet, or remove {option}")
            return None
        if self.fleet.startswith("ray://"):
            raise UsageError(f"--fleet {self.fleet} is a Ray client: give HOST:PORT of the head")
        for one in call.added:
            one.check_elsewhere("--fleet")
        if call.study is None and self.spread is not None:
            raise UsageError("--spread cannot be combined with --resume, which keeps the cases of each host")
        from pgdyno.features.fleet.command import resume_on_fleet, run_on_fleet  # noqa: PLC0415

        if call.study is None:
            return resume_on_fleet(call, self.fleet, share_machines=self.share_machines)
        return run_on_fleet(
            call, self.fleet, spread=self.spread is not None, share_machines=self.share_machines
        )
