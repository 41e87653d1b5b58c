"""Rules of the fit, one by one, with values computed by hand."""

from __future__ import annotations

from typing import Any

import pytest

from example_studies import make_file
from pgdyno.errors import StudyFileError
from pgdyno.features.fitting.fit import FitMachine, Fitted, fit_study
from pgdyno.features.fitting.levels import changed_values, fit_of, with_levels, without_level
from pgdyno.features.fitting.rules import (
    DISK_SHARE,
    Layout,
    RequestedLengths,
    Scales,
    contrasted_of,
    fit_clients,
    fit_settings,
    floor_of,
    lay_out,
    quantity,
    scaled,
    shortest,
    wal_bytes,
    written,
)
from pgdyno.features.planning.cost import Data, costs_of, data_of, disk_bytes, load_s, units_at, window_s
from pgdyno.study.cases import cases_of
from pgdyno.study.study_file import StudyFile
from pgdyno.study.study_file_reader import errors_of
from pgdyno.study.values import Level
from pgdyno.workloads.pgbench.parameters import PgbenchParameters
from pgdyno.workloads.tpcc.parameters import TpccParameters

MB, GB = 2**20, 2**30


@pytest.mark.parametrize(
    ("name", "given", "factor", "contrasted", "expected"),
    [
        ("shared_buffers", "4GB", 0.5, False, "2GB"),
        ("shared_buffers", "32768", 0.25, False, "64MB"),  # a bare number is in blocks of 8 kB
        ("shared_buffers", "100MB", 0.01, False, "2MB"),  # the minimum
        ("shared_buffers", "1MB", 0.1, False, "1MB"),  # unless the source had less
        ("shared_buffers", "1GB", 0.01, True, "10488kB"),  # the untuned server also has a hundredth
        ("shared_buffers", "128MB", 0.5, False, "64MB"),  # the default also scales with the data
        ("work_mem", "128MB", 0.01, True, "128MB"),  # a treatment limited by a query, not by the data
        ("work_mem", "4MB", 0.01, False, "4MB"),  # the default
        ("wal_buffers", "1GB", 0.01, True, "16MB"),  # not below the untuned server
        ("work_mem", "20971kB", 0.25, False, "5240kB"),  # 5242.75 kB in blocks of 8 kB
        ("work_mem", "1GB", 1.5, False, "1536MB"),
        ("max_wal_size", "8192", 0.05, False, "410MB"),  # a bare number is in MB
        ("wal_buffers", "16MB", 0.1, False, "16MB"),
        ("max_worker_processes", "4", 0.5, False, "2"),
        ("max_worker_processes", "8", 0.25, False, "2"),  # of 8 cores, although it is the default
        ("max_worker_processes", "8", 0.25, True, "8"),
        ("max_parallel_workers_per_gather", "2", 0.1, False, "1"),
        ("checkpoint_timeout", "15min", 0.1, False, "90s"),
        ("checkpoint_timeout", "900", 0.2, False, "3min"),  # a bare number is in seconds
        ("checkpoint_timeout", "15min", 0.001, False, "30s"),  # PostgreSQL's least
        ("checkpoint_timeout", "5min", 0.2, False, "1min"),  # the default also scales with the window
        ("checkpoint_timeout", "15min", 0.5, True, "450s"),
    ],
)
def test_a_setting_keeps_its_ratio(
    name: str, given: str, factor: float, contrasted: bool, expected: str
) -> None:
    value = quantity(name, given)
    found = scaled(name, value, factor, contrasted=contrasted)
    assert (given if found == value else written(name, found)) == expected


@pytest.mark.parametrize("text", ["-1", "0", "many", "4gb", ""])
def test_a_value_that_is_not_a_quantity_is_unchanged(text: str) -> None:
    assert quantity("shared_buffers", text) is None


