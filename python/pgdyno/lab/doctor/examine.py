"""All checks, in the order in which they are told; and which of them become caveats of a study."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from pgdyno.caveats import Caveat, Code
from pgdyno.lab.doctor import clock, disk, limits, load, memory, processor, shared_memory
from pgdyno.lab.doctor.checked import Checked
from pgdyno.lab.doctor.shared_memory import Together
from pgdyno.probe.machine.load import PRESSURES, Load, between
from pgdyno.probe.machine.state import State

NOW = "now"
BEFORE = "before the study"
RESUMED = "before the study went on"
DURING = "during the study"
AFTER = "after the study"


def examine(state: State, when: str = NOW, servers: Sequence[Together] = ()) -> list[Checked]:
    """Every check of a machine, for the servers of a study if they are known."""
    return [*_standing(state, servers), *passing(state, when), *_counted(state.load, when)]


def _standing(state: State, servers: Sequence[Together]) -> Iterator[Checked]:
    """What does not change by itself."""
    yield processor.governor(state.processor)
    yield processor.boost(state.processor)
    yield processor.smt(state.processor)
    yield processor.virtual(state.processor)
    yield processor.nodes(state.processor, state.memory)
    yield memory.huge_pages(state.memory)
    if servers:
        yield shared_memory.huge_pages(state.memory, servers)
    yield shared_memory.preemption(state.kernel, state.memory, servers, state.processor.cores)
    yield limits.cpu_limit(state.limits, state.processor.cores)
    yield limits.memory_limit(state.limits, state.memory.total_bytes)
    yield limits.files(state.limits)
    yield clock.reading(state.clock)
    if state.disk is not None:
        yield disk.file_system(state.disk)


def passing(state: State, when: str) -> Iterator[Checked]:
    """What may be otherwise in a minute."""
    yield processor.battery(state.processor)
    yield load.others(state.load, when)
    yield load.steal(state.load, when)
    for of in PRESSURES:
        yield load.pressure(state.load, of, when)
    yield memory.swap_used(state.memory)
    if state.disk is not None:
        yield disk.space(state.disk)
        yield disk.flush(state.disk)


def _counted(grown: Load, when: str) -> Iterator[Checked]:
    """What the machine counts: between two moments, however far apart."""
    yield processor.heat(grown, when)
    yield memory.swapping(grown, when)
    yield memory.out_of_memory(grown, when)
    yield limits.withheld(grown, when)
    yield clock.steps(grown, when)


def caveats_after(
    before: State, after: State, known: Collection[Code], servers: Sequence[Together] = ()
) -> list[Caveat]:
    """What changed while the study ran: findings that it did not begin with (``known``), and what was counted
    meanwhile.
    """
    meanwhile = _counted(between(before.counters, after.counters), DURING)
    found = caveats_of([*meanwhile, *_standing(after, servers), *passing(after, AFTER)])
    return [caveat for caveat in found if caveat.code not in known]


def caveats_of(checked: Iterable[Checked]) -> list[Caveat]:
    """The findings among them."""
    return [one.caveat for one in checked if one.caveat is not None]
