"""``python -m bench dialects``: how much faster than ``spec`` each deviation from TPC-C makes a driver look.

The deviations and dialects are divided into groups. A group is one study as ``pgdyno compare`` runs it: its
first arm has the specification, each other arm one deviation or one dialect, and every block measures all of
them in turns on restored data. The group ``statements`` has a baseline that sends single statements, too.

``--record`` keeps each arm in bench/dialects.jsonl.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.stopping import table
from bench.verdict import no_progress
from pgdyno.analysis.measurement_noise import interim_result
from pgdyno.analysis.statistics.intervals import student
from pgdyno.interruption import Interruption
from pgdyno.measure.study_runner import start_study
from pgdyno.results.reader import Evidence
from pgdyno.results.records import TrialStatus
from pgdyno.server.build_store import system_builds
from pgdyno.study.arm_spec import parse_arm
from pgdyno.study.cases import Request, only_case
from pgdyno.study.defaults import discard_s
from pgdyno.study.plan import Driving, Study
from pgdyno.units import Better
from pgdyno.workloads.tpcc.dialects import DEVIATIONS, DIALECTS, SPEC
from pgdyno.workloads.tpcc.parameters import TpccParameters

GROUPS: Mapping[str, Sequence[str]] = {
    "dialects": ("literal-last-name", "warehouse-row-first", "uniform-items", "random-home"),
    "hammerdb": (
        "hammerdb",
        "hammerdb-5",
        "hammerdb-4",
        "unused-item-committed",
        "supply-from-all",
        "repeated-order-customers",
        "amounts-added",
        "order-number-skipped",
        "redraw-on-retry",
    ),
    "statements": ("sysbench", "text-protocol", "foreign-keys", "order-status-of-district"),
    "updates": (
        "stock-counters-not-updated",
        "payment-total-not-updated",
        "payment-count-not-updated",
        "delivery-count-not-updated",
        "customer-after-middle",
        "strict-stock-threshold",
        "subtransactions",
        "no-rollback",
    ),
    "inputs": (
        "uniform-customers",
        "constant-c",
        "c-redrawn",
        "second-to-last-item",
        "no-remote-warehouse",
        "unsorted-lines",
        "home-per-transaction",
    ),
    "data": ("half-bad-credit", "reversed-amounts", "one-letter-filler", "hammerdb-schema"),
}
"""Names of deviations and dialects by group. ``statements`` has ``calls = statements`` in all arms."""

NOT_MEASURED = ("swapped-think-times", "sysbench-sql")
"""Without keying and think times the first has no effect. The second exists in the dialect sysbench only."""

RECORDED = Path(__file__).with_name("dialects.jsonl")

WAREHOUSES, CLIENTS = 4, 8
SLICE_S, ROUNDS, WARM_UP_S = 0.5, 8, 2.0
BAD = (TrialStatus.FAILED, TrialStatus.EXCLUDED)
"""Trials of which none may exist. Interrupted ones are ignored."""

BLOCKS_MIN = 2
"""Minimum number of blocks for an interval in the table."""


@dataclass(frozen=True)
class Setup:
    """Options that studies must share to be counted together."""

    warehouses: int
    clients: int
    server: str


@dataclass(frozen=True)
class Measured:
    """An arm of one study: log ratios of NOPM to its baseline, by block; names of checks that failed."""

    name: str
    calls: str
    log_ratios: tuple[float, ...]
    day: str


def parameters_of(name: str, calls: str, warehouses: int) -> TpccParameters:
    """Return the workload with one deviation or dialect, or the specification."""
    own = {"dialect": name} if name in DIALECTS else {"deviate": name, "calls": calls}
    return TpccParameters.model_validate({"warehouses": warehouses, **own})


def calls_of(group: str) -> str:
    """Return how the baseline of a group calls its transactions."""
    return "statements" if group == "statements" else "procedures"


def study_of(group: str, setup: Setup, minutes: float, rounds: int, seed: int) -> Study:
    """Return the study of a group."""
    calls = calls_of(group)
    baseline = TpccParameters.model_validate({"warehouses": setup.warehouses, "calls": calls})
    workloads = [baseline, *(parameters_of(name, calls, setup.warehouses) for name in GROUPS[group])]
    drivings = [
        Driving(workload=one, clients=setup.clients, discard_s=discard_s(SLICE_S)) for one in workloads
    ]
    return Study.model_validate(
        {
            **dict(drivings[0]),
            "title": f"deviations from TPC-C: {group}",
            "arms": [
                parse_arm(setup.server).model_copy(update={"name": name}) for name in (SPEC, *GROUPS[group])
            ],
            "drivings": drivings,
            "schedule": "slices",
            "slice_s": SLICE_S,
            "warmup_s": WARM_UP_S,
            "rounds": rounds,
            "budget_s": 60 * minutes,
            "stop": "budget",
            "probes": (),
            "aa": False,
            "aa_refused_by": "the benchmark of dialects",
            "seed": seed,
        }
    )


def run(group: str, setup: Setup, minutes: float, rounds: int) -> Iterator[Measured]:
    """Run the study of a group and return its arms. Raises RuntimeError if a trial failed."""
    seed = int(datetime.now(tz=UTC).timestamp())
    with tempfile.TemporaryDirectory(prefix="pgdyno-dialects-") as directory, Interruption() as interruption:
        path = Path(directory) / "study.sqlite"
        study = study_of(group, setup, minutes, rounds, seed)
        start_study(path, Request(study.title, [only_case(study)], ""), no_progress, interruption)
        yield from measured_in(path, calls_of(group))


def measured_in(path: Path, calls: str) -> Iterator[Measured]:
    """Return the arms of a study. Raises RuntimeError if a trial failed."""
    day = datetime.now(tz=UTC).date().isoformat()
    with Evidence(path) as evidence:
        failed = [trial for trial in evidence.trials() if trial.status in BAD]
        for trial in failed:
            checks = [f"{check.name}: {check.detail}" for check in trial.checks if not check.passed]
            print(f"arm {trial.arm}: {trial.status}: {trial.reason} {checks}", file=sys.stderr, flush=True)
        if failed:
            raise RuntimeError(f"{len(failed)} trials failed")
        for comparison in interim_result(evidence, 0).comparisons:
            ratios = comparison.primary.log_ratios.values() if comparison.primary else ()
            yield Measured(comparison.arm.name, calls, tuple(ratios), day)


def line_of(one: Measured, setup: Setup) -> str:
    """Return the record of an arm."""
    return json.dumps({"setup": asdict(setup), **asdict(one)}) + "\n"


def recorded(path: Path) -> tuple[Setup | None, list[Measured]]:
    """Return the last setup of a record file, and what was measured with it."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    if not lines:
        return None, []
    last = lines[-1]["setup"]
    return Setup(**last), [
        Measured(of["name"], of["calls"], tuple(of["log_ratios"]), of["day"])
        for of in lines
        if of["setup"] == last
    ]


