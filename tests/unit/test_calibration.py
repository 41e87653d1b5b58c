"""Calibration: its runs, its estimates, and the recommended slice length."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
from example_calibration import calibration as entry
from synthetic_study import Synthetic, arms_of, study_of, write_block

from example_studies import make_study
from pgdyno.analysis.comparison.calibration import (
    Calibration,
    CalibrationResult,
    as_values,
    calibration_of,
    find_calibration,
    minutes_for,
)
from pgdyno.analysis.comparison.measurement_noise import Alarms
from pgdyno.analysis.statistics.sequential import sequential_critical_value
from pgdyno.cli import calibrate
from pgdyno.cli.calibrate import _minutes, _sentences, slice_from_option
from pgdyno.cli.compare import command_of, describe_sizes
from pgdyno.errors import UsageError
from pgdyno.lab.noise_history import NoiseHistory, history_path
from pgdyno.results.reader import Evidence
from pgdyno.results.records import StudyEnd
from pgdyno.results.writer import Writer
from pgdyno.server.cache_directory import Cache
from pgdyno.study.calibration_study import calibration_cases, schedules_here
from pgdyno.study.pgbench_parameters import PgbenchParameters

RNG_SEED = 20261122
STUDIES = 400


def simulated(
    sd_unit: float, sd_restart: float, blocks: int, per_block: int, slice_s: float = 1.0, seed: int = RNG_SEED
) -> CalibrationResult:
    rng = np.random.default_rng(seed)
    units = [list(rng.normal(0, sd_restart) + rng.normal(0, sd_unit, per_block)) for _ in range(blocks)]
    return CalibrationResult("slices", slice_s, units, 4 * slice_s, 20.0, 0.1)


def test_the_spreads_within_and_between_blocks_are_found_again() -> None:
    """Both within their chi-squared limits of one in a thousand."""
    sd_unit, sd_restart, blocks, per_block = 0.05, 0.02, 400, 8
    one = simulated(sd_unit, sd_restart, blocks, per_block)
    found = calibration_of([one])
    free = blocks * (per_block - 1)
    low, high = (math.sqrt(scipy.stats.chi2.ppf(p, free) / free) for p in (0.0005, 0.9995))
    assert one.sd_unit is not None
    assert low <= one.sd_unit / sd_unit <= high
    # A block's mean has variance 0.02² + 0.05²/8; its estimate has a relative SD of √(2/400).
    total = sd_restart**2 + sd_unit**2 / per_block
    assert abs(found.sd_restart**2 - sd_restart**2) < 3.3 * total * math.sqrt(2 / blocks)
    merit = found.merit(one)
    assert merit is not None
    assert merit == pytest.approx(math.sqrt(total * 20 / 60), rel=3.3 / math.sqrt(2 * blocks))


def test_the_figure_of_merit_is_worked_out_by_hand() -> None:
    # Units of ±0.02 about block means of ±0.01: s_u² = Σ 4·0.0004 / (4 − 2); the method of moments gives
    # nothing for restarts: 2·0.0001 − 2·0.0008/2 < 0.
    one = CalibrationResult("slices", 1.0, [[0.03, -0.01], [-0.03, 0.01]], 4.0, 15.0, 0.1)
    found = calibration_of([one])
    assert one.sd_unit == pytest.approx(math.sqrt(0.0016 / 2))
    assert found.sd_restart == 0 and not found.restarts_show
    assert found.merit(one) == pytest.approx(math.sqrt(0.0008 / 2 * 15 / 60))
    assert one.within() == pytest.approx(math.sqrt(0.0008 * 4 / 60))


def test_restart_effects_are_reported_if_present_and_rarely_otherwise() -> None:
    def shows(sd_restart: float) -> int:
        found = (simulated(0.05, sd_restart, 20, 8, seed=seed) for seed in range(STUDIES))
        return sum(calibration_of([one]).restarts_show for one in found)

    # A sum of squares is skewed: slightly more than 5%.
    assert shows(0.0) <= scipy.stats.binom.ppf(1 - 1e-4, STUDIES, 0.08)
    assert shows(0.03) >= scipy.stats.binom.ppf(1e-4, STUDIES, 0.9)


def test_minutes_are_those_after_which_four_of_five_studies_have_found_the_effect() -> None:
    """Simulated blocks with a true effect of 5%, tested after each with the anytime-valid interval."""
    sd, effect, studies = 0.05, 0.05, 2000
    minutes = minutes_for(sd, 30.0, effect)
    assert minutes is not None
    blocks = round((minutes / 0.5 + 1) / 1.1)  # of half a minute; after ten, A/A blocks take 10% more
    d = np.random.default_rng(RNG_SEED).normal(math.log1p(effect), sd, (studies, blocks))
    t = math.sqrt(blocks) * d.mean(axis=1) / d.std(axis=1, ddof=1)
    found = float((t > sequential_critical_value(blocks, 0.95)).mean())
    # The sum of two quantiles of t approximates the noncentral one: near 80%, but not exactly.
    assert 0.76 < found < 0.84


def test_no_study_finds_anything_before_the_fifth_block() -> None:
    assert minutes_for(1e-6, 60.0, 0.05) == pytest.approx(5)
    assert minutes_for(10.0, 60.0, 0.02) is None


def test_the_least_noisy_length_is_the_best() -> None:
    quiet, loud = simulated(0.02, 0, 6, 8, 0.5), simulated(0.08, 0, 6, 4, 2.0)
    found = calibration_of([loud, quiet])
    assert found.best() is quiet
    assert found.best("duet") is None


def test_lengths_with_too_few_blocks_have_no_best_no_minutes_and_no_restarts() -> None:
    few, many, none = (simulated(0.05, 0.01, blocks, 8) for blocks in (2, 6, 0))
    for short in (few, none):
        found = calibration_of([short, many])
        assert found.is_short and found.best() is None and found.like_best() == []
        assert found.minutes(short, 0.05) is None and found.merit_interval(short) is None
        assert found.minutes(many, 0.05) is not None
        told = " ".join(_sentences(found))
        assert "Best on this machine" not in told and "alone" not in told
    assert "Best on this machine: slices of 1 s" in " ".join(_sentences(calibration_of([many])))


def test_the_interval_of_the_figure_of_merit_covers_it() -> None:
    """In 500 calibrations of two lengths; Satterthwaite's degrees of freedom are an approximation."""
    true, held = math.sqrt((0.03**2 + 0.05**2 / 8) * 20 / 60), 0
    for seed in range(500):
        one, other = simulated(0.05, 0.03, 8, 8, seed=seed), simulated(0.08, 0.03, 8, 4, seed=10_000 + seed)
        low, high = calibration_of([one, other]).merit_interval(one) or (0.0, 0.0)
        held += low <= true <= high
    assert 0.92 <= held / 500 <= 0.995


