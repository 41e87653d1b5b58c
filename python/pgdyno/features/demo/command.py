"""``pgdyno demo``: speed and lost commits of synchronous_commit=off, in about three minutes."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from pgdyno.cli import options
from pgdyno.cli.compare import describe_sizes, study_request, title_of
from pgdyno.cli.console import require_writable, say
from pgdyno.cli.execution import run_and_report
from pgdyno.errors import UsageError
from pgdyno.features.crash.options import DurabilityOptions
from pgdyno.features.crash_disk.plan import CrashKind
from pgdyno.features.serve.options import Web, WebOptions
from pgdyno.server.build_store import system_builds
from pgdyno.server.cache_directory import Cache
from pgdyno.study.arm_spec import parse_arms
from pgdyno.study.defaults import default_clients, default_size
from pgdyno.study.plan import Study
from pgdyno.workloads.pgbench.parameters import PgbenchParameters

DEMO_BUDGET_S = 120.0
DEMO_CUTS = 5
"""Crashes per arm, about 7 s each: enough to see that commits are lost, not to estimate a probability."""

DEMO_SERVER = "18"
"""Server to download if none is available."""

DEMO_SETTING = "synchronous_commit=off"
"""A setting with a large effect: the verdict is reached after the least number of blocks, also on a noisy
machine."""


def demo(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="Directory of the results file and the report.")
    ] = Path("demo"),
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Seed of all random choices. [default: random]")
    ] = None,
    web: Web = False,
) -> int:
    """Measure what synchronous_commit=off gains and loses, in about three minutes.

    Compares the newest available PostgreSQL with and without it. If none is available, downloads version 18.
    Then it cuts the power of both servers on a simulated disk, and counts the acknowledged commits that are
    lost. That needs root and /dev/fuse; without them it kills the servers instead.
    """
    stem = directory / time.strftime("demo-%Y%m%d-%H%M%S")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot create the directory {directory}: {error.strerror}: name another directory"
        ) from None
    require_writable(stem.with_suffix(".sqlite"))
    machine = options.machine_size()
    arms, clients = choose_arms(), min(16, default_clients(machine))
    study = Study(
        title=title_of(arms),
        arms=tuple(parse_arms(arms)),
        workload=PgbenchParameters(
            scale=default_size(machine, clients, len(arms), PgbenchParameters.UNIT_BYTES)
        ),
        clients=clients,
        warmup_s=2,
        rounds=12,
        budget_s=DEMO_BUDGET_S,
        seed=secrets.randbelow(2**48) if seed is None else seed,
    )
    crashes, without_power = crash_options(study)
    heading = f"{describe_sizes(study)}\nafterwards {DEMO_CUTS} {crashes.KIND} crashes of each server"
    return run_and_report(
        stem.with_suffix(".sqlite"),
        study_request(study),
        heading=f"{heading}{without_power}",
        added=options.Added([crashes, WebOptions(web=web)]),
    )


class ServerCrashes(DurabilityOptions):
    """A crash test that kills the servers, without root and a simulated disk."""

    KIND: ClassVar = CrashKind.SERVER

    def on_resume(self) -> list[str]:
        """Return no option: --durability cuts the power, which this machine cannot."""
        return []


def crash_options(study: Study) -> tuple[DurabilityOptions, str]:
    """Return the crash test of the demo, and why it has no power cuts; empty if it has."""
    try:
        power = DurabilityOptions(durability=True, cuts=DEMO_CUTS)
        power.check(lambda: [study])
    except UsageError as error:
        return ServerCrashes(durability=True, cuts=DEMO_CUTS), f" ({str(error).partition(': ')[0]})"
    return power, ""


def choose_arms() -> list[str]:
    """Return the newest available server, and the same server with DEMO_SETTING."""
    here = [*system_builds(), *Cache.open().store(progress=say).cached()]
    server = str(max(build.version for build in here)) if here else DEMO_SERVER
    return [server, f"{server},{DEMO_SETTING}"]
