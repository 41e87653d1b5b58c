"""``--sweep``: an arm for each value of a setting."""

from __future__ import annotations

import pytest

from pgdyno.errors import UsageError
from pgdyno.features.factors.sweep import choose_arms
from pgdyno.study.arm_spec import NAME_MAX


def test_each_value_is_an_arm_of_the_server_and_the_first_is_the_baseline() -> None:
    found = choose_arms(["17,@starter,jit=off"], ["Shared_Buffers = 1GB, 4GB,8GB"])
    assert [arm.name for arm in found.arms] == [f"shared_buffers={size}" for size in ("1GB", "4GB", "8GB")]
    assert [arm.settings for arm in found.arms] == [
        {"jit": "off", "shared_buffers": size} for size in ("1GB", "4GB", "8GB")
    ]
    assert {(arm.server, arm.profiles) for arm in found.arms} == {("17", ("starter",))}
    assert found.arms[1].full_name == "17,@starter,jit=off,shared_buffers=4GB"
    assert found.levels == tuple({"settings.shared_buffers": size} for size in ("1GB", "4GB", "8GB"))


def test_names_that_are_too_long_for_a_table_are_the_values() -> None:
    found = choose_arms(["17"], ["max_parallel_workers_per_gather=0,2", "jit=on,off"])
    assert [arm.name for arm in found.arms] == ["0, on", "0, off", "2, on", "2, off"]
    found = choose_arms(["17"], ["synchronous_commit=on,off", "wal_compression=off,pglz"])
    assert [arm.name for arm in found.arms][1::2] == [
        "synchronous_commit=on, pglz",
        "synchronous_commit=off, pglz",
    ]
    assert max(len(arm.name) for arm in found.arms) <= NAME_MAX


def test_an_extension_is_no_setting_that_can_be_swept() -> None:
    with pytest.raises(UsageError, match="no setting of the server: name the arms instead"):
        choose_arms(["18"], ["extension=/a,/b"])
    with pytest.raises(UsageError, match="no setting of the server"):
        choose_arms(["18"], ["dialect=spec,hammerdb"])


@pytest.mark.parametrize("values", ["4MB,4096kB", "on,TRUE", "1min,60s", "100,100", "0.5,0.50"])
def test_two_spellings_of_one_value_are_rejected(values: str) -> None:
    with pytest.raises(UsageError, match="twice: remove one of them"):
        choose_arms(["17"], [f"work_mem={values}"])


@pytest.mark.parametrize("values", ["4MB,4GB", "on,off", "1min,1s", "100,100MB", "replica,logical"])
def test_different_values_are_not(values: str) -> None:
    assert len(choose_arms(["17"], [f"work_mem={values}"]).arms) == 2


def test_values_that_are_too_long_give_numbers() -> None:
    found = choose_arms(["17"], [f"log_line_prefix={'a' * 40},{'b' * 40}"])
    assert [arm.name for arm in found.arms] == ["arm 1", "arm 2"]
