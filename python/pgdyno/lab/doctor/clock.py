"""The clock."""

from __future__ import annotations

from pgdyno.caveats import Code
from pgdyno.lab.doctor.checked import Checked, disturbs, fine, unknown
from pgdyno.probe.machine.clock import Clock
from pgdyno.probe.machine.load import Load
from pgdyno.units import format_duration

READ_NS_MAX = 250
"""Read from the processor it takes 20 to 80 ns, Python's part included; by a system call 200 and more, from a
device (hpet, acpi_pm) 1000."""

STEP_S_MAX = 0.1
"""A clock that is slewed gains or loses 0.5 ms a second: what exceeds this was set."""


def reading(clock: Clock) -> Checked:
    """What it costs: the name of the source alone says little, kvm-clock is as quick as tsc."""
    about = "clock"
    if clock.read_ns > READ_NS_MAX:
        source = clock.source or "not known"
        return disturbs(
            about, Code.SLOW_CLOCK, read_ns=round(clock.read_ns), source=source, limit_ns=READ_NS_MAX
        )
    if clock.source is None:
        return unknown(about, f"its source is not told; a reading takes {clock.read_ns:.0f} ns")
    return fine(about, f"{clock.source}, a reading takes {clock.read_ns:.0f} ns")


def steps(load: Load, when: str) -> Checked:
    """Whether somebody set the time of day. A slew over a long study is no step."""
    about = "time of day"
    slewed_s = STEP_S_MAX + 0.0005 * load.elapsed_s
    if abs(load.clock_step_s) > slewed_s:
        return disturbs(about, Code.CLOCK_SET, step=format_duration(load.clock_step_s), when=when)
    return fine(about, f"not set {when}")
