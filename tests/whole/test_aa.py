"""A/A blocks: when they run, their arms, and the resulting noise floor."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from report_forms import checked_json
from synthetic_study import Synthetic, write_with_aa

from example_studies import make_study
from pgdyno.analysis.comparison import Verdict, detectable_percent
from pgdyno.analysis.measurement_noise import FLOOR_BLOCKS_MIN, Noise, floor_of_average
from pgdyno.analysis.statistics.intervals import Method, percent_of, summarize
from pgdyno.analysis.study_findings import AVERAGE, StudyFindings, find_study
from pgdyno.cli.options import Added, RunCall
from pgdyno.cli.run import requested_study
from pgdyno.features.fitting import fit
from pgdyno.features.fitting import options as fit_options
from pgdyno.features.fitting.fit import FitMachine, Fitted
from pgdyno.features.fitting.levels import FitChange
from pgdyno.features.fitting.options import FitOptions
from pgdyno.features.gates import section as wording
from pgdyno.features.gates.conditions import GateCondition, GateOutcome, GateWord, Reason, gate
from pgdyno.features.hosts.findings import average_over_hosts, find_hosts
from pgdyno.report import html_format, markdown_format
from pgdyno.report.conditions import noise_sentence
from pgdyno.report.study_report import build_study
from pgdyno.results.reader import Evidence
from pgdyno.study.arm_spec import parse_arms
from pgdyno.study.schedule import BLOCKS_PER_AA, aa_arm_after, aa_study, block_of, share_of_time, why_no_aa

seeds = st.integers(0, 2**53 - 1)
UPGRADE = Path(__file__).parents[2] / "studies" / "templates" / "upgrade.toml"


@settings(max_examples=25)
@given(seed=seeds, arms=st.integers(2, 5), groups=st.integers(1, 12))
def test_after_ten_blocks_one_in_ten_is_followed_by_an_aa_block(seed: int, arms: int, groups: int) -> None:
    study = make_study(arms=parse_arms(["18"] * arms), seed=seed)
    for group in range(groups):
        blocks = range(group * BLOCKS_PER_AA, (group + 1) * BLOCKS_PER_AA)
        doubled = [block for block in blocks if aa_arm_after(study, block) is not None]
        assert len(doubled) == (group > 0)


@settings(max_examples=25)
@given(seed=seeds, arms=st.integers(2, 5))
def test_the_arms_are_doubled_equally_often(seed: int, arms: int) -> None:
    study = make_study(arms=parse_arms(["18"] * arms), seed=seed)
    blocks = range(BLOCKS_PER_AA, BLOCKS_PER_AA * (1 + arms * 3))
    found = Counter(aa_arm_after(study, block) for block in blocks)
    assert {found[arm] for arm in range(arms)} == {3}


@settings(max_examples=25)
@given(seed=seeds, block=st.integers(0, 500))
def test_the_doubled_arm_is_determined_by_the_seed(seed: int, block: int) -> None:
    study = make_study(seed=seed)
    again = study.model_validate(study.model_dump())
    assert aa_arm_after(study, block) == aa_arm_after(again, block)
    assert block_of(aa_study(study, 1), block) == block_of(aa_study(again, 1), block)


def test_the_cases_of_a_study_do_not_have_their_aa_blocks_in_the_same_pass() -> None:
    places = {
        next(
            block
            for block in range(2 * BLOCKS_PER_AA)
            if aa_arm_after(make_study(seed=seed), block) is not None
        )
        for seed in range(100)
    }
    assert places == set(range(BLOCKS_PER_AA, 2 * BLOCKS_PER_AA))


def test_with_two_arms_a_tenth_of_the_time_of_blocks_is_for_aa_blocks() -> None:
    assert share_of_time(make_study()) == pytest.approx(1 / 10)
    assert share_of_time(make_study(aa=False)) == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"aa": False}, "disabled"),
        ({"schedule": "sequential", "blocks_max": 5}, "sequential"),
        ({"arms": parse_arms(["host=a", "host=b"])}, "running servers"),
    ],
)
def test_a_missing_twin_has_a_reason(changes: dict[str, object], reason: str) -> None:
    study = make_study(**changes)
    assert reason in why_no_aa(study)
    assert not any(aa_arm_after(study, block) is not None for block in range(50))


def test_only_servers_that_pgdyno_starts_are_doubled() -> None:
    study = make_study(arms=parse_arms(["host=a", "18"]))
    assert {aa_arm_after(study, block) for block in range(50)} == {None, 1}


def test_an_arm_and_its_twin_are_driven_as_the_arm_is() -> None:
    plain = make_study()
    drivings = tuple(plain.driving(0).model_copy(update={"clients": n}) for n in (3, 7))
    study = make_study(drivings=drivings, recovery=True, checkpoint_after=True, blocks_max=4)
    twins = aa_study(study, 1)
    assert [arm.server for arm in twins.arms] == [study.arms[1].server] * 2
    assert len({arm.name for arm in twins.arms}) == 2
    assert (twins.driving(0).clients, twins.driving(1).clients) == (7, 7)
    assert (twins.schedule, twins.slice_s, twins.rounds) == (study.schedule, study.slice_s, study.rounds)
    assert not twins.recovery
    assert not twins.checkpoint_after
    assert twins.seed != study.seed


def test_the_twins_of_a_duet_play_one_on_the_same_halves() -> None:
    study = make_study(schedule="duet", cpu_partition={"cores": [[0], [1]]})
    twins = aa_study(study, 0)
    assert (twins.schedule, twins.cpu_partition) == ("duet", study.cpu_partition)
    assert {piece.cpu_partition for piece in block_of(twins, 4).slices} == {0, 1}


# --- noise floor


def noise_of(log_ratios: list[float], before: list[float] | None = None) -> Noise:
    return Noise(log_ratios, before or [], 0.95, 0.02)


def test_the_sd_is_about_zero_and_its_interval_is_chi_squared() -> None:
    noise = noise_of([0.03, 0.01, 0.02, -0.02], [0.01, -0.01])
    assert noise.sd == pytest.approx(math.sqrt((9 + 1 + 4 + 4 + 1 + 1) * 1e-4 / 6))
    low, high = noise.sd_interval or (0, 0)
    # From tables of chi-squared with 6 degrees of freedom: 14.449 and 1.237.
    assert low == pytest.approx(math.sqrt(20e-4 / 14.449), rel=1e-3)
    assert high == pytest.approx(math.sqrt(20e-4 / 1.2373), rel=1e-3)


def test_the_floor_is_students_t_of_the_aa_blocks_over_the_root_of_the_blocks() -> None:
    noise = noise_of([0.02, -0.02] * 5)
    # t with 10 degrees of freedom is 2.228 at 95%. The SD is 0.02, so that of 16 blocks 0.005.
    assert noise.floor(16) == pytest.approx(2.2281 * 0.005, rel=1e-4)


def test_a_finding_needs_the_interval_of_verdicts_and_exceeds_the_floor() -> None:
    wide = Noise([0.02, -0.02] * 5, [], 0.95, 0.02, method=Method.ANYTIME)
    summary = summarize([0.02, -0.02] * 8, 0.95, Method.ANYTIME)  # of arms, with an SD of 0.02 · √(16/15)
    alike = detectable_percent(replace(summary, sd=0.02))
    assert alike is not None
    assert percent_of(wide.detectable(16) or 0) == pytest.approx(alike)
    assert wide.detectable(4) is None  # before the first interim analysis there is no floor
    # One analysis: t with 15 degrees of freedom is 2.131 at 95%, 0.866 at 80% one-sided; the floor's is
    # 2.228.
    once = noise_of([0.02, -0.02] * 5)
    assert once.detectable(16) == pytest.approx((2.2281 + 0.8662) * 0.005, rel=1e-4)
    many = noise_of([0.02, -0.02] * 500)
    assert many.detectable(16) == pytest.approx((2.1314 + 0.8662) * 0.005, rel=1e-4)


def test_too_few_aa_blocks_have_no_floor() -> None:
    assert noise_of([0.02] * (FLOOR_BLOCKS_MIN - 1)).sd_interval is None
    assert noise_of([0.02] * (FLOOR_BLOCKS_MIN - 1)).floor(12) is None
    assert noise_of([0.02], [0.02] * (FLOOR_BLOCKS_MIN - 1)).floor(12) is not None


def test_equal_arms_exceed_the_floor_at_most_at_the_nominal_rate() -> None:
    """With 12 blocks, 6 A/A blocks and equal SDs, 5% of means exceed the floor."""
    rng, studies = np.random.default_rng(20261122), 2000
    over = 0
    for _ in range(studies):
        noise = noise_of(list(rng.normal(0, 0.02, 6)))
        floor = noise.floor(12)
        assert floor is not None
        over += abs(rng.normal(0, 0.02, 12).mean()) > floor
    low, high = scipy.stats.binom.interval(0.999, studies, 0.05)
    assert low <= over <= high


def test_the_rate_of_false_alarms_is_that_of_series_of_five() -> None:
    around, off = [0.01, -0.012, 0.02, -0.019, 0.002], [0.05, 0.051, 0.052, 0.049, 0.05]
    assert noise_of(around[:4]).alarms is None
    alarms = noise_of(around, [*around, *off]).alarms
    assert alarms is not None
    assert (alarms.false_alarms, alarms.series) == (1, 3)
    # Clopper-Pearson interval of 1 in 3, from tables.
    assert alarms.interval == pytest.approx((0.0084, 0.9057), abs=1e-4)


def test_series_of_a_study_with_interim_analyses_use_its_interval() -> None:
    """Student's interval of these five excludes 0, and the anytime-valid one does not."""
    series = [0.05, 0.02, 0.06, 0.01, 0.04]
    called = [
        found.false_alarms
        for method in Method
        if (found := Noise(series, [], 0.95, 0.0001, method=method).alarms) is not None
    ]
    assert called == [1, 0]