def a_study(**parts: Any) -> StudyFile:
    workload, run = {"kind": "pgbench", "scale": 100}, {"window": "20s", "repeats": 6}
    return make_file(**{"workload": workload, "drive": {"clients": 8}, "run": run, **parts})


def fitted_to(minutes: float = 10, cores: int = 2, **parts: Any) -> Fitted:
    return fit_study(a_study(**parts), FitMachine(cores, 24 * GB, 100 * GB), minutes)


@pytest.mark.parametrize(
    ("tuned", "other", "expected"),
    [
        ({"work_mem": "64MB"}, {}, {"work_mem"}),
        ({"work_mem": "64MB"}, {"work_mem": "4096"}, {"work_mem"}),
        ({"shared_buffers": "64MB"}, {"shared_buffers": "1GB"}, set()),
        ({"work_mem": "4MB"}, {"work_mem": "4MB"}, set()),
        ({"work_mem": "64MB"}, {"profiles": ["starter"]}, set()),
        ({"work_mem": "1MB"}, {"work_mem": "1024kB"}, set()),
        ({"work_mem": "512kB"}, {"work_mem": "1MB"}, {"work_mem"}),  # sizes of queries need no default
    ],
)
def test_a_setting_is_contrasted_where_only_some_arms_leave_its_default(
    tuned: dict[str, Any], other: dict[str, Any], expected: set[str]
) -> None:
    file = a_study(compare=["settings"], server="18", factors={"settings": {"tuned": tuned, "other": other}})
    found = contrasted_of(costs_of(cases_of(file)))
    assert found == expected
    if tuned == {"work_mem": "512kB"}:
        fitted, _ = fit_settings(file, Scales(0.3, 1.0, 1.0), found)
        assert [level.value["work_mem"] for level in fitted.factors["settings"]] == ["512kB", "1MB"]


def test_the_size_of_data_is_rounded_down_to_at_least_one_unit() -> None:
    assert [units_at(n, 0.1) for n in (1, 9, 10, 25, 2000)] == [1, 1, 1, 2, 200]
    assert units_at(2000, 5 / 2000) == 5


def test_the_size_of_data_follows_from_its_parameters() -> None:
    tpcc = data_of(TpccParameters(warehouses=10))
    assert tpcc.bytes_at(1) == 10 * 110_000_000 + 100_000_000
    plain = data_of(PgbenchParameters(scale=10))
    assert plain.bytes_at(1) == 10 * 16_000_000 + 100_000_000
    half_full = data_of(PgbenchParameters(scale=10, fillfactor=50))
    assert half_full.bytes_at(1) - plain.bytes_at(1) == 10 * 100_000 * 132
    indexed = data_of(PgbenchParameters(scale=10, indexes=("pgbench_accounts (bid, abalance)",)))
    assert indexed.bytes_at(1) - plain.bytes_at(1) == 10 * 100_000 * 31.2
    assert data_of(PgbenchParameters(scale=10, accounts_copy=True)).bytes_at(1) == 418_000_000


def test_a_dataset_is_loaded_once_and_has_a_live_copy_for_each_place_among_the_arms() -> None:
    # Two servers share the clients but not the two scales.
    file = a_study(
        workload={"kind": "pgbench", "variant": "select-only"},
        drive={},
        factors={"server": ["17", "18"], "clients": [1, 8], "scale": [10, 20]},
    )
    costs = costs_of(cases_of(file))
    small, large = (Data("", "pgbench", n, 16e6).bytes_at(1) for n in (10, 20))
    assert load_s(costs) == pytest.approx(2 * (5 + small / 100e6) + 2 * (5 + large / 100e6))
    wal = 16 * MB
    assert disk_bytes(costs, 60, 2, lambda *_: wal) == 2 * (small + large) + 2 * (small + large + 2 * wal)


