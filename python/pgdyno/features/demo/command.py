"""``pgdyno demo``: measure the effect of synchronous_commit in about two minutes."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Annotated

import typer

from pgdyno.cli import options
from pgdyno.cli.compare import describe_sizes, study_request, title_of
from pgdyno.cli.console import require_writable, say
from pgdyno.cli.execution import run_and_report
from pgdyno.errors import UsageError
from pgdyno.server.build_store import system_builds
from pgdyno.server.cache_directory import Cache
from pgdyno.study.arm_spec import parse_arms
from pgdyno.study.defaults import default_clients, default_size
from pgdyno.study.plan import Study
from pgdyno.workloads.pgbench.parameters import PgbenchParameters

DEMO_BUDGET_S = 180.0
DEMO_SERVER = "18"
"""Server to download if none is available."""

DEMO_SETTING = "synchronous_commit=off"
"""A setting with a large effect: the verdict is reached after the least number of blocks, also on a noisy
machine."""


def demo(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIRECTORY", help="Directory of the results file and the report."),
    ] = Path("demo"),
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Seed of all random choices. [default: random]")
    ] = None,
) -> int:
    """Measure the effect of synchronous_commit in about two minutes.

    Compares the newest available PostgreSQL with and without synchronous_commit. If none is available,
    downloads version 18.
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
    return run_and_report(stem.with_suffix(".sqlite"), study_request(study), heading=describe_sizes(study))


def choose_arms() -> list[str]:
    """Return the newest available server, and the same server with DEMO_SETTING."""
    here = [*system_builds(), *Cache.open().store(progress=say).cached()]
    server = str(max(build.version for build in here)) if here else DEMO_SERVER
    return [server, f"{server},{DEMO_SETTING}"]