def with_aa(
    path: Path, wanted: Synthetic, log_ratios: list[float], before: list[float] | None = None
) -> StudyFindings:
    """Return the study with A/A blocks in which the twin is faster by exactly this factor, without noise."""
    write_with_aa(path, [wanted], log_ratios, aa_before=before or [])
    with Evidence(path) as evidence:
        return find_study(evidence)


QUIET = Synthetic(blocks=12, slices=4, noise=0.001, effects=(1.0, 1.03))


def test_aa_blocks_are_in_no_result(tmp_path: Path) -> None:
    found = with_aa(tmp_path / "e.sqlite", QUIET, [0.01, -0.01, 0.02, -0.02, 0.0, 0.01])
    assert len(found.cases) == 1
    first = found.first
    assert [of.arm.name for of in first.arms] == ["17", "18"]
    assert {trial.block for trial in first.trials} == set(range(12))
    assert len(first.trials) == 24
    report = build_study(found)
    assert report.only is not None
    for text in (html_format.to_html(report), markdown_format.to_markdown(report), checked_json(report)):
        assert "twin)" not in text
    assert "noise floor" in noise_sentence(first)
    assert "no false alarm" in noise_sentence(first)


def test_an_effect_over_the_noise_floor_is_a_verdict(tmp_path: Path) -> None:
    found = with_aa(tmp_path / "e.sqlite", QUIET, [0.01, -0.01, 0.01, -0.01, 0.01, -0.01]).first
    assert found.comparisons[0].verdict is Verdict.FASTER
    assert "under-noise-floor" not in {caveat.kind for caveat in found.caveats}


