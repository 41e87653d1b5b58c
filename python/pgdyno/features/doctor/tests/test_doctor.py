"""Doctor: every check with good, bad and unknown states."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from report_forms import plain
from synthetic_study import Synthetic, write_study

from example_studies import make_study
from pgdyno.analysis.study_findings import find_study
from pgdyno.caveats import Caveat, Parameter, wordings
from pgdyno.cli.main import run_command
from pgdyno.features.doctor import checks, command
from pgdyno.features.doctor.checks import (
    AFTER,
    BEFORE,
    DURING,
    RESUMED,
    ServerMemory,
    caveats_after,
    caveats_of,
    check_machine,
    passing,
    servers_of,
    watch_s_of,
)
from pgdyno.features.doctor.machine_state import (
    Clock,
    Counters,
    Disk,
    FlushTimes,
    Kernel,
    Limits,
    MachineLoad,
    MachineState,
    Memory,
    Processor,
)
from pgdyno.measure.arms import Prepared
from pgdyno.measure.progress import Progress, Warned
from pgdyno.report.background import machine_check_table
from pgdyno.results.reader import Evidence
from pgdyno.results.records import StudyEnd
from pgdyno.results.writer import Writer
from pgdyno.server.settings_catalogue import Catalogue
from pgdyno.study.arm_spec import ArmSpec
from pgdyno.study.plan import Study
from pgdyno.workloads.pgbench.parameters import PgbenchParameters

GB = 2**30
COUNTERS = Counters(100.0, 200.0, 20.0, 0.0, 5.0, {"io": 1.0}, 0, 0, 0, 0.0)
QUIET = MachineState(
    unix_s=1.0,
    processor=Processor(
        2, ("performance",), boost=False, smt=False, hypervisor="", nodes=1, on_battery=False
    ),
    memory=Memory(16 * GB, 12 * GB, 2 * GB, 0, "madvise", 0, 0, settings={"swappiness": 60}),
    kernel=Kernel("6.1.0", "voluntary"),
    limits=Limits(cpu_cores=None, memory_bytes=None, files=1024),
    clock=Clock("tsc", 45.0),
    disk=Disk("ext4", "sda", "ssd", "write back", 100 * GB, 50 * GB, FlushTimes(500, 3e-4, 9e-4, 2e-3)),
    load=MachineLoad(
        2.0, 0.0, 0.01, (("idler", 0.01),), {"cpu": 0.0, "io": 0.0, "memory": 0.0}, 0, 0, 0, 0.0, 0.0
    ),
    counters=COUNTERS,
)
"""A machine without disturbances."""


def like(**changed: dict[str, Any]) -> MachineState:
    """Return the quiet machine with these fields of these parts changed."""
    return replace(QUIET, **{part: replace(getattr(QUIET, part), **of) for part, of in changed.items()})


def flushing(n: int, *times_s: float, kind: str = "ssd") -> MachineState:
    """Return a machine with ``n`` flushes: their median, 99th percentile and maximum."""
    return like(disk={"kind": kind, "syncs": FlushTimes(n, *times_s)})


MIXED = {"governors": ("performance", "powersave")}
BACKUP = {"others": 0.3, "busiest": (("backup", 0.25),)}
TWO_NODES = like(processor={"nodes": 2}, memory={"numa_balancing": 1})

TEXTS = tomllib.loads((Path(checks.__file__).parent / "caveats.toml").read_text("utf-8"))
KINDS = [kind for code, entry in TEXTS.items() for kind in entry.get("kinds", (code,))]
DISTURBS: list[tuple[str, Mapping[str, Parameter], MachineState]] = [
    ("governor", {"governor": "performance, powersave"}, like(processor=MIXED)),
    ("boost", {}, like(processor={"boost": True})),
    ("smt", {}, like(processor={"smt": True})),
    ("virtual-machine", {"hypervisor": "KVM"}, like(processor={"hypervisor": "KVM"})),
    ("numa", {"nodes": 2, "settings": "numa_balancing 1, zone_reclaim_mode 0"}, TWO_NODES),
    ("on-battery", {}, like(processor={"on_battery": True})),
    ("thermal-throttling", {"times": 3, "when": "now"}, like(load={"throttled": 3})),
    ("huge-pages", {}, like(memory={"huge_pages": "always"})),
    ("preemption", {"model": "full"}, like(kernel={"preemption": "full"})),
    ("preemption", {"model": "rt"}, like(kernel={"preemption": "rt"})),
    ("swap-used", {"used": "1 GB"}, like(memory={"swap_used_bytes": GB})),
    ("swapping", {"moved": "2 MB", "when": "now"}, like(load={"swapped_bytes": 2 * 2**20})),
    ("out-of-memory", {"times": 1, "when": "now"}, like(load={"oom_kills": 1})),
    ("machine-steal", {"share": "3.0%"}, like(load={"steal": 0.03})),
    ("other-load", {"share": "30.0%", "limit": "5%", "names": "backup 25.0%"}, like(load=BACKUP)),
    ("other-load", {"names": "short-lived processes"}, like(load={"others": 0.3, "busiest": ()})),
    ("pressure", {"what": "CPU", "share": "11.0%"}, like(load={"pressure": {"cpu": 0.11}})),
    ("pressure", {"what": "the disk", "share": "6.0%"}, like(load={"pressure": {"io": 0.06}})),
    ("pressure", {"what": "memory", "share": "2.0%"}, like(load={"pressure": {"memory": 0.02}})),
    ("cpu-limited", {"cores": "1.5", "of": 2}, like(limits={"cpu_cores": 1.5})),
    ("cpu-throttled", {"withheld": "500 ms", "when": "now"}, like(load={"limited_s": 0.5})),
    ("memory-limited", {"limit": "2 GB", "of": "16 GB"}, like(limits={"memory_bytes": 2 * GB})),
    ("files-limited", {"files": 256}, like(limits={"files": 256})),
    ("slow-clock", {"read_ns": 1200, "source": "hpet"}, like(clock={"source": "hpet", "read_ns": 1200.4})),
    ("clock-set", {"step": "-2 s", "when": "now"}, like(load={"clock_step_s": -2.0})),
    ("file-system", {"file_system": "tmpfs"}, like(disk={"file_system": "tmpfs"})),
    ("file-system", {"file_system": "overlay"}, like(disk={"file_system": "overlay"})),
    ("file-system", {"file_system": "btrfs"}, like(disk={"file_system": "btrfs"})),
    ("file-system", {"file_system": "fuse.sshfs"}, like(disk={"file_system": "fuse.sshfs"})),
    ("space-short", {"free": "1 GB"}, like(disk={"free_bytes": GB, "size_bytes": 10 * GB})),
    ("space-short", {"share": "4.0%"}, like(disk={"free_bytes": 4 * GB})),
    ("flush-too-fast", {"median": "1.50 µs"}, flushing(500, 1.5e-6, 2e-6, 1e-5)),
    ("flush-too-fast", {"limit": "1 ms"}, flushing(500, 3e-4, 3e-4, 3e-4, kind="rotational")),
    ("flush-slow", {"median": "30 ms"}, flushing(20, 0.03, 0.05, 0.05)),
    ("flush-uneven", {"p99": "20 ms"}, flushing(500, 3e-4, 0.02, 0.05)),
]


def test_a_quiet_machine_has_no_findings() -> None:
    checked = check_machine(QUIET)
    assert {one.found for one in checked} == {"fine"}
    assert len({one.about for one in checked}) == len(checked)


@pytest.mark.parametrize(
    ("code", "parameters", "state"), DISTURBS, ids=[f"{i} {row[0]}" for i, row in enumerate(DISTURBS)]
)
def test_a_disturbance_raises_one_caveat_with_its_numbers(
    code: str, parameters: Mapping[str, Parameter], state: MachineState
) -> None:
    (found,) = caveats_of(check_machine(state))
    given = {name: plain(str(value)) for name, value in found.parameters.items()}
    assert found.kind == code
    assert {name: given[name] for name in parameters} == {k: str(v) for k, v in parameters.items()}


def test_the_table_has_every_caveat_of_the_machine() -> None:
    with_servers = {kind for _, _, kinds, _ in STUDIES for kind in kinds}
    assert {kind for kind, _, _ in DISTURBS} | with_servers == set(KINDS)


MANY = ServerMemory("17", clients=100, shared_buffers_bytes=8 * GB, huge_pages="try", pages=4300)


def reserved(total: int, free: int, preemption: str = "voluntary") -> MachineState:
    pages = {"huge_page_bytes": 2 * 2**20, "huge_pages_total": total, "huge_pages_free": free}
    return like(memory=pages, kernel={"preemption": preemption})


def other(**changed: Any) -> ServerMemory:
    return replace(MANY, **changed)


OFF = other(arm="18", huge_pages="off")
NONE, FULL = reserved(0, 0), reserved(0, 0, "full")
SMALL = {"small-pages"}
STUDIES: list[tuple[MachineState, list[list[ServerMemory]], set[str], str]] = [
    # no pages at all; the remedy contains the number for the servers that run at the same time
    (NONE, [[MANY]], SMALL, "vm.nr_hugepages=4300"),
    (NONE, [[MANY, MANY]], SMALL, "vm.nr_hugepages=8600"),
    (NONE, [[MANY], [MANY]], SMALL, "vm.nr_hugepages=4300"),
    # pages used by others remain theirs
    (reserved(5000, 1000), [[MANY]], SMALL, "vm.nr_hugepages=8300"),
    (reserved(5000, 4299), [[MANY]], SMALL, "4300 huge pages are needed, 4299 are free"),
    (reserved(5000, 4300), [[MANY]], set(), ""),
    (reserved(5000, 5000), [[MANY, other(arm="18")]], SMALL, "17, 18"),
    (reserved(5000, 5000), [[MANY, OFF]], SMALL, "of 18 are not in huge pages (huge_pages is off)"),
    # a server that does not report its pages: 10% above its shared buffers
    (NONE, [[other(pages=None)]], SMALL, "vm.nr_hugepages=4506"),
    (reserved(9, 9), [[other(huge_pages="on")]], set(), ""),
    (reserved(9, 9), [[other(runs=True, status="on")]], set(), ""),
    (reserved(9999, 9999), [[other(runs=True, status="off")]], SMALL, "found no huge pages when it started"),
    (reserved(9999, 9999), [[other(runs=True)]], set(), ""),  # up to 16: not reported
    # small buffers or few clients: at most 64 MB of page tables
    (NONE, [[other(clients=4)]], set(), ""),
    (NONE, [[other(clients=5)]], SMALL, "grow to 80 MB"),
    (NONE, [[other(shared_buffers_bytes=GB // 8)]], set(), ""),
    # preemption in a study matters with more clients than cores and without huge pages
    (FULL, [[other(clients=2)]], set(), ""),
    (FULL, [[other(clients=3)]], {"preemption"}, "half"),
    (reserved(5000, 5000, "full"), [[MANY]], set(), ""),
    (FULL, [[MANY]], {"preemption", "small-pages"}, "preempt=lazy"),
    (reserved(0, 0, "lazy"), [[MANY]], SMALL, "4300"),
]


@pytest.mark.parametrize(("state", "servers", "codes", "words"), STUDIES)
def test_huge_pages_and_preemption_are_checked_for_the_servers_of_a_study(
    state: MachineState, servers: list[list[ServerMemory]], codes: set[str], words: str
) -> None:
    found = caveats_of(check_machine(state, servers=servers))
    assert {caveat.kind for caveat in found} == codes
    assert words in " ".join(f"{caveat.text} {caveat.remedy}" for caveat in found)


def test_a_running_server_that_does_not_report_huge_pages_is_unknown() -> None:
    found = {one.about: one.found for one in check_machine(QUIET, servers=[[other(runs=True)]])}
    assert found["huge pages for shared buffers"] == "unknown"


@pytest.mark.parametrize(("schedule", "groups"), [("slices", [["17", "18"]]), ("blocks", [["17"], ["18"]])])
def test_the_servers_of_a_study_come_with_its_settings_and_clients(
    schedule: str, groups: list[list[str]]
) -> None:
    settings = {"shared_buffers": "8GB", "huge_pages": "try", "shared_memory_size_in_huge_pages": "4300"}
    of_18 = {**settings, "shared_memory_size_in_huge_pages": "-1"}
    arms = tuple(ArmSpec(name=name, server=name) for name in ("17", "18", "19"))
    asked = study(schedule=schedule, clients=100, arms=arms)
    strange = {"shared_buffers": "plenty"}  # of another server
    prepared = Prepared(asked, [], [], [], Path(), in_effect={0: settings, 1: of_18, 2: strange})
    found = servers_of(prepared)
    assert [[server.arm for server in together] for together in found] == groups
    every = [server for together in found for server in together]
    assert every == [MANY, other(arm="18", pages=None)]


BARELY_FINE = [
    like(kernel={"preemption": "lazy"}),
    like(kernel={"preemption": "none or voluntary"}),
    like(processor={"hypervisor": "", "nodes": 1}),
    like(memory={"huge_pages": "never"}),
    like(memory={"swap_used_bytes": int(0.009 * 16 * GB)}),
    like(load={"swapped_bytes": 2**20}),
    like(load={"steal": 0.02, "others": 0.05, "pressure": {"cpu": 0.1, "io": 0.05, "memory": 0.01}}),
    like(load={"limited_s": 0.02}),
    like(limits={"cpu_cores": 2.0, "memory_bytes": 16 * GB}),
    like(clock={"source": "kvm-clock", "read_ns": 250.0}),  # as fast as tsc: the name alone is not a problem
    like(load={"clock_step_s": 0.1}),
    like(load={"elapsed_s": 3600.0, "clock_step_s": 1.5}),  # slewed for an hour
    like(disk={"free_bytes": 5 * GB}),
    flushing(500, 1.2e-5, 3e-5, 1e-4, kind="nvme"),  # capacitors
    flushing(500, 3e-4, 4e-3, 0.05),
    flushing(50, 3e-4, 0.02, 0.02),  # too few for a percentile
]


@pytest.mark.parametrize("state", BARELY_FINE)
def test_a_value_at_its_limit_passes(state: MachineState) -> None:
    assert not caveats_of(check_machine(state))


def test_an_unreported_fact_is_unknown_and_neither_passed_nor_a_finding() -> None:
    processor = dict.fromkeys(("boost", "smt", "hypervisor", "nodes", "on_battery"))
    load = dict.fromkeys(("swapped_bytes", "oom_kills", "throttled", "limited_s"))
    silent = like(
        processor={"governors": (), **processor},
        memory={"huge_pages": None, "swap_used_bytes": None, "settings": {}},
        kernel={"preemption": None},
        clock={"source": None},
        load={"pressure": {}, **load},
        disk={"file_system": None, "syncs": None, "write_cache": None},
    )
    checked = check_machine(silent)
    assert sum(one.found == "unknown" for one in checked) == 21
    known = {one.about for one in checked} - {one.about for one in checked if one.found == "unknown"}
    limits = {"limit of CPU time", "limit of memory", "open files of a process"}
    assert known == limits | {"other load", "stolen CPU time", "free space for the data", "time of day"}
    assert not caveats_of(checked)


def test_disks_are_checked_with_local_data_only() -> None:
    told = {one.about: one.text for one in check_machine(like(disk={"device": "vda"}))}
    assert "durable is unknown" in told["flush of a page (write and fdatasync)"]
    without = [one.about for one in check_machine(replace(QUIET, disk=None))]
    assert not [about for about in without if "data" in about or "flush" in about]


def test_after_a_study_only_what_changed_is_a_caveat() -> None:
    noisy = like(processor={"hypervisor": "KVM"}, load={"others": 0.3})
    grown = replace(COUNTERS, at_s=200.0, throttled=4, oom_kills=1, swapped_bytes=2**30, limited_s=2.0)
    grown = replace(grown, wall_ahead_s=7.0)
    after = replace(noisy, counters=grown)
    known = {caveat.kind for caveat in caveats_of(check_machine(noisy, BEFORE))}
    assert known == {"virtual-machine", "other-load"}
    assert not caveats_after(noisy, noisy, known)
    counted = {"thermal-throttling", "out-of-memory", "swapping", "cpu-throttled", "clock-set"}
    found = caveats_after(noisy, after, known)
    assert {caveat.kind for caveat in found} == counted
    assert {caveat.parameters["when"] for caveat in found} == {DURING}
    assert {caveat.kind for caveat in caveats_after(QUIET, after, ())} == counted | known
    load = next(of for of in caveats_after(QUIET, noisy, ()) if of.kind == "other-load")
    assert load.parameters["when"] == AFTER


Examine = Callable[..., list[str]]


@pytest.fixture
def examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Examine:
    """Return a function that examines the machine around a study, and returns the warnings."""

    def run(
        examine: Callable[..., MachineState],
        known: frozenset[str] | None = None,
        ending: StudyEnd = StudyEnd.BUDGET,
        **changed: Any,
    ) -> list[str]:
        write_study(tmp_path / "e", Synthetic(blocks=2), Synthetic(blocks=2, levels={"clients": "8"}))
        monkeypatch.setattr(checks, "examine_machine", examine)
        seen: list[Progress] = []
        with Writer.resume(tmp_path / "e") as writer:
            ready = [Prepared(study(**changed), [], [], [], tmp_path, in_effect={})] * 2
            checks.examine(writer, ready, seen.append, known)(ending)
        return [one.text for one in seen if isinstance(one, Warned)]

    return run


def test_the_doctor_writes_into_the_evidence_before_and_after(tmp_path: Path, examined: Examine) -> None:
    states = [like(load={"others": 0.3}), like(disk={"free_bytes": GB})]
    asked: list[tuple[object, ...]] = []

    def given(*of: object) -> MachineState:
        asked.append(of)
        return states[len(asked) - 1]

    assert examined(given) == [caveat.text for caveat in caveats_of(passing(states[0], BEFORE))]
    assert asked == [(pytest.approx(0.6), tmp_path, pytest.approx(0.3))] * 2
    with Evidence(tmp_path / "e") as evidence:
        for case in (0, 1):
            stored = [caveat.kind for caveat in evidence.caveats(case)]
            assert stored == ["other-load", "space-short"]
        noted = evidence.study(0).host["states"]
    assert [state["when"] for state in noted] == [BEFORE, AFTER]
    assert noted[0]["load"]["others"] == 0.3
    expected = {one.about for one in check_machine(QUIET, servers=[[]])}
    assert {check["about"] for check in noted[1]["checks"]} == expected


def test_a_resumed_study_reports_only_new_messages(tmp_path: Path, examined: Examine) -> None:
    busy = like(load={"others": 0.3}, processor={"smt": True})
    examined(lambda *_: busy, frozenset({"smt"}))
    with Evidence(tmp_path / "e") as evidence:
        (caveat,) = evidence.caveats(0)
        states = evidence.study(0).host["states"]
    assert (caveat.kind, caveat.parameters["when"]) == ("other-load", RESUMED)
    assert [state["when"] for state in states] == [RESUMED, AFTER]


def test_an_unreadable_machine_does_not_fail_a_study(tmp_path: Path, examined: Examine) -> None:
    def fails(*_: object) -> MachineState:
        raise ValueError("a line of /proc that nobody knows")

    (said,) = examined(fails)
    assert said.endswith("ValueError: a line of /proc that nobody knows")
    with Evidence(tmp_path / "e") as evidence:
        assert "states" not in evidence.study(0).host
        assert not evidence.caveats(0)


def test_stopping_a_study_does_not_wait_for_the_doctor(examined: Examine) -> None:
    asked: list[float] = []

    def given(watch_s: float, *_: object) -> MachineState:
        asked.append(watch_s)
        return QUIET

    examined(given, ending=StudyEnd.INTERRUPTED, budget_s=3600.0)
    assert asked == [2.0, 0.2]


def test_the_table_of_the_machine_has_no_repeated_sentence(tmp_path: Path) -> None:
    path = tmp_path / "e"
    write_study(path, Synthetic(blocks=2))
    checks = [{"about": one.about, "found": one.found, "text": one.text} for one in check_machine(DISTURBED)]
    with Writer.resume(path) as writer:
        for when in (BEFORE, AFTER, RESUMED, AFTER):
            writer.add_machine_state({"when": when, "checks": checks})
    with Evidence(path) as evidence:
        table = machine_check_table(find_study(evidence).first)
    assert table.columns == ("check", BEFORE, "after the study, 1", RESUMED, "after the study, 2")
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["CPU boost"][0].startswith("disturbs: CPU boost is enabled")
    assert rows["CPU boost"][1:] == ["the same"] * 3
    assert rows["virtual machine"] == ["no"] * 4


DISTURBED = like(processor={"boost": True})


def study(**changed: Any) -> Study:
    driven = {"workload": PgbenchParameters(scale=1), "clients": 2, "warmup_s": 1.0, "rounds": 10}
    return make_study(**{**driven, **changed})


@pytest.mark.parametrize(
    ("changed", "watch_s"),
    [
        ({"budget_s": 1.0}, 0.2),
        ({"budget_s": 200.0}, 1.0),
        ({"budget_s": 36_000.0}, 2.0),
        ({"budget_s": 1e9, "blocks_max": 10, "slice_s": 1.0}, 1.0),  # ten blocks of two arms' ten slices
        ({"budget_s": 1e9, "blocks_max": 10, "slice_s": 1.0, "schedule": "blocks"}, 1.0),
    ],
)
def test_the_doctor_takes_little_of_a_studys_time(changed: dict[str, Any], watch_s: float) -> None:
    assert watch_s_of([study(**changed)]) == pytest.approx(watch_s)


@pytest.fixture
def told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Return a function that runs the command, which inspects no machine and has no cache."""
    monkeypatch.setattr(command, "Cache", SimpleNamespace(open=lambda: SimpleNamespace(root=tmp_path)))
    monkeypatch.setattr(command, "_programs", lambda _: [checks.engine("release")])

    def run(state: MachineState, status: int, *options: str) -> str:
        monkeypatch.setattr(command, "examine_machine", lambda *_: state)
        assert run_command(["doctor", *options]) == status
        return capsys.readouterr().out

    return run


