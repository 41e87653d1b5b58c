"""``pgdyno compare``: the main job."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import psutil
import typer

from pgdyno.analysis.verdict import VerdictKind
from pgdyno.cli.console import say
from pgdyno.cli.live import LiveView
from pgdyno.cli.report import print_report, write_html
from pgdyno.errors import UsageError
from pgdyno.evidence.records import Ending
from pgdyno.interruption import Interruption
from pgdyno.lab.study import resume_study, start_study
from pgdyno.study.arm import parse_arms
from pgdyno.study.plan import Rate, Study, TpccParameters
from pgdyno.study.sizing import Machine, default_clients, default_warehouses, fit_rhythm
from pgdyno.units import format_duration, parse_duration_s

DEFAULT_MINUTES = 5.0

ARM_HELP = (
    "SERVER[,@PROFILE|SETTING=VALUE]…  where SERVER is a version (18, 17.5), a directory of binaries, "
    "`system`, or the DSN of a running server. The first is the baseline."
)


def parse_percent(text: str) -> float:
    """``2%`` or ``2`` → 0.02. Raises UsageError."""
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        raise UsageError(f"{text!r} is not a percentage; for example: 2%") from None
    if not 0 < share < 1:
        raise UsageError(f"the percentage {text!r} is not between 0 and 100")
    return share


def compare(
    arms: Annotated[list[str] | None, typer.Argument(metavar="ARM ARM…", help=ARM_HELP)] = None,
    workload: Annotated[Literal["tpcc"], typer.Option(help="What the clients do.")] = "tpcc",
    warehouses: Annotated[
        int | None, typer.Option(help="Size of the data, about 100 MB each. [default: fits the machine]")
    ] = None,
    clients: Annotated[int | None, typer.Option(help="Per arm, 1 to 2000. [default: 4 per core]")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Budget for measuring; building data the first time is on top.")
    ] = None,
    margin: Annotated[str, typer.Option(help="Differences up to this size count as the same.")] = "2%",
    calls: Annotated[
        Literal["procedures", "statements"],
        typer.Option(help="One round trip a transaction, or one a statement."),
    ] = "procedures",
    pipeline: Annotated[
        bool, typer.Option("--pipeline", help="With statements: send together what does not depend.")
    ] = False,
    isolation: Annotated[
        Literal["read committed", "repeatable read", "serializable"], typer.Option(help="Isolation level.")
    ] = "read committed",
    pacing: Annotated[
        Literal["none", "keying-and-thinking"], typer.Option(help="Whether clients key and think.")
    ] = "none",
    rate: Annotated[
        float | None, typer.Option(help="Open loop: so many transactions per second and arm.")
    ] = None,
    arrivals: Annotated[
        Literal["poisson", "constant"], typer.Option(help="How an open loop's arrivals are spread.")
    ] = "poisson",
    retries: Annotated[
        int, typer.Option(help="Per transaction, after a serialization failure or deadlock.")
    ] = 10,
    schedule: Annotated[
        Literal["slices", "blocks"],
        typer.Option(help="All arms in turn every second, or one arm at a time."),
    ] = "slices",
    slice_length: Annotated[str, typer.Option("--slice", help="Length of a slice.")] = "1s",
    warmup: Annotated[
        str | None, typer.Option(help="Per arm and block. [default: fits the budget]")
    ] = None,
    window: Annotated[
        str | None, typer.Option(help="Measured, per arm and block. [default: fits the budget]")
    ] = None,
    blocks: Annotated[int | None, typer.Option(min=1, help="Stop after so many blocks.")] = None,
    confidence: Annotated[str, typer.Option(help="Of the intervals.")] = "95%",
    threads: Annotated[int | None, typer.Option(help="Of the driver. [default: as measured best]")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random. [default: drawn]")] = None,
    on_failure: Annotated[
        Literal["continue", "stop"], typer.Option(help="What to do when a trial fails.")
    ] = "continue",
    nearest: Annotated[
        bool, typer.Option("--nearest", help="Take the nearest version where one is not to be had.")
    ] = False,
    into_existing: Annotated[
        bool,
        typer.Option("--into-existing", help="Work in the very databases that the DSNs name."),
    ] = False,
    evidence: Annotated[
        Path | None, typer.Option(help="The evidence file. [default: pgdyno-TIME.sqlite]")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="The report. [default: beside the evidence]")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with this evidence file; --minutes then adds time.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The result as JSON on standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")] = False,
) -> int:
    """Which of these servers is faster, by how much, and how sure.

    Each block restores pristine data, starts every arm's server afresh, and drives them in turn. The
    interval is computed over blocks. Examples:

        pgdyno compare 17 18

        pgdyno compare 18 18,@starter --minutes 20

        pgdyno compare 18 18,synchronous_commit=off --clients 32
    """
    del workload  # there is one; the option is the place for the others
    if resume is not None:
        if arms:
            raise UsageError("--resume takes the arms from the evidence file; name none")
        return _watch_and_report(resume, None, minutes, html or resume.with_suffix(".html"), json, quiet)
    if not arms or len(arms) < 2:
        raise UsageError("name two arms or more, the baseline first; for example: pgdyno compare 17 18")
    machine = this_machine()
    specs = tuple(parse_arms(arms))
    n_clients = clients or default_clients(machine)
    slice_s = parse_duration_s(slice_length)
    budget_s = 60 * (DEFAULT_MINUTES if minutes is None else minutes)
    rhythm = fit_rhythm(budget_s, len(specs), slice_s)
    study = Study(
        title=" against ".join(arm.name for arm in reversed(specs)),
        arms=specs,
        workload=TpccParameters(
            warehouses=warehouses or default_warehouses(machine, n_clients, len(specs)),
            calls=calls,
            pipeline=pipeline,
            isolation=isolation,
        ),
        clients=n_clients,
        threads=threads,
        pacing=pacing,
        rate=None if rate is None else Rate(per_s=rate, arrivals=arrivals),
        retries_max=retries,
        schedule=schedule,
        slice_s=slice_s,
        discard_s=min(0.05, slice_s / 10),
        warmup_s=rhythm.warmup_s if warmup is None else parse_duration_s(warmup),
        rounds=rhythm.rounds if window is None else whole_rounds(parse_duration_s(window), slice_s),
        budget_s=budget_s,
        blocks_max=blocks,
        margin=parse_percent(margin),
        confidence=parse_percent(confidence),
        seed=secrets.randbelow(2**48) if seed is None else seed,
        on_failure=on_failure,
        nearest=nearest,
        into_existing=into_existing,
    )
    path = evidence or Path(time.strftime("pgdyno-%Y%m%d-%H%M%S.sqlite"))
    if not quiet:
        say(describe(study))
    return _watch_and_report(path, study, None, html or path.with_suffix(".html"), json, quiet)


def whole_rounds(window_s: float, slice_s: float) -> int:
    """The even number of slices that comes nearest to the window; at least two."""
    return max(2, 2 * round(window_s / slice_s / 2))


def this_machine() -> Machine:
    """Cores that we may use, and memory."""
    return Machine(len(psutil.Process().cpu_affinity()), psutil.virtual_memory().total)


def describe(study: Study) -> str:
    """The sizes that were chosen, in one line."""
    window = format_duration(study.rounds * study.slice_s)
    return (
        f"{study.title}: tpcc, {study.workload.warehouses} warehouses, {study.clients} clients, "
        f"{study.schedule}: {format_duration(study.warmup_s)} warm-up and {window} measured per arm and block, "
        f"{format_duration(study.budget_s)} in all, seed {study.seed}"
    )


def _watch_and_report(
    path: Path, study: Study | None, more_minutes: float | None, html: Path, json: bool, quiet: bool
) -> int:
    with Interruption() as interruption:
        if study is None:
            ending = resume_study(path, more_minutes, lambda names: LiveView(names, quiet), interruption)
        else:
            command = command_line(sys.argv)
            ending = start_study(
                path, study, command, lambda names: LiveView(names, quiet), interruption
            )
    write_html(path, html)
    print_report(path, "json" if json else "terminal")
    if not quiet:
        say(f"evidence {path}   report {html}")
    if ending is Ending.INTERRUPTED:
        say(f"stopped at your request; go on with: pgdyno compare --resume {path}")
        return 130
    return 1 if ending is Ending.FAILED else 0


def command_line(arguments: Sequence[str]) -> str:
    """How this study was asked for; the evidence masks passwords in it."""
    return " ".join(["pgdyno", *arguments[1:]])