def test_an_effect_under_the_noise_floor_is_never_called_real(tmp_path: Path) -> None:
    found = with_aa(tmp_path / "e.sqlite", QUIET, [0.06, -0.06, 0.06, -0.06, 0.06, -0.06]).first
    (comparison,) = found.comparisons
    assert comparison.primary is not None
    assert (comparison.primary.summary.low or 0) > 0  # its own interval alone gives "faster"
    assert comparison.verdict is Verdict.UNDECIDED
    assert "under-noise-floor" in {caveat.kind for caveat in found.caveats}
    decision = comparison.decision
    assert decision is not None
    assert decision.blocks_needed is not None
    # With this number of blocks the floor equals the effect; with one less it does not.
    effect, blocks = comparison.primary.summary.mean, 12 + decision.blocks_needed
    floors = [found.noise.floor(n) or 0.0 for n in (blocks, blocks - 1)]
    assert floors[0] <= effect < floors[1]


def test_earlier_studies_of_the_machine_count(tmp_path: Path) -> None:
    alike = [0.02, -0.02] * 4
    found = with_aa(tmp_path / "e.sqlite", QUIET, [0.02, -0.02], before=alike).first
    assert found.noise.n == 10
    assert "8 of them from earlier studies" in noise_sentence(found)


def test_earlier_studies_of_a_noisier_day_do_not_count(tmp_path: Path) -> None:
    loud = [0.4, -0.4] * 4
    found = with_aa(tmp_path / "e.sqlite", QUIET, [0.02, -0.02], before=loud).first
    assert (found.noise.n, found.noise.left_out) == (2, 8)
    assert found.comparisons[0].verdict is Verdict.FASTER


