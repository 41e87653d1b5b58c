"""Hardware counters: the kernel's structures, sums over processes, and reasons for missing counters."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_telemetry import trial

from pgdyno.analysis.telemetry.counters import COUNTERS
from pgdyno.analysis.telemetry.trial_telemetry import telemetry_of_trial
from pgdyno.features.profiles import hardware_counters
from pgdyno.features.profiles.hardware_counters import EVENTS, Event, HardwareCounters
from pgdyno.measure.telemetry_collection import ProbeError
from pgdyno.results.records import Moment, StoredReading

POSTMASTER, CHILDREN = 100, (101, 102)
Row = dict[str, float]


def test_the_attributes_are_those_of_the_kernels_structure() -> None:
    """Offsets in the first version of ``struct perf_event_attr``."""
    user, _, kernel, _ = (event.attributes() for event in EVENTS)
    assert len(user) == 64 and struct.unpack_from("=IIQ", user) == (0, 64, 1)
    assert struct.unpack_from("=Q", user, 32) == (3,)  # both times
    assert struct.unpack_from("=Q", user, 40) == (0b110_0010,)  # inherit, exclude kernel and hypervisor
    assert struct.unpack_from("=Q", kernel, 40) == (0b101_0010,)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int]]]:
    """Opened events and processes. Each has one reading: the process ID, and twice and once that time."""
    found: list[tuple[str, int]] = []

    def open_event(event: Event, pid: int) -> int:
        found.append((event.name, pid))
        end, fd = os.pipe()
        os.write(fd, struct.pack("=QQQ", pid, 2 * pid, pid))
        os.close(fd)
        return end

    monkeypatch.setattr(hardware_counters, "child_pids", lambda _: list(CHILDREN))
    monkeypatch.setattr(hardware_counters, "perf_event_open", open_event)
    yield found


def test_processes_that_run_already_are_counted_with_the_postmaster(opened: list[tuple[str, int]]) -> None:
    counters = HardwareCounters.open(POSTMASTER)
    assert opened == [(event.name, pid) for event in EVENTS for pid in (POSTMASTER, *CHILDREN)]
    row = counters.read()
    fds = [fd for of in counters.opened.values() for fd in of]
    counters.close()
    assert row["cycles_kernel"] == 303 and row["cycles_kernel_enabled_ns"] == 606
    assert row["cycles_kernel_running_ns"] == 303 and row.keys() == COUNTERS["hardware"]
    for fd in fds:
        with pytest.raises(OSError):
            os.fstat(fd)


def failing(
    monkeypatch: pytest.MonkeyPatch, number: int, when: Callable[[Event, int], bool] = lambda *_: True
) -> None:
    open_event = hardware_counters.perf_event_open

    def fail(event: Event, pid: int) -> int:
        if when(event, pid):
            raise OSError(number, os.strerror(number))
        return open_event(event, pid)

    monkeypatch.setattr(hardware_counters, "perf_event_open", fail)


def test_events_of_the_kernel_need_permission_and_a_child_that_has_ended_is_skipped(
    opened: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, errno.EACCES, lambda event, _: event.optional)
    failing(monkeypatch, errno.ESRCH, lambda _, pid: pid == CHILDREN[0])
    counters = HardwareCounters.open(POSTMASTER)
    assert {event.name for event in counters.opened} == {"instructions_user", "cycles_user"}
    assert counters.read()["cycles_user"] == POSTMASTER + CHILDREN[1]
    counters.close()


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOENT, "no hardware counters"),
        (errno.EOPNOTSUPP, "no hardware counters"),
        (errno.EACCES, "perf_event_paranoid"),
        (errno.EPERM, "perf_event_paranoid"),
        (errno.EMFILE, "Too many open files"),
        (errno.ESRCH, "No such process"),
    ],
)
def test_an_error_has_its_reason_and_leaves_nothing_open(
    opened: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, number: int, reason: str
) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    failing(monkeypatch, number, lambda event, _: event.name == "cycles_user")
    with pytest.raises(ProbeError, match=reason):
        HardwareCounters.open(POSTMASTER)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def counted(end: Row, transactions: int | None = 1000, begin: Row | None = None) -> dict[str, float]:
    """Values of a trial with these counts."""
    rows = {Moment.BEGIN: begin or dict.fromkeys(end, 0), Moment.END: end}
    readings = [StoredReading("hardware", moment, 0.0, 0.0, [row]) for moment, row in rows.items()]
    values = telemetry_of_trial(trial(1, transactions=transactions), readings).values
    return {key.removeprefix("hardware."): value for key, value in values.items() if "hardware." in key}


def event(name: str, count: float, enabled_ns: float = 1e9, running_ns: float = 1e9) -> Row:
    return {name: count, f"{name}_enabled_ns": enabled_ns, f"{name}_running_ns": running_ns}


def test_instructions_per_transaction_are_those_of_both_modes() -> None:
    user, kernel = event("instructions_user", 5e6), event("instructions_kernel", 3e6)
    assert counted(user | kernel) == {"instructions_per_tx": 8000, "user_instructions_per_tx": 5000}
    assert counted(user) == {"user_instructions_per_tx": 5000}
    assert counted(user, transactions=0) == {}
    assert counted(event("cycles_user", 0, running_ns=0)) == {}  # it was never counted


@given(st.floats(0.01, 1), st.floats(0.01, 1), st.integers(1, 10**12), st.integers(0, 10**12))
def test_a_count_of_a_part_of_the_time_is_scaled_over_the_measured_part(
    share: float, share_before: float, count: int, count_before: int
) -> None:
    before = event("cycles_user", count_before * share_before, 1e9, 1e9 * share_before)
    after = event("cycles_user", count * share, 1e9, 1e9 * share)
    end = {name: before[name] + after[name] for name in after}
    assert counted(end, begin=before)["user_cycles_per_tx"] == pytest.approx(count / 1000, rel=1e-3)