def report(measured: Sequence[Measured]) -> str:
    """Return the table of effects: dialects first, then deviations in the order of their table."""
    rows = []
    for name in (*DIALECTS, *DEVIATIONS):
        mine = [one for one in measured if one.name == name]
        every = [ratio for one in mine for ratio in one.log_ratios]
        if len(every) < BLOCKS_MIN:
            continue
        effect = student(every, 0.95).percent(Better.MORE)
        title, clause = f"`{name}`", "–"
        if name in DIALECTS:
            title = f"dialect {title}"
        else:
            clause = DEVIATIONS[name].clause + (", allowed" if DEVIATIONS[name].allowed else "")
        rows.append(
            [title, clause, mine[0].calls, effect.signed_text, effect.signed_interval_text, str(len(every))]
        )
    head = ("deviation", "clause of TPC-C", "calls", "NOPM vs. spec", "95% CI", "blocks")
    return table(head, rows) if rows else "Nothing has been recorded."


def main(arguments: Sequence[str]) -> int:
    """Print a line per arm on standard error, and the table at the end."""
    parser = argparse.ArgumentParser(prog="python -m bench dialects", description=__doc__)
    parser.add_argument("--group", choices=sorted(GROUPS), action="append", help="[default: all]")
    parser.add_argument("--minutes", type=float, default=4.0, metavar="N", help="of each group [default: 4]")
    parser.add_argument("--warehouses", type=int, default=WAREHOUSES, metavar="N")
    parser.add_argument("--clients", type=int, default=CLIENTS, metavar="N")
    parser.add_argument("--server", help="a version or a directory [default: the installed one]")
    parser.add_argument("--record", action="store_true", help=f"keep them in {RECORDED.name}")
    parser.add_argument("--smoke", action="store_true", help="one short block of each group: does it run?")
    chosen = parser.parse_args(arguments)
    builds = system_builds()
    server = chosen.server or (str(builds[0].bin_dir) if builds else "18")
    setup = Setup(chosen.warehouses, chosen.clients, server)
    measured = []
    for group in chosen.group or GROUPS:
        minutes, rounds = (0.01, 2) if chosen.smoke else (chosen.minutes, ROUNDS)
        for one in run(group, setup, minutes, rounds):
            measured.append(one)
            effect = student(one.log_ratios, 0.95).percent(Better.MORE)
            print(
                f"{one.name}: {effect.signed_text}, {len(one.log_ratios)} blocks", file=sys.stderr, flush=True
            )
            if chosen.record:
                with RECORDED.open("a", encoding="utf-8") as file:
                    file.write(line_of(one, setup))
    print(report(recorded(RECORDED)[1] if chosen.record else measured))
    return 0