def test_only_different_lengths_are_distinguished() -> None:
    alike, told = 0, 200
    for seed in range(told):
        found = calibration_of([simulated(0.05, 0.0, 8, 8, seed=2 * seed + i) for i in range(2)])
        alike += len(found.like_best())
    assert alike >= scipy.stats.binom.ppf(0.001, told, 0.95)
    loud, quiet = simulated(0.2, 0.0, 20, 8, seed=1), simulated(0.02, 0.0, 20, 8)
    assert calibration_of([loud, quiet]).like_best() == []


def test_equal_servers_are_called_different_at_the_nominal_rate() -> None:
    """Also with large restart effects: the units of a block share them and count once."""
    alarms = calibration_of([simulated(0.05, 0.05, 2000, 2)]).alarms
    assert alarms is not None
    assert alarms.series == 400
    low, high = scipy.stats.binom.interval(0.999, 400, 0.05)
    assert low <= alarms.false_alarms <= high


def test_a_biased_machine_shows_in_the_alarms() -> None:
    one = simulated(0.01, 0.0, 10, 4)
    biased = CalibrationResult("slices", 1.0, [[d + 0.05 for d in of] for of in one.units], 4.0, 20.0, 0.1)
    alarms = calibration_of([biased]).alarms
    assert alarms == Alarms(2, 2, 0.95)
    assert alarms.interval[0] == pytest.approx(0.025 ** (1 / 2))  # Clopper and Pearson's, all of n


def test_few_blocks_give_no_rate_of_alarms() -> None:
    assert calibration_of([simulated(0.05, 0.0, 4, 8)]).alarms is None


