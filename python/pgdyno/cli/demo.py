"""``pgdyno demo``: compare the servers available on this machine in about four minutes."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Annotated

import typer

from pgdyno.cli import options
from pgdyno.cli.compare import describe_sizes, study_request, title_of
from pgdyno.cli.console import say
from pgdyno.cli.output_files import require_writable
from pgdyno.cli.study_execution import run_and_report
from pgdyno.errors import FetchError, UsageError
from pgdyno.server.cache_directory import Cache
from pgdyno.server.find_build import resolve_all, system_builds
from pgdyno.study.arm_spec import parse_arms
from pgdyno.study.plan import Study
from pgdyno.study.sizing import default_clients
from pgdyno.study.tpcc_parameters import TpccParameters

DEMO_WAREHOUSES = 4
DEMO_BUDGET_S = 180.0
DEMO_PAIRS = (("17", "18"), ("16", "17"), ("15", "16"))


def demo(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIRECTORY", help="Directory of the results file and the report."),
    ] = Path("demo"),
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Seed of all random choices. [default: random]")
    ] = None,
) -> int:
    """Compare two PostgreSQL versions for three minutes.

    Compares 17 and 18 if both are available, else 16 and 17, else 15 and 16. If only one version is
    available, compares its default settings with the profile @starter.
    """
    stem = directory / time.strftime("demo-%Y%m%d-%H%M%S")
    _make(directory)
    require_writable(stem.with_suffix(".sqlite"))
    machine = options.machine_size()
    arms = choose_arms()
    study = Study(
        title=title_of(arms),
        arms=tuple(parse_arms(arms)),
        workload=TpccParameters(warehouses=DEMO_WAREHOUSES),
        clients=min(16, default_clients(machine)),
        warmup_s=2,
        rounds=6,
        budget_s=DEMO_BUDGET_S,
        seed=secrets.randbelow(2**48) if seed is None else seed,
    )
    return run_and_report(stem.with_suffix(".sqlite"), study_request(study), heading=describe_sizes(study))


def _make(directory: Path) -> None:
    """Create the output directory. Raises UsageError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot create the directory {directory}: {error.strerror}: name another directory"
        ) from None


def choose_arms() -> list[str]:
    """Return the first available pair of versions; else one version with and without settings."""
    store = Cache.open().store(progress=say)
    complaints = []
    for pair in DEMO_PAIRS:
        try:
            resolve_all(pair, store=store)
        except (FetchError, UsageError) as error:
            complaints.append(str(error))
            continue
        return list(pair)
    say(f"no pair of versions is available ({complaints[0]}); comparing settings of one version")
    there = [*system_builds(), *store.cached()]
    server = str(there[0].version) if there else "16"
    return [server, f"{server},@starter"]