def test_the_interval_excludes_one_in_twenty_equal_days() -> None:
    rng, days = np.random.default_rng(7), 2000
    noises = (noise_of(list(rng.normal(0, 0.02, 8)), list(rng.normal(0, 0.02, 20))) for _ in range(days))
    left_out = sum(noise.of_today([]).left_out > 0 for noise in noises)
    low, high = scipy.stats.binom.interval(0.999, days, 0.05)
    assert low <= left_out <= high


@pytest.mark.parametrize(
    ("spreads", "pooled"),
    [((0.02, 0.02), True), ((0.02, 0.02), False), ((0.01, 0.03), False), ((0.005, 0.03), False)],
)
def test_equal_arms_are_beyond_the_floor_of_an_average_in_one_study_of_twenty(
    spreads: tuple[float, float], pooled: bool
) -> None:
    rng, studies, blocks = np.random.default_rng(8), 2000, 9
    over = 0
    for _ in range(studies):
        noises = [noise_of(list(rng.normal(0, sd, 7))) for sd in spreads]
        floor = floor_of_average([noises[0]] * 2 if pooled else noises, blocks, 0.95)
        assert floor is not None
        means = [rng.normal(0, sd, blocks).mean() for sd in spreads]
        over += abs(np.mean(means)) > floor
    low, high = scipy.stats.binom.interval(0.999, studies, 0.05)
    # Satterthwaite's approximation has an error of at most 0.01 with so few A/A blocks.
    allowed = 0 if pooled else 0.01 * studies
    assert low - allowed <= over <= high + allowed


def test_the_floor_of_an_average_is_that_of_its_only_case_and_needs_that_of_each() -> None:
    one, few = noise_of([0.01, -0.02, 0.03, 0.0, 0.01, -0.03]), noise_of([0.01, -0.02])
    assert floor_of_average([one], 8, 0.95) == pytest.approx(one.floor(8))
    # Two cases with the same A/A blocks equal one with twice the blocks.
    assert floor_of_average([one, one], 8, 0.95) == pytest.approx(one.floor(16))
    assert floor_of_average([one, few], 8, 0.95) is None
    assert floor_of_average([], 8, 0.95) is None


