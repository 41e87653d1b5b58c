"""CPU time of processes, whatever the kernel keeps of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pgdyno.probe import cpu


def test_a_kernel_without_schedstat_is_read_by_its_ticks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "PROC", tmp_path)
    before = psutil.Process().cpu_times()
    found_s = cpu._on_cpu_s(os.getpid())
    after = psutil.Process().cpu_times()
    assert 0 < before.user + before.system <= found_s <= after.user + after.system


def test_both_sources_agree() -> None:
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("NO SCHEDSTAT: this kernel keeps no time in nanoseconds")
    # A process of one thread, as PostgreSQL's are: schedstat counts the first thread, the ticks all of them.
    work = "for _ in range(2_000_000): pass\nprint(flush=True)\ninput()"
    command = [sys.executable, "-S", "-c", work]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        assert cpu._on_cpu_s(busy.pid) == pytest.approx(cpu._ticks_s(busy.pid), abs=0.05)


def test_a_process_that_has_ended_has_used_nothing_more() -> None:
    assert cpu._on_cpu_s(2**22 + 1) == 0.0  # beyond the largest that the kernel gives
