"""Progress display on a terminal during a study."""

import io
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from report_forms import only
from rich.console import Console
from synthetic_study import Synthetic, write_study

from example_studies import make_study
from pgdyno.analysis.comparison import Remedy, Verdict, VerdictForecast
from pgdyno.cli import live_view
from pgdyno.cli.live_view import LiveView, standing_lines, standing_text
from pgdyno.cli.report import read_report
from pgdyno.interruption import Interruption
from pgdyno.measure.drive import _share
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
)
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Block
from pgdyno.units import Better, Estimate, time_of_blocks


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> io.StringIO:
    written = io.StringIO()
    terminal = Console(file=written, width=width, height=30, force_terminal=True, color_system=None)
    monkeypatch.setattr(live_view, "err", terminal)
    return written


def without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("console", "live_view"):
        monkeypatch.setattr(f"pgdyno.cli.{module}.err", Console(stderr=True, width=200, force_terminal=False))


def play(view: LiveView) -> None:
    with view:
        for progress in (
            PreparationStep("restore 17"),
            Noted("smallest detectable effect: not known"),
            PreparationStep("downloading PostgreSQL 18 with npm", may_last=True),
            LoadProgress("tpcc of 4 warehouses for 17", "copy", 0.5),
            BlockStarted(0, None, 0.0, 240.0, "NOPM"),
            Running(0, "warm-up", 900.0, None, rate=580.0),
            Running(1, "measure", 1234.0, 0.0125, 0.25, rate=790.0),
            BlockEnded(0, (600.0, None)),
            InterimVerdicts(
                (ArmVerdict("18", "17", Verdict.UNDECIDED, None, 4),),
                30.0,
                ("smallest detectable effect: ±4%",),
            ),
            BlockStarted(1, 5, 30.0, 240.0, "NOPM", may_stop=True),
        ):
            view(progress)


def test_a_resumed_study_shows_its_earlier_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_terminal(monkeypatch, 80)
    view = LiveView(["17", "18"])
    kept = {(0, 0): 600.0, (0, 1): None, (1, 0): 500.0, (1, 1): 800.0, (2, 0): 999.0}
    view(BlockStarted(2, 5, 30.0, 240.0, "NOPM", kept=kept))
    assert re.findall(r" (\d) +(\d{3}) *$", drawn(view), re.M) == [("2", "550"), ("1", "800")]
    view(BlockEnded(2, (700.0, 700.0)))
    view(BlockStarted(3, 5, 60.0, 240.0, "NOPM", kept=kept))
    assert re.findall(r" (\d) +(\d{3}) *$", drawn(view), re.M) == [("3", "600"), ("2", "750")]


@pytest.mark.parametrize("width", [30, 80, 200])
def test_it_draws_itself_on_a_terminal_of_any_width(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    written = on_a_terminal(monkeypatch, width)
    play(LiveView(["17", "18,shared_buffers=2GB"]))
    assert "block 2 of about 5" in written.getvalue()
    assert "±4%" in written.getvalue() or width < 80
    lines = re.split(r"[\r\n]", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.getvalue()))
    assert max(map(len, lines)) <= width


