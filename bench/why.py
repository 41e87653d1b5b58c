"""Causes that are planted, and whether the report names them: ``python -m bench why``.

Each study compares two servers that differ in one known cause, with the default options of ``pgdyno compare``
except ``--minutes``. Every second study runs beside a busy loop. The JSON of its report must have the right
resource first, and no other resource as a significant cause. ``--keep FILE`` collects studies over several
runs, one JSON line each; ``--record`` keeps them in bench/causes.jsonl.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.environment import installed_build
from bench.stopping import table
from bench.verdict import TURNS, WORKS, no_progress
from pgdyno.analysis.telemetry.trial_telemetry import CLIENT
from pgdyno.analysis.time_breakdown import CPU, OTHER_STATEMENTS, OUTSIDE, REMAINDER, UNKNOWN, consequences
from pgdyno.cli.options import machine_size
from pgdyno.cli.report import read_report
from pgdyno.errors import UsageError
from pgdyno.interruption import Interruption
from pgdyno.measure.study_runner import start_study
from pgdyno.report.json_format import to_json
from pgdyno.report.why_section import LIKELY_P_MAX, NAMED_SHARE_MIN
from pgdyno.server.builds import Build
from pgdyno.server.directories import server_account
from pgdyno.server.processes import PORT, SUPERUSER, Cluster, InitOptions
from pgdyno.study.arm_spec import parse_arm
from pgdyno.study.cases import Request, only_case
from pgdyno.study.defaults import SLICE_S, adaptive_warm_up, default_clients, discard_s, fit_block_layout
from pgdyno.study.plan import Driving, Study, block_targets
from pgdyno.workloads.pgbench.parameters import PgbenchParameters, Script

RECORDED = Path(__file__).with_name("causes.jsonl")
MINUTES, STUDIES = 2.0, 10
SCALE = 8
"""Accounts of 130 MB, so that the page cache holds them."""

ACCOUNT = "\\set aid random(1, 100000 * :scale)\n"
UPDATE = "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;\n"
OWED = (
    "\\set bid random(1, :scale)\nSELECT count(*) FROM pgbench_accounts WHERE bid = :bid AND abalance > 0;\n"
)
INDEX = "pgbench_accounts (bid, abalance)"

NO_CAUSES = (UNKNOWN, REMAINDER, OUTSIDE, OTHER_STATEMENTS)
"""Parts that are the remainder of others."""


@dataclass(frozen=True)
class Kind:
    """A cause. ``arms``: text after the server of A and B. ``scripts`` and ``indexes`` are those of each arm.

    ``right``: resources that may come first. ``follows``: resources that the cause changes indirectly, and
    that may be significant, too. ``devices``: variables of ``slow_device.c`` of each arm. ``delays_ms``: of
    the relays to two servers of this benchmark, in each direction.
    """

    name: str
    right: tuple[str, ...]
    follows: tuple[str, ...]
    arms: tuple[str, str] = ("", "")
    scripts: tuple[str, str] = ("", "")
    indexes: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    define: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
    devices: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
    delays_ms: tuple[float, float] | None = None


KINDS = (
    # Locks of rows and of buffers are held while a commit waits. Its sync costs system calls and switches.
    Kind("synchronous_commit off", ("wal",), (CPU, "lock", "lwlock"), arms=("", ",synchronous_commit=off")),
    Kind(
        "5% more CPU",
        (CPU,),
        (),
        scripts=(WORKS["update"],) * 2,
        define=({"work": str(TURNS)}, {"work": str(round(1.05 * TURNS))}),
    ),
    # Each read also costs CPU, and takes locks of the buffer mapping.
    Kind(
        "small shared_buffers",
        ("io",),
        (CPU, "lwlock"),
        arms=(",shared_buffers=256MB", ",shared_buffers=16MB"),
        scripts=("select-only",) * 2,
        devices=({"SLOW_READ_US": "200"},) * 2,
    ),
    # Fewer transactions share a sync, and each wait costs a switch of processes.
    Kind(
        "hot row", ("lock",), (CPU, "lwlock", "wal"), scripts=(ACCOUNT + UPDATE, UPDATE.replace(":aid", "1"))
    ),
    Kind("slow fsync", ("wal",), ("lock", "lwlock"), devices=({}, {"SLOW_SYNC_US": "2000"})),
    Kind(
        "every statement logged",
        (CPU,),
        (),
        arms=("", ",log_min_duration_statement=0"),
        scripts=("select-only",) * 2,
    ),
    Kind("delayed network", (CLIENT,), (), scripts=("select-only",) * 2, delays_ms=(0.0, 1.0)),
    # A scan of the table has parallel workers, and reads blocks.
    Kind("dropped index", (CPU,), ("ipc", "io", "lwlock"), scripts=(OWED,) * 2, indexes=((INDEX,), ())),
)


# ----------------------------------------------------------------------
# The judgement of a report: pure functions of its JSON.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """Change of a resource in µs per transaction. ``p_value``: None in older records."""

    key: str
    change_us: float
    significant: bool
    p_value: float | None = None


@dataclass(frozen=True)
class Judgement:
    """``first``: the largest significant cause in the direction of the whole, or the largest one there, if it
    would be significant alone, or if none is significant.

    ``wrong``: resources that are significant causes, but neither right nor a consequence.
    """

    first: str
    certain: bool
    right: bool
    wrong: tuple[str, ...]


def parts_of(report: Mapping[str, Any]) -> tuple[Part, list[Part]]:
    """Return the whole and the resources of the only comparison of a report."""
    (case,) = report["study"]["cases"]
    (why,) = case["time_breakdowns"].values()
    whole, *parts = (_part(one) for one in (why["by_resource"]["total"], *why["by_resource"]["parts"]))
    return whole, parts


def _part(of: Mapping[str, Any]) -> Part:
    return Part(of["key"], of["difference"]["value"], of["significant"], of["p_value"])


def judge(kind: Kind, whole: Part, parts: Sequence[Part]) -> Judgement:
    """Judge the causes that a report names.

    A change against the direction of the whole, or too small for the sentences, is no cause.
    """
    no_causes = {*NO_CAUSES, *consequences({one.key: one.change_us for one in parts}, driver_is_local=True)}
    causes = sorted((one for one in parts if one.key not in no_causes), key=lambda one: -abs(one.change_us))
    sizes_us = [abs(one.change_us) for one in (whole, *causes) if one.significant]
    certain = [
        one for one in causes if one.significant and abs(one.change_us) >= NAMED_SHARE_MIN * max(sizes_us)
    ]
    onwards = [one for one in causes if one.change_us * whole.change_us > 0]
    likely = [one for one in onwards[:1] if one.p_value is not None and one.p_value <= LIKELY_P_MAX]
    first = (likely or [one for one in certain if one in onwards] or onwards or causes)[0]
    beside = [one.key for one in certain if one in onwards and one is not first]
    wrong = [key for key in beside if key not in (*kind.right, *kind.follows)]
    if first.significant and first.key not in kind.right:
        wrong.insert(0, first.key)
    return Judgement(first.key, first.significant, first.key in kind.right, tuple(wrong))


# ----------------------------------------------------------------------
# Studies with a planted cause.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class StudyRun:
    """One study. ``parts``: the whole, and then its resources."""

    kind: str
    busy: bool
    minutes_max: float
    server: str
    verdict: str
    blocks: int
    parts: tuple[Part, ...]
    sentences: tuple[str, ...]
    day: str

    @classmethod
    def read(cls, line: str) -> StudyRun:
        """Read a line of a JSON Lines file."""
        of = json.loads(line)
        parts = tuple(Part(**part) for part in of["parts"])
        return cls(**{**of, "parts": parts, "sentences": tuple(of["sentences"])})

    @property
    def line(self) -> str:
        """Line of a JSON Lines file."""
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"


def runs_in(path: Path, minutes: float, server: str) -> list[StudyRun]:
    """Return the studies in a file with this time and server."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    every = [StudyRun.read(line) for line in lines]
    return [one for one in every if one.minutes_max == minutes and one.server == server]