BUSY = like(load={"others": 0.3})


def test_findings_come_first_and_passed_checks_take_one_line_each(told: Callable[..., str]) -> None:
    text = told(BUSY, 0)
    assert re.match(r"1 problem found in \d+ checks\n- other-programs: Other programs used", text)
    assert wordings()["other-programs"].remedy in text
    assert "\nok\n  CPU frequency governor: performance\n" in text
    assert "unknown" not in text


def test_strict_makes_findings_a_failure(told: Callable[..., str]) -> None:
    found = json.loads(told(BUSY, 1, "--strict", "--json"))
    finding = next(check for check in found["checks"] if check["found"] == "disturbs")
    assert (finding["code"], finding["remedy"]) == ("other-programs", wordings()["other-programs"].remedy)
    assert found["machine"]["clock"] == {"source": "tsc", "read_ns": 45.0}
    told(QUIET, 0, "--strict")


def catalogue(cflags: str, assertions: str | None = None) -> Catalogue:
    initial = {} if assertions is None else {"debug_assertions": assertions}
    return Catalogue("PostgreSQL 17.5", {"CFLAGS": cflags}, {}, initial)


def test_debug_builds_are_reported_one_by_one_and_the_other_servers_together() -> None:
    known = {
        **{"17": catalogue("-g -O2", "off"), "18": catalogue(""), "unused": None},
        **{"19": catalogue("-O0 -ggdb", "off"), "20": catalogue("-Og", "on"), "21": catalogue("-O2", "on")},
    }
    *bad, good = checks.server_checks(known)
    flags = {one.about: one.caveat and one.caveat.parameters["flags"] for one in bad}
    assert flags == {"server 19": "-O0", "server 20": "-Og --enable-cassert", "server 21": "--enable-cassert"}
    assert (good.found, good.text) == ("fine", "2 not built for debugging, 1 unknown")
    assert [one.found for one in checks.server_checks({"unused": None})] == ["unknown"]
    assert checks.engine("debug").caveat == Caveat.of("debug-engine")
    assert checks.engine(None).found == "unknown"


def test_the_guide_has_every_finding_with_its_remedy() -> None:
    page = (Path(checks.__file__).parent / "README.md").read_text("utf-8")
    assert not [code for code in TEXTS if f"caveats.md#{code})" not in page]


def test_settings_of_the_kernel_are_recorded_whatever_they_are() -> None:
    memory = {"settings": {"swappiness": 1, "overcommit_memory": 2}}
    machine = like(memory=memory, disk={"read_ahead_kb": 4096, "scheduler": "none"})
    found = {one.about: (one.found, one.text) for one in check_machine(machine)}
    assert found["memory settings of the kernel"][1] == "swappiness 1, overcommit_memory 2"
    of_disk = "readahead 4096 kB, scheduler none, write cache write back"
    assert found["disk settings of the kernel"] == ("fine", of_disk)
