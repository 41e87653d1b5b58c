"""Cost of the page of a running study: blocks with the page open and blocks with it closed, in turn.

A study of identical arms runs with its server of pages, as with ``--web``. In one block of each pair, the
first or the second by chance, a process reads the events of the page as a browser does, until the next block
begins. The CPU time until its first event is that of an opening.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean
from time import monotonic
from urllib.parse import parse_qs, urlsplit

import psutil

from bench.environment import Environment, Sizes
from bench.figure import Figure, compared, limited
from bench.verdict import Options, planned_study
from pgdyno.features.serve import process
from pgdyno.interruption import Interruption
from pgdyno.measure.progress import BlockEnded, BlockStarted, Progress, Watch
from pgdyno.measure.study_runner import start_study
from pgdyno.study.cases import Request, only_case
from pgdyno.study.defaults import SLICE_S

SHARE_MAX = 0.01
"""Maximum cost of an open page, as a share of throughput."""

CPU_SHARE_MAX = 0.005
"""Maximum CPU time of the server of pages, as a share of a core."""

OPENING_MS_MAX = 250.0
"""Maximum CPU time of the server for the first event of a page."""

PAIRS_PER_PAIR = 4  # a block has 10 s of each arm

READER = (
    "import sys, urllib.request as of; "
    "request = of.Request(sys.argv[1], headers={'Authorization': 'Bearer ' + sys.stdin.readline()}); "
    "[print(flush=True) for line in of.urlopen(request) if line.startswith(b'data')]"
)
"""Prints an empty line for each event."""


def figures(environment: Environment, sizes: Sizes) -> Iterator[Figure]:
    """Compare the throughput with and without the page, and give the CPU time of its server."""
    rng, path = random.Random(1), environment.directory / "page.sqlite"
    opened = [
        first != half
        for first in (rng.random() < 0.5 for _ in range(sizes.pairs * PAIRS_PER_PAIR))
        for half in (False, True)
    ]
    options = Options((0.0,), 1, 20.0, "slices", SLICE_S, "update", str(environment.cluster.build.bin_dir))
    study = planned_study(options, 0.0, seed=1).model_copy(
        update={"blocks_max": len(opened), "stop": "budget"}
    )
    rates: list[float] = []
    shares: list[float] = []
    openings_ms: list[float] = []
    address = process.start(path)
    server = psutil.Process(process._started[-1].pid)

    @contextmanager
    def watching(_names: Sequence[str]) -> Iterator[Watch]:
        reader: list[subprocess.Popen[str]] = []
        since: list[tuple[float, float]] = []
        is_counted = False

        def close() -> None:
            if reader:
                assert reader[0].poll() is None
                _end(reader.pop())
                begun_s, before_s = since.pop()
                shares.append(100 * (_cpu_s(server) - before_s) / (monotonic() - begun_s))

        def watch(event: Progress) -> None:
            nonlocal is_counted
            if isinstance(event, BlockStarted):
                close()
                is_counted = not event.case  # hidden A/A blocks have another name
                if is_counted and opened[event.block]:
                    before_s = _cpu_s(server)
                    reader.append(_reading(address))
                    since.append((monotonic(), _cpu_s(server)))
                    openings_ms.append(1e3 * (since[0][1] - before_s))
            elif isinstance(event, BlockEnded) and is_counted:
                rates.append(fmean(rate or 0.0 for rate in event.rates))

        try:
            yield watch
        finally:
            close()

    try:
        with Interruption() as interruption:
            start_study(path, Request(study.title, [only_case(study)], ""), watching, interruption)
    finally:
        server.terminate()
    by_pair = zip(rates[::2], rates[1::2], opened[::2], strict=True)
    pairs = [(first, second) if is_first else (second, first) for first, second, is_first in by_pair]
    yield compared(
        "page of a running study: throughput",
        "tx/s",
        pairs,
        "page closed",
        bound=1 - SHARE_MAX,
        sense="at least",
    )
    yield limited("page of a running study: CPU of its server", "% of a core", shares, 100 * CPU_SHARE_MAX)
    yield limited("page of a running study: CPU of an opening", "ms", openings_ms, OPENING_MS_MAX)


def _reading(address: str) -> subprocess.Popen[str]:
    parts = urlsplit(address)
    events = f"http://{parts.netloc}{parts.path}/events"
    found = subprocess.Popen(
        [sys.executable, "-c", READER, events], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert found.stdin and found.stdout
    with found.stdin as pipe:
        pipe.write(parse_qs(parts.query)["token"][0])
    assert found.stdout.readline() == "\n"  # the first event
    return found


def _end(reader: subprocess.Popen[str]) -> None:
    with reader:
        reader.kill()


def _cpu_s(of: psutil.Process) -> float:
    times = of.cpu_times()
    return times.user + times.system