def missing(kinds: Sequence[Kind], studies: int, runs: Sequence[StudyRun]) -> list[tuple[Kind, int]]:
    """Return the studies not among ``runs``, all kinds in turn. Odd numbers run beside a busy loop."""
    done = [(one.kind, one.busy) for one in runs]
    wanted = [(kind, number) for number in range(studies) for kind in kinds]
    return [
        (kind, number) for kind, number in wanted if done.count((kind.name, bool(number % 2))) <= number // 2
    ]


def run(kind: Kind, number: int, minutes: float, build: Build) -> StudyRun:
    """Run one study. Raises UsageError if the machine lacks what its cause needs."""
    with contextlib.ExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="pgdyno-why-", dir="/var/tmp"))
        )
        directory.chmod(0o755)
        servers = [str(build.bin_dir)] * 2
        if any(kind.devices):  # programs in a new directory have data of their own, which nothing uses again
            stack.enter_context(patch.dict(os.environ, {"PGDYNO_CACHE": str(directory / "cache")}))
            servers = [
                _on_device(build, directory / name, of) for name, of in zip("ab", kind.devices, strict=True)
            ]
        if kind.delays_ms is not None:
            servers = stack.enter_context(_delayed(build, directory, kind.delays_ms))
        study = planned_study(kind, servers, minutes, seed=number)
        interruption = stack.enter_context(Interruption())
        if number % 2:
            stack.enter_context(busy_loop())
        path = directory / "e.sqlite"
        start_study(path, Request(study.title, [only_case(study)], ""), no_progress, interruption)
        if interruption.requested:
            raise KeyboardInterrupt
        report = json.loads(to_json(read_report(path)))
    whole, parts = parts_of(report)
    return StudyRun(
        kind.name,
        bool(number % 2),
        minutes,
        str(build.version),
        report["verdicts"][0]["verdict"],
        report["study"]["cases"][0]["blocks_max"],
        (whole, *parts),
        tuple(report["sentences"][""].get("why", ())),
        datetime.now(tz=UTC).date().isoformat(),
    )


