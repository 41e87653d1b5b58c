"""Settings of arms are tried on empty clusters, each once, without leaving anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pgdyno.errors import StartError
from pgdyno.lab.preflight import require_starts
from pgdyno.lab.progress import PreparationStep
from pgdyno.server.build import Build
from pgdyno.server.cache_directory import Cache
from pgdyno.server.server_account import server_account
from pgdyno.study.arm_spec import parse_arms
from pgdyno.study.plan import Study
from pgdyno.study.tpcc_parameters import TpccParameters

pytestmark = pytest.mark.server

SOUND = {"work_mem": "8MB"}


def tried(build: Build, place: Path, *settings: Mapping[str, str]) -> list[str]:
    """The arms whose settings were tried. Arm n has the name n."""
    told: list[str] = []
    wanted = {
        index: SimpleNamespace(
            spec=SimpleNamespace(name=str(index)),
            build=build,
            catalogue=SimpleNamespace(initial={}),
            requested=SimpleNamespace(settings=one, optional=frozenset()),
        )
        for index, one in enumerate(settings)
    }
    study = Study(
        title="t",
        arms=tuple(parse_arms(["17", "18"])),
        workload=TpccParameters(warehouses=1),
        clients=1,
        warmup_s=1,
        rounds=2,
        budget_s=60,
        seed=1,
    )
    cache = Cache.at(place, server_account())
    try:
        require_starts(
            [(study, cast(Any, wanted))] * 2,
            cache,
            lambda event: told.append(event.text) if isinstance(event, PreparationStep) else None,
            cast(Any, SimpleNamespace(check=lambda: None)),
        )
    finally:
        assert not list(place.glob("runs/run-*"))
    return told


def test_each_set_of_settings_is_tried_once_and_none_without_settings(build: Build, server_dir: Path) -> None:
    assert tried(build, server_dir, {}, SOUND, SOUND, {"work_mem": "9MB"}) == [
        "testing the settings of 1",
        "testing the settings of 3",
    ]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"wal_level": "minimal"}, "FATAL: .*max_wal_senders"),
        ({"shared_preload_libraries": "nothere"}, "FATAL: .*nothere"),
        ({"max_connections": "20", "superuser_reserved_connections": "20"}, "superuser_reserved_connections"),
        ({"nothing.known": "1", "work_mem": "8MB", "min_wal_size": "17MB"}, "min_wal_size"),
    ],
)
def test_a_server_that_does_not_start_is_reported_with_its_arm_and_its_message(
    settings: Mapping[str, str], words: str, build: Build, server_dir: Path
) -> None:
    with pytest.raises(StartError, match=f"^1: .* did not start: .*{words}"):
        tried(build, server_dir, SOUND, settings)
