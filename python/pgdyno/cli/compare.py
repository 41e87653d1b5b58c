"""``pgdyno compare``: compare two or more servers."""

from __future__ import annotations

import secrets
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from pgdyno.cli import options
from pgdyno.cli.calibrate import AUTO, asked_slice
from pgdyno.cli.console import say
from pgdyno.cli.duration_options import (
    asked_warm_up,
    asked_window,
    refuse_turns_in_one_piece,
    require_room_for_a_block,
    shortage,
    time_text,
    warm_up_text,
    window_text,
)
from pgdyno.cli.gate_options import Gating
from pgdyno.cli.options import expanded
from pgdyno.cli.output_files import require_place, require_place_of_text
from pgdyno.cli.study_execution import refuse_what_is_not_read, run_and_report
from pgdyno.cli.workload_options import PgbenchData, PgbenchScripts, TpccCalls, TpccData, Which, parameters_of
from pgdyno.errors import UsageError
from pgdyno.estimate import counted
from pgdyno.lab.study_runner import Request
from pgdyno.study.arm_spec import parse_arms
from pgdyno.study.capacity_search import parse_limit
from pgdyno.study.cases import only_case
from pgdyno.study.plan import Study
from pgdyno.study.probe_names import DEFAULT_PROBES, ProbeName
from pgdyno.study.schedule import TOGETHER
from pgdyno.study.sizing import (
    default_clients,
    default_scale,
    default_slice_s,
    default_warehouses,
    discard_s,
    fit_rhythm,
)

DEFAULT_MINUTES = 5.0
ROUNDS_AT_CAPACITY = 4
"""Maximum number of slices per arm at the rate found: the search takes most of the time of a block."""

DEFAULT_SIZES = {"tpcc": default_warehouses, "pgbench": default_scale}


