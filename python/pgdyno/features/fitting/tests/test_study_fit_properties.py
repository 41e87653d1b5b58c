"""Invariants of every fit, for any study, machine and time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from pgdyno.errors import UsageError
from pgdyno.features.fitting.fit import FitMachine, Fitted, fit_study
from pgdyno.features.fitting.rules import BLOCKS_MIN, DISK_SHARE, contrasted_of, value_or_default, wal_bytes
from pgdyno.features.planning.cost import arms_of, costs_of, disk_bytes, pass_s, window_s
from pgdyno.study.cases import cases_of
from pgdyno.study.study_file import StudyFile
from pgdyno.study.study_file_reader import errors_of

GB = 2**30
SOURCE = FitMachine(16, 64 * GB, 10_000 * GB)
EXAMPLES = settings(max_examples=20)

TUNED = st.fixed_dictionaries(
    {"shared_buffers": st.sampled_from(["32MB", "128MB", "2GB", "16GB", "48GB"])},
    optional={
        "work_mem": st.sampled_from(["4MB", "20971kB", "1GB"]),
        "max_wal_size": st.sampled_from([512, "8GB", "300GB"]),
        "checkpoint_timeout": st.sampled_from(["30s", 300, "15min", "1h"]),
        "max_parallel_workers": st.sampled_from([2, 8, 16]),
    },
)


def numbers(most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, most), min_size=1, max_size=5, unique=True)


@st.composite
def studies(draw: st.DrawFn) -> StudyFile:
    """Studies of either workload, with any of its parts fixed or a factor."""
    kind = draw(st.sampled_from(["tpcc", "pgbench"]))
    size, most = ("warehouses", 2000) if kind == "tpcc" else ("scale", 8000)
    workload: dict[str, Any] = {"kind": kind}
    factors: dict[str, Any] = {"server": draw(st.sampled_from([["12", "13"], ["10", "14", "18"]]))}
    drive: dict[str, Any] = {}
    compare = ["server"]
    for name, table, top in ((size, workload, most), ("clients", drive, 300)):
        if draw(st.booleans()):
            factors[name] = draw(numbers(top))
        else:
            table[name] = draw(st.integers(1, top))
    data: dict[str, Any] = {}
    if draw(st.booleans()):
        factors["settings"] = {"untuned": {}, "tuned": draw(TUNED)}
        compare += draw(st.sampled_from([[], ["settings"]]))
    else:
        data["settings"] = draw(TUNED)
    if draw(st.integers(0, 3)):
        machine = {"cores": SOURCE.cores, "memory": SOURCE.memory_bytes}
        data["source"] = {"author": "a", "year": 2020, "title": "b", "machine": machine}
    return StudyFile.of(
        data
        | {
            "title": "a study",
            "compare": compare,
            "workload": workload,
            "factors": factors,
            "drive": drive,
            "run": draw(runs()),
            "fit": draw(fits(factors)),
        }
    )


@st.composite
def runs(draw: st.DrawFn) -> dict[str, Any]:
    run: dict[str, Any] = draw(st.sampled_from([{"repeats": 1}, {"repeats": 12}, {"budget": "2h"}]))
    run = {**run, "warmup": draw(st.sampled_from([0, 5, 300]))}
    run = {**run, **draw(st.sampled_from([{}, {"capacity": "p99 < 20ms"}, {"capacity": "p99.9 < 20ms"}]))}
    schedules = ["slices", "blocks"] + (["sequential"] if "repeats" in run else [])
    run["schedule"] = draw(st.sampled_from(schedules))
    if run["schedule"] != "slices" and draw(st.booleans()):
        return {**run, "transactions": draw(st.integers(1, 100_000_000))}
    longest = 3600 if run["schedule"] == "slices" else 36_000  # the plan has a limit of rounds
    return {**run, "window": draw(st.sampled_from([4, 60, 3600, longest]))}


@st.composite
def fits(draw: st.DrawFn, factors: dict[str, Any]) -> dict[str, Any]:
    drop = []
    for name in ("clients", "warehouses", "scale"):
        levels = factors.get(name, [])
        if len(levels) > 1 and draw(st.booleans()):
            drop.append({"factor": name, "levels": draw(st.permutations(levels))[: len(levels) - 1]})
    least = draw(st.sampled_from([{}, {"window_min": "30s"}]))
    return {"drop": drop, "keep_schedule": draw(st.booleans()), **least}


machines = st.builds(
    FitMachine,
    st.integers(1, 64),
    st.integers(1, 512).map(lambda n: n * GB),
    st.integers(1, 9000).map(lambda n: n * GB),
)
minutes = st.sampled_from([1, 10, 60, 600, 20_000])


@EXAMPLES
@given(studies(), machines, minutes)
def test_a_fit_keeps_its_invariants(file: StudyFile, machine: FitMachine, time: float) -> None:
    before = file.model_dump()
    try:
        fit = fit_study(file, machine, time)
    except UsageError as error:
        assert "disk" in str(error)
        reject()
    assert file.model_dump() == before
    assert fit_study(file, machine, time) == fit
    assert fit_study(fit.file, machine, time) == Fitted(fit.file, ())
    # It is a valid study file.
    assert list(errors_of(fit.file)) == []
    cases = cases_of(fit.file)
    assert cases and all(len(case.study.arms) >= 2 for case in cases)
    assert cases_of(StudyFile.of(fit.file.model_dump(by_alias=True, exclude_none=True))) == cases
    # It takes its share of the disk.
    growing_s = max(window_s(case.study, machine) for case in cases)
    contrasted = contrasted_of(costs_of(cases_of(file)))
    needed = disk_bytes(
        costs_of(cases), growing_s, machine.cores, lambda arm, factor: wal_bytes(arm, factor, contrasted)
    )
    assert needed <= DISK_SHARE * machine.disk_free_bytes
    # Two blocks fit into the time.
    takes_s = (fit.file.run.repeats or BLOCKS_MIN) * pass_s(cases, machine)
    told = any("not even 2 blocks" in change.why for change in fit.changes)
    assert takes_s <= 60 * time * (1 + 1e-9) or told
    require_clients_per_core(file, machine, fit)
    require_the_ratio_of_data_and_shared_buffers(file, fit)


def require_clients_per_core(file: StudyFile, machine: FitMachine, fit: Fitted) -> None:
    theirs, ours = (
        [level.value for level in of.factors.get("clients", ())] or [of.drive.clients]
        for of in (file, fit.file)
    )
    ratio = machine.cores / SOURCE.cores if file.source else 1
    assert ours and set(ours) <= {max(1, int(n * ratio + 0.5)) for n in theirs if n is not None}


def require_the_ratio_of_data_and_shared_buffers(file: StudyFile, fit: Fitted) -> None:
    """They keep their ratio, or the change is reported."""
    told = any(
        ("shared_buffers" in one.key and " : " in one.key)
        or (one.key.startswith("factors.") and "all of them do not fit" in one.why)
        for one in fit.changes
    )
    if told or not file.source:
        return
    arms = [arms_of(costs_of(cases_of(of))) for of in (file, fit.file)]
    before, after = (max(arm.data.units for arm in of) for of in arms)
    sizes = [sorted({value_or_default(arm.settings, "shared_buffers") for arm in of}) for of in arms]
    for was, now in zip(*sizes, strict=True):
        assert now / was == pytest.approx(after / before, rel=0.15)


@EXAMPLES
@given(studies())
def test_on_the_machine_of_the_source_with_time_enough_nothing_changes(file: StudyFile) -> None:
    cases = cases_of(file)
    runs_s = (file.run.repeats or 5) * pass_s(cases, SOURCE)
    time = max(runs_s, file.run.budget_s or 0) / 60 + 1_000_000
    assume(file.run.budget_s is None or 2 * pass_s(cases, SOURCE) <= file.run.budget_s)
    huge = FitMachine(SOURCE.cores, SOURCE.memory_bytes, 10**18)
    assert fit_study(file, huge, time) == Fitted(file, ())
