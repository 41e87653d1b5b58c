"""Control groups with a memory limit: where they can be made, what they limit, their removal."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from example_studies import make_file, make_study
from pgdyno.errors import UsageError
from pgdyno.features.memory_limit import groups
from pgdyno.features.memory_limit.groups import (
    group_of,
    parents,
    recorded,
    release,
    require_limits,
    require_room,
    usable_parent,
)
from pgdyno.interruption import Interruption
from pgdyno.measure.host_counters import Tree
from pgdyno.server.directories import OURSELVES
from pgdyno.server.processes import run_tool
from pgdyno.server.snapshots import evict
from pgdyno.study.arm_spec import parse_arms
from pgdyno.study.cases import cases_of

MB = 1 << 20


@pytest.fixture
def parent() -> Path:
    try:
        return usable_parent(32 * MB)
    except UsageError as error:
        pytest.skip(f"needs permission to make control groups: {error}")


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let directories be groups: new ones have the files that the kernel makes, and can be removed."""
    mkdir = Path.mkdir

    def make(path: Path, *args: object, **how: object) -> None:
        mkdir(path, *args, **how)  # type: ignore[arg-type]
        control = path.parent / "cgroup.subtree_control"
        if (path.parent / "memory.limit_in_bytes").exists():
            (path / "memory.limit_in_bytes").touch()
        elif control.exists() and "memory" in control.read_text():
            (path / "memory.max").touch()

    monkeypatch.setattr(Path, "mkdir", make)
    monkeypatch.setattr(Path, "rmdir", shutil.rmtree)


def tree(root: Path, group: str, **files: str) -> Tree:
    """Return a machine whose pgdyno is in that group. ``files``: file of each directory with its text."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(group)
    for place, text in files.items():
        name, _, content = text.partition(": ")
        (root / "sys/fs/cgroup" / place).mkdir(parents=True, exist_ok=True)
        (root / "sys/fs/cgroup" / place / name).write_text(content)
    return Tree(root)


def test_in_version_1_a_group_is_below_that_of_pgdyno(tmp_path: Path, kernel: None) -> None:
    machine = tree(tmp_path, "4:memory:/a/b\n0::/\n", **{"memory/a/b": "memory.limit_in_bytes: 9"})
    below = tmp_path / "sys/fs/cgroup/memory/a/b"
    assert usable_parent(MB, machine) == below
    assert [path.name for path in below.iterdir()] == ["memory.limit_in_bytes"]  # the trial was removed
    run = tmp_path / "run"
    run.mkdir()
    group = group_of(run, below, 3 * MB)
    assert (group / "memory.limit_in_bytes").read_text() == str(3 * MB)
    assert group_of(run, below, 3 * MB) == recorded(run) == group
    assert release(run) == [] and not group.exists() and recorded(run) is None


def test_in_version_2_a_group_is_below_the_first_one_that_has_limits_for_others(
    tmp_path: Path, kernel: None
) -> None:
    control = "cgroup.subtree_control: "
    places = {"user.slice/session": control, "user.slice": f"{control}cpu memory pids"}
    machine = tree(tmp_path, "0::/user.slice/session\n", **places)
    assert [path.name for path in parents(machine)] == ["session", "user.slice", "cgroup"]
    assert usable_parent(MB, machine).name == "user.slice"


def test_without_a_memory_controller_the_error_has_the_remedy(tmp_path: Path, kernel: None) -> None:
    with pytest.raises(UsageError, match=r"groups in .* have no memory limit\): run pgdyno as root"):
        usable_parent(MB, tree(tmp_path, "0::/a\n", a="cgroup.procs: "))
    assert [path.name for path in (tmp_path / "sys/fs/cgroup/a").iterdir()] == ["cgroup.procs"]
    with pytest.raises(UsageError, match="has no memory controller"):
        usable_parent(MB, tree(tmp_path / "none", ""))


def test_a_program_in_a_group_and_the_pages_that_it_reads_are_limited(tmp_path: Path, parent: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "file").write_bytes(os.urandom(64 * MB))
    if evict(data) > 0.01:
        pytest.skip("needs temporary files on a disk: a file system in memory is not a cache")
    group = group_of(tmp_path, parent, 32 * MB)
    try:
        account = replace(OURSELVES, control_group=str(group))
        script = f"cat {data}/file | wc -c; cat /proc/self/cgroup; cat {group}/memory.stat"
        done = run_tool(["/bin/sh", "-c", script], account, 60.0)
        assert done.returncode == 0 and done.stdout.startswith(f"{64 * MB}\n")
        assert group.name in done.stdout
        facts = dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.count(" ") == 1)
        cached_bytes = int(facts.get("file") or facts["cache"])
        assert 16 * MB < cached_bytes <= 32 * MB
    finally:
        assert release(tmp_path) == []
    assert not group.exists()


def test_a_group_whose_processes_live_remains_and_is_removed_later(
    tmp_path: Path, parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = group_of(tmp_path, parent, 32 * MB)
    inner = group / "in-use"
    inner.mkdir()
    monkeypatch.setattr(groups, "REMOVAL_TIMEOUT_S", 0.0)
    assert release(tmp_path) == [str(group)] and recorded(tmp_path) == group
    inner.rmdir()
    assert release(tmp_path) == [] and not group.exists()


def test_a_running_server_cannot_be_limited() -> None:
    study = make_study(arms=parse_arms(["18", "host=here"]), memory_limit_bytes=MB)
    with pytest.raises(UsageError, match="cannot limit the running server here: remove it"):
        require_limits(study, *[None] * 2, Interruption())  # type: ignore[arg-type]


def test_the_page_cache_is_cold_whose_pages_are_not_those_of_the_group(parent: Path) -> None:
    def limited(**changes: object) -> str:
        study = make_study(memory_limit_bytes=MB, **changes)
        return require_limits(study, *[None] * 2, Interruption()).cache_state  # type: ignore[arg-type]

    assert parent and limited() == limited(cache_state="cold") == "cold"
    with pytest.raises(UsageError, match="requires a cold page cache"):
        limited(cache_state="prewarmed")


def test_shared_buffers_must_fit_into_the_limit() -> None:
    def request(**settings: str) -> Any:
        known = SimpleNamespace(
            definitions={"shared_buffers": SimpleNamespace(parse=lambda text, _: int(text), unit="8kB")},
            initial={"shared_buffers": "16384"},
        )
        return SimpleNamespace(
            spec=SimpleNamespace(name="18"),
            build=SimpleNamespace(version=None),
            catalogue=known,
            requested=SimpleNamespace(settings=settings),
        )

    limited = make_study(memory_limit_bytes=128 * MB)
    assert require_room(limited, {0: request(shared_buffers="16383")})
    with pytest.raises(UsageError, match="must be greater than shared_buffers of 18"):
        require_room(limited, {0: request()})
    assert require_room(make_study(), {0: request()})


def test_a_study_file_has_the_limit_of_all_cases() -> None:
    file = make_file(run={"window": "20s", "repeats": 5, "memory_limit": "2GB"})
    assert [case.study.memory_limit_bytes for case in cases_of(file)] == [2 << 30]