def test_it_is_read_from_the_evidence(tmp_path: Path) -> None:
    wanted = Synthetic(
        effects=(1.0, 1.0), names=("18", "18 (again 2)"), blocks=3, slices=6, noise=0.01, rate_per_s=10_000.0
    )
    path = tmp_path / "e.sqlite"
    with Writer.create(path, study_of(wanted), arms_of(wanted)) as writer:
        for block in range(wanted.blocks):
            write_block(writer, wanted, block, np.random.default_rng(block))
        writer.finish_study(StudyEnd.BUDGET, 1.8e9)
    with Evidence(path) as evidence:
        found = find_calibration(evidence)
    (one,) = found.measured
    assert [len(of) for of in one.units] == [3, 3, 3]
    # Alternating slices of 1 s, of which 0.94 s count: two arms' pairs of rounds take 4 s.
    assert one.unit_s == pytest.approx(4.0)
    assert one.lost_share == pytest.approx(0.06)
    assert one.block_s == pytest.approx(38.0)
    (row,) = as_values(found)
    assert row["units"] == 9


def test_every_schedule_and_length_is_a_separate_aa_comparison() -> None:
    cases = calibration_cases(
        "18", PgbenchParameters(scale=2), 4, schedules=["slices"], slices_s=(0.25, 2.0), minutes=10, seed=5
    )
    assert [case.study.slice_s for case in cases] == [0.25, 2.0]
    for case in cases:
        assert len({arm.server for arm in case.study.arms}) == 1
        assert len({arm.name for arm in case.study.arms}) == 2
        assert case.study.rounds * case.study.slice_s == 8.0
        assert case.study.rounds % 2 == 0
        assert not case.study.aa
    assert sum(case.study.budget_s for case in cases) == 600
    assert len({case.study.seed for case in cases}) == 2


def test_a_duet_needs_two_cores() -> None:
    assert "duet" not in schedules_here(1)
    assert "slices" in schedules_here(1)


@pytest.mark.parametrize(
    ("text", "minutes"), [("10m", 10), ("10min", 10), ("90s", 1.5), ("2", 2), ("1h", 60)]
)
def test_durations_have_a_readable_format(text: str, minutes: float) -> None:
    assert _minutes(text) == pytest.approx(minutes)


@pytest.mark.parametrize("text", ["0m", "ten", "-1m"])
def test_a_duration_of_zero_is_rejected(text: str) -> None:
    with pytest.raises(UsageError):
        _minutes(text)


def test_the_calibrated_length_is_used_on_request_and_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    host: dict[str, Any] = {**dict.fromkeys(("machine", "processor"), "x"), "cores": 2}
    monkeypatch.setattr(calibrate, "describe_host", lambda _: host)
    with pytest.raises(UsageError, match="pgdyno doctor --calibrate"):
        slice_from_option("auto", "slices", 1.0)
    history = NoiseHistory(history_path())
    history.append(entry(1.0, {0.25: 0.05, 0.5: 0.02}, host))
    history.append(entry(2.0, {0.25: 0.02, 0.5: 0.03}, host))
    history.append(entry(3.0, {0.5: 0.01}, {**host, "cores": 64}))
    slice_s, source = slice_from_option("auto", "slices", 1.0)
    assert slice_s == 0.25
    assert "18.4" in source
    assert slice_from_option(None, "slices", 1.0) == (1.0, "")
    assert slice_from_option("2s", "slices", 1.0) == (2.0, "")
    study = make_study(slice_s=0.25, discard_s=0.02, slice_from=source)
    assert source in describe_sizes(study)
    repeated = command_of(study, ["compare", "17", "18", "--slice", "auto", "--seed", "1"])
    assert repeated == "pgdyno compare 17 18 --slice 0.25s --seed 1"


def test_nothing_measured_has_no_best() -> None:
    assert Calibration([], 0.0, None).best() is None


def test_a_killed_calibration_leaves_its_file_where_the_next_pgdyno_removes_it(
    monkeypatch: pytest.MonkeyPatch, server_dir: Path
) -> None:
    monkeypatch.setenv("PGDYNO_CACHE", str(server_dir))
    runs = Cache.open().live_runs()
    with calibrate._evidence(None) as path:
        path.touch()
        assert not runs.sweep()
        (path.parent / "owner.lock").unlink()  # unlocked, as after a kill
        assert runs.sweep() == [path.parent]
    assert not path.exists()