def test_the_data_of_writing_workloads_grows_with_the_driven_time() -> None:
    file = a_study(workload={"kind": "tpcc", "warehouses": 10})
    costs = costs_of(cases_of(file))
    size = 1_200_000_000
    growth = 60 * 2 * 500_000  # for a minute on two cores
    assert disk_bytes(costs, 60, 2, lambda *_: 0) == 2 * size + 2 * (size + growth)
    assert disk_bytes(costs, 10**9, 2, lambda *_: 0) == 2 * size + 2 * 3 * size  # twice the data at most


@pytest.mark.parametrize(
    ("workload", "clients", "settings", "expected"),
    [
        ({"kind": "tpcc", "warehouses": 100}, 10, {}, 10 / 100),  # a warehouse each
        ({"kind": "pgbench", "scale": 100}, 10, {}, 20 / 100),  # two branches each
        ({"kind": "pgbench", "scale": 100, "variant": "select-only"}, 10, {}, 2 / 128),  # readers do not wait
        ({"kind": "tpcc", "warehouses": 100}, 10, {"shared_buffers": "8MB"}, 2 / 8),
        ({"kind": "tpcc", "warehouses": 100}, 500, {}, 1),
    ],
)
def test_the_size_of_data_has_a_minimum_for_clients_and_buffers(
    workload: dict[str, Any], clients: int, settings: dict[str, str], expected: float
) -> None:
    file = a_study(workload=workload, drive={"clients": clients}, settings=settings)
    assert floor_of(costs_of(cases_of(file)), keeps_buffers=True) == expected


def wanted(**parts: Any) -> RequestedLengths:
    values: dict[str, Any] = {
        "time_s": 600.0,
        "turns": 2,
        "fixed_s": 10.0,
        "window_s": 3600.0,
        "warmup_s": 360.0,
        "slice_s": 1.0,
        "blocks_max": 1,
    }
    return RequestedLengths(**(values | parts))


WHOLE = {"slice_s": None, "warmup_s": 0.0}


@pytest.mark.parametrize(
    ("parts", "least", "expected"),
    [
        # 10 s are fixed, and two trials have 10 s with a warm-up of 2: as many as fit.
        ({}, 5, (17, 10.0, 2.0)),
        ({"fixed_s": 60.0}, 5, (7, 10.0, 2.0)),
        # With 100 s fixed, five leave 20 s for both: 10 s with a warm-up of 2.
        ({"fixed_s": 100.0}, 5, (5, 8.0, 2.0)),
        ({"fixed_s": 110.0}, 5, None),  # not even windows of four slices fit
        ({"fixed_s": 110.0}, 4, (4, 10.0, 2.0)),
        ({"fixed_s": 700.0}, 2, None),
        # Windows of half the length or more make room for the 15 blocks of the verdict same.
        ({"fixed_s": 20.0, "blocks_max": None}, 5, (15, 8.0, 2.0)),
        ({"fixed_s": 20.0, "blocks_max": None, "may_be_same": False}, 5, (13, 10.0, 2.0)),
        ({"fixed_s": 20.0, "blocks_max": 14}, 5, (13, 10.0, 2.0)),
        ({"fixed_s": 25.0, "blocks_max": None}, 5, (12, 10.0, 2.0)),
        # 10 + 2 x 23 s: ten blocks of the thirty requested by the file, or fifteen of 10 + 2 x 15 s.
        ({"window_s": 20.0, "warmup_s": 3.0, "blocks_max": 30, "slice_s": None}, 5, (15, 13.0, 2.0)),
        ({"window_s": 20.0, "warmup_s": 3.0, "blocks_max": 14, "slice_s": None}, 5, (10, 20.0, 3.0)),
        # In slices, windows have at most ten seconds, unless the file requires more.
        ({"least_s": 20.0, "window_s": 20.0, "warmup_s": 3.0}, 5, (10, 20.0, 3.0)),
        ({"window_s": 8.0, "warmup_s": 3.0}, 5, (18, 8.0, 3.0)),
        # Trials without slices have a longer minimum.
        ({**WHOLE, "fixed_s": 98.0}, 5, (5, 11.0, 0.0)),
        ({**WHOLE, "fixed_s": 101.0}, 5, None),
        ({**WHOLE, "fixed_s": 98.0, "least_s": 30.0}, 5, None),
    ],
)
def test_the_time_is_divided_into_blocks_with_fitting_windows(
    parts: dict[str, Any], least: int, expected: tuple[int, float, float] | None
) -> None:
    assert lay_out(wanted(**parts), least) == (None if expected is None else Layout(*expected))