def planned_study(kind: Kind, servers: Sequence[str], minutes: float, seed: int) -> Study:
    """Plan a study as ``pgdyno compare --workload pgbench --minutes …`` does on two cores."""
    machine, budget_s = machine_size(), 60 * minutes
    rhythm = fit_block_layout(budget_s, 2, SLICE_S, "slices", block_targets())
    warm_up = adaptive_warm_up(rhythm.warmup_s, rhythm.warmup_s, SLICE_S)
    clients = default_clients(machine)
    drivings = tuple(
        Driving(
            workload=PgbenchParameters(
                scale=SCALE, scripts=(_script(text),), indexes=indexes, define=dict(define)
            ),
            clients=clients,
            discard_s=discard_s(SLICE_S),
        )
        for text, indexes, define in zip(kind.scripts, kind.indexes, kind.define, strict=True)
    )
    arms = [
        parse_arm(server + more).model_copy(update={"name": name})
        for server, more, name in zip(servers, kind.arms, "AB", strict=True)
    ]
    return Study.model_validate(
        {
            **dict(drivings[0]),
            "title": kind.name,
            "arms": arms,
            "drivings": drivings if drivings[0] != drivings[1] else None,
            "slice_s": SLICE_S,
            "slices_may_grow": True,
            "warmup_s": warm_up.most_s,
            "warmup_min_s": warm_up.least_s,
            "rounds": rhythm.rounds,
            "budget_s": budget_s,
            "seed": seed,
        }
    )


def _script(text: str) -> Script:
    return Script(name="planted", text=text) if ";" in text else Script.model_validate(text or "tpcb-like")


