"""Live view of a fleet study on standard error: one line per host.

On a terminal it is redrawn in place; otherwise it prints changes of state, and a summary per minute.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Self

from rich.console import RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pgdyno.cli.console import err, say
from pgdyno.cli.live_view import SILENT_S
from pgdyno.features.fleet.host import HostStatus
from pgdyno.features.hosts.fleet_record import HostState, HostWork
from pgdyno.units import counted, format_duration

SUMMARY_S = 60.0
"""Time between two summaries in a log."""

FRAME = 4
"""Lines of the screen that are not hosts: heading, summary, the line about hidden hosts, prompt."""


class FleetView:
    """View of the hosts of a fleet. A context manager."""

    def __init__(
        self, heading: str, quiet: bool = False, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._heading, self._quiet, self._now_s = heading, quiet, now_s
        self._works: dict[str, HostWork] = {}
        self._status: dict[str, HostStatus] = {}
        self._begun_s: dict[str, float] = {}  # of the step of each host
        self._summed_s = now_s()
        self._live = (
            Live(console=err, get_renderable=self._draw, refresh_per_second=2, transient=True)
            if err.is_terminal and not quiet
            else None
        )

    def __enter__(self) -> Self:
        if not self._quiet:
            say(self._heading)
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()
        elif not self._quiet and self._works:
            say(self.summary)

    def show(self, work: HostWork, status: HostStatus) -> None:
        """Record the state of a host. In a log, print a new step or state of it."""
        before, was = self._status.get(work.host), self._works.get(work.host)
        if before is None or was is None or (was.state, _step(before)) != (work.state, _step(status)):
            self._begun_s[work.host] = self._now_s()
        self._works[work.host], self._status[work.host] = work, status
        if self._live or self._quiet:
            return
        is_new = before is None or was is None or (was.file, was.state) != (work.file, work.state)
        if is_new or _phase(before) != _phase(status):
            say(f"{work.host}: {_activity(work, status)}")
        if self._now_s() - self._summed_s >= SUMMARY_S:
            self._summed_s = self._now_s()
            say(self.summary)

    def warn(self, text: str) -> None:
        """Print a message."""
        say(f"! {text}", wrap=True)

    @property
    def summary(self) -> str:
        """Text such as ``12 hosts: 11 measuring, 1 lost; 140 blocks``."""
        states = Counter(work.state for work in self._works.values())
        counts = ", ".join(f"{n} {state}" for state, n in states.items())
        blocks = sum(status.blocks for status in self._status.values())
        return f"{counted(len(self._works), 'host')}: {counts}; {counted(blocks, 'block')}"

    def _lasted(self, work: HostWork, status: HostStatus) -> str:
        """Return the duration of a long step without a rate."""
        lasted_s = self._now_s() - self._begun_s[work.host]
        is_shown = work.state is HostState.MEASURING and status.rate is None and lasted_s >= SILENT_S
        return f", {format_duration(int(lasted_s))}" if is_shown else ""

    def _draw(self) -> RenderableType:
        """Draw one line per host; unfinished hosts first if the screen has too few lines."""
        width = min(err.width, 120)
        rows = Table.grid()
        rows.add_row(Text(self.summary if self._works else "starting", style="bold"))
        hosts = list(self._works)
        room = max(1, err.height - FRAME)
        if len(hosts) > room:
            hosts.sort(key=lambda host: self._works[host].state is not HostState.MEASURING)
        name_width = min(24, max(map(len, hosts), default=0))
        for host in hosts[:room]:
            work, status = self._works[host], self._status[host]
            activity = f"{_activity(work, status)}{self._lasted(work, status)}"
            line = f"{host[:name_width]:<{name_width}}  {activity}{_progress(work, status)}"
            rows.add_row(Text(line[:width], no_wrap=True, overflow="ellipsis"))
        if len(hosts) > room:
            rows.add_row(Text(f"and {counted(len(hosts) - room, 'more host')}", style="dim"))
        return rows


def _step(status: HostStatus) -> str:
    """Return the step without its percentage: a change restarts its duration."""
    return f"{status.block} {status.step.rsplit(' ', 1)[0] if status.step.endswith('%') else status.step}"


def _phase(status: HostStatus | None) -> str:
    """Return the part of the activity whose change has a line in a log."""
    if status is None:
        return ""
    if status.block is not None:
        return "stopping" if status.step == "stopping" else "measuring"
    return status.step if status.step.startswith("loading") and status.step.endswith(" 0%") else "preparing"


def _activity(work: HostWork, status: HostStatus) -> str:
    if work.state is not HostState.MEASURING:
        return f"{work.state}, {counted(status.blocks, 'block')}" + (
            f": {work.reason}" if work.reason else ""
        )
    case = f"{status.case}, " if status.case else ""
    return f"{case}block {status.block + 1}, {status.step}" if status.block is not None else status.step


def _progress(work: HostWork, status: HostStatus) -> str:
    if work.state is not HostState.MEASURING or status.block is None:
        return ""
    rate = f"  {status.rate:,.0f} tx/s" if status.rate else ""
    left_s = max(0.0, (status.total_s or 0.0) - status.elapsed_s)
    left = f"  at most {format_duration(round(left_s))} left" if status.total_s else ""
    standing = "  ".join(lines[0].strip() for lines in status.standings.values() if lines)
    return f"{rate}{left}  {standing}"