def test_the_shortest_windows_are_laid_out_even_if_they_do_not_fit() -> None:
    assert shortest(wanted(fixed_s=700.0)) == Layout(2, 4.0, 2.0)


def test_levels_that_meet_become_one_and_are_named_after_their_value_unless_they_have_names() -> None:
    one, two, three, four = (Level(name=str(n), value=n, place=n - 1) for n in (1, 2, 3, 4))
    mapped = changed_values([one, two, three, four], lambda n: (n + 1) // 2)
    assert mapped.levels == (one, two)
    assert mapped.names == {"1": "1", "2": "1", "3": "2", "4": "2"}
    named = Level(name="small", value=10, place="small")
    assert changed_values([named], lambda n: n // 2).levels == (named.model_copy(update={"value": 5}),)


def with_clients(**parts: Any) -> StudyFile:
    factors = {"server": ["17", "18"], "clients": [1, 2, 3, 4], "variant": ["default", "analytical"]}
    return a_study(drive={}, factors=factors, **parts)


def test_a_level_that_others_met_is_excluded_where_all_of_them_were() -> None:
    file = with_clients(exclude=[{"variant": "analytical", "clients": [2, 3, 4]}])
    halves = changed_values(file.factors["clients"], lambda n: (n + 1) // 2)
    met = with_levels(file, "clients", halves)
    assert met.exclude == ({"variant": "analytical", "clients": ("2",)},)
    assert list(errors_of(met)) == []


def test_an_exclusion_that_excludes_nothing_any_more_is_gone() -> None:
    file = with_clients(exclude=[{"variant": "analytical", "clients": 4}])
    assert with_levels(file, "clients", without_level(file.factors["clients"], "4")).exclude == ()
    assert with_levels(file, "variant", without_level(file.factors["variant"], "analytical")).exclude == ()


def test_a_number_whose_level_is_dropped_stays_and_one_without_it_is_still_measured() -> None:
    levels = {"server": "18", "scale": "100"}
    against = {"scale": "1"}
    columns = [{"title": "tps", "metric": "tps"}, {"title": "change", "metric": "tps", "show": "change"}]
    rows = [{"levels": levels, "against": against, "cells": [1.0, 2.0]}]
    file = a_study(
        compare=["server", "scale"],
        factors={"server": ["17", "18"], "scale": [1, 100]},
        workload={"kind": "pgbench"},
        published={"tables": [{"title": "t", "columns": columns, "rows": rows}]},
    )
    left = with_levels(file, "scale", without_level(file.factors["scale"], "1"))
    ((value, change),) = left.published.tables[0].figures()
    assert (value.metric, dict(value.levels), value.dropped) == ("tps", levels, False)
    assert value.against == {}
    assert (change.metric, change.show, change.dropped) == (None, "change", True)
    assert list(errors_of(left)) == []
    tenth = with_levels(file, "scale", changed_values(file.factors["scale"], lambda n: max(2, n // 10)))
    for figure in tenth.published.tables[0].figures()[0]:
        assert (figure.levels["scale"], figure.against) == ("10", {"scale": "2"})


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        # 0.02, 0.21, 0.52, 1.04 and 2.1 clients: 1 is more than twice the first two, and near the others.
        (2 / 96, {"1": None, "10": None, "25": "1", "50": "1", "100": "2"}),
        (0.001, {"1": "1", "10": "1", "25": "1", "50": "1", "100": "1"}),  # 1 is far from all
    ],
)
def test_a_number_of_merged_clients_is_measured_where_the_clients_per_core_are_near(
    cores: float, expected: dict[str, str | None]
) -> None:
    clients = [1, 10, 25, 50, 100]
    rows = [{"levels": {"clients": n}, "cells": [str(n), 1.0]} for n in clients]
    columns = [{"title": "clients"}, {"title": "tps", "metric": "tps"}]
    file = a_study(
        drive={},
        factors={"server": ["17", "18"], "clients": clients, "variant": ["default", "analytical"]},
        exclude=[{"variant": "analytical", "clients": [25, 50, 100]}],
        published={"tables": [{"title": "t", "columns": columns, "rows": rows}]},
    )
    left, _ = fit_clients(file, cores)
    figures = [row[1] for row in left.published.tables[0].figures()]
    found = [None if of.dropped else of.levels["clients"] for of in figures]
    assert dict(zip(expected, found, strict=True)) == expected
    # 1 client is excluded only if all levels that became it were.
    assert all("1" not in one["clients"] for one in left.exclude)
    assert list(errors_of(left)) == []


def test_droppable_levels_follow_changed_levels_and_never_include_all() -> None:
    file = with_clients(fit={"drop": [{"factor": "clients", "levels": [4, 3, 2]}]})
    halves = changed_values(file.factors["clients"], lambda n: (n + 1) // 2)
    (drop,) = fit_of(with_levels(file, "clients", halves)).drop
    assert drop.levels == ("2",)  # made of 3 and 4; also made of 1
    last = with_levels(file, "clients", without_level(file.factors["clients"], "1"))
    assert fit_of(last).drop[0].levels == ("4", "3")
    assert list(errors_of(last)) == []


def test_levels_of_a_setting_keep_their_ratios_and_stay_distinct() -> None:
    factors = {"settings.shared_buffers": ["1GB", "4GB"], "settings.jit": ["on", "off"], "clients": [1]}
    file = a_study(compare=["settings.jit"], server="15", factors=factors, drive={})
    fitted, changes = fit_settings(file, Scales(0.25, 1.0, 1.0), ())
    assert [level.value for level in fitted.factors["settings.shared_buffers"]] == ["256MB", "1GB"]
    assert [level.value for level in fitted.factors["settings.jit"]] == ["on", "off"]
    assert [(change.key, change.after) for change in changes if change.key.startswith("factors.")] == [
        ("factors.settings.shared_buffers", "256MB"),
        ("factors.settings.shared_buffers", "1GB"),
    ]
    with pytest.raises(StudyFileError, match="would leave the levels 2MB only"):
        fit_settings(file, Scales(0.0001, 1.0, 1.0), ())


def test_levels_of_shared_buffers_keep_the_automatic_wal_buffers_or_report_it() -> None:
    def fitted(*sizes: str) -> tuple[StudyFile, list[tuple[str, str]]]:
        factors = {"settings.shared_buffers": list(sizes)}
        file = a_study(compare=["settings.shared_buffers"], server="15", factors=factors)
        found, changes = fit_settings(file, Scales(0.083, 1.0, 1.0), ())
        return found, [(one.before, one.after) for one in changes if one.key == "settings.wal_buffers"]

    file, changes = fitted("512MB", "1GB")
    assert file.settings.values["wal_buffers"] == "16MB"
    assert [after for _, after in changes] == ["16MB"]
    file, changes = fitted("128MB", "256MB", "1GB")
    assert "wal_buffers" not in file.settings.values
    assert [before for before, _ in changes] == ["4MB, 8MB, 16MB"]


def long_run(schedule: str) -> dict[str, Any]:
    return {"window": "10min", "repeats": 6, "schedule": schedule}


def test_a_study_without_a_source_keeps_its_numbers_and_gets_shorter() -> None:
    parts = {"settings": {"shared_buffers": "1GB"}, "run": long_run("blocks")}
    file, fitted = a_study(**parts), fitted_to(**parts)
    assert fitted.file.workload == file.workload
    assert fitted.file.settings == file.settings
    assert fitted.file.drive == file.drive
    assert {change.key for change in fitted.changes} >= {"run.window", "run.schedule", "run.repeats"}


@pytest.mark.parametrize(
    ("before", "after", "parts"),
    [
        ("blocks", "slices", {}),
        ("duet", "duet", {}),
        ("duet", "slices", {"cores": 1}),
        ("blocks", "blocks", {"fit": {"keep_schedule": True}}),
        ("blocks", "blocks", {"settings": {"shared_buffers": "8GB"}}),  # 16 of 24 GB are more than 0.6
    ],
)
def test_servers_alternate_if_they_may_and_do_not_compete(
    before: str, after: str, parts: dict[str, Any]
) -> None:
    fitted = fitted_to(run=long_run(before), **parts)
    assert fitted.file.run.schedule == after
    changes = [change.after for change in fitted.changes if change.key == "run.schedule"]
    assert changes == ([after] if after != before else [])


MANY = {"server": ["17", "18"], "clients": [1, 2, 4, 8, 16]}


@pytest.mark.parametrize(
    ("minutes", "levels", "aa"), [(20, [1, 2, 4, 8, 16], True), (3, [1, 4, 16], None), (1, [1], False)]
)
def test_factors_lose_their_middle_levels_last_of_all_after_the_aa_blocks(
    minutes: float, levels: list[int], aa: bool | None
) -> None:
    fitted = fitted_to(minutes, drive={}, factors=MANY)
    assert [level.value for level in fitted.file.factors["clients"]] == levels
    if aa is not None:
        assert fitted.file.run.aa is aa
        assert [change.before for change in fitted.changes if change.key == "run.aa"] == ["true"] * (not aa)


@pytest.mark.parametrize("schedule", ["slices", "sequential"])
def test_a_study_that_cannot_be_fitted_is_reported(schedule: str) -> None:
    run = {"schedule": schedule, "repeats": 5, "warmup": 0, "window": "1min"}
    parts = {"workload": {"kind": "tpcc", "warehouses": 100}, "fit": {"keep_schedule": True}}
    fitted = fitted_to(1, run=run, **parts)
    (change,) = [change for change in fitted.changes if change.key == "run.repeats"]
    assert change.why == "not even 2 blocks of the shortest windows fit into 1 min"
    run = fitted.file.run
    if schedule == "slices":
        assert run.budget_s > 60
    else:  # it ends by its repeats
        assert (run.repeats, run.budget_s) == (2, None)
    assert list(errors_of(fitted.file)) == []
    assert fit_study(fitted.file, FitMachine(2, 24 * GB, 100 * GB), 1).changes == ()


def test_a_window_by_transactions_that_is_longer_than_its_share_of_the_time_has_its_room_on_the_disk() -> (
    None
):
    file = a_study(
        compare=["server", "settings"],
        workload={"kind": "tpcc"},
        drive={"clients": 33},
        factors={
            "server": ["12", "13"],
            "warehouses": [1, 2, 4],
            "settings": {"untuned": {}, "tuned": {"shared_buffers": "32MB"}},
        },
        run={"schedule": "blocks", "warmup": 0, "transactions": 891, "repeats": 1},
        fit={"drop": [{"factor": "warehouses", "levels": [1, 2]}], "window_min": "30s"},
    )
    machine = FitMachine(4, GB, 9 * GB)
    cases = cases_of(fit_study(file, machine, 1).file)
    contrasted = contrasted_of(costs_of(cases_of(file)))
    growing_s = max(window_s(case.study, machine) for case in cases)
    needed = disk_bytes(
        costs_of(cases), growing_s, machine.cores, lambda arm, factor: wal_bytes(arm, factor, contrasted)
    )
    assert needed <= DISK_SHARE * machine.disk_free_bytes
