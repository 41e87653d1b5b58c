"""Fits of the published studies, with the numbers computed by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from example_studies import read_study
from pgdyno.errors import UsageError
from pgdyno.features.capacity.search import STEPS_USUAL
from pgdyno.features.fitting.fit import (
    MEMORY_MIN_BYTES,
    Asked,
    FitMachine,
    Fitted,
    fit_study,
    losses,
    needs_of,
)
from pgdyno.features.fitting.levels import Mapped, with_levels
from pgdyno.features.fitting.rules import paired
from pgdyno.features.planning.cost import costs_of, load_s, pass_s
from pgdyno.study.cases import cases_of
from pgdyno.study.study_file import StudyFile
from pgdyno.study.study_file_reader import errors_of
from pgdyno.study.values import Level

STUDIES = Path(__file__).parents[5] / "studies"
EDB, MOPPEL_2019, MOPPEL_2022, PERCONA, PERCONA_SYSBENCH = (
    "edb-2020-tproc-c-12-vs-13",
    "moppel-2019-pgbench-11-vs-12",
    "moppel-2022-a-billion-transactions",
    "percona-2018-crash-safety",
    "percona-2018-sysbench-tpcc",
)
GB, TB = 2**30, 2**40
SMALL = FitMachine(2, 24 * GB, 50 * GB)
MINUTES = 10


@cache
def study(name: str) -> StudyFile:
    path = STUDIES / f"{name}.toml"
    return read_study(path.read_text(), path.name)


@cache
def small(name: str) -> Fitted:
    """Disable A/A blocks, so that the sums are of the arms only."""
    return fit_study(study(name).with_run(aa=False), SMALL, MINUTES)


def levels(file: StudyFile, factor: str) -> list[object]:
    return [level.value for level in file.factors[factor]]


def told(fitted: Fitted, key: str) -> list[tuple[str, str]]:
    return [(change.before, change.after) for change in fitted.changes if change.key == key]


@pytest.mark.parametrize("name", [EDB, MOPPEL_2019, MOPPEL_2022, PERCONA, PERCONA_SYSBENCH])
def test_a_published_study_fitted_to_a_small_machine_can_be_run_there(name: str) -> None:
    fitted = fit_study(study(name), SMALL, MINUTES)
    cases = cases_of(fitted.file)
    assert list(errors_of(fitted.file)) == []
    assert 5 * pass_s(cases, SMALL) <= 60 * MINUTES
    assert load_s(costs_of(cases)) <= 60 * MINUTES
    assert fit_study(fitted.file, SMALL, MINUTES) == Fitted(fitted.file, ())
    assert fitted.changes
    for change in fitted.changes:
        assert change.before != change.after and change.why, change.key


@pytest.mark.parametrize(
    ("name", "machine", "hours"),
    [
        # 2 settings x 8 numbers of users x 2 versions x 5 blocks of 65 minutes are 173 hours, and restores.
        (EDB, FitMachine(96, 384 * GB, 8 * TB), 400),
        # 29 cases of two hours x 2 versions x 5 blocks are 580 hours.
        (MOPPEL_2019, FitMachine(4, 16 * GB, 4 * TB), 800),
        # A billion transactions, 1200 a second, twice two times, are 38 days, and A/A blocks a fifth of that.
        (MOPPEL_2022, FitMachine(4, 16 * GB, 4 * TB), 1200),
        # 4 settings x 5 blocks of ten hours, and an A/A block of two trials.
        (PERCONA, FitMachine(56, 256 * GB, 8 * TB), 240),
    ],
)
def test_a_published_study_is_unchanged_on_the_machine_of_its_source(
    name: str, machine: FitMachine, hours: float
) -> None:
    assert fit_study(study(name), machine, 60 * hours) == Fitted(study(name), ())


def test_edb_on_a_small_machine() -> None:
    fitted = small(EDB)
    file = fitted.file
    # 2 of 96 cores: 1, 10, 25, 50 are 0.02 to 1.04; 75 and 100 are 1.6 and 2.1; 250 and 500 are 5.2, 10.4.
    assert told(fitted, "factors.clients")[0] == ("1, 10, 25, 50, 75, 100, 250, 500", "1, 2, 5, 10")
    # 2 comes from 75 and 100, 10 from 500: [fit] allows dropping these, in this order. 5 comes from 250 and
    # stays.
    assert levels(file, "clients") == [1, 5]
    # One warehouse per client: 5, although 1/16 (24 of 384 GB) of 2000 is 125.
    assert file.workload["warehouses"] == 5
    tuned = file.factors["settings"][1].value
    assert tuned["shared_buffers"] == "256MB"  # 100 GB x 5 / 2000
    assert file.settings.values["shared_buffers"] == "2MB"  # the minimum of the untuned servers
    assert tuned["effective_cache_size"] == "896MB"  # 350 GB x 5 / 2000
    assert file.settings.values["effective_cache_size"] == "10488kB"
    assert tuned["max_wal_size"] == "768MB"  # 300 GB x 5 / 2000
    assert file.settings.values["max_wal_size"] == "32MB"  # two segments, the minimum
    assert tuned["work_mem"] == "128MB"
    assert tuned["autovacuum_max_workers"] == 10
    # 4 cases x 2 versions = 8 trials: 1 s, 650 MB at 300 and at 150 MB/s = 6.5 s, and 7 s of driving: 116 s.
    assert pass_s(cases_of(file), SMALL) == pytest.approx(116)
    assert (file.run.warmup_s, file.run.window_s) == (2, 5)
    assert (file.run.repeats, file.run.budget_s) == (None, 600)
    assert file.run.schedule == "slices"
    assert told(fitted, "data : memory") == [("0.534", "0.0213")]  # 220 of 412 GB, 0.55 of 25.8 GB


def test_moppel_2019_on_a_small_machine() -> None:
    fitted = small(MOPPEL_2019)
    file = fitted.file
    assert told(fitted, "factors.clients")[0] == ("1, 2, 3, 4", "1, 2")  # 0.5, 1, 1.5 and 2
    assert levels(file, "clients") == [1]
    # 16 MB per branch, twice as much in the analytical cases: the largest with which restores and checks of
    # five blocks take 200 s.
    assert levels(file, "scale") == [4, 42]
    assert file.settings.values["shared_buffers"] == "86MB"  # 2 GB x 42 / 1000
    assert file.settings.values["work_mem"] == "43MB"
    assert file.settings.values["random_page_cost"] == "2"
    # 4 variants x 2 scales x 2 versions x 5 s in each of five blocks are 400 s.
    assert len(cases_of(file)) == 8
    assert (file.run.warmup_s, file.run.window_s) == (0, 4)
    assert file.run.schedule == "slices"


def test_moppel_2022_on_a_small_machine() -> None:
    fitted = small(MOPPEL_2022)
    file = fitted.file
    assert file.drive.clients == 4  # two per core
    # A trial restores, checks, vacuums, inspects twice: 1/300 + 1/1000 + 1/300 + 2/1000 = 1/103.4 s/MB.
    # Ten trials of (19.12 MB x branches + 100 MB) / 103.4 in 200 s: 102.9 branches.
    assert file.workload["scale"] == 102
    assert file.settings.values["shared_buffers"] == "84MB"  # 4 GB x 102 / 5000: 83.6
    assert file.settings.values["work_mem"] == "424kB"  # 20971 kB x 102 / 5000: 427.8, in blocks of 8 kB
    assert file.settings.values["wal_buffers"] == "16MB"  # the maximum of PostgreSQL's default
    assert file.settings.values["max_worker_processes"] == "2"
    assert file.settings.values["max_parallel_workers_per_gather"] == "1"  # 2 of 4 cores
    # Ten trials of 1 s, 19.8 s of data and 2 s of warm-up leave 37 s for each; 2 cores x 1000 transactions a
    # second with data in memory, by 4 clients: 18 500, of which two digits are kept.
    assert file.run.transactions == 18_000
    assert file.run.schedule == "blocks"
    assert told(fitted, "data : memory") == [("5.56", "0.0757")]


def test_percona_on_a_small_machine() -> None:
    fitted = small(PERCONA)
    file = fitted.file
    assert file.drive.clients == 2  # 56 threads on 56
    assert [level.name for level in file.factors["settings"]] == ["default", "crash-safe", "crash-unsafe"]
    # Five blocks of three arms: 15 x (1/300 + 1/150) s/MB x (110 MB x warehouses + 100 MB) <= 200 s: 11.2.
    assert file.workload["warehouses"] == 11
    safe = file.factors["settings"][1].value
    assert safe["shared_buffers"] == "2163MB"  # 192 GB x 11 / 1000
    assert "wal_buffers" not in safe  # 16 MB on both
    assert file.factors["settings"][0].value["wal_buffers"] == "4MB"  # of 128 MB, 1/32
    assert safe["work_mem"] == "4MB"
    assert safe["checkpoint_timeout"] == file.settings.values["checkpoint_timeout"] == "30s"
    assert file.run.schedule == "blocks"  # it says so
    # 120 s a pass for three trials: 1 s, 10 s of recovery, 13.1 s of data leave 15.9 s.
    assert (file.run.warmup_s, file.run.window_s) == (0, 15)


def test_more_time_gives_larger_data_and_more_levels_and_not_longer_windows() -> None:
    hour, day = (fit_study(study(EDB), SMALL, minutes).file for minutes in (60, 24 * 60))
    assert levels(hour, "clients") == [1, 5]
    assert levels(day, "clients") == [1, 2, 5, 10]
    assert hour.workload["warehouses"] < day.workload["warehouses"]
    assert hour.run.window_s == day.run.window_s == 30  # two timed checkpoints of servers that alternate


@pytest.mark.parametrize("name", [EDB, PERCONA, PERCONA_SYSBENCH])
def test_default_and_tuned_arms_keep_their_own_ratios_to_the_data(name: str) -> None:
    """Those to the memory settings are kept within a factor of two, and two checkpoints are 30 s apart."""
    fitted = fit_study(study(name), SMALL, 30)
    assert fitted.lost == ()
    cases, turns = cases_of(fitted.file), 2 if fitted.file.run.schedule == "slices" else 1
    assert all(turns * case.study.rounds * case.study.slice_s >= 60 for case in cases)


def test_a_fit_that_loses_the_question_names_the_loss_and_the_needs() -> None:
    fitted = fit_study(study(EDB), SMALL, 3)
    assert {change.key for change in fitted.lost} >= {"data : shared_buffers", "timed checkpoints per window"}
    (need,) = needs_of(study(EDB), SMALL, 3, fitted)
    assert need.memory_bytes is None and 3 < need.minutes < 30
    assert fit_study(study(EDB), SMALL, need.minutes).lost == ()


def test_arms_that_became_equal_or_were_dropped_are_lost() -> None:
    file = study(PERCONA)
    asked = Asked(file, 56, 256 * GB)
    tuned = file.factors["settings"][1]
    equal = Level(name=tuned.name, value={**tuned.value, "shared_buffers": "128MB"}, place=tuned.name)
    names = [level.name for level in file.factors["settings"]]
    mapped = Mapped(
        (file.factors["settings"][0], equal), {**dict.fromkeys(names), names[0]: names[0], names[1]: names[1]}
    )
    lost = losses(file, asked, replace(asked, file=with_levels(file, "settings", mapped)))
    found = {change.key: change.why for change in lost}
    assert "no longer differ" in found["shared_buffers"]
    assert "dropped" in found["factors.settings"]  # crash-unsafe, which [fit] does not allow
    assert losses(file, asked, asked) == []


def test_a_setting_whose_levels_were_dropped_is_lost() -> None:
    file = study(MOPPEL_2022)
    levels_of = tuple(Level(name=text, value=text, place=n) for n, text in enumerate(("on", "off")))
    with_factor = file.model_copy(update={"factors": {**file.factors, "settings.jit": levels_of}})
    fewer = with_levels(with_factor, "settings.jit", Mapped(levels_of[:1], {"on": "on", "off": None}))
    asked = Asked(fewer, 4, 16 * GB)
    assert [one.key for one in losses(with_factor, asked, asked)] == ["factors.settings.jit"]


def test_data_larger_than_the_memory_need_a_limit_of_the_memory() -> None:
    fitted = fit_study(study(MOPPEL_2022), SMALL, 30)
    assert [change.key for change in fitted.lost] == ["data : memory"]
    # 5.6 times the memory exceeds the disk, whatever the time.
    need, more_disk = needs_of(study(MOPPEL_2022), SMALL, 30, fitted)
    assert need.minutes is need.disk_bytes is None
    assert need.memory_bytes < GB
    limited = fit_study(study(MOPPEL_2022), replace(SMALL, memory_bytes=need.memory_bytes), 30)
    assert limited.lost == () and limited.file.workload["scale"] == fitted.file.workload["scale"]
    assert (
        need.sentence == f'run.memory_limit = "{-(-need.memory_bytes >> 20)}MB" in a copy of the study file'
    )
    assert more_disk.disk_bytes > SMALL.disk_free_bytes and "of free disk space" in more_disk.sentence
    roomy = replace(SMALL, disk_free_bytes=more_disk.disk_bytes)
    assert fit_study(study(MOPPEL_2022), roomy, more_disk.minutes).lost == ()


def test_data_whose_memory_is_too_small_for_two_servers_need_more_minutes_too() -> None:
    fitted = fit_study(study(MOPPEL_2022), SMALL, 3)
    assert fitted.memory_bytes < MEMORY_MIN_BYTES
    (need,) = needs_of(study(MOPPEL_2022), SMALL, 3, fitted)
    assert need.memory_bytes >= MEMORY_MIN_BYTES
    limited = replace(SMALL, memory_bytes=need.memory_bytes)
    assert fit_study(study(MOPPEL_2022), limited, need.minutes).lost == ()


def test_the_time_that_keeps_the_question_names_the_levels_that_it_drops() -> None:
    (need,) = needs_of(study(MOPPEL_2019), SMALL, 30, fit_study(study(MOPPEL_2019), SMALL, 30))
    kept = fit_study(study(MOPPEL_2019), SMALL, need.minutes)
    assert kept.lost == () and len(kept.file.factors["scale"]) == 2
    assert "scale 5000" in need.sentence


def test_where_sizes_became_equal_the_largest_ones_are_compared() -> None:
    assert list(paired([1, 10, 100, 1000], [1, 6, 60])) == [(10, 1), (100, 6), (1000, 60)]
    assert list(paired([1], [])) == []


def test_a_disk_too_small_for_the_smallest_data_is_reported() -> None:
    with pytest.raises(UsageError, match="disk is too small"):
        fit_study(study(EDB), FitMachine(2, 24 * GB, GB), MINUTES)


def test_published_figures_follow_the_levels_they_belong_to() -> None:
    file = small(EDB).file
    found = {
        cells[0].text: (cells[4].metric, cells[4].levels.get("clients"))
        for cells in file.published.tables[0].figures()
    }
    assert found["25"] == found["50"] == ("tpm", "1")
    assert found["1"] == found["10"] == (None, None)  # 1 client on 2 cores is many more per core than on 96
    assert found["250"] == ("tpm", "5")
    assert found["500"] == (None, None)  # its level was dropped


def test_searches_for_the_capacity_are_fitted_into_the_time() -> None:
    """By hand: 2 cores answer 600 transactions per second, so a step for p99 takes at least 1300 / 420 s."""
    text = (STUDIES / "templates" / "upgrade.toml").read_text()
    sought = read_study(text.replace("[run]", '[run]\ncapacity = "p99 < 20ms"\naa = false'), "upgrade")
    plain = read_study(text.replace("[run]", "[run]\naa = false"), "upgrade")
    minutes = 15
    found, without = (fit_study(file, SMALL, minutes).file for file in (sought, plain))
    search_s = 2 + STEPS_USUAL * (1300 / 420 + 0.05)  # including the discarded part of a slice
    passes = [pass_s(cases_of(file), SMALL) for file in (found, without)]
    windows = [cases_of(file)[0].study for file in (found, without)]
    driven = [study.rounds * study.slice_s + study.warmup_s for study in windows]
    assert passes[0] - passes[1] == pytest.approx(3 * (search_s + driven[0] - driven[1]))
    assert 5 * passes[0] <= 60 * minutes and driven[0] < driven[1]
    assert fit_study(found, SMALL, minutes) == Fitted(found, ())


def test_another_value_of_fit_is_refused_in_the_same_words_by_run_and_plan(
    refusal: Callable[..., str],
) -> None:
    said = refusal(f"run {EDB} --fit=maybe --minutes 5")
    assert "--fit=maybe is invalid" in said
    assert refusal(f"study plan {EDB} --fit=maybe --minutes 5") == said


@pytest.mark.parametrize("command", ["run", "study plan"])
def test_a_study_of_loads_is_not_scaled(command: str, refusal: Callable[..., str]) -> None:
    said = refusal(f"{command} load-time --fit --minutes 5")
    assert "cannot scale a study of loads: make its dataset smaller" in said


def test_run_has_no_option_for_the_value_of_fit(refusal: Callable[..., str]) -> None:
    assert "--fit-how" in refusal(f"run {EDB} --fit-how anyway")
