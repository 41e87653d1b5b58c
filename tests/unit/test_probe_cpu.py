"""CPU time of processes, whatever the kernel keeps of it."""

from __future__ import annotations

import os
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
    by_ticks_s = cpu._ticks_s(os.getpid())
    assert cpu._on_cpu_s(os.getpid()) == pytest.approx(by_ticks_s, abs=0.5)


def test_a_process_that_has_ended_has_used_nothing_more() -> None:
    assert cpu._on_cpu_s(2**22 + 1) == 0.0  # beyond the largest that the kernel gives
