"""Counters of the machine and CPU time of processes, from a simulated machine and from this one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from pgdyno.analysis.telemetry.metrics import METRICS
from pgdyno.analysis.telemetry.trial_telemetry import ON_CPU, RUNNABLE, SWITCHES
from pgdyno.measure import host_counters
from pgdyno.measure import machine as probe_host
from pgdyno.measure.host_counters import HostCounters, machine_cpu
from pgdyno.server import directories

FILES = {
    "stat": "cpu  1000 200 300 5000 70 10 20 40 500 0\ncpu0 1 1 1 1 1 1 1 1 1 0\nintr 5 0 0\nctxt 987654\n"
    "btime 1\nprocesses 3\nprocs_running 4\nprocs_blocked 2\nsoftirq 1 2\n",
    "meminfo": "MemTotal: 4000 kB\nMemFree: 100 kB\nMemAvailable: 3000 kB\nCached: 2000 kB\nShmem: 500 kB\n"
    "Dirty: 7 kB\nWriteback: 3 kB\nHugePages_Total: 0\n",
    "vmstat": "nr_free_pages 5\npswpin 2\npswpout 3\n",
    "diskstats": "   8       0 sda 10 1 200 30 40 2 800 90 0 55 120 0 0 0 0\n"
    "   8       1 sda1 9 1 100 20 30 2 700 80 0 45 110 0 0 0 0\n"
    " 259       0 nvme0n1 1 0 2 3 4 0 8 9 0 5 12 0 0 0 0\n",
    "net/dev": "Inter-|   Receive\n face |bytes\n    lo: 11 1 0 0 0 0 0 0 11 1 0 0 0 0 0 0\n"
    "  eth0: 100 1 0 0 0 0 0 0 200 1 0 0 0 0 0 0\nbridge0:100 1 0 0 0 0 0 0 200 1 0 0 0 0 0 0\n",
    "pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    "pressure/io": "some avg10=1.00 avg60=0.50 avg300=0.10 total=2500000\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=500000\n",
    "pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with one network card below a bridge, and data on sda1. Its clock has 100 ticks per
    second.
    """
    for name, text in FILES.items():
        path = tmp_path / "proc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "net" / "eth0" / "device").mkdir(parents=True)
    (tmp_path / "net" / "bridge0").mkdir()
    monkeypatch.setattr(host_counters, "PROC", tmp_path / "proc")
    monkeypatch.setattr(host_counters, "NETWORK", tmp_path / "net")
    monkeypatch.setattr(host_counters, "TICK_S", 0.01)
    monkeypatch.setattr(host_counters, "PAGE_BYTES", 4096)
    monkeypatch.setattr(host_counters, "disk_of", lambda path: {"/data": "sda", "/wal": "nvme0n1"}[str(path)])
    return tmp_path


def test_every_counter_has_its_place_and_unit(machine: Path) -> None:
    found = dict(HostCounters([Path("/data")]).read())
    assert found.pop("pgdyno_cpu_s") > 0
    assert found == {
        "cpu_busy_s": pytest.approx(15.7),
        "cpu_user_s": 12.0,
        "cpu_system_s": pytest.approx(3.3),
        "cpu_iowait_s": pytest.approx(0.7),
        "cpu_idle_s": 50.0,
        "cpu_steal_s": 0.4,
        "context_switches": 987654,
        "processes_running": 4,
        "processes_blocked": 2,
        "memory_available_bytes": 3000 * 1024,
        "memory_cached_bytes": 2000 * 1024,
        "memory_shared_bytes": 500 * 1024,
        "memory_dirty_bytes": 7 * 1024,
        "memory_writeback_bytes": 3 * 1024,
        "swap_in_bytes": 2 * 4096,
        "swap_out_bytes": 3 * 4096,
        "disk_reads": 10,
        "disk_read_bytes": 200 * 512,
        "disk_read_s": 0.03,
        "disk_writes": 40,
        "disk_written_bytes": 800 * 512,
        "disk_write_s": 0.09,
        "disk_busy_s": 0.055,
        "loopback_bytes": 11,
        "network_in_bytes": 100,  # not again on the bridge
        "network_out_bytes": 200,
        "pressure_cpu_some_s": 1.5,
        "pressure_io_some_s": 2.5,
        "pressure_io_full_s": 0.5,
        "pressure_memory_some_s": 0,
        "pressure_memory_full_s": 0,
    }


