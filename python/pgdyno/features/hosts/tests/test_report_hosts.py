"""One study on several hosts: pooled values, rejected files, and every host in every format."""

from __future__ import annotations

import csv
import io
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_forms import FORMS, checked_json, on_terminal, tables_of
from several_hosts import LARGE, LARGER, SMALL, findings_of, pooled_of, written
from synthetic_study import HOST, Synthetic

from pgdyno.analysis.comparison import Effect, Verdict, decide
from pgdyno.analysis.statistics.averages import combine
from pgdyno.analysis.statistics.intervals import Method, student
from pgdyno.analysis.statistics.pooled_quantiles import BLOCKS_MIN
from pgdyno.analysis.steady_state import Rise, WarmUpBias
from pgdyno.analysis.study_findings import AVERAGE, StudyFindings
from pgdyno.analysis.telemetry.metrics import ALL_KINDS, latency_key
from pgdyno.errors import EvidenceError, UsageError
from pgdyno.features.hosts.findings import find_hosts
from pgdyno.features.hosts.identity import difference_of, difference_of_plans, flat, is_same_machine
from pgdyno.features.hosts.sections import build_hosts, names_of_files, read_hosts, variation_sentence
from pgdyno.report.answer import UNFINISHED
from pgdyno.report.html_format import to_html
from pgdyno.study.defaults import Schedule
from pgdyno.units import Better

AGAIN = replace(SMALL, seed=5, created_unix_s=SMALL.created_unix_s + 86_400)
"""A second study on the same machine, a day later."""


def plain(text: str) -> str:
    """Return one line without the markup of any format."""
    text = re.sub(r"<[^>]*>", " ", text.replace("\u00a0", " ").replace("\\", ""))
    return re.sub(r"\s+", " ", text)


def effect_of(effect: Effect, ratios: Sequence[float], key: str = "", better: Better = Better.MORE) -> Effect:
    """Return the effect with these block ratios, of another metric if ``key`` is given."""
    d = {block: math.log(ratio) for block, ratio in enumerate(ratios)}
    summary = student(list(d.values()), 0.95)
    return replace(
        effect, key=key or effect.key, log_ratios=d, summary=summary, percent=summary.percent(better)
    )


def with_ratios(study: StudyFindings, ratios: Sequence[float]) -> StudyFindings:
    """Return the study with these block ratios of the primary metric."""
    (case,) = study.cases
    (comparison,) = case.comparisons
    effect = effect_of(comparison.effects[case.primary.key], ratios)
    effects, blocks = {**comparison.effects, effect.key: effect}, list(effect.log_ratios)
    changed = replace(comparison, effects=effects, primary=effect, blocks=blocks)
    return replace(study, cases=[replace(case, comparisons=[changed])])


def test_the_two_hosts_of_the_2022_study_are_undecided() -> None:
    # Published as one figure, +0.5%: −3.35% on one host, +4.41% on the other, one run each. The interval is
    # that of test_oracle_pooling.py.
    studies, ratios = findings_of(i5=SMALL, xeon=LARGER), {"i5": 0.9665, "xeon": 1.0441}
    found = find_hosts({host: with_ratios(studies[host], [ratio]) for host, ratio in ratios.items()})
    (over,) = found.primary
    assert over.percent.value == pytest.approx(0.455, abs=0.001) and over.percent.n == 2
    assert over.verdict(found.first.first.study.plan) is Verdict.UNDECIDED
    built = build_hosts(found)
    (headline,) = built.headlines
    assert headline.verdict is Verdict.UNDECIDED and headline.more
    assert "+0.5%" in headline.claim and "[−38%, +64%]" in plain(headline.basis)
    assert built.caveats[0].code == "hosts-disagree"


