"""Ratios to other programs, compared with those of earlier commits in ``history.jsonl``.

Each ratio is compared with the last 10 of the same machine while idle, if there are at least 5. It is worse
if it is beyond the worst of them by more than twice their range, on a logarithmic scale. Gaussian noise alone
has a probability of 0.3% of this with 5 earlier ratios, and of 0.004% with 10. The exit status is 1 if a
ratio is worse.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import psutil

from bench import analysis, load, restore, scripts, telemetry, tpcc
from bench.environment import FULL, Environment, Sizes, benchmark_environment
from bench.figure import Figure, Sense
from bench.stopping import table
from pgdyno.cli.features import features
from pgdyno.errors import UsageError
from pgdyno.server.engine import build_info

HISTORY = Path(__file__).with_name("history.jsonl")
COMPARED_MIN, COMPARED_MAX = 5, 10
LOAD_MAX = 1.0
"""Load average per core before a measurement: ratios of a busier machine are those of the scheduler."""

RANGES = 2
"""Ranges of the earlier ratios by which a ratio may be beyond the worst of them."""

MEASURED: Sequence[tuple[Callable[[Environment, Sizes], Iterator[Figure]], Sizes]] = (
    (scripts.figures, replace(FULL, clients=(8, 64), clients_many=256)),
    (tpcc.figures, FULL),
    (load.figures, FULL),
    (restore.figures, FULL),
    (telemetry.figures, replace(FULL, clients=(8,))),
    (analysis.figures, FULL),
)
OMITTED = re.compile(r"server CPU|, a bare loop on | limit$")
"""Figures that are no ratios of pgdyno to another program, or include other programs of the machine."""


@dataclass(frozen=True)
class Ratio:
    """A line of the history. ``commit`` ends with ``-dirty`` if the checkout had changes.

    ``load`` is the load average per core before the measurement.
    """

    name: str
    ratio: float
    sense: Sense
    commit: str
    machine: str
    load: float
    at: str


def read_history(path: Path, machine: str) -> dict[str, list[float]]:
    """Return the ratios of a machine while idle by name, the oldest first."""
    found: dict[str, list[float]] = {}
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        one = Ratio(**json.loads(line))
        if one.machine == machine and one.load <= LOAD_MAX:
            found.setdefault(one.name, []).append(one.ratio)
    return found


def limit(earlier: Sequence[float], sense: Sense) -> float | None:
    """Return the worst ratio that is not worse than the earlier ones, the oldest first. None if too few."""
    last = earlier[-COMPARED_MAX:]
    if len(last) < COMPARED_MIN:
        return None
    tolerance = (max(last) / min(last)) ** RANGES
    return max(last) * tolerance if sense == "at most" else min(last) / tolerance


def compared(ratios: Iterable[Ratio], earlier: Mapping[str, Sequence[float]]) -> tuple[str, list[str]]:
    """Return a table of the ratios with their limits, and the names of those that are worse.

    ``earlier``: the ratios of this machine by name, the oldest first.
    """
    rows, worse = [], []
    for one in ratios:
        of = earlier.get(one.name, ())
        bound = limit(of, one.sense)
        is_worse = bound is not None and (one.ratio > bound if one.sense == "at most" else one.ratio < bound)
        worse += [one.name] if is_worse else []
        verdict = "not compared" if bound is None else "WORSE" if is_worse else "holds"
        wanted = "–" if bound is None else f"{one.sense} {bound:.3f}"
        rows.append((one.name, f"{one.ratio:.3f}", wanted, verdict, str(len(of))))
    return table(("ratio", "now", "limit", "verdict", "earlier"), rows), worse


def machine_name() -> str:
    """Return the model of the CPU, the number of its cores, and the size of the memory."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text("utf-8"))
    memory_gib = round(psutil.virtual_memory().total / 2**30)
    return f"{model[1] if model else os.uname().machine}, {os.cpu_count()} cores, {memory_gib} GiB"


def _measure(machine: str) -> Iterator[Ratio]:
    """Yield the ratios of pgdyno to other programs."""
    describe = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    commit = subprocess.run(
        describe, cwd=HISTORY.parent, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    busy, at = os.getloadavg()[0] / (os.cpu_count() or 1), datetime.now(UTC).isoformat(timespec="seconds")
    with benchmark_environment(FULL) as here:
        for figures, sizes in MEASURED:
            for figure in figures(here, sizes):
                if figure.ratio is not None and not OMITTED.search(f"{figure.name} {figure.against}"):
                    name = re.sub(r" \(.*?\)", "", figure.name)  # the size of the data
                    print(f"{name}: {figure.ratio:.3f} of {figure.against}", file=sys.stderr)
                    yield Ratio(name, figure.ratio, figure.sense, commit, machine, busy, at)


def main(arguments: Sequence[str]) -> int:
    """Measure and compare the ratios."""
    parser = argparse.ArgumentParser(prog="python -m bench ratios", description=__doc__)
    parser.add_argument("--record", action="store_true", help="append the ratios to bench/history.jsonl")
    chosen = parser.parse_args(arguments)
    features()
    if build_info()["profile"] != "release":
        raise UsageError("the engine is a debug build: make setup builds the one to measure")
    machine = machine_name()
    ratios = list(_measure(machine))
    earlier = read_history(HISTORY, machine)
    text, worse = compared(ratios, earlier)
    print(text)
    if not earlier:
        print(f"bench/history.jsonl has no ratios of this machine while idle ({machine}): use --record")
    if chosen.record:
        with HISTORY.open("a", encoding="utf-8") as history:
            history.writelines(json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in ratios)
    for name in worse:
        print(f"bench: worse than earlier: {name}", file=sys.stderr)
    return 1 if worse else 0
