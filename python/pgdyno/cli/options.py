"""Options that several commands share, each defined once."""

from __future__ import annotations

from typing import Annotated, Literal

import psutil
import typer

from pgdyno.errors import UsageError
from pgdyno.study.plan import Driving, Rate
from pgdyno.study.sizing import Machine
from pgdyno.study.workload import WorkloadParameters

Pacing = Annotated[
    Literal["none", "keying-and-thinking"],
    typer.Option(help="tpcc: whether clients wait as TPC-C's terminals do."),
]
RatePerS = Annotated[
    float | None,
    typer.Option(
        "--rate",
        metavar="N",
        help="Open loop: so many transactions a second per arm, even when the server falls behind.",
    ),
]
Arrivals = Annotated[
    Literal["constant", "poisson"] | None,
    typer.Option(help="With --rate: how the arrivals are spread. [default: poisson]"),
]
Retries = Annotated[
    int,
    typer.Option(metavar="N", help="Of a transaction, after serialization failures and deadlocks."),
]
Threads = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Of the driver. [default: one for every two cores; one a client where these are few]",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="The result as JSON on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")]
Force = Annotated[
    bool,
    typer.Option("--force", help="Replace the file of --html although pgdyno did not write it."),
]
NoAa = Annotated[
    bool,
    typer.Option(
        "--no-aa",
        help="No hidden A/A blocks. They take a sixth of the time of two arms, and show the machine's noise.",
    ),
]
IntoExisting = Annotated[
    bool,
    typer.Option(
        "--into-existing",
        help="Work in the very database that the DSN names, although pgdyno did not make it.",
    ),
]
Replace = Annotated[
    bool,
    typer.Option(
        "--replace",
        help="pgbench, with --into-existing: overwrite pgbench_* tables that pgdyno did not load. Their rows "
        "are lost.",
    ),
]
Dsn = Annotated[
    str,
    typer.Argument(
        metavar="DSN",
        help="The database: a libpq connection string or URI. "
        "A password may come from PGPASSWORD or ~/.pgpass.",
    ),
]


MINUTES_MAX = 60 * 24 * 366.0
"""A year: a typing error, not a plan."""

SEED_MAX = 2**53 - 1
"""JSON's numbers are exact up to here."""


def this_machine() -> Machine:
    """Cores that we may use, and memory."""
    return Machine(len(psutil.Process().cpu_affinity()), psutil.virtual_memory().total)


def parse_percent(text: str) -> float:
    """``2%`` or ``2`` → 0.02. Raises UsageError."""
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        raise UsageError(f"{text!r} is not a percentage; for example: 2%") from None
    if not 0 < share < 1:
        raise UsageError(f"the percentage {text!r} is not between 0 and 100")
    return share


def driving(
    *,
    workload: WorkloadParameters,
    clients: int,
    pacing: str,
    rate: float | None,
    arrivals: str | None,
    retries: int,
    threads: int | None,
) -> dict[str, object]:
    """The fields of Driving from the options; its validation says what is wrong, too. Raises UsageError."""
    if rate is None and arrivals is not None:
        raise UsageError("--arrivals says how what --rate asks for is spread: give --rate, or leave it away")
    spread = arrivals or "poisson"
    fields = {
        "workload": workload,
        "clients": clients,
        "threads": threads,
        "pacing": pacing,
        "rate": None if rate is None else Rate.model_validate({"per_s": rate, "arrivals": spread}),
        "retries_max": retries,
    }
    return dict(Driving.model_validate(fields))
