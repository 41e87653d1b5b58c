"""CPU profiles: the output of perf, stacks, time per transaction, differences, and flame graphs."""

from __future__ import annotations

import contextlib
import os
import re
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import scipy
from pydantic import TypeAdapter
from synthetic_study import Synthetic, arms_of, write_study

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.study_findings import find_study
from pgdyno.analysis.telemetry.trial_telemetry import CpuProfile, profile_of
from pgdyno.features.profiles import perf as profiler
from pgdyno.features.profiles import section as words
from pgdyno.features.profiles.findings import FUNCTIONS_MAX, ProfileComparison, compare_profiles, frames_of
from pgdyno.features.profiles.perf import (
    DEPTH_MAX,
    HZ_MAX,
    SAMPLES_MAX,
    STACKS_MAX,
    ProbeError,
    Profiler,
    hz_for,
    reason_of,
    rows_of,
    stacks_of,
)
from pgdyno.features.profiles.section import NARROWEST, WIDTH, flames
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Trial
from pgdyno.server.directories import server_account
from pgdyno.server.processes import Runs

SCRIPT = """postgres
\t          55a1c3 pg_comp_crc32c
\t          55a100 XLogInsert
\t               0 [unknown]
\t          55a0ff main

postgres
\t    ffffffff81 copy_user
\t          55a0ff main

postgres
\t            7f00 [unknown]

postgres
\t          55a1c3 pg_comp_crc32c
\t          55a100 XLogInsert
\t          55a0ff main
"""


def test_a_sample_is_a_stack_from_the_outermost_function_to_the_innermost() -> None:
    assert stacks_of(SCRIPT.splitlines()) == {
        ("main", "XLogInsert", "pg_comp_crc32c"): 2,
        ("main", "copy_user"): 1,
        ("[unknown]",): 1,
    }
    assert not stacks_of([])
    (deep,) = stacks_of(["postgres", *(f"\t {i:x} f{i}" for i in range(500)), ""])
    assert (len(deep), deep[-1]) == (DEPTH_MAX, "f0")


def test_rare_stacks_are_reduced_to_their_innermost_function() -> None:
    stacks = Counter({("main", f"f{i}", "leaf"): 2 for i in range(STACKS_MAX)})
    stacks |= Counter({("main", "rare", f"leaf{i % 2}"): 1 for i in range(2)})
    rows = rows_of(stacks, 99)
    assert rows[0] == {"event": "cpu-clock", "hz": 99, "samples": 2 * STACKS_MAX + 2}
    assert sum(int(row["n"] or 0) for row in rows[1:]) == 2 * STACKS_MAX + 2
    assert rows[-2:] == [{"stack": "leaf0", "n": 1}, {"stack": "leaf1", "n": 1}]


def test_long_windows_have_a_lower_sampling_rate() -> None:
    assert hz_for(10, 2) == HZ_MAX
    assert hz_for(86_400, 2) == 2
    assert hz_for(1e9, 64) == 1
    assert hz_for(3600, 2) * 3600 * 2 <= SAMPLES_MAX


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        (
            "Error:\nAccess to performance monitoring … perf_event_paranoid setting",
            "kernel.perf_event_paranoid",
        ),
        ("couldn't open: Permission denied", "not permitted"),
        ("unknown option", "perf failed: unknown option"),
        ("", "no error message"),
    ],
)
def test_the_reason_of_a_failure_of_perf_names_the_obstacle(errors: str, words: str) -> None:
    assert words in reason_of(errors)


PARANOID = "#!/bin/sh\necho 'see perf_event_paranoid' >&2\nexit 255\n"


