"""Facts about a machine: from texts in the format of kernels, and from this machine."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from pgdyno.cli.options import machine_size
from pgdyno.features.doctor import machine_state
from pgdyno.features.doctor.machine_state import (
    TICK_S,
    examine_machine,
    load_between,
    measure_flushes,
    percentile_summary,
    read_counters,
    read_kernel,
    read_memory,
    read_processor,
    throttled_s,
)
from pgdyno.measure import machine
from pgdyno.measure.host_counters import Tree
from pgdyno.measure.machine import Limits, machine_resources, places, read_limits
from pgdyno.study.defaults import MachineSize

CPU = "sys/devices/system/cpu"
POWER = "sys/class/power_supply"
MAINS = {f"{POWER}/AC/type": "Mains"}
PRODUCT = "sys/class/dmi/id/product_name"
GOVERNORS = {
    f"{CPU}/cpu{n}/cpufreq/scaling_governor": name for n, name in enumerate(("powersave", "performance"))
}


def tree(root: Path, files: dict[str, str]) -> Tree:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree(root)


@pytest.mark.parametrize(
    ("facts", "files", "expected"),
    [
        ("boost", {f"{CPU}/cpufreq/boost": "1\n"}, True),
        ("boost", {f"{CPU}/cpufreq/boost": "0"}, False),
        ("boost", {f"{CPU}/intel_pstate/no_turbo": "0"}, True),
        (
            "boost",
            {f"{CPU}/cpufreq/boost": "1", f"{CPU}/intel_pstate/no_turbo": "1"},
            False,
        ),  # the active one
        ("boost", {f"{CPU}/cpufreq/boost": "?"}, None),
        ("hypervisor", {"proc/cpuinfo": "flags\t\t: fpu vme hypervisor sse\n"}, "unnamed"),
        ("hypervisor", {"proc/cpuinfo": "flags : hypervisor\n", PRODUCT: "KVM"}, "KVM"),
        ("hypervisor", {"proc/cpuinfo": "processor : 0\nflags\t: fpu vme\n", PRODUCT: "ThinkPad"}, ""),
        ("hypervisor", {"proc/cpuinfo": "flags : fpu\n", "sys/hypervisor/type": "xen"}, "xen"),
        ("hypervisor", {"proc/cpuinfo": "Features : fp asimd\n"}, None),
        ("on_battery", {**MAINS, f"{POWER}/B/type": "Battery", f"{POWER}/B/status": "Discharging"}, True),
        ("on_battery", {f"{POWER}/B/type": "Battery", f"{POWER}/B/status": "Charging"}, False),
        ("smt", {f"{CPU}/smt/active": "1\n"}, True),
        ("nodes", {"sys/devices/system/node/node0/x": "", "sys/devices/system/node/node1/x": ""}, 2),
        ("governors", GOVERNORS, ("performance", "powersave")),
    ],
)
def test_a_processor_is_read_from_the_files_of_the_kernel(
    tmp_path: Path, facts: str, files: dict[str, str], expected: object
) -> None:
    assert getattr(read_processor(tree(tmp_path, files)), facts) == expected


CONFIG = "CONFIG_PREEMPT_BUILD=y\n# CONFIG_PREEMPT is not set\nCONFIG_PREEMPT_{}=y\nCONFIG_PREEMPT_COUNT=y\n"


@pytest.mark.parametrize(
    ("told", "model"),
    [
        ({"debug": "none voluntary (full) lazy"}, "full"),
        ({"debug": "none (voluntary) full", "command_line": "preempt=none"}, "voluntary"),  # changed since
        ({"version": "#1 SMP PREEMPT_DYNAMIC Debian 6.1", "command_line": "ro preempt=full quiet"}, "full"),
        ({"version": "#1 SMP PREEMPT_DYNAMIC x", "config": CONFIG.format("VOLUNTARY")}, "voluntary"),
        ({"version": "#1 SMP PREEMPT_DYNAMIC x", "config": "CONFIG_PREEMPT=y\n"}, "full"),
        ({"version": "#1 SMP PREEMPT_DYNAMIC x", "config": CONFIG.format("LAZY")}, "lazy"),
        ({"version": "#1 SMP PREEMPT_DYNAMIC x"}, None),
        ({"version": "#1 SMP x", "command_line": "preempt=full", "config": CONFIG.format("NONE")}, "none"),
        ({"version": "#1 SMP PREEMPT_RT x"}, "rt"),
        ({"version": "#1 SMP PREEMPT x", "release": "5.10.0-8-amd64"}, "full"),
        ({"version": "#1 SMP PREEMPT x", "release": "6.12.1"}, None),
        ({"version": "#1 SMP PREEMPT x", "release": "7.0.0", "config": CONFIG.format("LAZY")}, "lazy"),
        ({"version": "#1 SMP Debian"}, "none or voluntary"),
        ({}, None),
    ],
)
def test_the_preemption_model_comes_from_the_running_kernel_its_boot_or_its_build(
    tmp_path: Path, told: dict[str, str], model: str | None
) -> None:
    release = told.get("release", "6.1.0")
    places = {
        "debug": "sys/kernel/debug/sched/preempt",
        "version": "proc/sys/kernel/version",
        "command_line": "proc/cmdline",
        "config": f"boot/config-{release}",
        "release": "proc/sys/kernel/osrelease",
    }
    files = {places[name]: text for name, text in {"release": release, **told}.items()}
    assert read_kernel(tree(tmp_path, files)).preemption == model


def test_a_configuration_in_proc_comes_before_that_in_boot(tmp_path: Path) -> None:
    version = {"proc/sys/kernel/osrelease": "6.1.0\n", "proc/sys/kernel/version": "#1 SMP PREEMPT_DYNAMIC\n"}
    machine = tree(tmp_path, {**version, "boot/config-6.1.0": CONFIG.format("VOLUNTARY")})
    (tmp_path / "proc/config.gz").write_bytes(gzip.compress(CONFIG.format("NONE").encode()))
    assert read_kernel(machine) == machine_state.Kernel("6.1.0", "none")
    (tmp_path / "proc/config.gz").write_bytes(b"no archive")
    assert read_kernel(machine).preemption == "voluntary"


def test_facts_that_a_machine_does_not_report_are_unknown(tmp_path: Path) -> None:
    silent = Tree(tmp_path)
    of = read_processor(silent)
    assert (of.governors, of.boost, of.smt, of.nodes, of.hypervisor) == ((), None, None, None, None)
    assert all(value in (None, {}) for value in vars(read_memory(silent)).values())
    counters = read_counters(silent)
    assert (counters.throttled, counters.limited_s, counters.oom_kills, counters.swapped_bytes) == (None,) * 4
    assert not counters.pressure_s and counters.total_s == 0


def test_memory_is_read_in_bytes_and_huge_pages_that_are_promised_are_not_free(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": "MemTotal:  4000 kB\nMemAvailable: 3000 kB\nSwapTotal: 100 kB\nSwapFree: 40 kB\n"
        "HugePages_Total: 100\nHugePages_Free: 60\nHugePages_Rsvd: 25\nHugepagesize:    2048 kB\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n",
        "proc/sys/vm/zone_reclaim_mode": "1\n",
        "proc/sys/vm/swappiness": "1\n",
        "proc/sys/vm/overcommit_ratio": "99\n",
    }
    found = read_memory(tree(tmp_path, files))
    assert (found.total_bytes, found.swap_bytes, found.swap_used_bytes) == (4096000, 102400, 61440)
    assert (found.huge_pages, found.zone_reclaim) == ("always", 1)
    assert found.settings == {"swappiness": 1, "overcommit_ratio": 99}
    assert (found.huge_pages_total, found.huge_pages_free, found.huge_page_bytes) == (100, 35, 2 * 2**20)


GROUPS = "sys/fs/cgroup"
OUTER = f"{GROUPS}/outer"
V1 = {"proc/self/cgroup": "4:memory:/a/b\n3:cpu,cpuacct:/a\n0::/\n"}
V2 = {"proc/self/cgroup": "0::/outer/inner\n"}


def quota(group: str, quota_us: int) -> dict[str, str]:
    path = f"{GROUPS}/{group}/cpu.cfs"
    return {f"{path}_quota_us": f"{quota_us}\n", f"{path}_period_us": "100000\n"}


def memory(group: str, size_bytes: int) -> dict[str, str]:
    return {f"{GROUPS}/memory/{group}/memory.limit_in_bytes": f"{size_bytes}\n"}


@pytest.mark.parametrize(
    ("files", "cores", "size"),
    [
        ({}, None, None),
        (V2, None, None),
        (V2 | {f"{OUTER}/cpu.max": "150000 100000\n"}, 1.5, None),
        (V2 | {f"{OUTER}/inner/cpu.max": "max 100000\n", f"{OUTER}/cpu.max": "200000 100000\n"}, 2.0, None),
        (V2 | {f"{OUTER}/inner/memory.max": "max\n", f"{GROUPS}/memory.max": "1000\n"}, None, 1000),
        (V1 | quota("cpu,cpuacct/a", 50_000), 0.5, None),
        (V1 | quota("cpu/a", -1), None, None),
        (V1 | memory("a/b", 9223372036854771712) | memory("a", 2000), None, 2000),
    ],
)
def test_the_tightest_limit_of_our_groups_counts(
    tmp_path: Path, files: dict[str, str], cores: float | None, size: int | None
) -> None:
    found = read_limits(tree(tmp_path, files))
    assert (found.cpu_cores, found.memory_bytes) == (cores, size)


def test_settings_are_chosen_for_the_limits_of_our_groups(tmp_path: Path) -> None:
    # As under `systemd-run --scope -p MemoryMax=947M`: our group has the limit, the root group has none.
    limits = {f"{OUTER}/inner/memory.max": "993001472\n", f"{OUTER}/inner/cpu.max": "50000 100000\n"}
    found = machine_resources(tmp_path, tree(tmp_path, V2 | limits))
    assert (found.memory_bytes, found.cores) == (993001472, 1)


def test_default_sizes_are_chosen_for_the_limits_of_our_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "read_limits", lambda _: Limits(0.5, 2**20, 1024))
    assert machine_size() == MachineSize(1, 2**20)


def test_cgroups_are_searched_from_the_process_upwards(tmp_path: Path) -> None:
    found = list(places(tree(tmp_path, V2), "cpu"))
    assert found == [f"/sys/fs/cgroup{path}" for path in ("/outer/inner", "/outer", "")]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("usage_usec 5\nnr_throttled 2\nthrottled_usec 2500000\n", 2.5),
        ("nr_periods 0\nthrottled_time 1500000000\n", 1.5),
        ("nr_periods 0\n", None),
    ],
)
def test_throttled_time_is_read_in_the_formats_of_both_cgroup_versions(
    tmp_path: Path, text: str, seconds: float | None
) -> None:
    assert throttled_s(tree(tmp_path, V2 | {f"{OUTER}/inner/cpu.stat": text})) == seconds


STAT = "cpu  {user} 0 0 {idle} 0 0 0 {steal} 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n"
PROCESS = "{pid} ({name}) R 1 1 1 0 -1 0 0 0 0 0 {user} {system} 0 0 20 0 1 0\n"


def test_shares_are_of_the_time_between_two_readings(tmp_path: Path) -> None:
    def machine(at: str, user: int, idle: int, steal: int, other: int, ours: int, stalled_us: int) -> Tree:
        files = {
            "proc/stat": STAT.format(user=user, idle=idle, steal=steal),
            "proc/7/stat": PROCESS.format(pid=7, name="a) b (c", user=other, system=0),
            "proc/9/stat": PROCESS.format(pid=9, name="pgdyno", user=0, system=ours),
            "proc/pressure/io": f"some avg10=0.00 total={stalled_us}\nfull avg10=0.00 total=0\n",
            "proc/vmstat": f"pswpin {user}\npswpout 0\noom_kill 1\n",
            f"{CPU}/cpu0/thermal_throttle/core_throttle_count": f"{user}\n",
        }
        return tree(tmp_path / at, files)

    before = read_counters(
        machine("before", user=100, idle=900, steal=0, other=50, ours=10, stalled_us=10**6)
    )
    after = read_counters(machine("after", user=150, idle=940, steal=10, other=85, ours=20, stalled_us=10**6))
    found = load_between(before, after, own=9)
    assert found.others == pytest.approx(0.4)  # 50 + 10 busy, 10 of them stolen and 10 ours, of 100
    assert found.steal == pytest.approx(10 / 60)
    assert found.busiest == (("a) b (c", pytest.approx(0.35)),)
    assert found.pressure == {"io": pytest.approx(0.0)}
    assert found.swapped_bytes == 50 * machine_state.PAGE_BYTES
    assert (found.oom_kills, found.throttled) == (0, 50)


def test_a_process_that_began_in_between_is_nobodys(tmp_path: Path) -> None:
    empty = read_counters(tree(tmp_path / "a", {"proc/stat": STAT.format(user=0, idle=0, steal=0)}))
    files = {
        "proc/stat": STAT.format(user=50, idle=50, steal=0),
        "proc/7/stat": PROCESS.format(pid=7, name="new", user=50, system=0),
    }
    found = load_between(empty, read_counters(tree(tmp_path / "b", files)), own=1)
    assert (found.others, found.busiest) == (pytest.approx(0.5), ())


def test_a_program_whose_name_is_cut_within_a_character_is_counted(tmp_path: Path) -> None:
    stat = tmp_path / "proc" / "7" / "stat"
    stat.parent.mkdir(parents=True)
    line = PROCESS.format(pid=7, name="NAME", user=5, system=0)
    stat.write_bytes(line.encode().replace(b"NAME", "übü".encode()[:4]))
    assert read_counters(Tree(tmp_path)).processes[7] == ("üb\ufffd", 5 * TICK_S)


def test_this_machine_counts_this_process() -> None:
    counters = read_counters(Tree())
    assert os.getpid() in counters.processes
    assert 0 <= counters.steal_s <= counters.busy_s <= counters.total_s
    assert TICK_S > 0


def test_percentiles_of_flushes_are_by_rank() -> None:
    found = percentile_summary([float(n) for n in range(200, 0, -1)])
    assert (found.n, found.median_s, found.p99_s, found.worst_s) == (200, 101.0, 199.0, 200.0)
    assert percentile_summary([3.0]).p99_s == 3.0


def test_flushes_leave_nothing_and_ignore_failures(tmp_path: Path) -> None:
    found = measure_flushes(tmp_path, 0.001)
    assert found is not None
    assert 0 < found.median_s <= found.worst_s
    assert not list(tmp_path.iterdir())
    assert measure_flushes(tmp_path / "nowhere", 0.001) is None


def test_a_state_of_this_machine_goes_into_json(tmp_path: Path) -> None:
    waited: list[float] = []
    found = examine_machine(0.5, tmp_path, 0.001, wait=waited.append).as_json()
    assert waited == [0.5]
    assert "counters" not in found
    assert found["disk"]["free_bytes"] <= found["disk"]["size_bytes"]
    assert found["clock"]["read_ns"] > 0
    assert examine_machine(0.0, None, 0.001, wait=waited.append).disk is None
