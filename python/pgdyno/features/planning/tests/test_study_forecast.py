"""Forecast of a study from its file alone, without fetching or starting anything."""

import json
import os
import time
from pathlib import Path

import pytest
from example_builds import build

from example_studies import read_study
from pgdyno.cli.options import FittedFile
from pgdyno.features.capacity.search import STEPS_USUAL
from pgdyno.features.planning.command import plan_as_json, plan_lines
from pgdyno.features.planning.cost import CLUSTER_S, Rates, aa_share, costs_of, load_s, pass_s, window_s
from pgdyno.features.planning.forecast import AT_RUN_TIME, study_forecast, would_get
from pgdyno.server.builds import Version, parse_version_spec
from pgdyno.server.cache_directory import Cache
from pgdyno.server.directories import Account
from pgdyno.study.cases import cases_of
from pgdyno.study.defaults import MachineSize
from pgdyno.study.schedule import aa_arm_after

STUDIES = Path(__file__).parents[5] / "studies"
GIB = 2**30
MACHINE = MachineSize(4, 16 * GIB)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache.at(tmp_path / "cache", Account("ourselves", os.getuid(), os.getgid(), switch=False))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("17", "17.5 (embedded), cached"),
        ("17.4", "17.4, to be downloaded"),
        ("15", "15.18 (system), installed"),
        ("12.4", "12.3, the nearest available"),
        ("15.17", "15.18, the nearest available, installed or cached"),
        ("", AT_RUN_TIME),  # without lists of the sources nothing is guessed
    ],
)
def test_a_version_resolves_to_an_installed_listed_or_nearest_one(wanted: str, expected: str) -> None:
    system, embedded = [build("15.18", "system")], [build("17.5", "embedded")]
    listed = [Version(17, 4), Version(12, 3), Version(12, 7)]
    if not wanted:
        wanted, embedded, listed = "12.4", [], []
    found, words = would_get(parse_version_spec(wanted), system, embedded, listed)
    assert words == expected
    assert (found is not None) == expected.endswith(("cached", "installed"))


def test_lists_are_read_without_a_request(cache: Cache) -> None:
    assert cache.store().listed_lately() == []
    listed = {"listed_at_unix_s": time.time(), "versions": {"12.3": "a", "13.1": "b"}}
    (cache.root / "lists" / "npm.json").write_text(json.dumps(listed))
    assert cache.store().listed_lately() == [Version(13, 1), Version(12, 3)]


def test_a_study_is_forecast_from_its_repeats(cache: Cache) -> None:
    file = read_study((STUDIES / "edb-2020-tproc-c-12-vs-13.toml").read_text(), "edb")
    found = study_forecast(file, cache, MACHINE)
    assert (len(found.cases), found.blocks, found.trials) == (16, 5, 160)
    without_aa_s = pass_s(found.cases, MACHINE) / (1 + aa_share(found.cases))
    assert found.total_s == pytest.approx(5 * without_aa_s) and found.total_s > 160 * 3900
    # 2000 warehouses on each of two servers, and a live copy of the two arms of one case.
    assert found.disk_bytes > 4 * 2000 * 100e6
    told = "\n".join(plan_lines(FittedFile(file), found))
    assert ("too little" in told) == (found.disk_bytes > found.disk_free_bytes)


TWO_CASES = """
title = "two cases"
compare = ["server"]
workload = {kind = "pgbench", scale = 1}
factors = {server = ["15", "16"], clients = [1, 2]}
run = {warmup = "2s", window = "4s", repeats = 30}
"""


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ("", "A/A blocks of identical arms, about"),
        ("repeats = 1,", "no A/A block: the study has few blocks per case"),
        ("aa = false,", "no A/A blocks: disabled by run.aa = false"),
        ('schedule = "sequential",', "no A/A blocks: the schedule sequential runs all blocks of one arm"),
    ],
)
def test_the_hidden_blocks_and_their_time_are_reported(cache: Cache, changed: str, words: str) -> None:
    text = TWO_CASES.replace("repeats = 30", "") if "repeats" in changed else TWO_CASES
    file = read_study(text.replace("run = {", f"run = {{{changed} ").replace(", }", "}"), "two")
    found = study_forecast(file, cache, MACHINE)
    assert words in "\n".join(plan_lines(FittedFile(file), found))
    run = [aa_arm_after(case.study, block) for case in found.cases for block in range(found.blocks)]
    assert found.aa_blocks == len(run) - run.count(None) == plan_as_json(FittedFile(file), found)["aa_blocks"]
    assert found.aa_blocks in ((0,) if changed else (2, 3, 4))
    if not changed:  # of two arms; an A/A block takes as long as a block
        every = len(found.cases) * found.blocks + found.aa_blocks
        assert found.aa_s == pytest.approx(found.total_s * found.aa_blocks / every)


