"""``pgdyno crash``: crash servers on purpose and count the acknowledged commits that are gone."""

from __future__ import annotations

import secrets
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from pgdyno.cli import options
from pgdyno.cli.console import require_writable, say
from pgdyno.cli.live_view import LiveView
from pgdyno.cli.options import ModelOptions, complete_arm, option_name
from pgdyno.cli.report import print_report
from pgdyno.errors import EvidenceError, UsageError
from pgdyno.features.crash.run import require_possible, run_crash_test
from pgdyno.features.crash.sections import read_crash_report
from pgdyno.features.crash_disk.plan import ACTIVE_S_LIMIT, CrashPlan
from pgdyno.features.crash_disk.records import has_study, read_crash_test
from pgdyno.interruption import Interruption
from pgdyno.study.arm_spec import parse_arms


class HowToCrash(
    ModelOptions, model=CrashPlan, fields="kind cuts real disk file_system survivors at standby"
):
    """Options of the crashes: kind, number, disk and moment."""


class CrashLoadOptions(
    ModelOptions, model=CrashPlan, fields="active_s_max workload scale clients disk_bytes"
):
    """Options of the load until a crash, and the size of the disk."""


def crash(
    arms: Annotated[
        list[str],
        typer.Argument(
            metavar="ARM…",
            help="Servers and settings, as in `compare`: 18,fsync=off. A DSN only with --real.",
            autocompletion=complete_arm,
        ),
    ],
    *,
    how: HowToCrash,
    load: CrashLoadOptions,
    evidence: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Results file. An existing one with the same options is continued. "
            "[default: pgdyno-crash-TIME.sqlite]",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=options.SEED_MAX,
            help="Seed of the moments and survivors. [default: random, or that of the results file]",
        ),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Crash servers on purpose and count the acknowledged commits that are gone.

    Clients write rows and record each acknowledged commit outside of the server. At a random moment the
    server crashes. After its recovery every acknowledged commit must be there, and amcheck and pg_checksums
    must find no damage. Examples:

    \b
      pgdyno crash 18 18,synchronous_commit=off 18,fsync=off --cuts 30
      pgdyno crash 18 18,full_page_writes=off --at checkpoint --survivors torn
      pgdyno crash 17 18 --kind server --cuts 10 --json
      pgdyno crash 18,synchronous_commit=local 18,synchronous_commit=remote_write 18 --standby both
      pgdyno crash 18 --workload tpcc --scale 10
      pgdyno crash --real postgresql://postgres@10.0.0.7/postgres --cuts 3
    """
    real = "real" in how.given
    own = next((name for name in ("active_s_max", "disk_bytes") if real and name in load.given), "")
    if own:
        given = option_name(CrashPlan, own)
        raise UsageError(f"{given} does not apply to --real, where you cause the crash: remove it")
    chosen = parse_arms(arms)
    for arm in (arm for arm in chosen if arm.is_dsn):
        options.require_no_password(arm.server)
    if extended := [arm.name for arm in chosen if arm.extension]:
        raise UsageError(
            f"pgdyno crash creates no extensions ({extended[0]}): remove extension=…, or crash the servers "
            "of a comparison with pgdyno compare --durability"
        )
    if placed := [arm.name for arm in chosen if arm.wal_dir]:
        raise UsageError(
            f"pgdyno crash keeps the WAL on the disk whose power is cut ({placed[0]}): remove wal_dir=…"
        )
    path = evidence or Path(time.strftime("pgdyno-crash-%Y%m%d-%H%M%S.sqlite"))
    plan = CrashPlan(
        arms=tuple(chosen),
        **how.given,
        **(load.given | ({"active_s_max": ACTIVE_S_LIMIT} if real else {})),
        seed=_seed(path, seed),
    )
    require_possible(plan)
    if not path.exists():
        require_writable(path)
    elif has_study(path):
        raise EvidenceError(
            f"{path} has a study: use another name, or pgdyno compare --resume {path} --durability for power "
            "cuts of its arms"
        )

    with Interruption() as stop:
        words = [*sys.argv[2:], *([] if seed is not None else ["--seed", str(plan.seed)])]
        command = shlex.join(["pgdyno", "crash", *words])
        with LiveView((), quiet, stop, "crash test") as view:
            run_crash_test(path, plan, command, view, stop)
    print_report(read_crash_report(path), "json" if as_json else "terminal", [path])
    if not quiet:
        say(f"results file: {path}")
    return 0


def _seed(path: Path, given: int | None) -> int:
    """Return the seed: the given one, that of the results file to continue, or a random one."""
    if given is not None:
        return given
    found = read_crash_test(path) if path.exists() else None
    return secrets.randbelow(2**48) if found is None else found[0].plan.seed
