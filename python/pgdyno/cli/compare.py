"""``pgdyno compare``: compare two or more servers.

- Spellings of pgbench in ``pgdyno compare``: the same meaning, or an error that names our option.
- ``pgdyno compare``: compare two or more servers.
"""

from __future__ import annotations

import secrets
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from pgdyno.cli import options
from pgdyno.cli.console import require_writable, require_writable_page, say
from pgdyno.cli.execution import READ, refuse_ignored_options, run_and_report
from pgdyno.cli.options import (
    NOTHING_ADDED,
    Added,
    ClientOptions,
    GroupedCommand,
    ModelOptions,
    Output,
    complete_arm,
    require_no_password,
    require_time_for_block,
    shortage,
    time_text,
    window_text,
)
from pgdyno.cli.workload_options import WorkloadOptions
from pgdyno.errors import UsageError
from pgdyno.study.arm_spec import ArmSpec, parse_arms
from pgdyno.study.cases import ChosenArms, Request, only_case, window_of
from pgdyno.study.defaults import (
    BUDGET_MIN,
    Schedule,
    WarmUpLimits,
    adaptive_warm_up,
    default_clients,
    default_schedule,
    default_size,
    default_slice_s,
    discard_s,
    fit_block_layout,
    requested_probes,
)
from pgdyno.study.plan import Study, block_targets, window_conflict
from pgdyno.study.study_file import Run
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.units import counted, format_duration_range

# ----------------------------------------------------------------------
# Spellings of pgbench in ``pgdyno compare``: the same meaning, or an error that names our option.
# ----------------------------------------------------------------------

SCRIPTS = {
    "-S": "select-only",
    "--select-only": "select-only",
    "-N": "simple-update",
    "--skip-some-updates": "simple-update",
}
"""Options of pgbench that are built-in scripts."""

OURS = {
    "-T, --time": "is the time of one run of pgbench: use --window 60s for the measurement per arm and "
    "block, or --minutes 5 for the whole comparison",
    "--max-tries": "counts the first attempt: use the key retries of study files, which does not",
    "--random-seed": "is an option of pgbench: use --seed",
    "-i, --initialize": "is not needed, because data are loaded once: remove it",
    "-n, --no-vacuum, -v, --vacuum-all": "is not needed, because blocks restore vacuumed data: remove it",
    "-P, --progress": "is not needed, because progress is always shown: remove it",
    "--build-options": "is a part of an ARM: write git:REF,build_options=--with-lz4",
    "--extension": "is a part of an ARM: write 18,extension=DIR",
    "--profile": "is a probe: use --probe default --probe profile",
    "--opt": "is an option of the script: write it at the end, after --, as in -- --NAME=VALUE",
}
"""Options of pgbench and of other commands that compare does not have, and what to do in their place."""


class CompareCommand(GroupedCommand):
    """The command ``compare``, which accepts spellings of pgbench, and has no rare options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Raises UsageError for an option of pgbench with another meaning, and for a key
        of study files.
        """
        if not ctx.resilient_parsing:
            args = with_our_spellings(args, {name: key.remedy for name, key in self.moved.items()})
        return super().parse_args(ctx, args)


def with_our_spellings(args: Sequence[str], others: Mapping[str, str]) -> list[str]:
    """Return the arguments with built-in scripts as ``--builtin``. Raises UsageError for those of OURS, and
    for others.
    """
    refused = {**others, **{one: why for spellings, why in OURS.items() for one in spellings.split(", ")}}
    own = args.index("--") if "--" in args else len(args)
    found: list[str] = []
    for arg in args[:own]:
        if arg in SCRIPTS:
            found += ["--builtin", SCRIPTS[arg]]
        elif why := refused.get(given := arg.partition("=")[0] if arg.startswith("--") else arg[:2]):
            raise UsageError(f"{given} {why}")
        else:
            found.append(arg)
    return [*found, *args[own:]]