@contextmanager
def busy_loop() -> Iterator[None]:
    """Use one core while the block runs."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            yield
        finally:
            busy.kill()


def _on_device(build: Build, directory: Path, of: Mapping[str, str]) -> str:
    """Make a directory of programs whose server preloads ``slow_device.c``, and return it."""
    if not (compiler := shutil.which("cc")):
        raise UsageError("a slow device needs a C compiler (cc)")
    directory.mkdir()
    library = directory / "slow_device.so"
    source = Path(__file__).with_name("slow_device.c")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    for program in build.bin_dir.iterdir():
        if program.name != "postgres":
            (directory / program.name).symlink_to(program)
    variables = " ".join(f"{name}={value}" for name, value in {**of, "LD_PRELOAD": str(library)}.items())
    postgres = directory / "postgres"
    postgres.write_text(f'#!/bin/sh\n{variables} exec {build.program("postgres")} "$@"\n', "utf-8")
    postgres.chmod(0o755)
    return str(directory)


@contextmanager
def _delayed(build: Build, directory: Path, delays_ms: Sequence[float]) -> Iterator[list[str]]:
    """Start two servers with a relay each, and yield their connection strings."""
    account = server_account()
    with contextlib.ExitStack() as stack:
        relays = []
        for name, delay_ms in zip("ab", delays_ms, strict=True):
            cluster = Cluster(build, directory / name, account)
            cluster.initdb(InitOptions())
            server = stack.enter_context(cluster.start({"shared_buffers": "256MB"}))
            relays.append(f"{server.socket.path}/.s.PGSQL.{PORT}={delay_ms}")
        command = [sys.executable, "-m", "bench.delayed_relay", *relays]
        root = Path(__file__).parents[1]
        relay = stack.enter_context(
            subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        try:
            assert relay.stdout is not None
            ports = relay.stdout.readline().split()
            yield [f"host=127.0.0.1 port={port} user={SUPERUSER} dbname=postgres" for port in ports]
        finally:
            relay.kill()


# ----------------------------------------------------------------------
# Tables and the command.
# ----------------------------------------------------------------------

RIGHT_MIN, WRONG_MAX = 0.9, 0.05
"""Bounds: share of the studies of each kind with the right resource first, and of all with a wrong one."""


def report(kinds: Sequence[Kind], runs: Sequence[StudyRun]) -> str:
    """Return the table by kind, and the totals."""
    rows, totals = [], [0, 0, 0]
    for kind in kinds:
        of = [one for one in runs if one.kind == kind.name]
        found = [judge(kind, one.parts[0], one.parts[1:]) for one in of]
        right = sum(one.right for one in found)
        wrong = [one for one in found if one.wrong]
        others = sorted(
            {key for one in found for key in one.wrong if key} | {j.first for j in found if not j.right}
        )
        rows.append(
            (
                kind.name,
                ", ".join(kind.right),
                f"{right} of {len(of)}",
                str(sum(one.right and one.certain for one in found)),
                f"{len(wrong)} of {len(of)}",
                ", ".join(others) or "–",
                str(sum(one.verdict == "undecided" for one in of)),
                "–" if not of else "yes" if right >= RIGHT_MIN * len(of) else "NO",
            )
        )
        totals = [total + more for total, more in zip(totals, (right, len(wrong), len(of)), strict=True)]
    right, named, n = totals
    head = (
        "Cause",
        "Right",
        "Right one first",
        "Certain",
        "Wrong one significant",
        "Others",
        "Undecided",
        "Holds",
    )
    said = f"All: the right resource first in {right} of {n}, a wrong one significant in {named} of {n}"
    holds = "holds" if named <= WRONG_MAX * n else "does NOT hold"
    return f"{table(head, rows)}\n\n{said} (at most {WRONG_MAX:.0%}: {holds})."


def main(arguments: Sequence[str]) -> int:
    """Run the studies that are missing, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench why", description=__doc__)
    names = [kind.name for kind in KINDS]
    parser.add_argument(
        "--kinds", action="append", choices=names, metavar="NAME", help=", ".join(names).replace("%", "%%")
    )
    parser.add_argument("--studies", type=int, default=STUDIES, metavar="N", help="of each [default: 10]")
    parser.add_argument("--minutes", type=float, default=MINUTES, metavar="N", help="of each [default: 2]")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="continue with the studies in this file")
    parser.add_argument("--record", action="store_true", help=f"keep the studies in {RECORDED.name}")
    chosen = parser.parse_args(arguments)
    kinds = [kind for kind in KINDS if not chosen.kinds or kind.name in chosen.kinds]
    build = installed_build()
    keep = RECORDED if chosen.record else chosen.keep
    runs = runs_in(keep, chosen.minutes, str(build.version)) if keep else []
    for kind, number in missing(kinds, chosen.studies, runs):
        try:
            one = run(kind, number, chosen.minutes, build)
        except UsageError as error:
            print(f"{kind.name}: skipped: {error}", file=sys.stderr)
            continue
        runs.append(one)
        if keep:
            with keep.open("a", encoding="utf-8") as file:
                file.write(one.line)
        print(
            f"{kind.name}{', busy' * one.busy}: {one.verdict}, {one.blocks} blocks. ",
            *one.sentences,
            file=sys.stderr,
            flush=True,
        )
    print(report(kinds, runs))
    return 0
