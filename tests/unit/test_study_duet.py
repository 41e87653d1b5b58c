"""Duet: CPU partitions of a machine, their assignment, and studies that support it."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_studies import make_study
from pgdyno.cli import options as cli_options
from pgdyno.cli.compare import BlockOptions, DesignOptions, study_of
from pgdyno.cli.options import ClientOptions
from pgdyno.cli.workload_options import Which, WorkloadOptions
from pgdyno.errors import UsageError
from pgdyno.measure.engine_runs import Pinning, drive_specification
from pgdyno.measure.prepare import with_cpu_partition
from pgdyno.server.settings import usable_cores
from pgdyno.study.arm_spec import parse_arms
from pgdyno.study.defaults import (
    Core,
    MachineSize,
    Partition,
    default_clients,
    fit_block_layout,
    partition_of,
    whole_rounds,
)
from pgdyno.study.plan import Study, block_targets
from pgdyno.study.schedule import PlannedSlice, block_of


def duet(**changes: object) -> Study:
    return make_study(**{"schedule": "duet", **changes})


def machine(*shape: tuple[int, int], first: int = 0) -> list[Core]:
    """A machine with processors by (package, physical core), numbered in this order."""
    return [Core(package, core, number) for number, (package, core) in enumerate(shape, first)]


@pytest.mark.parametrize(
    ("cores", "sides", "resting"),
    [
        (machine((0, 0), (0, 1), (0, 2)), ((0,), (2,)), (1,)),
        # Threads of a core stay together, however they are numbered.
        (machine((0, 0), (0, 1), (0, 0), (0, 1)), ((0, 2), (1, 3)), ()),
        (machine((0, 0), (0, 0), (0, 1), (0, 1), (0, 2), (0, 2)), ((0, 1), (4, 5)), (2, 3)),
        # Two packages, each with its own memory: one partition each.
        (machine((0, 0), (1, 0), (0, 1), (1, 1)), ((0, 2), (1, 3)), ()),
        # Only one thread of a core is available: each partition has one.
        (machine((0, 0), (0, 0), (0, 1)), ((0,), (2,)), (1,)),
    ],
)
def test_the_halves_have_as_many_cores_each(
    cores: list[Core], sides: tuple[tuple[int, ...], tuple[int, ...]], resting: tuple[int, ...]
) -> None:
    assert partition_of(cores) == Partition(cores=sides, resting=resting)
    assert partition_of(reversed(cores)) == partition_of(cores)


def test_cpu_partitions_of_a_single_core_are_marked() -> None:
    assert partition_of(machine((0, 0), (0, 0))) == Partition(cores=((0,), (1,)), of_one_core=True)


def test_one_core_has_no_halves() -> None:
    with pytest.raises(UsageError, match=r"at least 2 cores.*\(got 1\): use the schedule slices"):
        partition_of(machine((0, 0)))


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 7)), min_size=2, max_size=40),
    st.randoms(use_true_random=False),
)
def test_halves_share_nothing_and_leave_the_least(shape: list[tuple[int, int]], random: object) -> None:
    cores = machine(*shape)
    found = partition_of(cores)
    assert sorted([*found.all, *found.resting]) == [core.number for core in cores]
    place = {core.number: (core.package, core.core) for core in cores}
    sides = [{place[number] for number in half} for half in found.cores]
    assert found.of_one_core == (len(set(shape)) == 1)
    assert found.of_one_core or not sides[0] & sides[1]


def test_the_kernel_reports_the_threads_of_a_core(tmp_path: Path) -> None:
    ours = sorted(os.sched_getaffinity(0))
    for number in ours:
        topology = tmp_path / f"cpu{number}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text("3\n")
        (topology / "core_id").write_text(f"{number // 2}\n")
    assert usable_cores(tmp_path) == [Core(3, number // 2, number) for number in ours]
    assert usable_cores(tmp_path / "nothing") == [Core(0, number, number) for number in ours]


@given(seed=st.integers(0, 2**53 - 1), rounds=st.integers(1, 20))
def test_each_arm_has_each_half_once_in_two_rounds(seed: int, rounds: int) -> None:
    study = duet(seed=seed, rounds=2 * rounds)
    block = block_of(study, 3)
    assert block == block_of(study, 3)
    for role, n in (("warm-up", 4), ("measure", 2 * rounds)):
        part = [s for s in block.slices if s.role == role]
        halves = [{s.arm: s.cpu_partition for s in part if s.round == r} for r in range(n)]
        assert len(part) == 2 * n
        assert all(sorted(of.values()) == [0, 1] and sorted(of) == [0, 1] for of in halves)
        assert all(halves[r][0] == halves[r + 1][1] for r in range(0, n, 2))


def test_the_initial_cpu_partition_is_random() -> None:
    slices = block_of(duet(rounds=800), 0).slices
    first = Counter(
        s.cpu_partition for s in slices if s.role == "measure" and s.arm == 0 and s.round % 2 == 0
    )
    # 400 fair coins: outside of 150..250 once in two million.
    assert 150 <= first[0] <= 250


def test_the_two_of_a_round_are_one_slice_of_the_engine() -> None:
    driving = duet()
    slices = [
        *(PlannedSlice(arm, "warm-up", 0.5, 0, cpu_partition=arm) for arm in (0, 1)),
        *(PlannedSlice(arm, "measure", 1.0, 0, cpu_partition=arm) for arm in (0, 1)),
        *(PlannedSlice(arm, "measure", 1.0, 1, cpu_partition=1 - arm) for arm in (0, 1)),
    ]
    pinning = Pinning([(0, 2), (1, 3)], [101, 102])
    asked = drive_specification(driving, 1, slices, [("a", "x"), ("b", "y")], pinning=pinning)
    assert [target["postmaster_pid"] for target in asked["targets"]] == [101, 102]
    assert asked["slices"] == [
        {"targets": [0, 1], "cores": [[0, 2], [1, 3]], "role": "warm-up", "duration_s": 0.5},
        {"targets": [0, 1], "cores": [[0, 2], [1, 3]], "role": "measure", "duration_s": 1.0},
        {"targets": [0, 1], "cores": [[1, 3], [0, 2]], "role": "measure", "duration_s": 1.0},
    ]


def test_a_duet_resumes_on_the_same_cores() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("a duet needs two cores")
    ready = with_cpu_partition(duet())
    assert ready.cpu_partition.all <= os.sched_getaffinity(0)
    assert with_cpu_partition(Study.model_validate_json(ready.model_dump_json())) == ready
    elsewhere = ready.model_copy(update={"cpu_partition": Partition(cores=((901,), (902,)))})
    with pytest.raises(UsageError, match="run it on the same cores"):
        with_cpu_partition(elsewhere)
    assert with_cpu_partition(duet(schedule="slices")).cpu_partition is None


def test_the_partition_of_an_older_results_file_is_read() -> None:
    stored = duet().model_dump(mode="json")
    stored["halves"] = {"cores": [[0], [1]]}
    del stored["cpu_partition"]
    assert Study.model_validate_json(json.dumps(stored)).cpu_partition == Partition(cores=((0,), (1,)))


def test_a_duet_has_more_rounds_in_its_time_than_turns_have() -> None:
    of = block_targets()
    alternating = fit_block_layout(150.0, 2, 1.0, "slices", of)
    assert fit_block_layout(150.0, 1, 1.0, "duet", of).rounds > alternating.rounds
    assert whole_rounds(5.2, 1.0, "duet") % 2 == 0


@pytest.mark.parametrize(
    ("arms", "cores", "options", "schedule"),
    [
        (["17", "18"], 4, {}, "duet"),
        (["17", "18,work_mem=8MB"], 96, {"window_s": 20.0}, "duet"),
        (["17", "18"], 3, {}, "slices"),
        (["17", "host=h"], 8, {}, "slices"),
        (["18", "18,@starter"], 8, {}, "slices"),
        (["18", "18,max_parallel_workers=2"], 8, {}, "slices"),
    ],
)
def test_two_servers_on_four_cores_are_a_duet_by_default_if_valid(
    arms: list[str], cores: int, options: dict[str, Any], schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_options, "machine_size", lambda: MachineSize(cores, 2**34))
    workload = WorkloadOptions(Which(), *(of() for of in WorkloadOptions.types()[1:]))
    design = DesignOptions(BlockOptions(**options))
    study = study_of(tuple(parse_arms(arms)), None, None, design, ClientOptions(), workload)
    assert study.schedule == schedule
    whole_clients = default_clients(MachineSize(cores, 2**34))
    assert study.clients == (whole_clients // 2 if schedule == "duet" else whole_clients)
