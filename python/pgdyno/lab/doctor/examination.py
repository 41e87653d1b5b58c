"""All checks of the machine in their order, and their caveats, before and after a study.

The results file has the state of the machine in ``study.host`` under ``states``, and findings as caveats of
every case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgdyno.caveats import Caveat, Code
from pgdyno.errors import UsageError
from pgdyno.lab.doctor import cpu_checks, disk_checks, memory_checks
from pgdyno.lab.doctor.machine_check import Checked, disturbs, fine, not_reported
from pgdyno.lab.doctor.memory_checks import ServerMemory, Together
from pgdyno.lab.prepare import Prepared
from pgdyno.lab.progress import PreparationStep, Warned, Watch
from pgdyno.probe.machine_state import PRESSURES, MachineLoad, MachineState, examine_machine, load_between
from pgdyno.results.writer import Writer
from pgdyno.server.build_catalogue import Catalogue
from pgdyno.study.plan import Study
from pgdyno.units import parse_size_bytes


def engine(profile: str | None) -> Checked:
    """Check the build profile of the engine."""
    about = "engine of pgdyno"
    if profile is None:
        return not_reported(about, "unknown build profile")
    return disturbs(about, Code.DEBUG_ENGINE) if profile == "debug" else fine(about, f"a {profile} build")


def server(label: str, catalogue: Catalogue | None) -> Checked:
    """Check that a server is not a debug build. Its catalogue is cached after its first use."""
    about = f"server {label}"
    if catalogue is None:
        return not_reported(about, "compile options unknown before its first use")
    words = catalogue.compiled.get("CFLAGS", "").split()
    flags = [word for word in words if word in ("-O0", "-Og")]
    if catalogue.initial.get("debug_assertions") == "on":
        flags.append("--enable-cassert")
    if flags:
        return disturbs(about, Code.DEBUG_SERVER, arm=label, flags=" ".join(flags))
    return fine(about, "not built for debugging")


def server_checks(known: Mapping[str, Catalogue | None]) -> list[Checked]:
    """Check all servers: one result per debug build, and one for the others."""
    every = [server(label, catalogue) for label, catalogue in known.items()]
    found = [one for one in every if one.caveat is not None]
    good = sum(one.found == "fine" for one in every)
    unasked = len(every) - len(found) - good
    about = "installed and cached servers"
    text = f"{good} not built for debugging" + (f", {unasked} unknown" if unasked else "")
    if not good and not found:
        return [not_reported(about, f"{unasked} with unknown compile options" if unasked else "none")]
    return [*found, *([fine(about, text)] if good else [])]


NOW = "now"
BEFORE = "before the study"
RESUMED = "before the study was resumed"
DURING = "during the study"
AFTER = "after the study"


def check_machine(state: MachineState, when: str = NOW, servers: Sequence[Together] = ()) -> list[Checked]:
    """Return all checks of a machine, for the servers of a study if they are known."""
    return [*_standing(state, servers), *passing(state, when), *_counted(state.load, when)]


def _standing(state: MachineState, servers: Sequence[Together]) -> Iterator[Checked]:
    """Yield checks of properties that do not change by themselves."""
    yield cpu_checks.governor(state.processor)
    yield cpu_checks.boost(state.processor)
    yield cpu_checks.smt(state.processor)
    yield cpu_checks.virtual(state.processor)
    yield cpu_checks.nodes(state.processor, state.memory)
    yield memory_checks.transparent_huge_pages(state.memory)
    if servers:
        yield memory_checks.huge_pages(state.memory, servers)
    yield memory_checks.preemption(state.kernel, state.memory, servers, state.processor.cores)
    yield cpu_checks.cpu_limit(state.limits, state.processor.cores)
    yield cpu_checks.memory_limit(state.limits, state.memory.total_bytes)
    yield cpu_checks.files(state.limits)
    yield cpu_checks.reading(state.clock)
    if state.disk is not None:
        yield disk_checks.file_system(state.disk)


def passing(state: MachineState, when: str) -> Iterator[Checked]:
    """Yield checks of properties that can change within a minute."""
    yield cpu_checks.battery(state.processor)
    yield cpu_checks.other_processes(state.load, when)
    yield cpu_checks.cpu_steal(state.load, when)
    for of in PRESSURES:
        yield cpu_checks.pressure(state.load, of, when)
    yield memory_checks.swap_used(state.memory)
    if state.disk is not None:
        yield disk_checks.space(state.disk)
        yield disk_checks.flush(state.disk)


def _counted(grown: MachineLoad, when: str) -> Iterator[Checked]:
    """Yield checks of counters between two times."""
    yield cpu_checks.heat(grown, when)
    yield memory_checks.swapping(grown, when)
    yield memory_checks.out_of_memory(grown, when)
    yield cpu_checks.withheld(grown, when)
    yield cpu_checks.steps(grown, when)


def caveats_after(
    before: MachineState, after: MachineState, known: Collection[Code], servers: Sequence[Together] = ()
) -> list[Caveat]:
    """Return the caveats on changes during the study: new findings, not in ``known``, and changes of
    counters.
    """
    meanwhile = _counted(load_between(before.counters, after.counters), DURING)
    found = caveats_of([*meanwhile, *_standing(after, servers), *passing(after, AFTER)])
    return [caveat for caveat in found if caveat.code not in known]


def caveats_of(checked: Iterable[Checked]) -> list[Caveat]:
    """Return the caveats of the findings."""
    return [one.caveat for one in checked if one.caveat is not None]


WATCH_SHARE = 0.005
WATCH_S_MIN, WATCH_S_MAX = 0.2, 2.0
"""Duration of the observation, as a share of the measuring time of the study and in seconds."""


@dataclass(frozen=True)
class StudyExamination:
    """Examination of the machine before and after a study.

    ``data_path``: None if all arms are running servers. ``known``: codes of caveats of the study.
    """

    writer: Writer
    cases: int
    watch_s: float
    data_path: Path | None
    watch: Watch
    state: MachineState | None
    known: frozenset[Code]
    servers: Sequence[Together] = ()

    @classmethod
    def begin(
        cls,
        writer: Writer,
        studies: Sequence[Study],
        data_path: Path,
        watch: Watch,
        known: frozenset[Code] | None = None,
        servers: Sequence[Together] = (),
    ) -> StudyExamination:
        """Examine the machine, and report at once findings that the user can still change.

        ``known``: codes of the caveats of a resumed study, which are not repeated; None for a new study.
        ``servers``: the servers of its arms on this machine.
        """
        watch(PreparationStep("checking the machine"))
        watch_s = watch_s_of(studies)
        ours = any(not arm.is_dsn for study in studies for arm in study.arms)
        place = data_path if ours else None
        state = _examined(watch_s, place, watch)
        if state is None:
            return cls(writer, len(studies), watch_s, place, watch, None, frozenset())
        when = BEFORE if known is None else RESUMED
        checked = check_machine(state, when, servers)
        found = [caveat for caveat in caveats_of(checked) if caveat.code not in (known or ())]
        codes = frozenset(caveat.code for caveat in found) | (known or frozenset())
        examination = cls(writer, len(studies), watch_s, place, watch, state, codes, servers)
        examination.note(when, state, checked, found)
        for caveat in caveats_of(passing(state, when)):
            watch(Warned(caveat.text))
        return examination

    def end(self, *, promptly: bool = False) -> None:
        """Examine the machine again: only changes are caveats. ``promptly``: use a short observation."""
        watch_s = WATCH_S_MIN if promptly else self.watch_s
        state = None if self.state is None else _examined(watch_s, self.data_path, self.watch)
        if self.state is not None and state is not None:
            caveats = caveats_after(self.state, state, self.known, self.servers)
            self.note(AFTER, state, check_machine(state, AFTER, self.servers), caveats)

    def note(
        self, when: str, state: MachineState, checked: Sequence[Checked], caveats: Sequence[Caveat]
    ) -> None:
        """Write the state and the caveats to the results file."""
        checks = [{"about": one.about, "found": one.found, "text": one.text} for one in checked]
        self.writer.add_machine_state({"when": when, **state.as_json(), "checks": checks})
        for case in range(self.cases):
            for caveat in caveats:
                self.writer.add_caveat(caveat, case)


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


def _examined(watch_s: float, place: Path | None, watch: Watch) -> MachineState | None:
    """Return the state of the machine; None with a warning if it fails, because this must not fail the
    study."""
    try:
        return examine_machine(watch_s, place, watch_s / 2)
    except Exception as error:  # noqa: BLE001
        watch(Warned(f"cannot check this machine: {type(error).__name__}: {error}"))
        return None


def watch_s_of(studies: Sequence[Study]) -> float:
    """Return the duration of the observation before and after the study."""
    return min(WATCH_S_MAX, max(WATCH_S_MIN, WATCH_SHARE * sum(map(_likely_s, studies))))


def _likely_s(study: Study) -> float:
    if study.blocks_max is None:
        return study.budget_s
    groups = 1 if study.is_together else len(study.arms)
    return min(study.budget_s, study.blocks_max * groups * study.window_likely_s())