def test_pooling_equal_hosts_changes_only_the_interval() -> None:
    alone = findings_of(a=SMALL)["a"].first.comparisons[0].primary
    found = pooled_of(b=SMALL, c=replace(SMALL, host=LARGE))
    (over,) = found.primary
    assert alone is not None
    assert over.percent.value == pytest.approx(alone.percent.value)
    assert (over.percent.n, over.pooled.blocks) == (2, 2 * alone.percent.n)
    assert over.pooled.tau == 0 and over.pooled.i2 == 0
    assert "τ = 0" in variation_sentence(over.pooled)
    assert [of.summary.percent(Better.MORE) for of in over.pooled.hosts] == [alone.percent] * 2
    assert "hosts-disagree" not in {caveat.kind for caveat in found.caveats}


@pytest.mark.parametrize(("blocks", "has_interval"), [(8, False), (BLOCKS_MIN, True)])
def test_a_tail_percentile_over_hosts_has_an_interval_if_each_host_has_one(
    blocks: int, has_interval: bool
) -> None:
    many = replace(SMALL, blocks=BLOCKS_MIN, slices=2)
    studies = findings_of(small=many, large=replace(LARGER, blocks=blocks, slices=2))
    key = latency_key(ALL_KINDS, "p99")
    (over,) = [of for of in find_hosts(studies).effects if of.key == key]
    own = [study.first.comparisons[0].effects[key].percent.value for study in studies.values()]
    assert [of.value for of in over.percent_by_host.values()] == pytest.approx(own)
    assert (over.percent.low is not None) == has_interval
    verdict = over.metric_verdict(studies["small"].first.study.plan)
    assert verdict.no_interval_below == (None if has_interval else BLOCKS_MIN)


