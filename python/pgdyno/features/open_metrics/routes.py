"""Metrics of running studies for monitoring systems, in the OpenMetrics text format, version 1.0.

A study has values while it runs. Afterwards only its state remains, for as long as the server runs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pgdyno.analysis.comparison import Verdict
from pgdyno.errors import EvidenceError
from pgdyno.features.serve.index import Index
from pgdyno.features.serve.live import Follower, Standing, Update, query
from pgdyno.features.serve.studies import Studies
from pgdyno.report.visible_text import visible
from pgdyno.results.results_file import open_for_reading, translated
from pgdyno.study.plan import VERDICT_BLOCKS_MIN
from pgdyno.units import NS_PER_S

TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
RUNS = ("running", "stopping")
STATES = ("waiting", *RUNS, "stopped", "ended")
QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True)
class Latest:
    """Values of the last interval of an arm. ``latencies_s``: by quantile, None without a transaction."""

    arm: str
    tps: float
    latencies_s: Sequence[float | None]


@dataclass
class Study:
    """A study that runs, or ran while the server did. ``latest``: empty unless it runs."""

    file: str
    follower: Follower
    update: Update
    standings: Sequence[Standing] = ()
    latest: Sequence[Latest] = ()

    def read(self) -> None:
        """Read what is new."""
        update = self.follower.update()
        if update is None:
            return
        self.update, self.latest = update, ()
        if update.standings is not None:
            self.standings = update.standings
        if update.state in RUNS:
            with suppress(EvidenceError, OSError):
                self.latest = list(_latest(self.follower.path))


def _latest(path: Path) -> Iterator[Latest]:
    with translated(path), closing(open_for_reading(path, verify=False)) as connection:
        for arm, tps, *latencies_ns, _ in connection.execute(query("latest")):
            yield Latest(arm, tps, [None if ns is None else ns / NS_PER_S for ns in latencies_ns])


FAMILIES = {
    "study_state": ("stateset", "", "State of the study."),
    "blocks_done": ("gauge", "", "Finished blocks of all cases."),
    "blocks_expected": ("gauge", "", "Blocks of all cases within the budget."),
    "throughput_tx_per_second": ("gauge", "tx_per_second", "Throughput of the last interval of an arm."),
    "latency_seconds": ("gauge", "seconds", "Latency quantile of the last interval of an arm."),
    "effect_blocks": ("gauge", "", "Blocks of the comparison."),
    "effect_ratio": ("gauge", "ratio", "Change vs. the baseline as a share: 0.05 is +5%."),
    "effect_low_ratio": ("gauge", "ratio", "Lower end of the interval of the change."),
    "effect_high_ratio": ("gauge", "ratio", "Upper end of the interval of the change."),
    "verdict": ("stateset", "", "Verdict of the comparison so far."),
}
"""Metrics by name without the prefix: type, unit, help."""


def _values(of: Study) -> Iterator[tuple[str, dict[str, str], float | None]]:
    """Yield metrics of a study: name, labels, value; None if there is none yet."""
    for one in STATES:
        yield "study_state", {"pgdyno_study_state": one}, one == of.update.state
    if of.update.state not in RUNS:
        return
    yield "blocks_done", {}, of.update.blocks_done
    yield "blocks_expected", {}, of.update.blocks_expected
    for last in of.latest:
        known = {"case": of.update.case, "arm": last.arm}
        yield "throughput_tx_per_second", known, last.tps
        for quantile, latency_s in zip(QUANTILES, last.latencies_s, strict=True):
            yield "latency_seconds", {**known, "quantile": str(quantile)}, latency_s
    for pair in of.standings:
        known = {"case": pair.case, "arm": pair.arm, "baseline": pair.baseline}
        yield "effect_blocks", known, pair.blocks
        for one in Verdict:
            yield "verdict", {**known, "pgdyno_verdict": one}, one == pair.verdict
        if pair.history:
            n, *percents = pair.history[-1]
            shown = percents if n >= VERDICT_BLOCKS_MIN else percents[:1]  # as in reports
            for name, percent in zip(
                ("effect_ratio", "effect_low_ratio", "effect_high_ratio"), shown, strict=False
            ):
                yield name, known, None if percent is None else percent / 100


def text_of(studies: Sequence[Study]) -> str:
    """Return the metrics in the OpenMetrics text format."""
    samples: dict[str, list[str]] = {name: [] for name in FAMILIES}
    for of in studies:
        for name, labels, value in _values(of):
            if value is not None:
                named = {"file": of.file, "study": of.update.title, **labels}
                text = ",".join(f'{label}="{_escaped(value)}"' for label, value in named.items())
                samples[name].append(f"pgdyno_{name}{{{text}}} {float(value):.10g}")
    lines = []
    for name, (kind, unit, help_text) in FAMILIES.items():
        lines.append(f"# TYPE pgdyno_{name} {kind}")
        lines += [f"# UNIT pgdyno_{name} {unit}"] * bool(unit)
        lines += [f"# HELP pgdyno_{name} {help_text}", *samples[name]]
    return "\n".join([*lines, "# EOF", ""])


def _escaped(text: str) -> str:
    """Return the value of a label. Hidden characters are shown, as on the pages."""
    return visible(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Metrics:
    """The page of metrics. It may be asked for from any thread."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._lock = threading.Lock()
        self._studies: dict[Path, Study] = {}

    def page(self, _: Request) -> Response:
        """Return the metrics of all studies that run, or have run since the first request."""
        with self._lock:
            before, self._studies = self._studies, {}
            for entry in self._index.entries():
                if entry.path in before:
                    self._studies[entry.path] = before[entry.path]
                elif entry.state == "running":
                    self._studies[entry.path] = Study(entry.name, Follower(entry.path), Update("waiting"))
            for study in self._studies.values():
                study.read()
            return Response(text_of(list(self._studies.values())), headers={"content-type": TYPE})


def metrics(index: Index, _: Studies) -> list[Route]:
    """Return the route of the metrics."""
    return [Route("/metrics", Metrics(index).page, methods=["GET"])]
