"""Live view of a study on standard error: block, arm, current rate, remaining time.

On a terminal it is redrawn in place; otherwise it prints a few lines per block, for logs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from rich.console import RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pgdyno.analysis.comparison import Remedy, Verdict, VerdictForecast
from pgdyno.cli.console import err, say
from pgdyno.interruption import Interruption
from pgdyno.measure.progress import (
    ArmVerdict,
    BlockEnded,
    BlockStarted,
    InterimVerdicts,
    LoadProgress,
    Noted,
    PreparationStep,
    Progress,
    Running,
    Warned,
)
from pgdyno.study.plan import VERDICT_BLOCKS_MIN
from pgdyno.units import ci_text, counted, format_duration, number_text, percent_text, time_of_blocks

SPARKS = "▁▂▃▄▅▆▇█"
SPARK_POINTS = 24
SPARK_POINTS_MIN = 6
WIDTH_MAX = 100
"""Maximum width of the view; wider tables are hard to read."""
WATCHED_S_MIN = 10.0
"""Observation time before the remaining time of a window is estimated."""
SILENT_S = 5.0
"""Time after which a step shows its duration, and rates are dimmed."""
LOG_SILENT_S = 60.0
"""Time after which a log has a line although nothing happened. Some pipelines end jobs that are silent."""
LARGE_BYTES = 8 << 20
"""Minimum size of results files whose report shows its steps. With 40 MB it took 8 s on two busy cores."""
FIGURES_WIDTH = 1 + 8 + 7 + 6 + 13 + 6 * 2
"""Width of the table of arms without names and sparklines: five columns, and the gaps between all seven."""


class LiveView:
    """View of a running study. A context manager; call it with each Progress."""

    def __init__(
        self,
        arm_names: Sequence[str],
        quiet: bool = False,
        interruption: Interruption | None = None,
        heading: str = "preparing",
    ) -> None:
        self._names, self._heading, self._step = arm_names, heading, "preparing"
        self._interruption, self._quiet = interruption, quiet
        # Times of the step or the last report, of the last line, of the block.
        self._begun_s = self._said_s = self._block_begun_s = time.monotonic()
        self._ended = threading.Event()
        self._load: LoadProgress | None = None
        self._block: BlockStarted | None = None
        self._rates: list[list[float]] = [[] for _ in arm_names]
        self._p99_s: list[float | None] = [None for _ in arm_names]
        self._seen_s = [0.0 for _ in arm_names]  # times of the last reports
        self._running: int | None = None
        self._role = ""
        self._share: float | None = None  # completed share of the running arm's window
        self._errors = ""  # those of the running arm's last interval as text
        self._failing: set[int] = set()  # arms of the block with a line about their errors
        # Start of the observation, and the share completed then.
        self._since_s, self._since_share = time.monotonic(), 0.0
        self._results: list[list[float]] = [[] for _ in arm_names]
        self._results_of: dict[str, list[list[float]]] = {}  # by case
        self._standings: dict[str, list[str]] = {}  # texts by case
        self._loaded: set[tuple[str, str]] = set()
        self._last: dict[str, str] = {}  # messages of which the last remains
        # Last, as the constructor of rich draws once.
        live = Live(console=err, get_renderable=self._draw, refresh_per_second=4, transient=True)
        self._live = live if err.is_terminal and not quiet else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        elif not self._quiet:
            threading.Thread(target=self._break_silence, name="pgdyno-log", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._live:
            self._live.stop()

    def _break_silence(self) -> None:
        while not self._ended.wait(LOG_SILENT_S / 4):
            self.log_if_silent()

    def log_if_silent(self) -> None:
        """Print the current activity if the last line is LOG_SILENT_S old."""
        if time.monotonic() - self._said_s >= LOG_SILENT_S:
            self._log(f"  {self._activity()}")

    def _log(self, text: str) -> None:
        say(text, wrap=True)
        self._said_s = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        """Record the progress, and redraw the view or print a line."""
        begun = self._load and (self._load.dataset, self._load.phase)
        if not (isinstance(progress, LoadProgress) and begun == (progress.dataset, progress.phase)):
            self._begun_s = time.monotonic()
        match progress:
            case PreparationStep(text):
                self._step, self._load, self._running = text, None, None
            case LoadProgress():
                self._load = progress
            case BlockStarted():
                self._switch_case(progress)
            case Running():
                self._note_rate(progress)
            case BlockEnded():
                for results, rate in zip(self._results, progress.rates, strict=True):
                    results.extend([] if rate is None else [rate])
                self._step, self._running = "analyzing the blocks so far", None
            case InterimVerdicts(standings, block_s, notes):
                lines = [*standing_lines(standings, block_s), *notes]
                self._standings[self._block.case if self._block else ""] = lines
            case Warned(text):
                say(f"! {text}", wrap=True)
            case Noted(text, of) if of and self._live:
                self._last[of] = text
            case Noted(text) if not self._quiet:
                say(text, wrap=True)
        if not self._live and not self._quiet:
            self._write_line(progress)

    def _switch_case(self, began: BlockStarted) -> None:
        """Show the arms of the case whose block starts, with the results of its earlier blocks."""
        if self._block is None or began.case != self._block.case:
            names = began.arms or self._names
            self._names, self._rates = names, [[] for _ in names]
            self._p99_s, self._seen_s = [None for _ in names], [0.0 for _ in names]
            self._running = None
            kept: list[list[float]] = [[] for _ in names]
            for (block, arm), rate in sorted(began.kept.items()):
                if block < began.block and rate is not None:
                    kept[arm].append(rate)
            self._results = self._results_of.setdefault(began.case, kept)
        self._block, self._block_begun_s = began, time.monotonic()
        self._failing.clear()

    def _note_rate(self, running: Running) -> None:
        self._load = None
        if (self._running, self._role) != (running.arm, running.role):
            self._since_s, self._since_share = time.monotonic(), running.share or 0.0
        self._running, self._role, self._share = running.arm, running.role, running.share
        self._errors = errors_text(running)
        self._rates[running.arm] = [*self._rates[running.arm], running.rate][-SPARK_POINTS:]
        self._p99_s[running.arm], self._seen_s[running.arm] = running.latency_p99_s, time.monotonic()

    def _write_line(self, progress: Progress) -> None:
        match progress:
            case PreparationStep(text, may_last=True):
                self._log(text)
            case LoadProgress(dataset, phase) if (dataset, phase) not in self._loaded:
                self._loaded.add((dataset, phase))
                self._log(f"loading {dataset}: {phase}")
            case BlockStarted():
                self._log(self._headline())
            case Running(arm, transactions_per_s=0.0) if self._errors and arm not in self._failing:
                self._failing.add(arm)
                self._log(f"  {self._names[arm]}: no transaction succeeds, {self._errors}")
            case BlockEnded(_, rates):
                known = ["not valid" if of is None else f"{number_text(of)} {self._unit}" for of in rates]
                self._log("  " + "   ".join(map(": ".join, zip(self._names, known, strict=True))))
            case InterimVerdicts():
                for line in self._standings[self._block.case if self._block else ""]:
                    self._log(f"  {line}")
            case _:
                pass

    @property
    def _unit(self) -> str:
        return self._block.unit if self._block else ""

    def _headline(self) -> str:
        block = self._block
        if block is None:
            return self._heading
        of = f" of about {block.blocks_expected}" if block.blocks_expected else ""
        left = ""
        if block.total_s is not None:
            elapsed_s = block.elapsed_s + time.monotonic() - self._block_begun_s
            most = "at most " if block.may_stop else ""
            left = f", {most}{format_duration(round(max(0.0, block.total_s - elapsed_s)))} left"
        case = f"{block.case}: " if block.case else ""
        return f"{case}block {block.block + 1}{of}{left}"

    def _draw(self) -> RenderableType:
        """Draw the same number of lines each time, so that the view does not jump."""
        width = min(err.width, WIDTH_MAX)
        rows = Table.grid()
        rows.add_row(Text(self._headline(), style="bold"))
        block, load = self._block, self._load
        if block:
            elapsed_s = block.elapsed_s + time.monotonic() - self._block_begun_s
            rows.add_row(ProgressBar(total=block.total_s, completed=elapsed_s, width=width - 2))
        rows.add_row(Text(self._activity(), style="dim"))
        if load:
            rows.add_row(ProgressBar(total=1.0, completed=load.share, width=width - 2))
        for text in self._last.values():
            rows.add_row(Text(text))
        if block:
            rows.add_row(self._draw_arms(width))
            for standing in self._standings.get(block.case, ()):
                rows.add_row(Text(standing))
        return rows

    def _activity(self) -> str:
        """Return the current step as text."""
        if self._interruption and self._interruption.requested:
            return "stopping; press Ctrl-C again to abort"
        silent_s = time.monotonic() - self._begun_s
        lasted = f", {format_duration(int(silent_s))}" if silent_s >= SILENT_S else ""
        if self._load:
            done = f" {percent_text(self._load.share, 0)}" if self._load.share else ""
            return f"loading {self._load.dataset}: {self._load.phase}{done}{lasted}"
        if self._running is None:
            return f"{self._step}{lasted}"
        doing = f"{'measuring' if self._role == 'measure' else 'warming up'} {self._names[self._running]}"
        if self._share is not None:
            doing += f": {percent_text(self._share, 0)}{self._window_left()}"
        if lasted:
            doing += f", no report for {format_duration(int(silent_s))}"
        return f"{doing}, {self._errors}" if self._errors else doing

    def _window_left(self) -> str:
        """Return the remaining time of a long window as text."""
        watched_s, came = time.monotonic() - self._since_s, (self._share or 0.0) - self._since_share
        if watched_s < WATCHED_S_MIN or came <= 0:
            return ""
        left_s = watched_s * (1 - self._since_share - came) / came
        return f", {format_duration(round(max(0.0, left_s)))} left"

    def _draw_arms(self, width: int) -> Table:
        name_width = min(
            max(map(len, ("arm", *self._names))), max(8, width - FIGURES_WIDTH - SPARK_POINTS_MIN)
        )
        sparks = max(0, min(SPARK_POINTS, width - FIGURES_WIDTH - name_width))
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
        table.add_column("", width=1)
        table.add_column("arm", width=name_width, no_wrap=True, overflow="ellipsis")
        unit = self._unit.partition(" ")[0]
        table.add_column(f"{unit} now", width=8, justify="right")
        table.add_column("p99", width=7, justify="right")
        table.add_column("", width=sparks, no_wrap=True)
        table.add_column("blocks", width=6, justify="right")
        table.add_column(f"{unit} so far", width=13, justify="right")
        for index, name in enumerate(self._names):
            active = index == self._running
            rates, results, p99_s = self._rates[index], self._results[index], self._p99_s[index]
            is_stale = self._running is None or time.monotonic() - self._seen_s[index] >= SILENT_S
            now = "dim" if is_stale else ""
            table.add_row(
                "▶" if active else " ",
                Text(name, style="bold" if active else ""),
                Text(number_text(rates[-1]) if rates else "", style=now),
                Text(format_duration(p99_s) if p99_s else "", style=now),
                Text(_sparkline(rates[-sparks:] if sparks else []), style=f"{now} cyan"),
                str(len(results)),
                number_text(sum(results) / len(results)) if results else "",
            )
        return table


@contextmanager
def showing(step: str, files: Sequence[Path], quiet: bool = False) -> Iterator[None]:
    """Show a step outside of a study if its files are large, so that it lasts."""
    is_large = sum(file.stat().st_size for file in files if file.is_file()) >= LARGE_BYTES
    with LiveView((), quiet or not is_large, heading="report") as view:
        view(PreparationStep(step))
        yield


def errors_text(running: Running) -> str:
    """Return ``12,345 errors/s (SQLSTATE 23505)``; empty without errors."""
    if not running.errors_per_s:
        return ""
    code = f" (SQLSTATE {running.sqlstate})" if running.sqlstate else ""
    return f"{number_text(running.errors_per_s)} errors/s{code}"


def standing_text(standing: ArmVerdict, block_s: float | None) -> str:
    """Return ``18 vs. 17: +4.2% (95% CI [+0.9%, +7.6%]), faster``, with the blocks needed if undecided."""
    change, needed = standing.change, standing.blocks_needed
    of = f"{standing.arm} vs. {standing.baseline}"
    if change is None:
        return f"{of}: no valid block yet"
    if change.low is None:
        from pgdyno.report.result_tables import change_text  # noqa: PLC0415

        return f"{of}: {change_text(change, '%')}, no CI yet"
    interval = f"{ci_text(change.confidence)} {change.signed_interval_text}"
    if standing.is_provisional or change.n < VERDICT_BLOCKS_MIN:
        return f"{of}: {change.signed_text} (provisional {interval}, {counted(change.n, 'block')})"
    text = f"{of}: {change.signed_text} ({interval}), {standing.verdict}"
    more = "" if needed is None else counted(needed, "more block") + time_of_blocks(needed, block_s)
    return f"{text}, about {more}" if more else text


def forecast_text(forecast: VerdictForecast) -> str:
    """Return ``probability of a verdict within the budget: 35%; likely with --minutes 12``."""
    text = f"probability of a verdict within the budget: {percent_text(forecast.probability, 0)}"
    match forecast.remedy:
        case Remedy.DUET:
            return f"{text}; likely with --schedule duet"
        case Remedy.MINUTES:
            return f"{text}; likely with --minutes {forecast.minutes}"
        case None:
            return text


def standing_lines(standings: Sequence[ArmVerdict], block_s: float | None) -> list[str]:
    """Return the state of each arm, each followed by its forecast or the reason why its study continues."""
    lines = []
    for standing in standings:
        lines.append(standing_text(standing, block_s))
        if standing.forecast is not None:
            lines.append(f"  {forecast_text(standing.forecast)}")
        if standing.is_trending:
            lines.append("  no verdict yet: the effect depends on the length of the warm-up")
        elif standing.may_trend and standing.verdict is not Verdict.UNDECIDED:
            lines.append("  not final: the effect may depend on the length of the warm-up")
    return lines


def _sparkline(rates: Sequence[float]) -> str:
    top = max(rates, default=0.0)
    return "".join(SPARKS[min(7, int(rate / top * 7.99))] if top > 0 else SPARKS[0] for rate in rates)