@pytest.mark.parametrize(("perf", "reason"), [("", "perf is not installed"), (PARANOID, "not permitted")])
def test_a_perf_that_cannot_start_is_an_error_and_leaves_no_run_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, perf: str, reason: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep if perf else None)
    if perf:
        (tmp_path / "perf").write_text(perf)
        (tmp_path / "perf").chmod(0o755)
    runs = tmp_path / "runs"
    runs.mkdir()
    with pytest.raises(ProbeError, match=reason):
        Profiler.start(os.getpid(), 99, Runs(runs, server_account()))
    assert not list(runs.glob("run-*"))


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Counter[tuple[str, ...]]]:
    """Return the stacks that a perf with these commands of the shell prints."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def stacks(commands: str) -> Counter[tuple[str, ...]]:
        (tmp_path / "perf").write_text(f"#!/bin/sh\n{commands}\n")
        (tmp_path / "perf").chmod(0o755)
        return Profiler(Mock(), Mock(), Mock(), tmp_path, 99, contextlib.ExitStack())._stacks()

    return stacks


def test_stacks_are_counted_while_they_are_printed(
    script: Callable[[str], Counter[tuple[str, ...]]], tmp_path: Path
) -> None:
    times = 10_000
    output = times * f"{SCRIPT}\n"
    (tmp_path / "output").write_text(output)
    tracemalloc.start()
    try:
        found = script(f"cat {tmp_path}/output >&2\ncat {tmp_path}/output")
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == {stack: times * n for stack, n in stacks_of(SCRIPT.splitlines()).items()}
    assert peak_bytes < len(output) / 4


@pytest.mark.parametrize(
    ("commands", "limit_s", "reason"),
    [
        ("echo postgres\necho 'Permission denied' >&2\nexit 1", 60.0, "not permitted"),
        ("kill -9 $$", 60.0, "no error message"),
        ("exec sleep 3600", 0.01, "perf script timed out after 0.01 s"),
    ],
)
def test_a_perf_script_that_fails_is_an_error(
    script: Callable[[str], Counter[tuple[str, ...]]],
    monkeypatch: pytest.MonkeyPatch,
    commands: str,
    limit_s: float,
    reason: str,
) -> None:
    monkeypatch.setattr(profiler, "COUNT_S", limit_s)
    with pytest.raises(ProbeError, match=reason):
        script(commands)


ROWS = rows_of(Counter({("main", "a"): 30, ("main", "b"): 10, ("b",): 10}), 100)


def test_time_is_per_transaction_and_own_time_excludes_callees() -> None:
    found = profile_of(ROWS, 1000)
    # 30 samples at 100 per second are 300 ms, that is, 300 µs for each of 1000 transactions.
    assert found.us_per_tx == pytest.approx({("main", "a"): 300, ("main", "b"): 100, ("b",): 100})
    assert found.own == pytest.approx({"a": 300, "b": 200})
    assert found.samples == 50
    for rows, transactions in (([], 5), (ROWS, None), (ROWS, 0), ([{"event": "x"}], 5)):
        assert profile_of(rows, transactions) is None


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    path = tmp_path_factory.mktemp("evidence") / "e"
    write_study(path, Synthetic(blocks=6, slices=2))
    with Evidence(path) as evidence:
        return find_study(evidence).first


def profiles(trials: list[Trial], changed: float) -> dict[int, CpuProfile | None]:
    """``crc`` takes ``changed`` µs more in the arm, ``parse`` differs by noise, and ``gone`` is only in the
    baseline.
    """
    rng = np.random.default_rng(2)
    found: dict[int, CpuProfile | None] = {}
    for trial in trials:
        crc = 50.0 + (changed if trial.arm else 0.0) + rng.normal(0, 1)
        stacks = {("main", "crc"): crc, ("main", "parse"): 20 + rng.normal(0, 3)}
        stacks |= {} if trial.arm else {("main", "gone"): 5.0}
        found[trial.trial] = CpuProfile(stacks, 1000, 99)
    return found


def compared(
    findings: Findings, given: dict[int, CpuProfile | None] | None = None, trials: Sequence[Trial] = ()
) -> ProfileComparison:
    """Return the comparison of given profiles, or of those in which ``crc`` takes 10 µs more."""
    trials = list(trials or findings.trials)
    given = profiles(trials, 10.0) if given is None else given
    (found,) = compare_profiles(arms_of(Synthetic()), trials, given, 0.95)
    return found


def test_a_function_that_takes_longer_has_an_interval_above_zero(findings: Findings) -> None:
    found = compared(findings)
    by_name = {change.name: change for change in found.functions}
    assert list(by_name) == ["crc", "parse", "gone"]
    (low, high), (parse_low, parse_high) = (
        (of.change.low or 0.0, of.change.high or 0.0) for of in (by_name["crc"], by_name["parse"])
    )
    assert 5 < low < 10 < high < 15 and parse_low < 0 < parse_high
    assert (by_name["gone"].baseline_us, by_name["gone"].arm_us) == (pytest.approx(5.0), 0.0)
    assert (found.blocks, found.samples) == ([0, 1, 2, 3, 4, 5], (6000, 6000))


def test_the_sampled_share_of_the_cpu_time_is_computed_and_reported(findings: Findings) -> None:
    trials = [replace(trial, server_cpu_s=11.0 if trial.arm else 10.5) for trial in findings.trials]
    given = profiles(trials, 10.0)  # each has 1000 samples at 99 per second: 10.1 s
    given[trials[0].trial] = None
    found = compared(findings, given, trials)
    assert len(found.blocks) == 5  # those with both profiles
    assert found.covered == (pytest.approx(1000 / 99 / 10.5), pytest.approx(1000 / 99 / 11))
    uncounted = [replace(trial, server_cpu_s=None) for trial in trials]
    assert compared(findings, given, uncounted).covered == (None, None)
    assert not compare_profiles(arms_of(Synthetic()), trials, {}, 0.95)


def test_the_interval_is_students_t_over_the_blocks(findings: Findings) -> None:
    given = profiles(list(findings.trials), 10.0)
    crc_us = {(of.block, of.arm): found.own["crc"] for of in findings.trials if (found := given[of.trial])}
    d = [crc_us[block, 1] - crc_us[block, 0] for block in range(6)]
    crc = compared(findings).functions[0].change
    low, high = scipy.stats.t.interval(crc.confidence, 5, np.mean(d), scipy.stats.sem(d))
    assert (crc.low, crc.high) == (pytest.approx(low), pytest.approx(high))
    assert crc.confidence > 0.95  # Holm's correction over three functions


def test_the_functions_with_the_most_time_are_reported(findings: Findings) -> None:
    stacks = {("main", f"f{i:03}"): float(i) for i in range(100)}
    given: dict[int, CpuProfile | None] = {t.trial: CpuProfile(stacks, 1, 99) for t in findings.trials}
    names = [change.name for change in compared(findings, given).functions]
    assert names == [f"f{99 - i:03}" for i in range(FUNCTIONS_MAX)]


def test_frames_contain_their_callees_and_add_up(findings: Findings) -> None:
    root = compared(findings).frames
    (main,) = root.within
    assert (main.name, [frame.name for frame in main.within]) == ("main", ["crc", "gone", "parse"])
    assert main.mean_us == pytest.approx(sum(frame.mean_us for frame in main.within))
    assert main.change_us == pytest.approx(root.change_us)
    assert main.within[1].arm_us == 0
    assert [frame.differs for frame in main.within] == [True, True, False]


def test_frames_of_identical_arms_rarely_differ(findings: Findings) -> None:
    rng, alarms, studies = np.random.default_rng(4), 0, 200
    for _ in range(studies):
        pairs = [tuple(_noisy(rng) for _ in range(2)) for _ in range(6)]
        root = frames_of(pairs, 0.95)  # type: ignore[arg-type]
        alarms += any(frame.differs for frame in (root, *root.within))
    assert alarms <= scipy.stats.binom.ppf(0.999, studies, 0.05)


def _noisy(rng: np.random.Generator) -> CpuProfile:
    return CpuProfile({(f"f{i}",): 10 + rng.normal(0, 1) for i in range(20)}, 1, 99)


def test_few_blocks_give_no_significant_frame_and_small_frames_are_omitted() -> None:
    pair = (
        CpuProfile({("a",): 100.0, ("b", "c"): 0.01}, 1, 99),
        CpuProfile({("a",): 200.0, ("b", "c"): 0.02}, 1, 99),
    )
    root = frames_of([pair] * 4, 0.95)
    assert [frame.name for frame in root.within] == ["a"]
    assert (root.baseline_us, root.arm_us) == (pytest.approx(100.01), pytest.approx(200.02))
    assert not root.differs
    assert frames_of([pair] * 5, 0.95).differs


def test_a_flame_graph_has_times_and_classes_of_changes(findings: Findings) -> None:
    (panel,) = flames([compared(findings)])
    picture = str(panel.picture)
    assert re.search(r"<title>crc: 5\d(\.\d)? → 6\d(\.\d)? µs per transaction", picture)
    drawn = r'<title>(crc|gone|parse)[^"]*"frame"[^>]*></rect><rect class="(\w+)"'
    assert dict(re.findall(drawn, picture)) == {"crc": "grew", "gone": "shrank", "parse": "even"}
    widths = [float(width) for width in re.findall(r'class="frame"[^>]* width="([\d.]+)"', picture)]
    assert max(widths) == WIDTH
    assert min(widths) >= NARROWEST
    assert "<script" not in picture


def test_names_of_functions_are_escaped(findings: Findings) -> None:
    given: dict[int, CpuProfile | None] = {
        t.trial: CpuProfile({("operator<<", "<b>&"): 5.0}, 1, 99) for t in findings.trials
    }
    (panel,) = flames([compared(findings, given)])
    assert "<b>" not in str(panel.picture)


def test_the_table_and_json_have_every_function(findings: Findings) -> None:
    found = compared(findings)
    table = words.cpu_by_function(findings, [found])
    assert [row[0] for row in table.rows] == ["crc", "parse", "gone"]
    assert "[" in table.rows[0][-1]
    document = TypeAdapter(ProfileComparison).dump_python(found)
    assert (document["arm"], document["functions"][0]["name"]) == ("18", "crc")
    assert document["functions"][0]["change"]["low"] > 5 and "frames" not in document
    assert not words.cpu_by_function(findings, []).rows
    assert table.columns == ("function", "17, µs/tx", "18, µs/tx", "change, µs/tx")
    both = words.cpu_by_function(findings, [found, found])
    assert both.columns[:2] == ("function", "arm") and {row[1] for row in both.rows} == {"18"}