@expanded
def compare(
    context: typer.Context,
    # What an arm is stands in the docstring: typer would call it a `<list[str]>`.
    arms: Annotated[list[str] | None, typer.Argument(metavar="ARM", hidden=True)] = None,
    *,
    which: Which,
    clients: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Number of client connections per arm, 1 to 2000. [default: 4 per core of an arm]",
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            help="Time budget for measurement, in minutes, kept to within half a block. The first block "
            "always "
            "runs. Fetching servers and loading data are not included. [default: 5]",
        ),
    ] = None,
    margin: Annotated[
        str,
        typer.Option(
            metavar="PERCENT",
            help="Equivalence margin: two servers count as the same if the interval lies within ±PERCENT.",
        ),
    ] = "2%",
    tpcc_data: TpccData,
    tpcc_calls: TpccCalls,
    pgbench_data: PgbenchData,
    pgbench_scripts: PgbenchScripts,
    pacing: options.Pacing = "none",
    rate: options.RatePerS = None,
    arrivals: options.Arrivals = None,
    capacity: Annotated[
        str | None,
        typer.Option(
            metavar="LIMIT",
            help="Compare the highest rate at which latency stays within LIMIT, for example 'p99<20ms'. Each "
            "block searches for that rate.",
        ),
    ] = None,
    retries: options.Retries = 10,
    schedule: Annotated[
        Literal["slices", "duet", "blocks"],
        typer.Option(
            help="How arms share a block: in alternating slices, at the same time on half of the cores each "
            "(duet, two arms only), or one after the other (blocks)."
        ),
    ] = "slices",
    slice_length: Annotated[
        str | None,
        typer.Option(
            "--slice",
            metavar="DURATION",
            help="Length of a slice, 50ms to 60s. auto: the best length found by `pgdyno doctor "
            "--calibrate`. "
            "[default: 1s; longer with more than 50 clients per core]",
        ),
    ] = None,
    warmup: Annotated[
        str | None,
        typer.Option(
            metavar="auto|DURATION|MIN..MAX",
            help="Warm-up per arm and block: a fixed time, or (auto, MIN..MAX) until the rates reach steady "
            "state. [default: auto, at most half of the load time of a block]",
        ),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION|checkpoints:N",
            help="Measurement window per arm and block: a time, or N checkpoint cycles with one arm at a "
            "time. "
            "[default: short enough for at least 8 blocks, if the budget allows]",
        ),
    ] = None,
    transactions: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Measure N transactions per client instead of a time, with one arm at a time.",
        ),
    ] = None,
    stop: Annotated[
        Literal["verdict", "budget"],
        typer.Option(help="When to stop: at the first verdict on every arm, or at the end of the budget."),
    ] = "verdict",
    blocks: Annotated[
        int | None,
        typer.Option(metavar="N", help="Maximum number of blocks. [default: limited by --minutes only]"),
    ] = None,
    probes: Annotated[
        list[str] | None,
        typer.Option(
            "--probe",
            metavar="NAME",
            help="Telemetry to collect: statements, wal, …, default (all with low overhead) or none. May be "
            "repeated. [default: default]",
        ),
    ] = None,
    profile: Annotated[
        bool,
        typer.Option("--profile", help="Record CPU profiles of the servers with perf and compare them."),
    ] = False,
    confidence: Annotated[
        str, typer.Option(metavar="PERCENT", help="Confidence level of the intervals.")
    ] = "95%",
    threads: options.Threads = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Seed of all random choices. [default: random]")
    ] = None,
    on_failure: Annotated[
        Literal["continue", "stop"],
        typer.Option(
            help="What to do after a failed trial. Three failed blocks in a row always stop the study."
        ),
    ] = "continue",
    nearest: Annotated[
        bool,
        typer.Option(
            "--nearest",
            help="Use the nearest available version if a version is not available, and report it.",
        ),
    ] = False,
    into_existing: options.IntoExisting = False,
    no_aa: options.NoAa = False,
    evidence: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Evidence (results) file to write: everything measured, as an SQLite database. "
            "[default: pgdyno-TIME.sqlite]",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="HTML report to write. [default: name of the evidence file with .html]"
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Continue the study of this evidence file; --minutes adds time to its budget.",
        ),
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    gating: Gating,
) -> int:
    """Compare servers: which is faster, by how much, with confidence intervals.

    An ARM is a server with its settings: SERVER[,@PROFILE|SETTING=VALUE]…. SERVER is a version (18, 17.5),
    a directory of binaries, `system`, or the DSN of a running server. The first ARM is the baseline.

    Each block restores the data from a snapshot, restarts the server of every arm and applies the same load
    to each. Confidence intervals are computed over blocks. Ctrl-C stops the study and keeps the results.
    Examples:

    \b
      pgdyno compare 17 18
      pgdyno compare 18 18,@starter --minutes 20
      pgdyno compare 18 18,synchronous_commit=off --clients 32
      pgdyno compare 17 18 --workload pgbench -b tpcb-like -b select-only@3 -M prepared
      pgdyno compare --resume pgdyno-20261121-213000.sqlite --minutes 5
    """
    if minutes is not None and not 0 < minutes <= options.MINUTES_MAX:  # nan is neither
        raise UsageError(options.minutes_error(minutes))
    gating.check()
    if html is not None:
        require_place_of_text(html, force=force)
    if resume is not None:
        if arms:
            raise UsageError(f"--resume takes the arms from the evidence file: remove {' '.join(arms)!r}")
        refuse_what_is_not_read(context)
        return run_and_report(
            resume, None, more_minutes=minutes, html=html, force=force, json=json, quiet=quiet, gating=gating
        )
    if not arms or len(arms) < 2:
        raise UsageError(
            f"compare requires at least 2 arms, baseline first (got {len(arms or ())}); "
            "for example: pgdyno compare 17 18"
        )
    refuse_turns_in_one_piece(context, window, transactions, schedule)
    machine = options.this_machine()
    if schedule == "duet":
        machine = replace(machine, cores=max(1, machine.cores // 2))
    specs = tuple(parse_arms(arms))
    if into_existing and not any(arm.is_dsn for arm in specs):
        raise UsageError("--into-existing requires a DSN as ARM: remove it, or name a running server")
    n_clients = default_clients(machine) if clients is None else clients
    workload = parameters_of(
        which,
        *(tpcc_data, tpcc_calls, pgbench_data, pgbench_scripts),
        default_size=lambda kind: DEFAULT_SIZES[kind](machine, n_clients, len(specs)),
    )
    slice_s, slice_from = asked_slice(slice_length, schedule, default_slice_s(machine, n_clients))
    budget_s = 60 * (DEFAULT_MINUTES if minutes is None else minutes)
    may_stop = stop == "verdict" and schedule in TOGETHER
    turns = 1 if schedule == "duet" else len(specs)
    rhythm = fit_rhythm(budget_s, turns, slice_s, may_stop=may_stop)
    if capacity is not None:
        rhythm = replace(rhythm, rounds=min(rhythm.rounds, ROUNDS_AT_CAPACITY))
    warm_up = asked_warm_up(warmup, rhythm.warmup_s, slice_s)
    fields = options.driving(
        workload=workload,
        clients=n_clients,
        pacing=pacing,
        rate=rate,
        arrivals=arrivals,
        retries=retries,
        threads=threads,
    )
    if capacity is not None:
        parse_limit(capacity)
        if rate is not None:
            raise UsageError("--capacity and --rate exclude each other: remove one of them")
    fields |= {
        "capacity": capacity,
        "title": title_of([arm.name for arm in specs]),
        "arms": specs,
        "schedule": "blocks" if transactions is not None and schedule == "slices" else schedule,
        "transactions": transactions,
        "probes": asked_probes(probes, profile=profile),
        "slice_s": slice_s,
        "slice_from": slice_from,
        "discard_s": discard_s(slice_s),
        "warmup_s": warm_up.most_s,
        "warmup_min_s": warm_up.least_s,
        **asked_window(window, rhythm, slice_s, schedule, specs),
        "budget_s": budget_s,
        "stop": stop,
        "blocks_max": blocks,
        "margin": options.parse_percent(margin),
        "confidence": options.parse_percent(confidence),
        "seed": secrets.randbelow(2**48) if seed is None else seed,
        "on_failure": on_failure,
        "nearest": nearest,
        "into_existing": into_existing,
        "aa": not no_aa,
        "aa_refused_by": "--no-aa" if no_aa else "",
    }
    study = Study.model_validate(fields)
    path = evidence or Path(time.strftime("pgdyno-%Y%m%d-%H%M%S.sqlite"))
    require_place(path)
    if not (slice_length is window is warmup is None):
        require_room_for_a_block(study)
    if short := shortage(study):
        say(short)
    return run_and_report(
        path,
        request_of(study),
        heading=describe(study),
        html=html,
        force=force,
        json=json,
        quiet=quiet,
        gating=gating,
    )


ALL_BY_DEFAULT = "default"
"""Value of ``--probe`` that stands for the default probes, so that others can be added."""


def asked_probes(names: Sequence[str] | None, *, profile: bool = False) -> Sequence[str]:
    """Return the probes of ``names``, plus "profile" if asked. Raises UsageError for an unknown name."""
    if profile:
        return tuple(dict.fromkeys((*asked_probes(names), "profile")))
    known = get_args(ProbeName)
    if not names:
        return DEFAULT_PROBES
    for name in names:
        if name not in (*known, ALL_BY_DEFAULT) and list(names) != ["none"]:
            raise UsageError(
                f"--probe must be one of {', '.join(known)}, {ALL_BY_DEFAULT}, or none alone (got {name!r})"
            )
    if list(names) == ["none"]:
        return ()
    each = (DEFAULT_PROBES if name == ALL_BY_DEFAULT else (name,) for name in names)
    return tuple(dict.fromkeys(probe for of in each for probe in of))


def request_of(study: Study) -> Request:
    """Return the request of a study of one case, with the command that repeats it."""
    return Request(study.title, [only_case(study)], command_of(study, sys.argv[1:]))


def title_of(names: Sequence[str]) -> str:
    """Return ``B and C against A``; A is the baseline."""
    return f"{' and '.join(names[1:])} against {names[0]}"


def describe(study: Study) -> str:
    """Return the chosen sizes in two terminal lines."""
    found_by = f"\nslice length: from {study.slice_from}" if study.slice_from else ""
    return (
        f"{study.title}: {study.workload.name}, "
        f"{counted(study.clients, 'client')}; "
        f"{time_text(study)}\n"
        f"per arm and block: warm-up {warm_up_text(study)}, measurement {window_text(study)}"
        f"{found_by}"
    )


def command_of(study: Study, typed: Sequence[str]) -> str:
    """Return the command line that repeats the study: quoted for a shell, with the drawn seed.

    Connection strings are included without passwords.
    """
    shown = {arm.server: arm.without_password().server for arm in study.arms if arm.is_dsn}
    words = ["pgdyno", *(shown.get(word.strip(), word) for word in typed)]
    if study.slice_from:  # another day's calibration may say another length
        words = [f"{study.slice_s:g}s" if word == AUTO else word for word in words]
        words = [f"--slice={study.slice_s:g}s" if word == f"--slice={AUTO}" else word for word in words]
    if not any(word == "--seed" or word.startswith("--seed=") for word in words):
        words += ["--seed", str(study.seed)]
    return shlex.join(words)
