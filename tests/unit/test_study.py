"""Plan of a study: arms, sizes, blocks."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from example_studies import make_study
from pgdyno.analysis.telemetry.metrics import TrialLatencies, of_plan
from pgdyno.cli.compare import command_of
from pgdyno.errors import UsageError
from pgdyno.server.connections import Dsn
from pgdyno.study import workload_parameters
from pgdyno.study.arm_spec import NAME_MAX, ArmSpec, parse_arm, parse_arms
from pgdyno.study.defaults import (
    MachineSize,
    default_clients,
    default_size,
    default_slice_s,
    discard_s,
    fit_block_layout,
)
from pgdyno.study.plan import SAME_BLOCKS_MIN, block_targets
from pgdyno.study.schedule import TRANSACTIONS_LIMIT_S, block_of, blocks_of, place_of
from pgdyno.study.workload_parameters import Pace, parameters_by_kind
from pgdyno.workloads.pgbench.parameters import PgbenchParameters
from pgdyno.workloads.tpcc.parameters import TpccParameters


@pytest.mark.parametrize(
    ("text", "server", "profiles", "settings"),
    [
        ("18", "18", (), {}),
        ("17.5,@starter", "17.5", ("starter",), {}),
        ("18,@starter,Work_Mem=16MB", "18", ("starter",), {"work_mem": "16MB"}),
        ("/usr/lib/postgresql/15/bin,fsync=off", "/usr/lib/postgresql/15/bin", (), {"fsync": "off"}),
        ("18,search_path=a,b,jit=off", "18", (), {"search_path": "a,b", "jit": "off"}),
        ("18,auto_explain.log_min_duration=1s", "18", (), {"auto_explain.log_min_duration": "1s"}),
    ],
)
def test_an_arm_is_a_server_then_profiles_then_settings(
    text: str, server: str, profiles: tuple[str, ...], settings: dict[str, str]
) -> None:
    arm = parse_arm(text)
    assert (arm.server, arm.profiles, arm.settings) == (server, profiles, settings)
    assert not arm.is_dsn


@pytest.mark.parametrize(
    ("build", "key", "value"),
    [
        ("git:/src/pg@v18", "build_options", "'CFLAGS=-O3 -g' --with-lz4"),
        ("18", "extension", "/src/a,git:~/b@main"),
    ],
)
def test_build_options_and_extensions_belong_to_the_build_and_not_to_the_settings(
    build: str, key: str, value: str
) -> None:
    arm = parse_arm(f"{build},{key}={value},jit=off")
    assert (arm.server, getattr(arm, key), arm.settings) == (build, value, {"jit": "off"})
    assert (arm.build, arm.full_name) == (f"{build},{key}={value}", f"{build},{key}={value},jit=off")
    assert ArmSpec.model_validate(arm.model_dump()) == arm
    assert key not in parse_arm(build).model_dump()


def test_a_wal_directory_is_neither_a_setting_nor_of_the_build() -> None:
    arm = parse_arm("18,wal_dir=/mnt/wal,jit=off")
    assert (arm.server, arm.build, arm.wal_dir, arm.settings) == ("18", "18", "/mnt/wal", {"jit": "off"})
    assert arm.full_name == "18,wal_dir=/mnt/wal,jit=off"
    assert ArmSpec.model_validate(arm.model_dump()) == arm and "wal_dir" not in parse_arm("18").model_dump()
    assert [arm.name for arm in parse_arms(["18", "18,wal_dir=/mnt/wal"])] == ["18", "wal_dir=/mnt/wal"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "names no server"),
        ("18,starter", "neither @PROFILE, @FILE nor SETTING=VALUE"),
        ("18,wal_dir=", "wal_dir has no value: add one, or remove wal_dir"),
        ("18,jit=off,extension=", "extension has no value"),
        ("18,build_options=--with-lz4", "built from a commit (got 18): name one as git:REF"),
        ("postgresql://h/db,work_mem=1MB", "running already"),
        ("postgresql://h/db?nonsense=1", "is none"),
    ],
)
def test_an_invalid_arm_is_a_usage_error_with_the_problem(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=re.escape(complaint)):
        parse_arm(text)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://u:s3cret@h:5433/db?sslmode=require",
        "postgres://h/db?password=s3cret&user=u",
        "host=h user=u password=s3cret",
        "host=h password = 's3cret word'",
        "password=s3cret user=u host=h",
        "sslmode=require host=h sslpassword=s3cret",
        "postgresql://u:zz?s3cret#1@h/db",
        "postgresql://h/db?pass%77ord=s3cret",
        r"host=h password=two\ s3cret",
        "connect_timeout=3 host=h password=s3cret",
    ],
)
def test_the_password_of_a_dsn_is_neither_in_its_name_nor_stored(dsn: str) -> None:
    arm = parse_arm(dsn)
    assert "s3cret" in arm.server
    assert "s3cret" not in arm.without_password().model_dump_json()
    typed = ["compare", dsn, "18", "--clients", "2"]
    study = make_study(arms=tuple(parse_arms([dsn, "18"])), seed=5)
    command = shlex.split(command_of(study, typed))
    shown = arm.without_password().server
    assert command == ["pgdyno", "compare", shown, "18", "--clients", "2", "--seed", "5"]
    assert "s3cret" not in "".join(command)


def test_arms_stored_without_a_password_can_be_reached_again() -> None:
    dsn = "postgresql://u:s3cret@h:5433/db"
    for arm in (arm.without_password() for arm in parse_arms([dsn, dsn])):
        assert Dsn(arm.server).conninfo == "user=u dbname=db host=h port=5433"


@given(seed=st.integers(0, 2**53 - 1), rounds=st.integers(1, 20), arms=st.integers(2, 5))
def test_every_round_is_followed_by_its_mirror_image(seed: int, rounds: int, arms: int) -> None:
    study = make_study(seed=seed, rounds=2 * rounds, arms=tuple(parse_arms(["18"] * arms)))
    turns = [s for s in block_of(study, 3).slices if s.role == "measure"]
    orders = [[s.arm for s in turns if s.round == r] for r in range(2 * rounds)]
    assert all(sorted(order) == list(range(arms)) for order in orders)
    assert all(orders[r + 1] == orders[r][::-1] for r in range(0, 2 * rounds, 2))


@given(seed=st.integers(0, 2**53 - 1))
def test_blocks_are_a_pure_function_of_the_seed_and_differ_from_each_other(seed: int) -> None:
    study = make_study(seed=seed, blocks_max=5)
    blocks = list(blocks_of(study))
    assert blocks[2:] == list(blocks_of(study, first=2))
    assert len({block.seed for block in blocks}) == 5


def test_each_arm_comes_first_about_as_often_as_the_other() -> None:
    study = make_study(blocks_max=400)
    first = Counter(block.order[0] for block in blocks_of(study))
    # 400 fair coins: outside of 150..250 once in two million.
    assert 150 <= first[0] <= 250


@given(st.integers(0, 2**32), st.integers(2, 5), st.integers(0, 20))
def test_arms_with_the_same_data_exchange_their_places_and_have_each_equally_often(
    seed: int, places: int, cycle: int
) -> None:
    blocks = range(cycle * places, (cycle + 1) * places)
    taken = [[place_of(seed, "d", block, arm, places) for arm in range(places)] for block in blocks]
    assert all(sorted(of_block) == list(range(places)) for of_block in taken)
    assert all(sorted(of_arm) == list(range(places)) for of_arm in zip(*taken, strict=True))


def test_places_are_drawn_anew_for_every_dataset_and_cycle() -> None:
    firsts = [[place_of(7, data, block, 0, 2) for block in range(0, 40, 2)] for data in ("17", "18")]
    assert all(set(of) == {0, 1} for of in firsts) and firsts[0] != firsts[1]
    assert place_of(7, "17", 3, 0, 1) == 0


def test_the_blocks_schedule_gives_every_arm_one_window_in_the_order_of_the_block() -> None:
    block = block_of(make_study(schedule="blocks", rounds=6), 0)
    assert [s.arm for s in block.slices if s.role == "measure"] == list(block.order)
    assert {s.duration_s for s in block.slices if s.role == "measure"} == {3.0}


@given(st.integers(0, 2**53 - 1))
def test_the_sequential_schedule_never_changes_the_order(seed: int) -> None:
    study = make_study(seed=seed, schedule="sequential", blocks_max=3)
    assert [block.order for block in blocks_of(study)] == [(0, 1)] * 3


def test_a_window_bound_by_transactions_has_time_as_a_limit_only() -> None:
    study = make_study(schedule="blocks", transactions=125_000_000, warmup_s=600.0)
    measured = [s for s in block_of(study, 0).slices if s.role == "measure"]
    assert [(s.transactions, s.duration_s) for s in measured] == [(125_000_000, TRANSACTIONS_LIMIT_S)] * 2


def test_arms_may_be_driven_differently() -> None:
    eight = {"workload": TpccParameters(warehouses=2), "clients": 8}
    study = make_study(drivings=[{"workload": TpccParameters(warehouses=2), "clients": 4}, eight])
    assert [study.driving(arm).clients for arm in (0, 1)] == [4, 8]
    assert [make_study().driving(arm).clients for arm in (0, 1)] == [4, 4]


@pytest.mark.parametrize(
    "wrong",
    [
        {"slice_s": 0.2, "discard_s": 0.2},
        {"workload": {"warehouses": 1, "pipeline": True}},
        {"unknown": 1},
        {"schedule": "blocks", "checkpoints": 1, "transactions": 5},
        {"drivings": [{"workload": TpccParameters(warehouses=1), "clients": 4}]},
        {
            "drivings": [
                {"workload": workload, "clients": 4}
                for workload in (TpccParameters(warehouses=1), PgbenchParameters(scale=1))
            ]
        },
    ],
)
def test_a_study_out_of_range_is_rejected(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        make_study(**wrong)


def test_sizes_follow_cores_and_memory() -> None:
    small = MachineSize(cores=2, memory_bytes=2 * 2**30)
    large = MachineSize(cores=96, memory_bytes=384 * 2**30)
    assert (default_clients(small), default_clients(large)) == (8, 384)
    assert default_size(small, clients=8, arms=2, unit_bytes=110e6) == 2
    assert default_size(large, clients=384, arms=2, unit_bytes=110e6) == 384


class Extended(PgbenchParameters):
    """Parameters of pgbench with those of a feature, and a rate with a unit of its own."""

    PACE = Pace("queries/h", None, 3600.0)

    own: int = 0


class ExtendedOtherwise(PgbenchParameters):
    """Parameters of pgbench with those of another feature."""


def test_a_workload_has_the_parameters_of_a_feature_only_if_they_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for order in ([PgbenchParameters, Extended], [Extended, PgbenchParameters]):
        monkeypatch.setattr(workload_parameters, "PARAMETERS", order)
        assert parameters_by_kind() == {"pgbench": Extended}
        assert parameters_by_kind(["scale"]) == {"pgbench": PgbenchParameters}
        assert parameters_by_kind(["scale", "own"]) == {"pgbench": Extended}


def test_two_features_that_extend_one_workload_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload_parameters, "PARAMETERS", [Extended, ExtendedOtherwise])
    with pytest.raises(TypeError, match="both extend the workload pgbench"):
        parameters_by_kind()


def test_a_workload_with_another_unit_has_transactions_per_second() -> None:
    study = make_study(workload=Extended(scale=1))
    assert of_plan(study, TrialLatencies())[0].unit == "tx/s"


@pytest.mark.parametrize("minutes", [1, 5, 7, 10, 60, 600])
def test_a_larger_budget_has_more_blocks_and_not_longer_ones(minutes: int) -> None:
    rhythm = fit_block_layout(minutes * 60, 2, 0.5, "slices", block_targets())
    window_s = 0.5 * rhythm.rounds
    assert rhythm.rounds % 2 == 0
    assert window_s == 10 if minutes >= 10 else 2 <= window_s < 10
    assert rhythm.warmup_s == (4 if minutes >= 10 else 3)
    alone = fit_block_layout(minutes * 60, 2, 1.0, "blocks", block_targets()).rounds
    assert alone == 60 if minutes >= 60 else alone < 60


@pytest.mark.parametrize(
    ("minutes", "design", "window_s"),
    [
        (5, {}, 5),
        (4, {}, 9),  # a third of the window would be left: eight blocks
        (5, {"stop": "budget"}, 10),
        (5, {"blocks_max": SAME_BLOCKS_MIN - 1}, 10),
        (5, {"blocks_max": SAME_BLOCKS_MIN}, 5),
    ],
)
def test_half_a_window_makes_room_for_the_blocks_of_the_verdict_same(
    minutes: int, design: dict[str, Any], window_s: float
) -> None:
    assert 0.5 * fit_block_layout(60 * minutes, 2, 0.5, "slices", block_targets(**design)).rounds == window_s


@pytest.mark.parametrize("slice_s", [0.1, 0.5, 1.0, 20.0])
@pytest.mark.parametrize("warmup_s", [0.0, 0.2, 1.0, 2.0, 7.0])
def test_the_warm_up_takes_the_requested_time_in_pairs_of_rounds(slice_s: float, warmup_s: float) -> None:
    study = make_study(warmup_s=warmup_s, slice_s=slice_s, discard_s=0.0)
    warm = [s for s in block_of(study, 0).slices if s.role == "warm-up"]
    for arm in range(2):
        assert sum(s.duration_s for s in warm if s.arm == arm) == pytest.approx(warmup_s)
    assert len(warm) % 4 == 0
    assert bool(warm) == (warmup_s > 0)


def test_slices_grow_with_the_clients_that_wait_for_each_other() -> None:
    two = MachineSize(cores=2, memory_bytes=2**33)
    assert [default_slice_s(two, clients) for clients in (1, 50, 51, 200, 2000)] == [0.5, 0.5, 1, 2, 32]
    assert default_slice_s(two, 100_000) == 60, "the longest slice"
    assert [default_slice_s(two, 1, drivers) for drivers in (5, 10, 100, 1000)] == [0.5, 1, 16, 60]
    assert fit_block_layout(300, 2, 20.0, "slices", block_targets()).rounds == 2


@given(st.floats(0.1, 60))
def test_the_discarded_part_is_5_to_10_percent_of_a_slice(slice_s: float) -> None:
    assert slice_s / 20 <= discard_s(slice_s) <= slice_s / 10
    assert discard_s(1.0) == 0.05


def test_the_package_names_one_version() -> None:
    root = Path(__file__).parents[2]
    from pgdyno import __version__

    assert f'version = "{__version__}"' in (root / "pyproject.toml").read_text()
    assert f'version = "{__version__}"' in (root / "Cargo.toml").read_text()


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["18", "18", "17", "18"], ["18", "18 (again 2)", "17", "18 (again 3)"]),
        (
            ["postgresql://u:s3cret@h/db", "dbname=db user=u host=h", "host=h dbname=db user=u password=x"],
            ["h/db", "h/db (again 2)", "h/db (again 3)"],
        ),
        (
            ["postgresql://u:secret@db.example:5433/shop?sslmode=require", "host=/run/pg dbname=shop user=u"],
            ["db.example:5433/shop", "/run/pg/shop"],
        ),
        (
            ["postgresql:///shop", "hostaddr=10.0.0.1", "service=prod password=secret"],
            ["local/shop", "10.0.0.1", "service prod"],
        ),
        (["17,work_mem=4MB", "18,work_mem=4MB"], ["17", "18"]),
        (["18", "18,synchronous_commit=off"], ["18", "synchronous_commit=off"]),
        (["18,@starter", "18,@starter,jit=off"], ["18", "jit=off"]),
        (["host=db", "18,jit=off"], ["db", "18,jit=off"]),
        (["/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/15/bin,jit=off"], ["…/15/bin", "jit=off"]),
        (["/src/old/pg/bin", "/src/new/pg/bin"], ["…/old/pg/bin", "…/new/pg/bin"]),
        (["/usr/pg/15/bin", "/usr/pg/15/bin/"], ["…/15/bin", "…/15/bin (2)"]),
        (["git:/src/pg@master~1", "git:/src/pg@master"], ["git:master~1", "git:master"]),
        (["git:origin/master", f"git:/pg@{'0123456789' * 4}"], ["git:origin/master", "git:0123456789"]),
        (["git:~/pg", "git:/pg@HEAD@{1}"], ["git:pg", "git:HEAD@{1}"]),
        (["old/bin", "/opt/new/bin"], ["old/bin", "…/new/bin"]),
        (["git:/a/pg@v18", "git:/b/pg@v18"], ["git:v18", "git:v18 (2)"]),
        (["18", "18,extension=/home/me/src/demo"], ["18", "extension=…/src/demo"]),
        (
            [f"18,shared_buffers=1GB,max_wal_size=8GB,work_mem={size}" for size in ("4MB", "64MB")],
            ["work_mem=4MB", "work_mem=64MB"],
        ),
        (
            ["18", "18,shared_buffers=1GB,max_wal_size=8GB", "18,shared_buffers=1GB,max_wal_size=9GB"],
            ["18", "shared_buffers=1GB,max_wal_size…", "shared_buffers=1GB,max_wal_size… (3)"],
        ),
    ],
)
def test_arms_have_names_that_are_short_and_distinct(texts: list[str], names: list[str]) -> None:
    arms = parse_arms(texts)
    assert [arm.name for arm in arms] == names
    assert [arm.full_name for arm in arms if "…" in arm.name] == [
        text for text, name in zip(texts, names, strict=True) if "…" in name
    ]


@given(
    st.lists(
        st.builds(
            lambda server, settings: ",".join([server, *(f"{k}={v}" for k, v in settings.items())]),
            st.sampled_from(
                ["18", "/a/b", "/a/b/c", "x/b/c", "/" + "long/" * 9 + "bin", "./bin", "~/pg/bin"]
            ),
            st.dictionaries(
                st.sampled_from(["jit", "work_mem", "w" * 30]), st.sampled_from("12"), max_size=3
            ),
        ),
        min_size=2,
        max_size=6,
    )
)
@example(
    [
        f"18,jit=1,work_mem=2,{'w' * 30}=2",
        f"18,jit=2,work_mem=1,{'w' * 30}=1",
        f"18,{'w' * 30}=1,jit=2,work_mem=1",
        f"18,{'w' * 30}=2,jit=1,work_mem=2",
    ]
)
def test_no_two_arms_have_one_name(texts: list[str]) -> None:
    names = [arm.name for arm in parse_arms(texts)]
    assert len({*names}) == len(names)
    assert max(map(len, names)) <= NAME_MAX + len(" (again 6)")


def test_a_prefix_of_an_arm_only_sets_its_name() -> None:
    plain, tuned = parse_arms(["18", "tuned=18,@starter,work_mem=4MB"])
    assert (tuned.name, tuned.is_named, tuned.full_name) == ("tuned", True, "18,@starter,work_mem=4MB")
    assert tuned.is_same(parse_arm("18,@starter,work_mem=4MB")) and not plain.is_named
    assert parse_arm("system,work_mem=4MB").settings == {"work_mem": "4MB"}
    running = parse_arm("prod=host=/tmp password=secret")
    assert (running.name, running.is_dsn) == ("prod", True)
    assert parse_arm("host=/tmp").is_dsn and "secret" not in running.full_name


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a=b=postgresql://u:secret@h/d"], "two names, a and b"),
        ([f"{'x' * 33}=18"], "longer than 32"),
        (["2nd=postgresql://u:secret@h/d"], "NAME of letters"),
        (["my prod=host=h password=secret"], "NAME of letters"),
    ],
)
def test_an_invalid_name_of_an_arm_is_rejected(texts: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        parse_arms(texts)
    assert "secret" not in str(raised.value)


def test_the_command_of_a_named_running_server_has_no_password() -> None:
    typed = ["compare", "prod=postgresql://u:secret@h/d", "host=/tmp password=secret"]
    study = make_study(arms=tuple(parse_arms(typed[1:])))
    command = command_of(study, typed)
    assert "prod=" in command and "secret" not in command