def test_a_study_with_a_budget_uses_it_without_exceeding_it(cache: Cache) -> None:
    text = (STUDIES / "templates" / "upgrade.toml").read_text().replace("repeats = 15", 'budget = "30min"')
    file = read_study(text, "upgrade")
    found = study_forecast(file, cache, MACHINE)
    assert found.total_s == 1800
    assert found.blocks == int(1800 / found.pass_s)
    assert "30 min, the budget" in "\n".join(plan_lines(FittedFile(file), found))


@pytest.mark.parametrize(("repeats", "is_by_budget"), [(1000, True), (1, False)])
def test_a_study_with_repeats_and_a_budget_ends_at_the_first_of_them(
    cache: Cache, repeats: int, is_by_budget: bool
) -> None:
    both = f'repeats = {repeats}\nbudget = "30min"'
    text = (STUDIES / "templates" / "upgrade.toml").read_text().replace("repeats = 15", both)
    file = read_study(text, "upgrade")
    found = study_forecast(file, cache, MACHINE)
    assert found.blocks == (int(1800 / found.pass_s) if is_by_budget else 1)
    assert found.trials == 3 * found.blocks and (found.total_s == 1800) == is_by_budget
    assert ("30 min, the budget" in "\n".join(plan_lines(FittedFile(file), found))) == is_by_budget


def test_a_study_limited_by_transactions_reports_it(cache: Cache) -> None:
    file = read_study((STUDIES / "moppel-2022-a-billion-transactions.toml").read_text(), "billion")
    found = study_forecast(file, cache, MACHINE)
    assert "125,000,000 transactions per client" in "\n".join(plan_lines(FittedFile(file), found))
    assert plan_as_json(FittedFile(file), found)["cases"][0]["window_s"] is None


def test_a_study_that_searches_for_its_capacity_is_forecast_with_its_searches(cache: Cache) -> None:
    plain = (STUDIES / "templates" / "upgrade.toml").read_text()
    files = [
        read_study(text, "upgrade")
        for text in (plain, plain.replace("[run]", '[run]\ncapacity = "p99 < 20ms"'))
    ]
    without, found = (study_forecast(file, cache, MACHINE) for file in files)
    study = found.cases[0].study
    assert (without.search_s, study.slice_s, study.discard_s, len(study.arms)) == (0.0, 0.5, 0.05, 3)
    # Two seconds of closed loop, then the usual steps with 1300 transactions at 0.7 of 300 per core.
    assert found.search_s == pytest.approx(2 + STEPS_USUAL * (1300 / (0.7 * 300 * 4) + 0.05))
    assert found.pass_s == pytest.approx(without.pass_s + (1 + aa_share(found.cases)) * 3 * found.search_s)
    assert found.disk_bytes > without.disk_bytes
    assert "about 20 s capacity search, then" in "\n".join(plan_lines(FittedFile(files[1]), found))
    assert "capacity" not in "\n".join(plan_lines(FittedFile(files[0]), without))
    assert plan_as_json(FittedFile(files[1]), found)["search_s"] == found.search_s


def test_a_measured_load_takes_the_time_of_its_data_in_each_trial_and_none_before() -> None:
    name = "load-time.toml"
    cases = cases_of(read_study((STUDIES / "templates" / name).read_text(), name))
    costs = costs_of(cases)
    size_bytes = costs[0][0].data.bytes_at(1)
    assert size_bytes > 20 * 100e6
    assert window_s(cases[0].study, MACHINE) == pytest.approx(size_bytes / Rates().load_bytes_per_s)
    assert load_s(costs) == CLUSTER_S
