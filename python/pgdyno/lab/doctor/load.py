"""What else goes on."""

from __future__ import annotations

from pgdyno.caveats import Code
from pgdyno.lab.doctor.checked import Checked, disturbs, fine, percent, unknown
from pgdyno.probe.machine.load import Load

STEAL_MAX = 0.02
"""Of the CPU time that was wanted. A quiet hypervisor takes less than a hundredth."""

OTHERS_MAX = 0.05
"""Of all cores' time: a desktop at rest takes less, and an effect of 5 % is what one wants to see."""

PRESSURE_MAX = {"cpu": 0.10, "io": 0.05, "memory": 0.01}
"""Of the elapsed time. Some waiting for a core is nothing special; for memory it is."""


def steal(load: Load, when: str) -> Checked:
    """Of an idle machine nothing is stolen: it shows when something runs."""
    about = "stolen CPU time"
    if load.steal > STEAL_MAX:
        return disturbs(
            about, Code.MACHINE_STEAL, share=percent(load.steal), limit=f"{STEAL_MAX:.0%}", when=when
        )
    return fine(about, f"{percent(load.steal)} {when}")


def others(load: Load, when: str) -> Checked:
    """Of processes that are not ours."""
    about = "other load"
    if load.others > OTHERS_MAX:
        names = ", ".join(f"{name} {percent(share)}" for name, share in load.busiest) or "short-lived ones"
        parameters = {
            "share": percent(load.others),
            "limit": f"{OTHERS_MAX:.0%}",
            "names": names,
            "when": when,
        }
        return disturbs(about, Code.OTHER_LOAD, **parameters)
    return fine(about, f"{percent(load.others)} of the CPU {when}")


def pressure(load: Load, of: str, when: str) -> Checked:
    """``of``: cpu, io or memory."""
    about = f"waiting for {WANTED[of]}"
    share, limit = load.pressure.get(of), PRESSURE_MAX[of]
    if share is None:
        return unknown(about)
    if share > limit:
        parameters = {"what": WANTED[of], "share": percent(share), "limit": f"{limit:.0%}", "when": when}
        return disturbs(about, Code.PRESSURE, **parameters)
    return fine(about, f"{percent(share)} of the time {when}")


WANTED = {"cpu": "CPU", "io": "the disk", "memory": "memory"}
"""In words."""
