"""Settings with which the servers of a study measure their I/O calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pgdyno.features.doctor.machine_state import read_clock
from pgdyno.measure.host_counters import Tree
from pgdyno.measure.preflight import ArmRequest
from pgdyno.study.plan import Study

TIMING = ("track_io_timing", "track_wal_io_timing")
"""Settings with which a server measures its I/O calls, for the breakdown of the time."""

CLOCK_NS_MAX = 100.0
"""Maximum time of a clock reading for TIMING: two readings add at most 0.2 µs to an I/O call."""


def with_timing(study: Study, wanted: Mapping[int, ArmRequest], clock_ns: float) -> dict[int, ArmRequest]:
    """Switch TIMING on in all arms alike: not with a slow clock, and no setting that an arm lacks or sets."""
    names = [
        name
        for name in TIMING
        if "waits" in study.probes and len(wanted) == len(study.arms) and clock_ns <= CLOCK_NS_MAX
        if all(
            name in arm.catalogue.initial and name not in arm.requested.settings for arm in wanted.values()
        )
    ]
    timing = dict.fromkeys(names, "on")
    found = {}
    for index, arm in wanted.items():
        requested = replace(arm.requested, settings={**arm.requested.settings, **timing})
        found[index] = replace(arm, requested=requested, certain=names)
    return found


def complete(study: Study, wanted: dict[int, ArmRequest]) -> dict[int, ArmRequest]:
    """Switch TIMING on, as this machine's clock allows."""
    return with_timing(study, wanted, read_clock(Tree()).read_ns)