@pytest.mark.parametrize(("size", "is_below"), [(0.12, True), (0.01, False)])
def test_an_average_under_its_noise_floor_trips_no_gate(tmp_path: Path, size: float, is_below: bool) -> None:
    cases = [replace(QUIET, levels={"clients": f"{n + 1}"}, seed=n) for n in (0, 1)]
    write_with_aa(tmp_path / "e", cases, [-size, size] * 3)
    with Evidence(tmp_path / "e") as evidence:
        found = find_study(evidence)
    (over,) = found.over_cases
    assert over.average is not None and over.floor is not None
    assert over.floor == pytest.approx(found.first.noise.floor(24))
    assert (over.average.summary.low or 0) > 0  # its own interval alone gives "faster"
    held = gate(found, [GateCondition(GateWord.FASTER, AVERAGE)])
    assert held.outcome is (GateOutcome.INCONCLUSIVE if is_below else GateOutcome.FAILED)
    assert [one.reason for one in held.inconclusive] == ([Reason.NOISE_FLOOR] if is_below else [])
    (judged_so,) = found.verdicts_on(AVERAGE)
    assert judged_so.verdict is (Verdict.UNDECIDED if is_below else Verdict.FASTER)
    said = " ".join(wording.reasons(held))
    assert ("average: 18 is undecided vs. 17" in said) == is_below
    assert ("below the noise floor" in said) == is_below


def test_an_arm_that_is_called_different_from_itself_is_a_caveat(tmp_path: Path) -> None:
    biased = [0.05, 0.06, 0.055, 0.052, 0.058, 0.054]
    found = with_aa(tmp_path / "e.sqlite", replace(QUIET, effects=(1.0, 1.2)), biased)
    first = found.first
    assert first.noise.is_false_alarm
    assert first.comparisons[0].verdict is Verdict.FASTER  # 20% is far above the floor
    assert "aa-differs" in {caveat.kind for caveat in first.caveats}


def test_one_aa_block_gives_no_standard_deviation(tmp_path: Path) -> None:
    found = with_aa(tmp_path / "e.sqlite", QUIET, [-0.02]).first
    said = noise_sentence(found)
    assert "SD" not in said and f"{FLOOR_BLOCKS_MIN} A/A blocks" in said


def test_the_reason_without_aa_blocks_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    change = FitChange("run.aa", "true", "false", "too little time")
    monkeypatch.setattr(fit_options, "fit_machine", lambda: FitMachine(2, 1 << 30, 1 << 40))
    monkeypatch.setattr(fit, "fit_study", lambda file, *_: Fitted(file, (change,)))
    fitted = RunCall(UPGRADE, minutes=5, added=Added([FitOptions(fit="")]))
    for call, who in (
        (RunCall(UPGRADE), ""),
        (fitted, "--fit"),
        (RunCall(UPGRADE, no_aa=True), "--no-aa"),
        (replace(fitted, no_aa=True), "--no-aa"),
    ):
        assert {case.study.aa_refused_by for case in requested_study(call).request.cases} == {who}
    assert why_no_aa(make_study(aa=False, aa_refused_by="--no-aa")) == "disabled by --no-aa"


def test_an_average_of_one_case_has_the_verdict_of_that_case(tmp_path: Path) -> None:
    """An effect below the noise floor does not fail a gate, for every name of the same metric."""
    clear, floor = replace(QUIET, effects=(1.0, 0.97)), [0.06, -0.06, 0.06, -0.06, 0.06, -0.06]
    found = with_aa(tmp_path / "e.sqlite", clear, floor)
    loud, quiet = find_hosts({"e": found}), find_hosts({"q": with_aa(tmp_path / "q.sqlite", clear, [])})
    for metric in ("", AVERAGE):
        assert [of.verdict for of in found.verdicts_on(metric)] == [Verdict.UNDECIDED]
        assert [of.verdict for of in loud.verdicts_on(metric)] in ([Verdict.UNDECIDED], [])
        assert gate(found, [GateCondition(GateWord.SLOWER, metric)]).outcome is GateOutcome.INCONCLUSIVE
    assert [of.verdict for of in quiet.verdicts_on()] == [Verdict.SLOWER]
    by_host = {"e": {"x": found.first.comparisons}}
    (average,) = average_over_hosts(by_host, {"x": found.first.primary.key}, 0.95)
    assert average.verdict(found.first.study.plan) is Verdict.UNDECIDED
