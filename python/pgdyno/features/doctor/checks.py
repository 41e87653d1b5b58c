"""The examination of a machine: sources of noise in CPU, memory and disks.

- Checks of the machine: properties that do not change, those that can, and counters.
- Checks of huge pages for shared buffers, and of the preemption model.
- Check of the time of a flush.
- Checks of the engine and of servers.
- The examination before and after a study.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pgdyno.caveats import Caveat, Parameter
from pgdyno.errors import UsageError
from pgdyno.features.doctor.machine_state import (
    PRESSURES,
    Disk,
    MachineLoad,
    MachineState,
    Memory,
    examine_machine,
    load_between,
)
from pgdyno.measure.arms import Prepared
from pgdyno.measure.progress import PreparationStep, Warned, Watch
from pgdyno.measure.study_runner import EndOfExamination
from pgdyno.results.records import StudyEnd
from pgdyno.results.writer import Writer
from pgdyno.server.settings_catalogue import Catalogue
from pgdyno.study.plan import Study
from pgdyno.units import format_duration, format_size, given_percent, parse_size_bytes, percent_text


@dataclass(frozen=True)
class Checked:
    """Result of a check. ``about``: its subject. ``text``: the value if it is fine, the reason if it is
    unknown. ``caveat``: that of a finding.
    """

    about: str
    found: Literal["fine", "unknown", "disturbs"]
    text: str = ""
    caveat: Caveat | None = None


NOT_REPORTED = "not reported by this machine"


def _settings(about: str, values: Mapping[str, object]) -> Checked:
    """Return settings that are no finding with any value, so that a reader can compare machines."""
    known = [f"{name} {value}" for name, value in values.items() if value is not None]
    return Checked(about, "fine" if known else "unknown", ", ".join(known) or NOT_REPORTED)


def _check(
    about: str,
    disturbs: bool | None,
    kind: str,
    fine: str,
    *,
    unknown: str = NOT_REPORTED,
    **parameters: Parameter,
) -> Checked:
    """Return a finding with a caveat, or ``fine``. ``disturbs``: None if the property is unknown, which is
    neither.
    """
    if disturbs is None:
        return Checked(about, "unknown", unknown)
    if not disturbs:
        return Checked(about, "fine", fine)
    caveat = Caveat.of(kind, **parameters)
    return Checked(about, "disturbs", caveat.text, caveat)


def _exceeds(value: float | None, limit: float) -> bool | None:
    return None if value is None else value > limit


# ----------------------------------------------------------------------
# Checks of the machine: properties that do not change, those that can, and counters.
# ----------------------------------------------------------------------

NOW = "now"
BEFORE = "before the study"
RESUMED = "before the study was resumed"
DURING = "during the study"
AFTER = "after the study"


def check_machine(state: MachineState, when: str = NOW, servers: Sequence[Together] = ()) -> list[Checked]:
    """Return all checks of a machine, for the servers of a study if they are known."""
    return [*_standing(state, servers), *passing(state, when), *_counted(state.load, when)]


STEADY_GOVERNOR = "performance"
"""The governor that always keeps a core at its highest frequency."""

FILES_MIN = 1024
"""Minimum limit of open files. A backend opens up to max_files_per_process files, by default 1000."""

READ_NS_MAX = 250
"""Maximum time of a clock reading. From the processor it takes 20 to 80 ns, including Python; by a system
call at least 200 ns, and from a device (hpet, acpi_pm) 1000 ns."""

CONSEQUENCES = {
    **dict.fromkeys(("tmpfs", "ramfs"), "it is in memory: flushes have no effect, and data are not durable"),
    **dict.fromkeys(("overlay", "aufs"), "the first change of a file copies it from a lower layer"),
    **dict.fromkeys(("btrfs", "zfs", "bcachefs"), "it is copy-on-write: files become fragmented"),
    **dict.fromkeys(
        ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "virtiofs"), "the load of another machine affects it"
    ),
}
"""Consequences of file systems that differ from a local one on a disk. Those of FUSE have many names."""


def _standing(state: MachineState, servers: Sequence[Together]) -> Iterator[Checked]:
    """Yield checks of properties that do not change by themselves."""
    cpu, memory, limits, clock = state.processor, state.memory, state.limits, state.clock
    # A core that saves power slows down the processes on it.
    yield _check(
        "CPU frequency governor",
        cpu.governors != (STEADY_GOVERNOR,) if cpu.governors else None,
        "governor",
        STEADY_GOVERNOR,
        governor=", ".join(cpu.governors),
    )
    yield _check("CPU boost", cpu.boost, "boost", "off")
    yield _check("threads per core (SMT)", cpu.smt, "smt", "one per core")
    guest = None if cpu.hypervisor is None else bool(cpu.hypervisor)
    yield _check("virtual machine", guest, "virtual-machine", "no", hypervisor=cpu.hypervisor or "")
    known = {"numa_balancing": memory.numa_balancing, "zone_reclaim_mode": memory.zone_reclaim}
    settings = ", ".join(f"{name} {value}" for name, value in known.items() if value is not None)
    yield _check(
        "NUMA nodes",
        _exceeds(cpu.nodes, 1),
        "numa",
        "one",
        nodes=cpu.nodes or 0,
        settings=settings or "settings unknown",
    )
    # With madvise only programs that request them get them; PostgreSQL does not.
    always = None if memory.huge_pages is None else memory.huge_pages == "always"
    yield _check("transparent huge pages", always, "huge-pages", memory.huge_pages or "")
    if servers:
        yield _huge_pages(memory, servers)
    yield _preemption(state, servers)
    yield _check(
        "limit of CPU time",
        limits.cpu_cores is not None and limits.cpu_cores < cpu.cores,
        "cpu-limited",
        "none below the cores",
        cores=f"{limits.cpu_cores or 0:g}",
        of=cpu.cores,
    )
    limit, total = limits.memory_bytes, memory.total_bytes
    yield _check(
        "limit of memory",
        limit is not None and (total is None or limit < total),
        "memory-limited",
        "none below that of the machine",
        limit=format_size(limit or 0),
        of="unknown size" if total is None else format_size(total),
    )
    yield _settings("memory settings of the kernel", memory.settings)
    yield _check(
        "open files of a process",
        limits.files < FILES_MIN,
        "files-limited",
        f"up to {limits.files}",
        files=limits.files,
        limit=FILES_MIN,
    )
    # The name of the source is not sufficient: kvm-clock is as fast as tsc.
    yield _check(
        "clock",
        clock.read_ns > READ_NS_MAX or (None if clock.source is None else False),
        "slow-clock",
        f"{clock.source}, a reading takes {clock.read_ns:.0f} ns",
        unknown=f"unknown source; a reading takes {clock.read_ns:.0f} ns",
        read_ns=round(clock.read_ns),
        source=clock.source or "unknown",
        limit_ns=READ_NS_MAX,
    )
    if state.disk is not None:
        kind = state.disk.file_system
        passes = "every call passes through another program"
        consequence = passes if (kind or "").startswith("fuse") else CONSEQUENCES.get(kind or "", "")
        yield _check(
            "file system of the data",
            None if kind is None else bool(consequence),
            "file-system",
            kind or "",
            file_system=kind or "",
            consequence=consequence,
        )


OTHERS_MAX = 0.05
"""Maximum CPU time of other processes as a share of all cores. An idle desktop takes less, and studies look
for effects of 5%."""

STEAL_MAX = 0.02
"""Maximum steal as a share of the requested CPU time. An idle hypervisor takes less than 1%, and on an idle
machine there is no steal: it occurs under load."""

PRESSURE_MAX = {"cpu": 0.10, "io": 0.05, "memory": 0.01}
"""Maximum pressure as a share of the elapsed time. Short waits for a CPU are normal; waits for memory are
not."""

WANTED = {"cpu": "CPU", "io": "the disk", "memory": "memory"}
"""Names of the resources for output."""

SWAP_USED_SHARE_MAX = 0.01
"""Maximum used swap as a share of memory. Kernels swap out small amounts of sleeping programs."""

FREE_BYTES_MIN = 2 * 2**30
FREE_SHARE_MIN = 0.05
"""Minimum free space. Below it, ext4 and xfs allocate space less efficiently; the last 5% are reserved for
root."""


def passing(state: MachineState, when: str) -> Iterator[Checked]:
    """Yield checks of properties that can change within a minute."""
    load, memory, disk = state.load, state.memory, state.disk
    yield _check("power", state.processor.on_battery, "on-battery", "not from a battery")
    names = ", ".join(f"{name} {percent_text(share, 1)}" for name, share in load.busiest)
    yield _check(
        "other load",
        load.others > OTHERS_MAX,
        "other-load",
        f"{percent_text(load.others, 1)} of the CPU {when}",
        share=percent_text(load.others, 1),
        limit=given_percent(OTHERS_MAX),
        names=names or "short-lived processes",
        when=when,
    )
    yield _check(
        "stolen CPU time",
        load.steal > STEAL_MAX,
        "machine-steal",
        f"{percent_text(load.steal, 1)} {when}",
        share=percent_text(load.steal, 1),
        limit=given_percent(STEAL_MAX),
        when=when,
    )
    for of in PRESSURES:
        share = load.pressure.get(of)
        yield _check(
            f"waiting for {WANTED[of]}",
            _exceeds(share, PRESSURE_MAX[of]),
            "pressure",
            f"{percent_text(share or 0.0, 1)} of the time {when}",
            what=WANTED[of],
            share=percent_text(share or 0.0, 1),
            limit=given_percent(PRESSURE_MAX[of]),
            when=when,
        )
    used, total = memory.swap_used_bytes, memory.total_bytes
    yield _check(
        "swap",
        None if total is None else _exceeds(used, SWAP_USED_SHARE_MAX * total),
        "swap-used",
        f"{format_size(used or 0)} used" if memory.swap_bytes else "no swap",
        used=format_size(used or 0),
    )
    if disk is not None:
        share = disk.free_bytes / disk.size_bytes if disk.size_bytes else 0.0
        yield _check(
            "free space for the data",
            disk.free_bytes < FREE_BYTES_MIN or share < FREE_SHARE_MIN,
            "space-short",
            f"{format_size(disk.free_bytes)}, {percent_text(share, 1)}",
            free=format_size(disk.free_bytes),
            share=percent_text(share, 1),
            limit_size=format_size(FREE_BYTES_MIN),
            limit=given_percent(FREE_SHARE_MIN),
        )
        queue = {
            "readahead": disk.read_ahead_kb and f"{disk.read_ahead_kb} kB",
            "scheduler": disk.scheduler,
            "write cache": disk.write_cache,
        }
        yield _settings("disk settings of the kernel", queue)
        yield _flush(disk)


SWAPPED_BYTES_MAX = 2**20
"""Maximum swap traffic. More means that memory is short."""

WITHHELD_SHARE_MAX = 0.01
"""Maximum withheld CPU time as a share of the elapsed time: half of the default margin of a verdict."""

STEP_S_MAX = 0.1
SLEWED_S_PER_S = 0.0005
"""Minimum step of a clock that was set, and the maximum by which slewing changes a clock."""


def _counted(grown: MachineLoad, when: str) -> Iterator[Checked]:
    """Yield checks of counters between two times."""
    none = f"none {when}"
    throttled, killed = grown.throttled, grown.oom_kills
    yield _check(
        "thermal throttling",  # halves the speed of a core
        _exceeds(throttled, 0),
        "thermal-throttling",
        none,
        times=throttled or 0,
        when=when,
    )
    moved = grown.swapped_bytes
    yield _check(
        "swapping",
        _exceeds(moved, SWAPPED_BYTES_MAX),
        "swapping",
        none,
        moved=format_size(moved or 0),
        when=when,
    )
    died = _exceeds(killed, 0)
    yield _check("OOM-killed processes", died, "out-of-memory", none, times=killed or 0, when=when)
    yield _check(
        "CPU withheld by a limit",
        _exceeds(grown.limited_s, WITHHELD_SHARE_MAX * grown.elapsed_s),
        "cpu-throttled",
        none,
        withheld=format_duration(grown.limited_s or 0.0),
        when=when,
    )
    yield _check(
        "time of day",
        abs(grown.clock_step_s) > STEP_S_MAX + SLEWED_S_PER_S * grown.elapsed_s,
        "clock-set",
        f"not set {when}",
        step=format_duration(grown.clock_step_s),
        when=when,
    )


# ----------------------------------------------------------------------
# Checks of huge pages for shared buffers, and of the preemption model.
# ----------------------------------------------------------------------

PAGE_TABLES_BYTES_MAX = 64 * 2**20
"""Maximum size of the page tables of all backends: 32 clients with 1 GB, 256 with 128 MB. Larger ones fill
the processor caches."""

MAPPED_PER_TABLE_BYTE = 512
"""An entry of 8 bytes maps a page of 4096 bytes."""

OVERHEAD = 1.1
"""Ratio of shared memory to shared buffers for servers before 15, which do not report it: a few percent
more."""

USUAL_HUGE_PAGE_BYTES = 2 * 2**20
"""Default size of a huge page: that of x86_64 and most ARM machines."""

FULLY_PREEMPTIBLE = ("full", "rt")


@dataclass(frozen=True)
class ServerMemory:
    """Shared memory of an arm's server on this machine.

    ``pages``: number of huge pages that it needs, from 15 on; None: unknown. ``runs``: it is a running
    server, and ``status`` its ``huge_pages_status`` (from 17 on).
    """

    arm: str
    clients: int
    shared_buffers_bytes: int
    huge_pages: str
    pages: int | None = None
    runs: bool = False
    status: str | None = None

    @property
    def page_tables_bytes(self) -> int:
        """Size of the page tables of all clients with small pages, after each has accessed all buffers."""
        return self.clients * self.shared_buffers_bytes // MAPPED_PER_TABLE_BYTE


Together = Sequence[ServerMemory]
"""Servers that run at the same time."""


def _huge_pages(memory: Memory, asked: Sequence[Together]) -> Checked:
    """Check whether the shared buffers of the servers will be in huge pages, if they are large."""
    about = "huge pages for shared buffers"
    every = [server for together in asked for server in together]
    needing = [server for server in every if server.page_tables_bytes > PAGE_TABLES_BYTES_MAX]
    if not needing:
        most = max((server.page_tables_bytes for server in every), default=0)
        return Checked(about, "fine", f"not needed: page tables of at most {format_size(most)}")
    reasons = {server: _why_small(memory, server, together) for together in asked for server in together}
    lacking = [server for server in needing if reasons[server]]
    is_unknown = any(reasons[server] is None for server in needing)
    return _check(
        about,
        True if lacking else None if is_unknown else False,
        "small-pages",
        "enough are free",
        arms=", ".join(dict.fromkeys(server.arm for server in lacking)),
        reason="; ".join(dict.fromkeys(str(reasons[server]) for server in lacking)),
        clients=max((server.clients for server in lacking), default=0),
        tables=format_size(max((server.page_tables_bytes for server in lacking), default=0)),
        pages=_pages_to_reserve(memory, asked),
    )


def _preemption(state: MachineState, asked: Sequence[Together]) -> Checked:
    """Check whether the kernel can preempt a backend while others wait for it.

    In a study this matters only with more clients than cores, and servers without huge pages.
    """
    model = state.kernel.preemption
    exposed = [
        server
        for together in asked
        for server in together
        if server.clients > state.processor.cores and _why_small(state.memory, server, together) != ""
    ]
    is_full = model in FULLY_PREEMPTIBLE
    return _check(
        "preemption by the kernel",
        None if model is None else is_full and (bool(exposed) or not asked),
        "preemption",
        f"{model}, but few clients or huge pages" if is_full else str(model),
        model=str(model),
    )


def _pages_to_reserve(memory: Memory, asked: Sequence[Together]) -> int:
    """Return the value for vm.nr_hugepages: pages in use, and the largest need of concurrent servers."""
    in_use = (memory.huge_pages_total or 0) - (memory.huge_pages_free or 0)
    return in_use + max((_needed(memory, together) for together in asked), default=0)


def _needed(memory: Memory, together: Together) -> int:
    page_bytes = memory.huge_page_bytes or USUAL_HUGE_PAGE_BYTES
    return sum(
        server.pages or math.ceil(OVERHEAD * server.shared_buffers_bytes / page_bytes) for server in together
    )


def _why_small(memory: Memory, server: ServerMemory, together: Together) -> str | None:
    """Return the reason for small pages; empty: the server has huge pages; None: unknown."""
    if server.status == "on" or server.huge_pages == "on":
        return ""
    if server.huge_pages == "off":
        return "huge_pages is off"
    if server.runs:
        return "it found no huge pages when it started" if server.status == "off" else None
    free = memory.huge_pages_free
    needed = _needed(memory, [one for one in together if one.huge_pages != "off" and not one.runs])
    if free is None:
        return None
    return "" if free >= needed else f"{needed} huge pages are needed, {free} are free"


# ----------------------------------------------------------------------
# Check of the time of a flush.
# ----------------------------------------------------------------------

FLUSH_S_MIN = {"rotational": 1e-3, "ssd": 20e-6, "nvme": 10e-6}
"""Minimum plausible flush time. A disk with 7200 rpm takes 4 ms on average, the fastest flash with capacitors
about 15 µs, and a transfer over PCI Express alone 10 µs."""

FLUSH_S_MAX = 0.02
"""Maximum flush time: two rotations of a slow disk."""

UNEVEN_TIMES = 10
UNEVEN_S_MIN = 5e-3
"""Limits of the 99th percentile: ten times the median, and long enough to affect a rate."""

SYNCS_MIN = 100
"""Minimum number of flushes for a 99th percentile."""


def _flush(disk: Disk) -> Checked:
    """Check that the flush of a commit is not too fast, too slow or too uneven.

    It is uneven if the 99th percentile exceeds both limits, the relative and the absolute one.
    """
    syncs, least_s = disk.syncs, FLUSH_S_MIN.get(disk.kind, FLUSH_S_MIN["ssd"])
    about = "flush of a page (write and fdatasync)"
    if syncs is None:
        return Checked(about, "unknown", "could not be measured")
    median = format_duration(syncs.median_s)
    uneven_s = max(UNEVEN_S_MIN, UNEVEN_TIMES * syncs.median_s)
    if syncs.median_s < least_s:
        return _check(about, True, "flush-too-fast", "", median=median, limit=format_duration(least_s))
    if syncs.median_s > FLUSH_S_MAX:
        return _check(about, True, "flush-slow", "", median=median, limit=format_duration(FLUSH_S_MAX))
    beneath = f"; the cache of the disk is {disk.write_cache}" if disk.write_cache else ""
    if (disk.device or "").startswith(("vd", "xvd")):
        beneath = "; a virtual disk: whether its host makes confirmed flushes durable is unknown"
    return _check(
        about,
        syncs.n >= SYNCS_MIN and syncs.p99_s > uneven_s,
        "flush-uneven",
        f"median {median}, worst of {syncs.n} {format_duration(syncs.worst_s)}{beneath}",
        median=median,
        p99=format_duration(syncs.p99_s),
        limit=format_duration(uneven_s),
    )


# ----------------------------------------------------------------------
# Checks of the engine and of servers.
# ----------------------------------------------------------------------


def engine(profile: str | None) -> Checked:
    """Check the build profile of the engine."""
    return _check(
        "engine of pgdyno",
        None if profile is None else profile == "debug",
        "debug-engine",
        f"a {profile} build",
        unknown="unknown build profile",
    )


def server_checks(known: Mapping[str, Catalogue | None]) -> list[Checked]:
    """Check that no server is a debug build: one result per debug build, and one for the others.

    A catalogue is cached after the first use of a server.
    """
    found, good = [], 0
    for label, catalogue in known.items():
        if catalogue is None:
            continue
        flags = [word for word in catalogue.compiled.get("CFLAGS", "").split() if word in ("-O0", "-Og")]
        if catalogue.initial.get("debug_assertions") == "on":
            flags.append("--enable-cassert")
        if flags:
            one = _check(f"server {label}", True, "debug-server", "", arm=label, flags=" ".join(flags))
            found.append(one)
        else:
            good += 1
    about = "installed and cached servers"
    unknown = len(known) - len(found) - good
    if good:
        text = f"{good} not built for debugging" + (f", {unknown} unknown" if unknown else "")
        found.append(Checked(about, "fine", text))
    elif not found:
        text = f"{unknown} with unknown compile options" if unknown else "none"
        found.append(Checked(about, "unknown", text))
    return found


# ----------------------------------------------------------------------
# The examination before and after a study.
#
# The results file has the state of the machine in ``study.host`` under ``states``, and findings as caveats of
# every case.
# ----------------------------------------------------------------------


def caveats_after(
    before: MachineState, after: MachineState, known: Collection[str], servers: Sequence[Together] = ()
) -> list[Caveat]:
    """Return the caveats on changes during the study: new findings, of kinds not in ``known``, and
    changes of counters.
    """
    meanwhile = _counted(load_between(before.counters, after.counters), DURING)
    found = caveats_of([*meanwhile, *_standing(after, servers), *passing(after, AFTER)])
    return [caveat for caveat in found if caveat.kind not in known]


def caveats_of(checked: Iterable[Checked]) -> list[Caveat]:
    """Return the caveats of the findings."""
    return [one.caveat for one in checked if one.caveat is not None]


WATCH_SHARE = 0.005
WATCH_S_MIN, WATCH_S_MAX = 0.2, 2.0
"""Duration of the observation, as a share of the measuring time of the study and in seconds."""


def examine(
    writer: Writer, ready: Sequence[Prepared], watch: Watch, known: frozenset[str] | None
) -> EndOfExamination:
    """Examine the machine, and report at once findings that the user can still change.

    See ``measure.study_runner.Examine``. The result examines it again: then only changes are caveats.
    """
    studies = [prepared.study for prepared in ready]
    servers = [together for prepared in ready for together in servers_of(prepared)]
    watch(PreparationStep("checking the machine"))
    watch_s = watch_s_of(studies)
    ours = any(not arm.is_dsn for study in studies for arm in study.arms)
    data_path = ready[0].data_path if ours else None

    def examined(watch_s: float) -> MachineState | None:
        try:
            return examine_machine(watch_s, data_path, watch_s / 2)
        except Exception as error:  # noqa: BLE001 - must not fail the study
            watch(Warned(f"cannot check this machine: {type(error).__name__}: {error}"))
            return None

    def note(when: str, state: MachineState, caveats: Sequence[Caveat]) -> None:
        """Write the state and the caveats to the results file."""
        checked = check_machine(state, when, servers)
        checks = [{"about": one.about, "found": one.found, "text": one.text} for one in checked]
        writer.add_machine_state({"when": when, **state.as_json(), "checks": checks})
        for case in range(len(ready)):
            for caveat in caveats:
                writer.add_caveat(caveat, case)

    before = examined(watch_s)
    if before is None:
        return lambda _: None
    when = BEFORE if known is None else RESUMED
    known = known or frozenset()
    found = [one for one in caveats_of(check_machine(before, when, servers)) if one.kind not in known]
    note(when, before, found)
    for caveat in caveats_of(passing(before, when)):
        watch(Warned(caveat.text))
    known |= {caveat.kind for caveat in found}

    def end(ending: StudyEnd) -> None:
        after = examined(WATCH_S_MIN if ending is StudyEnd.INTERRUPTED else watch_s)
        if after is not None:
            note(AFTER, after, caveats_after(before, after, known, servers))

    return end


def servers_of(prepared: Prepared) -> list[list[ServerMemory]]:
    """Return the servers of a case's arms on this machine; a list contains those that run at the same
    time."""
    found = []
    for index, settings in prepared.in_effect.items():
        arm = prepared.study.arms[index]
        pages = settings.get("shared_memory_size_in_huge_pages", "")
        try:
            size_bytes = parse_size_bytes(settings.get("shared_buffers", ""))
        except UsageError:
            continue  # an unreadable value of a running server must not fail the study
        server = ServerMemory(
            arm=arm.name,
            clients=prepared.study.driving(index).clients,
            shared_buffers_bytes=size_bytes,
            huge_pages=settings.get("huge_pages", "try"),
            pages=int(pages) if pages.isdecimal() else None,  # -1: this platform has no huge pages
            runs=arm.is_dsn,
            status=settings.get("huge_pages_status") if arm.is_dsn else None,
        )
        found.append(server)
    return [found] if prepared.study.is_together else [[server] for server in found]


def watch_s_of(studies: Sequence[Study]) -> float:
    """Return the duration of the observation before and after the study."""
    return min(WATCH_S_MAX, max(WATCH_S_MIN, WATCH_SHARE * sum(map(_likely_s, studies))))


def _likely_s(study: Study) -> float:
    if study.blocks_max is None:
        return study.budget_s
    groups = 1 if study.is_together else len(study.arms)
    return min(study.budget_s, study.blocks_max * groups * study.window_likely_s())