def test_every_column_is_documented_and_no_other(machine: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "telemetry.md").read_text()
    table = page.partition("## The machine")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    of_servers = {"server_cpu_s", ON_CPU, RUNNABLE, SWITCHES}
    assert named == {*HostCounters([Path("/data")], os.getpid()).read(), *of_servers}


def test_the_disks_of_data_and_wal_are_summed(machine: Path) -> None:
    found = HostCounters([Path("/data"), Path("/wal"), Path("/data")]).read()
    assert found["disk_reads"] == 11
    assert found["disk_written_bytes"] == 808 * 512
    assert found["disk_busy_s"] == pytest.approx(0.055 + 0.005)
    assert METRICS["host.disk_busy_share"].name.endswith("sum over disks")  # which may exceed 100%


def test_the_times_of_a_disk_continue_after_the_kernels_32_bits(machine: Path) -> None:
    def write(read_ms: int, reads: int) -> None:
        line = f"   8       0 sda {reads} 1 200 {read_ms} 40 2 800 90 0 55 120 0 0 0 0\n"
        (machine / "proc" / "diskstats").write_text(line)

    write(2**32 - 50, 10)
    host = HostCounters([Path("/data")])
    before = host.read()
    write(100, 20)
    after = host.read()
    assert after["disk_read_s"] - before["disk_read_s"] == pytest.approx(0.15)
    assert after["disk_reads"] - before["disk_reads"] == 10
    write(99, 20)  # less than half of the range: a reset
    assert host.read()["disk_read_s"] == pytest.approx(0.099)


def test_without_a_card_all_interfaces_but_loopback_count(machine: Path) -> None:
    shutil.rmtree(machine / "net" / "eth0")
    assert HostCounters().read()["network_in_bytes"] == 200


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("stat", {"cpu_busy_s", "context_switches"}),
        ("meminfo", {"memory_available_bytes"}),
        ("vmstat", {"swap_in_bytes"}),
        ("diskstats", {"disk_reads", "disk_busy_s"}),
        ("net/dev", {"loopback_bytes"}),
        ("pressure/io", {"pressure_io_some_s"}),
    ],
)
def test_only_counters_missing_in_the_kernel_are_missing(machine: Path, file: str, names: set[str]) -> None:
    everything = HostCounters([Path("/data")])
    assert names <= everything.read().keys()
    (machine / "proc" / file).unlink()
    for host in (everything, HostCounters([Path("/data")])):
        found = host.read()
        assert not names & found.keys()
        assert len(found) >= 22


def test_counters_in_a_file_of_another_format_are_missing(machine: Path) -> None:
    (machine / "proc" / "meminfo").write_text("MemTotal: 4000 kB\n")
    assert "memory_cached_bytes" not in HostCounters().read()


