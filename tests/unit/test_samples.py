"""One-second series: rates, waits, CPU shares and lateness, compared with known numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pgdyno.analysis.telemetry.samples import cpu, growth_per_s, own_spans, rates, waits
from pgdyno.results.records import SampleSeries, Slice
from pgdyno.study.schedule import Role


def series(probe: str = "server", late_s: list[float] | None = None, **columns: list[float]) -> SampleSeries:
    at = columns.pop("at_s")
    late = late_s or [0.0] * len(at)
    return SampleSeries(probe, ("at_s", "late_s", *columns), np.array([at, late, *columns.values()], float).T)


def test_counters_become_rates_and_gauges_do_not() -> None:
    found = rates(
        series(at_s=[0, 1, 3], xact_commit=[100, 150, 350], active_backends=[4, 5, 6], wal_fpi=[0] * 3)
    )
    assert list(found.at_s) == [0.5, 2.0]
    assert list(found.per_s["xact_commit"]) == [50, 100]
    assert list(found.per_s["wal_fpi"]) == [0, 0]
    assert "active_backends" not in found.per_s


def test_a_counter_that_fell_or_was_not_there_has_no_rate() -> None:
    found = rates(series(at_s=[0, 1, 2, 3, 4], blks_read=[10, 20, 5, math.nan, 9]))
    assert found.per_s["blks_read"][0] == 10
    assert np.isnan(found.per_s["blks_read"][1:]).all()


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_samples_give_nothing(n: int) -> None:
    short = series("host", at_s=[0.0] * n, cpu_busy_s=[1.0] * n)
    assert len(rates(short).at_s) == 0
    assert cpu(short, [(0, 10)]) == {} and waits(short, [(0, 10)]) is None
    assert growth_per_s(short, "cpu_busy_s", [(0, 10)]) is None


SECONDS = [float(s) for s in range(21)]


def test_waits_are_shares_of_the_active_backends_time() -> None:
    # Ten samples per second of four backends: in the first ten seconds three wait for a lock, later none.
    locked = [30.0 if s <= 10 else 0.0 for s in SECONDS]
    running = [10.0 if s <= 10 else 40.0 for s in SECONDS]
    of = {"samples": [10.0] * 21, "Lock/transactionid": locked, "running": running}
    found = waits(series("waits", at_s=SECONDS, **of), [(0.0, 10.0)])
    assert found.share == pytest.approx({"Lock/transactionid": 0.75, "running": 0.25})
    assert found.backends == pytest.approx(4)
    found = waits(series("waits", at_s=SECONDS, **of), [(5.0, 15.0)])
    assert found.share == pytest.approx({"running": 0.625, "Lock/transactionid": 0.375})


def test_names_of_one_wait_event_in_several_versions_are_one_wait() -> None:
    of = {"samples": [1.0] * 21, "LWLock/BufferIO": [1.0] * 21, "IPC/BufferIo": [3.0] * 21}
    found = waits(series("waits", at_s=SECONDS, **of), [(0.0, 10.0)])
    assert found.share == {"IPC/BufferIo": 1.0}


def test_shares_are_over_the_whole_time_if_samples_do_not_resolve_slices() -> None:
    of = {"samples": [10.0] * 21, "running": [5.0] * 21, "IO/DataFileRead": [15.0] * 21}
    spans = [(float(s), s + 1.0) for s in range(0, 20, 2)]
    found = waits(series("waits", at_s=SECONDS, **of), spans)
    assert list(found.share) == ["IO/DataFileRead", "running"]  # the largest first
    assert found.share["running"] == pytest.approx(0.25)
    assert found.backends is None  # they were active only in their own slices


def test_nobody_active_waits_for_nothing() -> None:
    quiet = series("waits", at_s=SECONDS, samples=[10.0] * 21, running=[0.0] * 21)
    assert waits(quiet, [(0.0, 20.0)]) is None
    assert waits(quiet, []) is None


HOST = {
    # Of 2 cores, per second: 1.2 busy, of which 0.2 stolen, 0.6 the server's and 0.3 the driver's; 0.7 idle.
    "cpu_busy_s": [1.2 * s for s in SECONDS],
    "cpu_steal_s": [0.2 * s for s in SECONDS],
    "cpu_idle_s": [0.7 * s for s in SECONDS],
    "cpu_iowait_s": [0.1 * s for s in SECONDS],
    "server_cpu_s": [100 + 0.6 * s for s in SECONDS],
    "driver_cpu_s": [0.3 * s for s in SECONDS],
}


def test_shares_of_the_cpu_add_up_to_one() -> None:
    found = cpu(series("host", at_s=SECONDS, **HOST), [(2.0, 8.0), (12.5, 18.5)])
    shares = {"server": 0.3, "driver": 0.15, "rest": 0.05, "steal": 0.1, "iowait": 0.05, "idle": 0.35}
    assert found == pytest.approx(shares) and sum(found.values()) == pytest.approx(1)


def test_a_server_elsewhere_has_no_share_and_is_not_in_the_rest() -> None:
    remote = {name: values for name, values in HOST.items() if name != "server_cpu_s"}
    found = cpu(series("host", at_s=SECONDS, **remote), [(0.0, 20.0)])
    assert "server" not in found and found["rest"] == pytest.approx(0.35)


def test_a_counter_within_spans_grows_in_proportion_to_time() -> None:
    steps = series(at_s=[0, 10, 20], disk_read_bytes=[0, 100, 400])
    assert growth_per_s(steps, "disk_read_bytes", [(5, 10), (10, 15)]) == pytest.approx((50 + 150) / 10)
    assert growth_per_s(steps, "disk_written_bytes", [(5, 10)]) is None
    restarted = series(at_s=[0, 10, 20], server_cpu_s=[50, 60, 5])
    assert growth_per_s(restarted, "server_cpu_s", [(0, 20)]) is None
    assert growth_per_s(restarted, "server_cpu_s", [(0, 10)]) == pytest.approx(1)


def test_stalls_are_unknown_before_the_first_and_after_the_last_sample() -> None:
    steady = {"cpu_idle_s": [1.0, 2.0, 3.0], "cpu_iowait_s": [0.0] * 3, "cpu_steal_s": [0.0] * 3}
    of = series("host", at_s=[1, 2, 3], cpu_busy_s=[3, 6, 9], server_cpu_s=[math.nan, 2, 4], **steady)
    assert growth_per_s(of, "cpu_busy_s", [(0.5, 3.5)]) == pytest.approx(3)
    assert growth_per_s(of, "cpu_busy_s", [(3.5, 4.5)]) is None
    assert cpu(of, [(0.5, 3.5)])["server"] == pytest.approx(0.5)


def test_cpu_shares_are_not_per_arm_if_samples_do_not_resolve_slices() -> None:
    # Another arm's server works in between, and would be in the residual.
    spans = [(float(s), s + 1.0) for s in range(0, 20, 2)]
    assert cpu(series("host", at_s=SECONDS, **HOST), spans) == {}


def test_an_arms_spans_are_its_slices_to_their_last_transaction() -> None:
    piece = Slice(0, Role.MEASURE, 1.0, 1.1, 2.0, 2.2, 0.0, 0.0, {})
    assert own_spans([piece]) == [(1.0, 2.2)]