# ----------------------------------------------------------------------
# ``pgdyno compare``: compare two or more servers.
# ----------------------------------------------------------------------

ROUNDS_AT_CAPACITY = 4
"""Maximum number of slices per arm at the rate found: the search takes most of the time of a block."""


class BlockOptions(
    ModelOptions, model=Run, fields="margin capacity capacity_by schedule slice_s warmup_s window_s"
):
    """Options of what is measured, and of the layout of a block."""


class OtherOptions(
    ModelOptions, model=Run, fields="transactions stop repeats probes confidence seed on_failure nearest aa"
):
    """Options of the lengths of a window and a study, of telemetry, analysis, random choices and failures."""


@dataclass(frozen=True)
class DesignOptions:
    """Options of the experiment: what is measured, how long, and what follows from it."""

    block: BlockOptions = field(default_factory=BlockOptions)
    other: OtherOptions = field(default_factory=OtherOptions)
    into_existing: options.IntoExisting = False

    @property
    def run(self) -> Run:
        """The values as the keys of a study file; those not given have their defaults."""
        return Run.model_construct(**self.block.given, **self.other.given)


AS_COMMAND = {"compare": {"cls": CompareCommand}}


def compare(
    context: typer.Context,
    # ARM is described in the docstring, because typer would show its type as `<list[str]>`.
    arms: Annotated[
        list[str] | None, typer.Argument(metavar="ARM", hidden=True, autocompletion=complete_arm)
    ] = None,
    *,
    clients: options.Clients = None,
    minutes: Annotated[float | None, options.option_from(Run, "budget_s", f"{BUDGET_MIN:g}")] = None,
    design: DesignOptions,
    load: ClientOptions,
    workload: WorkloadOptions,
    evidence: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Results file to write: everything measured, as an SQLite database. "
            "[default: pgdyno-TIME.sqlite]",
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Continue the study of this results file. --minutes N measures N more minutes, instead of "
            "the rest of the budget.",
        ),
    ] = None,
    output: Output,
    added: Added,
) -> int:
    """Compare servers: which is faster, by how much, with confidence intervals.

    An ARM is [NAME=]SERVER[,@PROFILE|@FILE|SETTING=VALUE]…; the first one is the baseline. SERVER is a
    version (18, 17.5), a directory, `system`, a commit to build (git:REF), or the DSN of a running server.
    Examples:

    \b
      pgdyno compare 17 18
      pgdyno compare 18 tuned=18,@starter --minutes 20
      pgdyno compare 18 18,synchronous_commit=off --clients 32
      pgdyno compare 17 18 --data shop.dump -f orders.sql@3 -f report.sql

    \f
    FILE is a postgresql.conf or has ALTER SYSTEM statements; its name has a dot or a slash. Instead of a
    setting, build_options=… gives an arm options of its build from source, extension=… an extension,
    dialect=… and deviate=… its own tpcc workload, and data=pg_upgrade:OLD, analyze=off and age=N its own
    data. Reports show NAME, if given.

    Each block restores the data from a snapshot, restarts the server of every arm and applies the same load
    to each. Confidence intervals are computed over blocks. Ctrl-C stops the study and keeps the results.
    More examples:

    \b
      pgdyno compare 17 --sweep shared_buffers=1GB,4GB,8GB
      pgdyno compare git:~/src/postgres@master git:~/src/postgres@master,build_options=--with-lz4
      pgdyno compare 18,extension=git:~/src/pg_index@main 18,extension=git:~/src/pg_index@faster
      pgdyno compare 17 18 --workload pgbench -b tpcb-like -b select-only@3 -M prepared
      pgdyno compare 17 18 --workload sysbench --script oltp_read_only --tables 8 --table-size 100000
      pgdyno compare 18,age=100000 18,data=pg_upgrade:17,age=100000
      pgdyno compare --resume pgdyno-20261121-213000.sqlite --minutes 5
    """
    added.check_judging()
    if output.html is not None:
        require_writable_page(output.html, force=output.force)
    if resume is not None:
        if arms:
            raise UsageError(f"--resume takes the arms from the results file: remove {' '.join(arms)!r}")
        refuse_ignored_options(context, (*READ, *added.read_on_resume))
        return run_and_report(resume, None, more_minutes=minutes, output=output, added=added)
    # After --, sysbench's own spelling of its options: --name=value.
    of_script = [text for text in arms or () if text.startswith("--")]
    arms = [text for text in arms or () if text not in of_script]
    workload = workload.with_arguments(of_script)
    chosen = next(filter(None, (one.chosen_arms(arms) for one in added)), None)
    if len(arms) < 2 and not chosen:
        raise UsageError(
            f"compare requires at least 2 arms, baseline first (got {len(arms)}); "
            "for example: pgdyno compare 17 18, or pgdyno compare 17 --sweep work_mem=4MB,64MB"
        )
    chosen = chosen or ChosenArms(tuple(parse_arms(arms)))
    for arm in (arm for arm in chosen.arms if arm.is_dsn):
        require_no_password(arm.server)
    study = study_of(tuple(chosen.arms), clients, minutes, design, load, workload, added)
    if chosen.server:
        study = study.model_copy(update={"title": f"{chosen.server}: {study.title}"})
    path = evidence or Path(time.strftime("pgdyno-%Y%m%d-%H%M%S.sqlite"))
    require_writable(path)
    if design.block.given.keys() & {"slice_s", "window_s", "checkpoints", "warmup_s"}:
        require_time_for_block(study)
    if short := shortage(study, options.machine_size()):
        say(short, wrap=True)
    return run_and_report(
        path, study_request(study, chosen.levels), heading=describe_sizes(study), output=output, added=added
    )


