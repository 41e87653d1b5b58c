"""The smallest detectable effect before and during a study: it equals that of the report."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from report_forms import report_of
from scipy.stats import beta, binom
from synthetic_study import Synthetic, written_study

from example_studies import make_study
from pgdyno.analysis.comparison import decide
from pgdyno.analysis.measurement_noise import interim_result
from pgdyno.analysis.statistics.intervals import Method, summarize
from pgdyno.caveats import Caveat
from pgdyno.features.noise_history import entries
from pgdyno.features.noise_history.entries import HistoryFile
from pgdyno.features.noise_history.resolution import (
    BlockNoise,
    Measured,
    Resolution,
    improvements,
    notes,
    within_blocks,
)
from pgdyno.measure.progress import Progress
from pgdyno.results.reader import Evidence
from pgdyno.results.records import TrialStatus
from pgdyno.study.defaults import Schedule
from pgdyno.study.plan import VERDICT_BLOCKS_MIN
from pgdyno.units import Better

CONFIDENCE = 0.95
STUDIES = 300


@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize("first", [VERDICT_BLOCKS_MIN, 12])
def test_the_size_stated_after_the_first_blocks_is_that_at_the_end(method: Method, first: int) -> None:
    """Their ratio is that of the SDs of the first k and of all n blocks. With normal noise, the sum of
    squares of the first k is a share of that of all n with the distribution Beta((k − 1) / 2, (n − k) / 2).
    """
    n, level, rng, within = 24, 0.9, np.random.default_rng(34), 0
    ends = [
        math.sqrt(beta.ppf(p, (first - 1) / 2, (n - first) / 2) * (n - 1) / (first - 1))
        for p in ((1 - level) / 2, (1 + level) / 2)
    ]
    for _ in range(STUDIES):
        d = list(rng.normal(0.02, 0.03, n))
        early = summarize(d[:first], CONFIDENCE, method)
        stated = Resolution.of(BlockNoise(early.sd, 10.0), n, CONFIDENCE, method)
        at_end = decide(summarize(d, CONFIDENCE, method), Better.MORE, 0.02).detectable_percent
        within += ends[0] <= stated.log_ratio / math.log1p(at_end / 100) <= ends[1]
    low, high = binom.interval(0.9999, STUDIES, level)
    assert low <= within <= high


@pytest.mark.parametrize("stops", [False, True])
def test_after_the_last_block_it_is_the_number_of_the_report(stops: bool) -> None:
    wanted = Synthetic(stops_on_verdict=stops, effects=(1.0, 1.01))
    (comparison,) = report_of(wanted).findings.first.comparisons
    with Evidence(written_study(wanted)) as evidence:
        size, ways = notes(evidence, 0, interim_result(evidence, 0), 0, 25.0)
        more, _ = notes(evidence, 0, interim_result(evidence, 0), 12, 25.0)
    assert f"±{comparison.decision.detectable_percent:.2g}% in 10 min (12 blocks" in size
    assert "(24 blocks" in more and f"({more.split()[3]})" in ways  # twice the budget has twice the blocks


def test_the_time_is_that_of_all_cases() -> None:
    cases = [Synthetic(stops_on_verdict=True, effects=(1.0, 1.01), levels={"clients": n}) for n in "28"]
    with Evidence(written_study(*cases)) as evidence:
        size, ways = notes(evidence, 0, interim_result(evidence, 0), 0, 25.0)
    assert "in 20 min (12 blocks" in size and "--minutes 40 (" in ways


def test_steal_and_other_programs_are_found_in_the_results_file() -> None:
    shares = {"share": "6.1%", "limit": "5%"}
    stolen = [Caveat.of("steal", trial, arm="17", **shares) for trial in (3, 4, 9)]
    others = Caveat.of("other-load", when="before the study", names="cc1 40%", **shares)
    with Evidence(written_study(Synthetic(effects=(1.0, 1.01), caveats=[*stolen, others]))) as evidence:
        _, ways = notes(evidence, 0, interim_result(evidence, 0), 0, 25.0)
    assert "less steal (in 3 of 24 trials), no other programs" in ways


def test_fewer_blocks_than_a_verdict_needs_predict_nothing() -> None:
    with Evidence(written_study(Synthetic(stops_on_verdict=True, blocks=4))) as evidence:
        assert not list(notes(evidence, 0, interim_result(evidence, 0), 20, 25.0))


def simulated(b: float, w: float, factor: float, blocks: int, seed: int) -> list[Any]:
    """Return trials of two arms: noise ``b`` between blocks, ``w`` within a window of four slices.

    Windows are ``factor`` times as long. Arm 1 has all of the noise, as the ratio of both.
    """
    rng, slices, trials = np.random.default_rng(seed), round(4 * factor), []
    for block in range(blocks):
        logs = rng.normal(0, b) + rng.normal(0, w * math.sqrt(4), slices)
        for arm, of_arm in ((0, np.zeros(slices)), (1, logs)):
            measured = [
                SimpleNamespace(kinds={"x": SimpleNamespace(ok=1000 * math.exp(log))}, counted_s=1.0)
                for log in of_arm
            ]
            trials.append(SimpleNamespace(status=TrialStatus.OK, block=block, arm=arm, measured=measured))
    return trials


def sd_of(trials: list[Any]) -> float:
    ratios = [np.mean([math.log(of.kinds["x"].ok / 1000) for of in t.measured]) for t in trials if t.arm == 1]
    return float(np.std(ratios, ddof=1))


@pytest.mark.parametrize(("b", "w"), [(0.01, 0.04), (0.04, 0.01), (0.0, 0.03)])
def test_the_noise_of_another_window_is_predicted(b: float, w: float) -> None:
    """The relative standard error of an SD of m blocks is 1 / √(2 (m − 1)), and √2 times that of the ratio of
    two. The tolerance is four of these.
    """
    blocks, comparison = 300, SimpleNamespace(arm=SimpleNamespace(arm=1))
    trials, study = simulated(b, w, 1.0, blocks, 1), make_study(rounds=4, slice_s=1.0)
    within = within_blocks(comparison, trials, study)
    assert within == pytest.approx(w, rel=4 / math.sqrt(2 * 3 * blocks))
    noise = BlockNoise(sd_of(trials), 20.0, within, 4.0)
    longer = noise.with_window(4.0, 2)
    assert longer.block_s == 20.0 + 2 * 12.0
    measured = sd_of(simulated(b, w, 4.0, blocks, 2))
    assert longer.sd == pytest.approx(measured, rel=4 / math.sqrt(blocks - 1))


@pytest.mark.parametrize(
    ("sd", "within", "changes", "expected"),
    [
        # within the windows: longer ones, and both arms at the same time
        (0.05, 0.05, {}, ["--minutes 20", "--window 80s", "--schedule duet"]),
        # between the blocks: more and shorter ones, and less load
        (0.05, 0.005, {}, ["--minutes 20", "--window 5s", "a quieter machine (pgdyno doctor)"]),
        (0.05, 0.005, {"clients": 16}, ["--minutes 20", "--window 5s", "at most 4 clients", "a quieter"]),
        (0.05, 0.005, {"stolen": 3, "trials": 24}, ["--minutes 20", "--window 5s", "less steal (in 3 of 24"]),
        (0.05, 0.005, {"is_shared": True}, ["--minutes 20", "--window 5s", "no other programs"]),
        (0.05, None, {}, ["--minutes 20", "a quieter machine (pgdyno doctor)"]),
    ],
)
def test_what_improves_the_resolution_follows_from_the_noise(
    sd: float, within: float | None, changes: dict[str, Any], expected: list[str]
) -> None:
    study = make_study(budget_s=600.0, rounds=20, slice_s=1.0)
    block_s = 140.0 if within == sd else 45.0  # starts take most of the time, or windows do
    noise = BlockNoise(sd, block_s, within, 20.0)
    now = Resolution.of(noise, 24, CONFIDENCE, Method.STUDENT)
    measured = Measured(noise, now, **{"clients": 2, "cores": 2, **changes})
    found = improvements(study, measured, CONFIDENCE, Method.STUDENT)
    assert [way.startswith(one) for way, one in zip(found, expected, strict=False)] == [True] * len(expected)


def test_arms_that_run_one_after_another_should_alternate() -> None:
    study = make_study().model_copy(update={"schedule": Schedule.BLOCKS})
    noise = BlockNoise(0.05, 45.0)
    now = Resolution.of(noise, 24, CONFIDENCE, Method.STUDENT)
    ways = improvements(study, Measured(noise, now, 2, 2), CONFIDENCE, Method.STUDENT)
    assert "--schedule slices" in ways


def test_a_study_states_before_its_start_what_an_earlier_one_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    history, said = HistoryFile(entries.history_path()), list[Progress]()
    path = written_study(Synthetic(effects=(1.0, 1.01), noise=0.05))
    with Evidence(path) as evidence:
        study = evidence.study(0)
        size, _ = notes(evidence, 0, interim_result(evidence, 0), 0, 38.0)
    before = history.forecast([(study.host, study.plan)])
    assert "not known" in before and f"after block {VERDICT_BLOCKS_MIN}" in before
    entries.store_noise(path, said.append)
    entries.store_noise(path, said.append)  # of a study that was resumed
    assert not said
    after = history.forecast([(study.host, study.plan)])
    assert after == size.replace("effect:", "effect, from an earlier study:")
    unknown = ({**study.host, "cores": 64}, study.plan)
    mixed = history.forecast([(study.host, study.plan), unknown, unknown])
    of_all = after.replace("in 10 min", "in 30 min")
    assert mixed == f"{of_all}, in the case with the largest noise of 1; not known for 2 cases"
    for other in (
        unknown,
        (study.host, study.plan.model_copy(update={"clients": 9})),
        (study.host, study.plan.model_copy(update={"slice_s": 9 * study.plan.slice_s})),
    ):
        assert "not known" in history.forecast([other])


def test_several_studies_have_their_median_noise(tmp_path: Path) -> None:
    history, study = HistoryFile(tmp_path / "noise.jsonl"), make_study()
    load, facts = entries.load_of_any_layout(study), {"window_s": study.window_s, "within": 0.01}
    for at, (sd, block_s) in enumerate([(0.01, 20.0), (0.02, 30.0), (0.9, 25.0)]):
        entry = {"kind": entries.BLOCKS, "id": at, "at_unix_s": at, "machine": entries.machine_of({})}
        history.append({**entry, "load": load, **facts, "sd": sd, "block_s": block_s})
    assert history.block_noise({}, study) == (BlockNoise(0.02, 25.0), 3)
    longer = study.model_copy(update={"slice_s": 4 * study.slice_s, "warmup_s": 2 * study.warmup_s})
    measured = BlockNoise(0.02, 25.0, 0.01, study.window_s)
    predicted, _ = history.block_noise({}, longer) or (measured, 0)
    assert predicted.sd == measured.with_window(4.0, 2).sd < 0.02
    assert predicted.block_s == 25.0 + 2 * 3 * study.window_s
