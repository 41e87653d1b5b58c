"""CPU time of processes, from any source that the kernel provides."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from pgdyno.probe import cpu_time


def test_ticks_are_used_if_processes_have_no_cpu_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> float:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr("pgdyno.probe.cpu_time.time.clock_gettime", refuse)
    before = psutil.Process().cpu_times()
    found_s = cpu_time.process_cpu_s(os.getpid())
    after = psutil.Process().cpu_times()
    assert 0 < before.user + before.system <= found_s <= after.user + after.system


@contextmanager
def a_process_that_has_worked(work: str) -> Iterator[int]:
    """A process that reports when it is done, and then waits."""
    command = [sys.executable, "-S", "-c", f"{work}\nprint(flush=True)\ninput()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        yield busy.pid


WORK = "for _ in range(2_000_000): pass"


def test_both_sources_agree() -> None:
    with a_process_that_has_worked(WORK) as pid:
        assert cpu_time.process_cpu_s(pid) == pytest.approx(cpu_time._ticks_s(pid), abs=0.05)


def test_all_threads_of_a_process_count() -> None:
    work = f"""
import threading
def work():
    {WORK}
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
    with a_process_that_has_worked(work) as pid:
        assert cpu_time.process_cpu_s(pid) == pytest.approx(cpu_time._ticks_s(pid), abs=0.05)


def test_a_process_that_has_ended_has_used_nothing_more() -> None:
    assert cpu_time.process_cpu_s(2**22 + 1) == 0.0  # beyond the largest that the kernel gives


def test_children_are_found_with_and_without_the_kernels_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_process_that_has_worked(WORK) as pid:
        assert pid in cpu_time.child_pids(os.getpid())
        monkeypatch.setattr(cpu_time, "PROC", tmp_path)
        assert pid in cpu_time.child_pids(os.getpid())


def test_a_servers_cpu_is_that_of_its_children_too() -> None:
    before_s = cpu_time.server_cpu_s(os.getpid())
    with a_process_that_has_worked(WORK) as pid:
        child_s, ours_s = cpu_time.process_cpu_s(pid), cpu_time.server_cpu_s(os.getpid()) - before_s
        assert ours_s >= child_s > 0
    assert cpu_time.server_cpu_s(os.getpid()) - before_s >= child_s - 0.02  # it is reaped, in ticks


def test_a_lost_server_is_reported() -> None:
    with pytest.raises(ProcessLookupError):
        cpu_time.server_cpu_s(2**22 + 1)


def test_scheduler_counters_are_summed_over_the_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_time, "PROC", tmp_path)
    for pid, counted in ((7, "1500000000 250000000 12"), (8, "500000000 750000000 3")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "schedstat").write_text(f"{counted}\n")
    assert cpu_time.scheduled([7, 8]) == cpu_time.Scheduled(on_cpu_s=2.0, ready_s=1.0)
    assert cpu_time.scheduled([7, 9]) is None  # one is gone: the sum would decrease
    (tmp_path / "8" / "schedstat").write_text("")
    assert cpu_time.scheduled([7, 8]) is None  # a kernel that does not count
