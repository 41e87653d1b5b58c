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
from pgdyno.cli.console import say
from pgdyno.cli.output_files import require_writable
from pgdyno.cli.report import print_report
from pgdyno.errors import EvidenceError, UsageError
from pgdyno.features.crash.crash_test import require_possible, run_crash_test
from pgdyno.features.crash.plan import (
    ACTIVE_S_LIMIT,
    ACTIVE_S_MIN,
    DISK_BLOCK_BYTES,
    DISK_BYTES_MAX,
    DISK_BYTES_MIN,
    CrashKind,
    CrashMoment,
    CrashPlan,
    CrashWorkload,
    DiskBehavior,
    FileSystem,
    StandbyCrash,
    Survivors,
)
from pgdyno.features.crash.records import Crash, has_study, read_crash_test
from pgdyno.features.crash.sections import progress_line, read_crash_report
from pgdyno.interruption import Interruption
from pgdyno.study.arm_spec import parse_arms, with_build_options
from pgdyno.study.sizing import CUTS, CUTS_MAX
from pgdyno.units import parse_duration_s, parse_size_bytes


def crash(
    arms: Annotated[
        list[str],
        typer.Argument(
            metavar="ARM…",
            help="Servers and settings, as in `compare`: 18,fsync=off. A DSN only with --real.",
        ),
    ],
    *,
    kind: Annotated[
        CrashKind,
        typer.Option(
            help="What ends. backend: one backend. server: all processes of the server. power: the power of "
            "the machine; needs root, /dev/fuse and a loop device."
        ),
    ] = CrashKind.POWER,
    cuts: Annotated[
        int, typer.Option(metavar="N", min=1, max=CUTS_MAX, help="Number of crashes per arm.")
    ] = CUTS,
    real: Annotated[
        bool,
        typer.Option(
            "--real",
            help="The arm is a running server on another machine, as a DSN, and you cut the power of that "
            "machine. pgdyno counts what is lost when the server is back.",
        ),
    ] = False,
    disk: Annotated[
        DiskBehavior,
        typer.Option(
            help="Behavior of the simulated disk of --kind power. lying: it acknowledges flushes and ignores "
            "them. failing: a write or flush fails, and the power is cut up to 2 s later. full: no space is "
            "left from a moment up to 2 s before the power cut."
        ),
    ] = DiskBehavior.HONEST,
    file_system: Annotated[
        FileSystem, typer.Option(help="File system on the simulated disk; needs its mkfs.")
    ] = FileSystem.EXT4,
    survivors: Annotated[
        Survivors | None,
        typer.Option(
            help="What survives a power cut of writes that were not flushed: nothing, all, a random subset "
            "of blocks of 4 KiB (pieces), or the same with blocks torn at 512 bytes. "
            "[default: a random one per cut]",
        ),
    ] = None,
    at: Annotated[
        CrashMoment,
        typer.Option(
            help="Moment of a crash, from 1 s after the first transaction until --within. "
            "any: at random. commit: a power cut at the next flush, before it takes effect. checkpoint, "
            "vacuum: during a forced checkpoint or a VACUUM; a power cut then waits for unflushed writes."
        ),
    ] = CrashMoment.ANY,
    standby: Annotated[
        StandbyCrash | None,
        typer.Option(
            help="Add a synchronous standby on the same machine, with its own disk, and audit it after its "
            "promotion. primary: the primary crashes. both: both crash at the same time. standby: it crashes "
            "alone, starts again and catches up. [default: no standby]",
        ),
    ] = None,
    within: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Longest time from the first transaction until a crash, 1s to 1h. With fsync=off the kernel "
            "writes data back after about 30 s. [default: 5s]",
        ),
    ] = None,
    workload: Annotated[
        CrashWorkload,
        typer.Option(
            help="Transactions of the clients. ledger: two changes that the audit checks. tpcc, pgbench: the "
            "transactions of the workload with these changes added; its consistency is checked as well."
        ),
    ] = CrashWorkload.LEDGER,
    scale: Annotated[
        int, typer.Option(metavar="N", min=1, max=1000, help="Warehouses of tpcc, or scale of pgbench.")
    ] = 1,
    clients: Annotated[
        int, typer.Option(metavar="N", min=1, max=80, help="Number of client connections.")
    ] = 8,
    disk_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Size of the simulated disk, at least 1GB. [default: 4GB]"),
    ] = None,
    evidence: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Results file. An existing one with the same options is continued. "
            "[default: pgdyno-crash-TIME.sqlite]",
        ),
    ] = None,
    build_options: Annotated[str, options.BUILD_OPTIONS] = "",
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
    if real and (given := "--within" if within else "--disk-size" if disk_size else ""):
        raise UsageError(f"{given} does not apply to --real, where you cause the crash: remove it")
    chosen = with_build_options(parse_arms(arms), build_options)
    for arm in (arm for arm in chosen if arm.is_dsn):
        options.require_no_password(arm.server)
    if extended := [arm.name for arm in chosen if arm.extension]:
        raise UsageError(
            f"pgdyno crash creates no extensions ({extended[0]}): remove extension=…, or crash the servers "
            "of a comparison with pgdyno compare --durability"
        )
    path = evidence or Path(time.strftime("pgdyno-crash-%Y%m%d-%H%M%S.sqlite"))
    plan = CrashPlan(
        arms=tuple(chosen),
        kind=kind,
        real=real,
        disk=disk,
        file_system=file_system,
        at=at,
        standby=standby,
        survivors=survivors,
        workload=workload,
        scale=scale,
        active_s_max=ACTIVE_S_LIMIT if real else _active_s_max(within or "5s"),
        cuts=cuts,
        clients=clients,
        disk_bytes=_disk_bytes(disk_size or "4GB"),
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

    def on_crash(one: Crash, name: str) -> None:
        if not quiet:
            say(progress_line(one, name, plan))

    with Interruption() as stop:
        words = [*sys.argv[2:], *([] if seed is not None else ["--seed", str(plan.seed)])]
        command = shlex.join(["pgdyno", "crash", *words])
        run_crash_test(path, plan, command, (lambda _: None) if quiet else say, on_crash, stop)
    print_report(read_crash_report(path), "json" if as_json else "terminal", [path])
    if not quiet:
        say(f"results file: {path}")
    return 0


def _active_s_max(text: str) -> float:
    """Return the time of --within. Raises UsageError."""
    active_s = parse_duration_s(text)
    if not ACTIVE_S_MIN <= active_s <= ACTIVE_S_LIMIT:
        raise UsageError(f"--within must be at least 1s and at most 1h (got {text})")
    return active_s


def _disk_bytes(text: str) -> int:
    """Return the size of --disk-size, in whole blocks. Raises UsageError."""
    size = parse_size_bytes(text) // DISK_BLOCK_BYTES * DISK_BLOCK_BYTES
    if not DISK_BYTES_MIN <= size <= DISK_BYTES_MAX:
        raise UsageError(f"--disk-size must be at least 1GB and at most 1TB (got {text})")
    return size


def _seed(path: Path, given: int | None) -> int:
    """Return the seed: the given one, that of the results file to continue, or a random one."""
    if given is not None:
        return given
    found = read_crash_test(path) if path.exists() else None
    return secrets.randbelow(2**48) if found is None else found[0].plan.seed