def test_without_a_terminal_it_is_a_line_a_block(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_a_terminal(monkeypatch)
    play(LiveView(["17", "18"]))
    lines = capsys.readouterr().err.splitlines()
    assert [re.sub(r", [^,]* left$", "", line) for line in lines] == [
        "smallest detectable effect: not known",
        "downloading PostgreSQL 18 with npm",
        "loading tpcc of 4 warehouses for 17: copy",
        "block 1",
        "  17: 600 NOPM   18: not valid",
        "  18 vs. 17: no valid block yet",
        "  smallest detectable effect: ±4%",
        "block 2 of about 5",
    ]


def test_a_terminal_keeps_the_last_message_of_each_arm_and_a_log_has_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    messages = [Noted("cut 1: 5 lost", "17"), Noted("cut 1: 0 lost", "18"), Noted("cut 2: 7 lost", "17")]
    without_a_terminal(monkeypatch)
    log = LiveView((), heading="crash test")
    on_a_terminal(monkeypatch, 80)
    terminal = LiveView((), heading="crash test")
    for message in messages:
        log(message)
        terminal(message)
    assert drawn(terminal).splitlines()[-2:] == ["cut 2: 7 lost", "cut 1: 0 lost"]
    assert capsys.readouterr().err.splitlines() == [message.text for message in messages]


class Clock:
    """Clock of ``time.monotonic`` that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr("time.monotonic", lambda: self.now_s)


def drawn(view: LiveView, width: int = 80) -> str:
    """Return what the view shows now, with escape codes for styles."""
    terminal = Console(file=io.StringIO(), width=width, force_terminal=True, color_system="standard")
    terminal.print(view._draw())
    return cast(io.StringIO, terminal.file).getvalue()


def test_an_interim_result_that_is_wider_than_the_terminal_is_not_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_a_terminal(monkeypatch, 40)
    view = LiveView(["17", "18"])
    view(BlockStarted(0, None, 0.0, 240.0, "NOPM"))
    view(InterimVerdicts((standing(blocks_needed=13),), 30.0))
    shown = " ".join(drawn(view, 40).split())
    assert standing_text(standing(blocks_needed=13), 30.0).replace("\u00a0", " ") in shown.replace(
        "\u00a0", " "
    )


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (PreparationStep("restoring 17"), "restoring 17"),
        (LoadProgress("tpcc, 4 warehouses", "copy", 0.5), "loading tpcc, 4 warehouses: copy 50%"),
        (LoadProgress("tpcc, 4 warehouses", "initdb", 0.0), "loading tpcc, 4 warehouses: initdb"),
        (BlockEnded(0, (600.0, None)), "analyzing the blocks so far"),
        (Running(0, "warm-up", 900.0, None), "warming up 17"),
    ],
)
def test_an_activity_that_lasts_shows_its_duration(
    monkeypatch: pytest.MonkeyPatch, progress: Progress, text: str
) -> None:
    on_a_terminal(monkeypatch, 80)
    clock = Clock(monkeypatch)
    view = LiveView(["17", "18"])
    view(progress)
    clock.now_s += 4.9
    assert text in drawn(view) and f"{text}, " not in drawn(view)
    clock.now_s += 3.1
    report = "no report for " if isinstance(progress, Running) else ""
    assert f"{text}, {report}8 s" in drawn(view)
    view(replace(progress, share=0.75) if isinstance(progress, LoadProgress) else PreparationStep("next"))
    restarted = not isinstance(progress, LoadProgress)
    assert ("8 s" not in drawn(view)) is restarted


def test_the_rate_has_the_unit_of_the_results_and_is_dimmed_when_it_is_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_a_terminal(monkeypatch, 80)
    clock = Clock(monkeypatch)
    view = LiveView(["17", "18"])
    view(BlockStarted(0, None, 0.0, 240.0, "NOPM"))
    view(Running(0, "measure", 900.0, None, rate=580.0))
    clock.now_s += 4.0
    view(Running(1, "measure", 1234.0, 0.0125, rate=790.0))
    assert "NOPM now" in drawn(view) and "NOPM so far" in drawn(view) and "900" not in drawn(view)
    dim = "\x1b[2m"
    assert f"{dim}     580" not in drawn(view)
    clock.now_s += 1.0
    assert f"{dim}     580" in drawn(view) and f"{dim}     790" not in drawn(view)
    view(PreparationStep("checking 17 and 18"))
    assert f"{dim}     790" in drawn(view)


def test_a_log_has_a_line_after_a_minute_without_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_a_terminal(monkeypatch)
    clock = Clock(monkeypatch)
    view = LiveView(["17", "18"])
    view(PreparationStep("restoring 17 and 18"))
    for _ in range(13):
        clock.now_s += 10
        view.log_if_silent()
    assert capsys.readouterr().err.splitlines() == [
        "  restoring 17 and 18, 1 min",
        "  restoring 17 and 18, 2 min",
    ]


FAILING = Running(1, "measure", 0.0, None, 0.25, 5000.0, "23505")


def test_errors_are_shown_while_they_happen(monkeypatch: pytest.MonkeyPatch) -> None:
    written = on_a_terminal(monkeypatch, 100)
    with LiveView(["17", "18"]) as view:
        view(BlockStarted(0, None, 0.0, None, "tx/s"))
        view(FAILING)
    assert "measuring 18: 25%, 5,000 errors/s (SQLSTATE 23505)" in written.getvalue()


def test_without_a_terminal_an_arm_that_only_fails_has_a_line_a_block(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_a_terminal(monkeypatch)
    with LiveView(["17", "18"]) as view:
        for block in (0, 1):
            view(BlockStarted(block, None, 0.0, None, "tx/s"))
            for progress in (replace(FAILING, transactions_per_s=9.0), FAILING, FAILING):
                view(progress)
    line = "  18: no transaction succeeds, 5,000 errors/s (SQLSTATE 23505)"
    assert capsys.readouterr().err.splitlines() == ["block 1", line, "block 2", line]


def test_quiet_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    written = on_a_terminal(monkeypatch, 80)
    play(LiveView(["17", "18"], quiet=True))
    assert written.getvalue() == ""


def test_a_long_window_shows_its_progress_and_remaining_time(monkeypatch: pytest.MonkeyPatch) -> None:
    written = on_a_terminal(monkeypatch, 100)
    clock = Clock(monkeypatch)
    with LiveView(["10", "15"]) as view:
        view(BlockStarted(0, None, 0.0, None, "tx/s"))
        view(Running(1, "measure", 1234.0, 0.0125, 0.1))
        clock.now_s += 60.0
        view(Running(1, "measure", 1234.0, 0.0125, 0.3))
    # One fifth took a minute, and seven tenths remain.
    assert "measuring 15: 30%, 3 min 30 s left" in written.getvalue()


def test_a_requested_stop_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    written = on_a_terminal(monkeypatch, 100)
    interruption = Interruption()
    with LiveView(["10", "15"], interruption=interruption) as view:
        view(PreparationStep("check 15"))
        interruption.requested = True
    assert "stopping; press Ctrl-C again" in written.getvalue()


CHANGE = Estimate(4.2, "%", 6, Better.MORE, 0.9, 7.6)


def standing(verdict: Verdict = Verdict.UNDECIDED, change: Estimate = CHANGE, **more: Any) -> ArmVerdict:
    return ArmVerdict("18", "17", verdict, change, **{"blocks_needed": 4, **more})


FIRST = "18 vs. 17: +4.20% (95% CI [+0.90%, +7.60%]), "
PROBABILITY = "  probability of a verdict within the budget: "


@pytest.mark.parametrize(
    ("of", "block_s", "lines"),
    [
        (standing(Verdict.FASTER, blocks_needed=None), 30.0, [FIRST + "faster"]),
        (standing(), 30.0, [FIRST + "undecided, about 4 more blocks (2 min)"]),
        (standing(change=Estimate(1.04, "%", 1, Better.MORE)), None, ["18 vs. 17: +1.0%, no CI yet"]),
        (
            standing(change=replace(CHANGE, n=2)),
            30.0,
            ["18 vs. 17: +4.20% (provisional 95% CI [+0.90%, +7.60%], 2 blocks)"],
        ),
        (
            standing(Verdict.FASTER, is_provisional=True),
            30.0,
            ["18 vs. 17: +4.20% (provisional 95% CI [+0.90%, +7.60%], 6 blocks)"],
        ),
        *(
            (
                standing(forecast=forecast),
                30.0,
                [FIRST + "undecided, about 4 more blocks (2 min)", PROBABILITY + text],
            )
            for forecast, text in (
                (VerdictForecast(0.853), "85%"),
                (VerdictForecast(0.0, Remedy.DUET), "0%; likely with --schedule duet"),
                (VerdictForecast(0.35, Remedy.MINUTES, 12), "35%; likely with --minutes 12"),
                (VerdictForecast(0.02), "2%"),
            )
        ),
    ],
)
def test_after_a_block_the_interim_result_is_shown_with_the_probability_of_a_verdict(
    of: ArmVerdict, block_s: float | None, lines: list[str]
) -> None:
    assert [line.replace("\u00a0", " ") for line in standing_lines([of], block_s)] == lines


def test_the_report_estimates_the_time_left_as_the_progress_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first block copies all data and takes 40 times as long as the last one."""
    stored = Evidence.blocks

    def blocks(evidence: Evidence, case: int = 0) -> list[Block]:
        first, *others = stored(evidence, case)
        return [replace(first, ended_unix_s=first.started_unix_s + 1520.0), *others]

    monkeypatch.setattr(Evidence, "blocks", blocks)
    write_study(tmp_path / "e", Synthetic(effects=(1, 1), noise=0.08, seed=2))
    report = only(read_report(tmp_path / "e"))
    (comparison,), block_s = report.findings.comparisons, report.findings.block_s
    assert comparison.decision is not None and comparison.primary is not None and block_s == 38.0
    needed = comparison.decision.blocks_needed
    of = standing(change=comparison.primary.percent, blocks_needed=needed)
    left = time_of_blocks(needed or 0, 38.0)
    assert left and left in standing_text(of, block_s) and left in report.headlines[0].more


@pytest.mark.parametrize(
    ("is_trending", "may_trend", "verdict", "reason"),
    [
        (False, False, Verdict.FASTER, None),
        (False, True, Verdict.FASTER, "not final"),
        (False, True, Verdict.UNDECIDED, None),
        (True, True, Verdict.UNDECIDED, "no verdict yet"),
    ],
)
def test_an_effect_that_depends_on_the_warm_up_is_the_reason_why_a_study_continues(
    is_trending: bool, may_trend: bool, verdict: Verdict, reason: str | None
) -> None:
    of = standing(verdict, blocks_needed=None, is_trending=is_trending, may_trend=may_trend)
    reasons = standing_lines([of], 30.0)[1:]
    assert len(reasons) == (reason is not None)
    assert reason is None or (reason in reasons[0] and "length of the warm-up" in reasons[0])


@pytest.mark.parametrize(("measured_s", "share"), [(5.0, 0.5), (10.4, 1.0)])
def test_a_window_whose_slices_drain_late_is_shown_as_complete_at_most(
    measured_s: float, share: float
) -> None:
    study = make_study(rounds=20, slice_s=0.5)
    assert _share(study, cast(Any, SimpleNamespace(measured_s=measured_s))) == share


@pytest.mark.parametrize(
    ("size", "quiet", "shown"), [(8 << 20, False, True), (8 << 20, True, False), (1, False, False)]
)
def test_the_report_of_large_files_shows_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, quiet: bool, shown: bool
) -> None:
    written = on_a_terminal(monkeypatch, 80)
    with (tmp_path / "large.sqlite").open("wb") as file:
        file.truncate(size)
    with live_view.showing("reading large.sqlite", [tmp_path / "large.sqlite", tmp_path / "missing"], quiet):
        pass
    assert ("reading large.sqlite" in written.getvalue()) == shown