def test_data_on_an_unknown_disk_or_nowhere_have_no_disk(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk_of(path: Path) -> str | None:
        if path == Path("/nowhere"):
            raise FileNotFoundError(path)
        return {"/data": "sda", "/memory": None}[str(path)]

    monkeypatch.setattr(host_counters, "disk_of", disk_of)
    without = [Path("/memory"), Path("/nowhere")]
    assert "disk_reads" not in HostCounters(without).read()
    assert HostCounters([*without, Path("/data")]).read()["disk_reads"] == 10


def test_the_driver_counts_while_it_lives(machine: Path) -> None:
    assert HostCounters([], driver_pid=os.getpid()).read()["driver_cpu_s"] > 0
    assert "driver_cpu_s" not in HostCounters([], driver_pid=2**22 + 1).read()


def test_this_machine_is_read_as_psutil_reads_it(tmp_path: Path) -> None:
    host = HostCounters([tmp_path])
    before, mine, after = machine_cpu(), host.read(), machine_cpu()
    if "cpu_busy_s" not in mine:
        pytest.skip("NO /proc/stat")
    ticks_s = 0.1  # of each kind of each core
    assert before.busy_s - ticks_s <= mine["cpu_busy_s"] <= after.busy_s + ticks_s
    assert before.steal_s - ticks_s <= mine["cpu_steal_s"] <= after.steal_s + ticks_s
    assert mine["memory_available_bytes"] < psutil.virtual_memory().total
    assert mine.get("disk_read_bytes", 1) > 0


def test_a_path_on_a_partition_belongs_to_the_whole_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = tmp_path / "devices" / "sda" / "sda1"
    devices.mkdir(parents=True)
    (devices / "partition").write_text("1\n")
    (tmp_path / "dev" / "block").mkdir(parents=True)
    (tmp_path / "dev" / "block" / "8:1").symlink_to(devices)
    (tmp_path / "dev" / "block" / "8:0").symlink_to(devices.parent)
    monkeypatch.setattr(host_counters, "SYS", tmp_path)
    assert host_counters._name(os.makedev(8, 1)) == "sda"
    assert host_counters._name(os.makedev(8, 0)) == "sda"
    assert host_counters._name(os.makedev(8, 7)) is None


def test_a_file_system_with_its_own_device_number_is_found_by_its_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "da ta" / "base"
    data.mkdir(parents=True)
    mounts = tmp_path / "mountinfo"
    monkeypatch.setattr(directories, "TABLE", mounts)
    mounts.write_text(
        "22 1 0:21 / / rw - overlay overlay rw\n"
        f"23 22 0:50 / {tmp_path}/da\\040ta rw shared:1 - btrfs /dev/zero rw\n"
    )
    # A character device as the source of a mount is visible, but is not a disk.
    assert host_counters._source(data, 50) is None
    devices = [path for path in Path("/dev").glob("*") if path.is_block_device()]
    if not devices:
        pytest.skip("NO BLOCK DEVICE in /dev")
    mounts.write_text(mounts.read_text().replace("/dev/zero", str(devices[0])))
    assert host_counters._source(data, 50) == devices[0].stat().st_rdev
    assert host_counters._source(tmp_path, 50) is None  # on the overlay


def test_a_machine_has_a_fingerprint_that_does_not_reveal_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = []
    for number in ("0f" * 16, "0f" * 16, "1e" * 16):
        monkeypatch.setattr(probe_host, "MACHINE_ID", tmp_path / "machine-id")
        (tmp_path / "machine-id").write_text(f"{number}\n")
        marks.append(probe_host.machine_digest())
    assert marks[0] == marks[1] != marks[2] and "0f0f" not in str(marks[0])
    (tmp_path / "machine-id").write_text("\n")  # as in an image before its first boot
    assert probe_host.machine_digest() is None
    (tmp_path / "machine-id").unlink()
    assert probe_host.machine_digest() is None
    assert probe_host.describe_host(tmp_path)["machine"] is None


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
        busy.stdout.readline()
        yield busy.pid


WORK = "for _ in range(2_000_000): pass"
IN_A_THREAD = f"""
import threading
def work():
    {WORK}
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


def test_both_sources_agree_and_count_all_threads() -> None:
    with a_process_that_has_worked(IN_A_THREAD) as pid:
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
    assert host_counters.scheduled([7, 8]) == host_counters.Scheduled(2.0, 1.0, 15)
    assert host_counters.scheduled([7, 9]) is None  # one is gone: the sum would decrease
    (tmp_path / "8" / "schedstat").write_text("")
    assert host_counters.scheduled([7, 8]) is None  # a kernel that does not count
