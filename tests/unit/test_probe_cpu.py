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

from pgdyno.measure import host_counters


def test_ticks_are_used_if_processes_have_no_cpu_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> float:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr("pgdyno.measure.host_counters.time.clock_gettime", refuse)
    before = psutil.Process().cpu_times()
    found_s = host_counters.process_cpu_s(os.getpid())
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
        assert host_counters.process_cpu_s(pid) == pytest.approx(host_counters._ticks_s(pid), abs=0.05)


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
        assert host_counters.process_cpu_s(pid) == pytest.approx(host_counters._ticks_s(pid), abs=0.05)


def test_a_process_that_has_ended_has_used_nothing_more() -> None:
    assert host_counters.process_cpu_s(2**22 + 1) == 0.0  # beyond the largest that the kernel gives


def test_children_are_found_with_and_without_the_kernels_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_process_that_has_worked(WORK) as pid:
        assert pid in host_counters.child_pids(os.getpid())
        monkeypatch.setattr(host_counters, "PROC", tmp_path)
        assert pid in host_counters.child_pids(os.getpid())


def test_a_servers_cpu_is_that_of_its_children_too() -> None:
    before = host_counters.server_cpu(os.getpid())
    with a_process_that_has_worked(WORK) as pid:
        child_s, ours = host_counters.process_cpu_s(pid), host_counters.server_cpu(os.getpid()).since(before)
        # Exact, unless another child of the tests ended meanwhile.
        assert ours.used_s + ours.error_s >= child_s > 0


ENDED_CHILDREN = """
import os, resource, subprocess
from pgdyno.measure import host_counters

def used_s():
    "CPU time of this process and of the children that it has reaped, in µs."
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))

for _ in range(10):
    outer_s = used_s()
    child = subprocess.Popen(["/bin/sh", "-c", "read line; i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done"],
        stdin=subprocess.PIPE)
    before = host_counters.server_cpu(os.getpid())
    inner_s = used_s() + host_counters.process_cpu_s(child.pid)
    child.communicate(b"\\n")
    least_s = used_s() - inner_s
    found = host_counters.server_cpu(os.getpid()).since(before)
    print(least_s, found.used_s, used_s() - outer_s, found.error_s)
"""


def test_the_cpu_time_of_ended_processes_is_right_up_to_its_error() -> None:
    done = subprocess.run([sys.executable, "-c", ENDED_CHILDREN], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        least_s, used_s, most_s, error_s = map(float, line.split())
        assert error_s == pytest.approx(host_counters.ROUNDING_S)
        assert max(0.0, least_s - error_s) <= used_s <= most_s + error_s
    assert len(done.stdout.splitlines()) == 10


def test_a_time_shorter_than_the_rounding_is_not_negative_and_its_error_is_known() -> None:
    before = host_counters.ServerCpu(living_s=0.013, living_error_s=0.0, reaped_s=0.0, reaped_faults=90)
    ended = host_counters.ServerCpu(living_s=0.004, living_error_s=0.0, reaped_s=0.0, reaped_faults=190)
    assert ended.since(before) == host_counters.CpuUsed(0.0, host_counters.ROUNDING_S)
    longer = host_counters.ServerCpu(living_s=2.004, living_error_s=0.0, reaped_s=0.01, reaped_faults=190)
    assert longer.since(before).used_s == pytest.approx(2.001)
    assert longer.since(ended) == host_counters.CpuUsed(pytest.approx(2.01), 0.0)


def test_a_process_that_has_ended_is_awaited() -> None:
    with a_process_that_has_worked("") as pid:
        pass
    host_counters.wait_until_reaped(pid)
    assert not Path(f"/proc/{pid}").exists()


def test_a_lost_server_is_reported() -> None:
    with pytest.raises(ProcessLookupError):
        host_counters.server_cpu(2**22 + 1)


def test_scheduler_counters_are_summed_over_the_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_counters, "PROC", tmp_path)
    for pid, counted in ((7, "1500000000 250000000 12"), (8, "500000000 750000000 3")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "schedstat").write_text(f"{counted}\n")
    assert host_counters.scheduled([7, 8]) == host_counters.Scheduled(on_cpu_s=2.0, ready_s=1.0)
    assert host_counters.scheduled([7, 9]) is None  # one is gone: the sum would decrease
    (tmp_path / "8" / "schedstat").write_text("")
    assert host_counters.scheduled([7, 8]) is None  # a kernel that does not count