def test_a_tail_percentile_over_files_of_a_machine_lacks_an_interval_but_no_blocks() -> None:
    half = replace(SMALL, blocks=BLOCKS_MIN // 2, slices=2)
    again = replace(half, seed=5, created_unix_s=half.created_unix_s + 86_400)
    found = pooled_of(first=half, second=again)
    (over,) = [of for of in found.effects if of.key == latency_key(ALL_KINDS, "p99")]
    verdict = over.metric_verdict(found.first.first.study.plan)
    assert verdict.blocks == BLOCKS_MIN and over.percent.low is None and verdict.no_interval_below is None


def test_a_difference_on_one_host_that_the_noise_floor_took_back_stays_so() -> None:
    study = with_ratios(findings_of(a=SMALL)["a"], [1.009, 1.010, 1.011] * 5)
    ((case,), plan) = study.cases, study.first.study.plan
    (comparison,) = case.comparisons
    assert comparison.primary is not None
    decision = decide(comparison.primary.summary, Better.MORE, plan.margin)
    assert (decision.verdict, decision.difference) == (Verdict.SAME, Verdict.FASTER)
    for own, expected in ((decision, Verdict.FASTER), (decision.without_difference(), None)):
        judged = replace(case, comparisons=[replace(comparison, decision=own)])
        (over,) = find_hosts({"a": replace(study, cases=[judged])}).primary
        assert (over.verdict(plan), over.differs(plan)) == (Verdict.SAME, expected)


def test_the_variation_over_hosts_is_that_of_their_effects() -> None:
    (over,) = pooled_of(small=SMALL, large=replace(LARGER, effects=(1.0, 1.6))).primary
    assert over.pooled.tau == pytest.approx(math.log(1.6 / 1.1) / math.sqrt(2), rel=0.1)
    assert over.pooled.i2 is not None and 0.9 < over.pooled.i2 <= 1


REFUSED: dict[str, dict[str, Any]] = {
    r"workload warehouses differs \(10 vs\. 20\)": {"warehouses": 20},
    r"the list of arms differs \(17, 18 vs\. 17, 19\)": {"names": ("17", "19")},
    r"the list of arms differs \(17, 18 vs\. 17, 18, 19\)": {
        "names": ("17", "18", "19"),
        "effects": (1, 1, 1),
    },
    r"schedule differs \(slices vs\. blocks\)": {"schedule": Schedule.BLOCKS},
    r"work_mem of arm 17 differs \(nothing vs\. 1GB\)": {"settings": {"work_mem": "1GB"}},
    r"the study file differs \(.*no study file.*1 lines\)": {"file": "title = 'x'\n"},
    r"margin differs \(0\.02 vs\. 0\.05\)": {"margin": 0.05},
}


@pytest.mark.parametrize("words", REFUSED)
def test_files_of_different_studies_are_rejected_with_the_difference(words: str) -> None:
    other = replace(LARGER, blocks=1, **REFUSED[words])
    with pytest.raises(EvidenceError, match=f"small and other are not of the same study: {words}"):
        pooled_of(small=SMALL, other=other)


def test_a_part_of_a_script_that_differs_is_named() -> None:
    workload = {"scripts": [{"name": "pay", "text": "COMMIT"}], "define": {"n": 1}, "columns": ["a", "b"]}
    assert dict(flat(workload, "workload")) == {
        "workload scripts 1 name": "pay",
        "workload scripts 1 text": "COMMIT",
        "workload define n": 1,
        "workload columns": "a, b",
    }


def test_numbers_of_blocks_seeds_and_titles_may_differ() -> None:
    found = pooled_of(small=SMALL, large=replace(LARGER, blocks=2, title="another"))
    assert [of.summary.n for of in found.primary[0].pooled.hosts] == [6, 2]


@pytest.mark.parametrize("grown", [True, False], ids=["grown", "chosen"])
def test_extended_slices_on_one_host_do_not_make_another_study(grown: bool) -> None:
    found = findings_of(small=SMALL, large=LARGER)
    small = _with_plan(found["small"], slices_may_grow=grown)
    lengths = {"slice_s": 4.0, "rounds": 4, "slice_from": "long transactions"}
    large = _with_plan(found["large"], slices_may_grow=grown, **lengths)
    assert (difference_of(small, large) is None) == grown
    assert (difference_of_plans(small, large) is None) == grown


def _with_plan(study: StudyFindings, **changes: object) -> StudyFindings:
    (case,) = study.cases
    plan = case.study.plan.model_copy(update=changes)
    return replace(study, cases=[replace(case, study=replace(case.study, plan=plan))])


def test_settings_of_a_profile_may_depend_on_the_machine_and_are_reported() -> None:
    names = ("17", "18,@starter")
    one = replace(SMALL, blocks=2, names=names, settings={"shared_buffers": "6GB"})
    other = replace(LARGER, blocks=2, names=names, settings={"shared_buffers": "64GB"})
    with pytest.raises(EvidenceError, match="shared_buffers of arm 17 differs"):
        pooled_of(one=one, other=other)  # the baseline has no profile
    both = ("17,@starter", "18,@starter")
    found = pooled_of(a=replace(one, names=both), b=replace(other, names=both))
    (caveat,) = [of for of in found.caveats if of.kind == "hosts-fitted-differently"]
    assert "(shared_buffers)" in caveat.text


def cases(wanted: Synthetic, scales: Sequence[str]) -> list[Synthetic]:
    return [replace(wanted, levels={"scale": scale}, file="[factors]\n") for scale in scales]


def test_a_study_fitted_to_each_machine_is_matched_by_position_with_both_numbers() -> None:
    def change(scale: str) -> Mapping[str, str]:
        return {"key": "factors.scale", "before": "1, 5", "after": scale, "why": "of the memory"}

    small = replace(SMALL, changes=[change("100, 500")])
    large = replace(LARGER, changes=[change("300, 1500")])
    found = pooled_of(small=cases(small, ("100", "500")), large=cases(large, ("300", "1500")))
    assert list(found.cases) == ["scale 100 / 300", "scale 500 / 1500"]
    assert all(len(over.pooled.hosts) == 2 for over in found.primary)
    (average,) = found.averages
    assert average.percent.value == pytest.approx(11, abs=3) and average.percent.n == 2
    built = build_hosts(found)

    assert "hosts-differ" in {caveat.code for caveat in built.caveats}
    table = built.of("background")[0].tables[0]
    assert list(table.rows[0]) == ["factors.scale", "1, 5", "100, 500", "300, 1500", "of the memory"]


def test_a_case_that_one_host_lacks_is_that_of_the_others() -> None:
    worse = replace(LARGER, effects=(1.0, 0.9))
    found = pooled_of(small=cases(SMALL, ("100",)), large=cases(worse, ("100", "500")))
    by_case = {over.case: over for over in found.primary}
    assert by_case["scale 500"].absent == ["small"] and not by_case["scale 100"].absent
    (average,) = found.averages
    assert average.case == AVERAGE and [of.host for of in average.pooled.hosts] == ["small", "large"]
    assert average.pooled.blocks == by_case["scale 100"].pooled.blocks, "of the case that both have"
    assert ["in scale 100" in of.text for of in by_case["scale 100"].caveats()] == [True]
    rows = build_hosts(found).of("results")[0].tables[0].rows
    assert list(rows[4][:3]) == ["", "", "large"] and rows[3][2] == "small" and rows[3][3] == "–"


def test_cases_with_other_primary_metrics_are_pooled_too() -> None:
    closed, limited = cases(SMALL, ["1", "2"])
    limited = replace(limited, fixed_rate_per_s=500.0)
    large = [replace(of, host=LARGE) for of in (closed, limited)]
    found = pooled_of(small=[closed, limited], large=large)
    by_case = {of.case: of.better for of in found.primary}
    assert by_case == {"scale 1": Better.MORE, "scale 2": Better.LESS}
    assert not found.averages  # of rates and latencies
    assert all(of.percent is not None for of in found.verdicts_on())
    (average,) = found.verdicts_on(AVERAGE)
    assert (average.case, average.percent, average.verdict) == (AVERAGE, None, Verdict.UNDECIDED)
    alone = pooled_of(small=closed, large=large[0])
    assert alone.verdicts_on(AVERAGE) == alone.verdicts_on()
    assert all(of.percent is not None for of in alone.verdicts_on())


BIAS = WarmUpBias(0.009, 0.05, Rise(0.1, 2.0), Rise(0.2, 2.0), p_value=1e-6, window_s=4.0, load_s=7.0)


@pytest.mark.parametrize(
    ("changes", "is_held_back"),
    [({"is_trending": True}, True), ({"bias": BIAS}, True), ({"bias": BIAS, "blocks": [0, 1, 2]}, False)],
    ids=["a trend", "a bias", "a bias in too few blocks"],
)
def test_a_held_back_result_of_any_file_of_a_machine_is_held_back(
    changes: dict[str, Any], is_held_back: bool
) -> None:
    studies = findings_of(first=SMALL, second=AGAIN)
    case = studies["second"].first
    trending = replace(case, comparisons=[replace(of, **changes) for of in case.comparisons])
    studies = {**studies, "second": replace(studies["second"], cases=[trending])}
    (over,) = find_hosts(studies).primary
    assert bool(over.stalled) == is_held_back


def test_two_studies_of_one_machine_are_blocks_of_one_host_with_a_note() -> None:
    found = pooled_of(monday=SMALL, tuesday=AGAIN, large=LARGER)
    assert [host.name for host in found.hosts] == ["monday and tuesday", "large"]
    (over,) = found.primary
    assert over.percent.n == 2 and [of.summary.n for of in over.pooled.hosts] == [12, 6]
    (caveat,) = [of for of in found.caveats if of.kind == "one-machine"]
    assert caveat.parameters["files"] == "monday and tuesday"
    rows = list(csv.DictReader(io.StringIO(build_hosts(found).csv())))
    files = {f"{row['host']}: {row['file']}" for row in rows}
    assert files == {"monday and tuesday: monday", "monday and tuesday: tuesday", "large: large"}


def test_passes_stay_together_after_a_file_that_ended_in_the_midst_of_one() -> None:
    whole, cut = cases(SMALL, ("100", "500"))
    studies = findings_of(
        monday=[whole, replace(cut, blocks=5, seed=3)], tuesday=cases(AGAIN, ("100", "500"))
    )
    monday, tuesday = (
        [of.comparisons[0].effects[of.primary.key].log_ratios for of in study.cases]
        for study in studies.values()
    )
    assert [sorted(of) for of in monday] == [list(range(6)), list(range(5))]
    together = {
        str(n): {**first, **{6 + block: d for block, d in then.items()}}
        for n, (first, then) in enumerate(zip(monday, tuesday, strict=True))
    }
    expected = combine(together, 0.95, Method.STUDENT)
    (average,) = find_hosts(studies).averages
    (host,) = average.pooled.hosts
    assert expected is not None and host.summary.sd == pytest.approx(expected.summary.sd)


def test_one_machine_alone_has_its_own_verdict_and_none_for_others() -> None:
    found = pooled_of(monday=SMALL, tuesday=AGAIN)
    (over,) = found.primary
    assert over.pooled.over_hosts.low is None and over.percent.n == 12
    (headline,) = build_hosts(found).headlines
    assert headline.verdict is Verdict.FASTER and "monday and tuesday" in headline.claim
    assert "1 host, 12 blocks" in headline.basis
    assert headline.more


def test_identical_machines_are_distinguished_by_their_fingerprint() -> None:
    marked = [{**HOST, "machine": mark} for mark in ("aa", "bb")]
    found = pooled_of(a=replace(SMALL, blocks=2, host=marked[0]), b=replace(AGAIN, blocks=2, host=marked[1]))
    assert [host.name for host in found.hosts] == ["a", "b"]
    memory_bytes = HOST["memory_bytes"] - 10**7
    newer_kernel: dict[str, Any] = {**HOST, "kernel": "Linux 6.2", "memory_bytes": memory_bytes}
    assert is_same_machine(HOST, newer_kernel) and is_same_machine(HOST, marked[0])
    assert not is_same_machine(HOST, LARGE) and not is_same_machine(*marked)


def test_the_same_results_file_twice_is_rejected(tmp_path: Path) -> None:
    (path,) = written(tmp_path, a=replace(SMALL, blocks=2))
    copy = tmp_path / "copy.sqlite"
    shutil.copy(path, copy)
    with pytest.raises(EvidenceError, match="a and copy are copies of one file"):
        read_hosts([path, copy])
    with pytest.raises(UsageError, match="is given twice"):
        read_hosts([path, tmp_path / "." / "a.sqlite"])


def test_files_are_named_by_their_stems_and_where_these_are_the_same_by_their_folders() -> None:
    assert names_of_files([Path("a.sqlite"), Path("x/b.sqlite")]) == ["a", "b"]
    assert names_of_files([Path("a.sqlite"), Path("a.db")]) == ["a.sqlite", "a.db"]
    assert names_of_files([Path("/x/e.sqlite"), Path("/y/e.sqlite")]) == ["x/e", "y/e"]
    assert names_of_files([Path("/x/1/e.sqlite"), Path("/y/1/e.sqlite")]) == ["x/1/e", "y/1/e"]


def test_other_builds_on_another_host_are_a_caveat() -> None:
    found = pooled_of(small=SMALL, large=replace(LARGER, blocks=2, versions=("17.2", "18")))
    (caveat,) = [of for of in found.caveats if of.kind == "hosts-builds-differ"]
    assert "17: 17 on small, 17.2 on large" in caveat.text


def test_intervals_of_several_arms_are_simultaneous() -> None:
    three = replace(SMALL, names=("17", "18", "19"), effects=(1.0, 2.0, 1.0))
    again = replace(three, seed=5, created_unix_s=three.created_unix_s + 86_400)
    several = pooled_of(small=three, large=replace(three, host=LARGE, seed=4))
    for found in (several, pooled_of(monday=three, tuesday=again)):
        confidences = {over.arm: round(over.percent.confidence, 4) for over in found.primary}
        assert confidences == {"18": 0.975, "19": 0.95}


def test_a_host_with_a_block_in_which_nothing_was_done_leaves_it_undecided() -> None:
    found = pooled_of(small=SMALL, large=replace(LARGER, stalled=[(1, 1)]))
    (over,) = found.primary
    assert over.stalled == ["large"] and over.verdict(found.first.first.study.plan) is Verdict.UNDECIDED


def test_every_form_bears_hosts_that_have_hardly_begun() -> None:
    none = replace(SMALL, blocks=0)
    begun = build_hosts(pooled_of(small=none, large=replace(LARGER, blocks=1, ended=None)))
    empty = build_hosts(pooled_of(none=none, nor=replace(LARGER, blocks=0)))
    for name, form in FORMS.items():
        text = form(begun)
        assert "large" in text, name
        assert name not in ("terminal", "md", "html") or f"large: {UNFINISHED}" in plain(text), name
        assert form(empty), name


def test_names_and_facts_from_outside_stay_text(tmp_path: Path) -> None:
    hostile = {**LARGE, "processor": "<script>alert(1)</script>", "kernel": "|`*"}
    few = replace(SMALL, blocks=2)
    (one, other) = written(tmp_path, small=few, large=replace(few, host=hostile))
    other = other.rename(tmp_path / "<img src=x>.sqlite")
    built = read_hosts([one, other])
    for form in ("html", "md"):  # Markdown puts a backslash before
        assert not re.search(r"(?<!\\)<(script>alert|img)", FORMS[form](built)), form


def test_statements_are_pooled_one_by_one_and_on_the_average() -> None:
    def told(study: StudyFindings, ratios: Mapping[str, Sequence[float]]) -> StudyFindings:
        case = study.first
        some = case.comparisons[0].effects[case.primary.key]
        keys = {f"statement.mean_ms:{statement}": of for statement, of in ratios.items()}
        effects = {key: effect_of(some, of, key, Better.LESS) for key, of in keys.items()}
        telemetry = replace(case.telemetry, effects={1: effects})
        return replace(study, cases=[replace(case, telemetry=telemetry)])

    studies = findings_of(small=SMALL, large=LARGER)
    ratios: Mapping[str, Mapping[str, Sequence[float]]] = {
        "small": {"UPDATE a": [0.9, 0.92], "SELECT b": [1.2, 1.22], "END": [1, 1]},
        "large": {"UPDATE a": [1.1, 1.12], "SELECT b": [1.2, 1.22]},
    }
    found = find_hosts({name: told(study, ratios[name]) for name, study in studies.items()})
    by_key = {over.key: over for over in found.effects}
    update = by_key["statement.mean_ms:UPDATE a"]
    assert update.pooled.signs_differ and update.percent.value == pytest.approx(0.5, abs=1)
    assert by_key["statement.mean_ms:END"].absent == ["large"]
    (average,) = found.statements
    assert average.percent.value == pytest.approx(100 * (math.sqrt(1.005 * 1.21) - 1), abs=0.5)
    assert average.of_host("small") is not None and average.percent.n == 2
    tables = {table.title.partition(" (")[0]: table for table in tables_of(build_hosts(found))}
    assert any(row[0] == "UPDATE a" for row in tables["Change in mean statement time by host"].rows)
    assert "statement.mean_ms:UPDATE a" in checked_json(build_hosts(found))


def test_other_changes_of_many_cases_are_collapsed() -> None:
    few = Synthetic(effects=(1.0, 1.1), blocks=2, slices=2)
    scales = [str(scale) for scale in range(4)]
    built = build_hosts(pooled_of(a=cases(few, scales), b=cases(replace(few, host=LARGE), scales)))
    first, further, *_ = tables_of(built)
    assert not first.long and further.long and len(further.rows) > 36
    assert further.title in to_html(built) and further.title in on_terminal(built)