def study_of(
    arms: tuple[ArmSpec, ...],
    clients: int | None,
    minutes: float | None,
    design: DesignOptions,
    load: ClientOptions,
    workload: WorkloadOptions,
    added: Added = NOTHING_ADDED,
) -> Study:
    """Return the study, with sizes that suit this machine where they are not given.

    Raises UsageError, ValidationError.
    """
    run = design.run
    if run.stop is None and any(one.measures_whole_budget for one in added):
        run = run.model_copy(update={"stop": "budget"})
    if run.capacity is not None and "rate" in load.given:
        raise UsageError("--capacity and --rate exclude each other: remove one of them")
    machine = options.machine_size()
    own_fields = added.study_fields()
    drivers = own_fields.get("drivers")
    is_whole = requests_whole_window(run)
    if has_schedule := "schedule" in run.model_fields_set:
        schedule = Schedule(run.schedule)
    elif is_whole or run.capacity is not None or drivers is not None:
        schedule = Schedule.SLICES  # a duet measures no capacities, and its driver runs on this machine
    else:
        schedule = default_schedule(machine.cores, arms)
    is_duet = schedule is Schedule.DUET
    if is_duet:
        machine = replace(machine, cores=max(1, machine.cores // 2))
    if clients is None:
        clients = default_clients(machine, searched=run.capacity_by == "clients")
    n_clients = clients

    def size(of: type[WorkloadParameters]) -> int:
        return default_size(machine, n_clients, len(arms), of.UNIT_BYTES)

    slice_s = run.slice_s or default_slice_s(machine, n_clients, drivers.n if drivers else 1)
    budget_s = 60 * (BUDGET_MIN if minutes is None else minutes)
    targets = block_targets(run.stop, run.repeats)
    layout = fit_block_layout(budget_s, 1 if is_duet else len(arms), slice_s, schedule, targets)
    rounds, length_s = window_of(run, slice_s, schedule, arms)
    if rounds is None:
        most = layout.rounds if run.capacity is None else ROUNDS_AT_CAPACITY
        rounds = min(layout.rounds, most)
    if run.warmup_s is not None:
        warm_up = WarmUpLimits(run.warmup_s, run.warmup_min_s)
    else:
        # A trend of the effect extends the maximum, which then begins short, because the trend is the clearer
        # the shorter the warm-up was (docs/explanation/steady-state.md).
        extends = schedule.is_together and run.stop != "budget"
        warm_up = adaptive_warm_up(layout.warmup_s, layout.warmup_s * (1 if extends else 2), slice_s)
    fields = dict(load.driving(workload.parameters(size), n_clients))
    if any(arm.load for arm in arms):
        own = [workload.of_arm(arm.load).parameters(size) for arm in arms]
        drivings = [load.driving(one, n_clients) for one in own]
        # The fields of the study describe the baseline.
        fields = dict(drivings[0])
        if any(driving != drivings[0] for driving in drivings):
            fields["drivings"] = [{**dict(driving), "discard_s": discard_s(slice_s)} for driving in drivings]
    fields |= {
        **run.study_fields(),
        "title": title_of([arm.name for arm in arms]),
        "arms": arms,
        "schedule": Schedule.BLOCKS if is_whole and not has_schedule else schedule,
        "probes": requested_probes(run.probes),
        "slice_s": length_s,
        "slices_may_grow": run.slice_s is None,
        "discard_s": discard_s(slice_s),
        "warmup_s": warm_up.most_s,
        "warmup_min_s": warm_up.least_s,
        "rounds": rounds,
        "budget_s": budget_s,
        "seed": run.seed if "seed" in run.model_fields_set else secrets.randbelow(2**48),
        "into_existing": design.into_existing,
        **own_fields,
    }
    return Study.model_validate(fields)


def requests_whole_window(run: Run) -> bool:
    """Return whether a window is not divided into slices: checkpoint cycles, a number of transactions.

    Raises UsageError for two lengths, and for slices of such a window.
    """
    window = run.window_s if run.checkpoints is None else run.checkpoints
    if conflict := window_conflict(transactions=run.transactions, window=window):
        raise UsageError(conflict)
    is_whole = run.transactions is not None or run.checkpoints is not None
    if is_whole and run.slice_s is not None:
        cycles = f"--window checkpoints:{run.checkpoints}"
        whole = cycles if run.checkpoints else f"--transactions {run.transactions}"
        raise UsageError(
            f"--slice cannot be combined with {whole}, which measures one arm at a time "
            "(--schedule blocks): remove --slice, or use a time in --window"
        )
    return is_whole


def study_request(study: Study, levels: Sequence[Mapping[str, str]] | None = None) -> Request:
    """Return the request of a study of one case, with the command that repeats it.

    ``levels`` of each arm: those of a sweep.
    """
    return Request(study.title, [only_case(study, levels)], command_of(study, sys.argv[1:]))


def title_of(names: Sequence[str]) -> str:
    """Return ``B and C against A``; A is the baseline."""
    return f"{' and '.join(names[1:])} against {names[0]}"


def describe_sizes(study: Study) -> str:
    """Return the chosen sizes in two terminal lines."""
    warm_up = format_duration_range(study.warmup_min_s, study.warmup_s)
    return (
        f"{study.title}: {study.workload.name}, "
        f"{'up to ' if study.searches_clients else ''}{counted(study.clients, 'client')}; "
        f"{time_text(study)}\n"
        f"per arm and block: warm-up {warm_up}, measurement {window_text(study)}"
    )


def command_of(study: Study, typed: Sequence[str]) -> str:
    """Return the command line that repeats the study: quoted for a shell, with the drawn seed.

    Connection strings are included without passwords.
    """
    shown = {}
    for arm in (arm for arm in study.arms if arm.is_dsn):
        for name in ("", f"{arm.name}="):
            shown[name + arm.server] = name + arm.without_password().server
    words = ["pgdyno", *(shown.get(word.strip(), word) for word in typed)]
    if not any(word == "--seed" or word.startswith("--seed=") for word in words):
        at = words.index("--") if "--" in words else len(words)
        words[at:at] = ["--seed", str(study.seed)]
    return shlex.join(words)
