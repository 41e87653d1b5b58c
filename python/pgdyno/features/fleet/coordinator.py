"""The coordinator of a fleet study: its hosts and their works.

- The coordinator of a fleet study: starts the hosts, follows them, and collects their results files.
- A fleet study: hosts from the nodes of a cluster, their works, and the run by the coordinator.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Protocol

from pgdyno.errors import EvidenceError, EvidenceExistsError, UsageError
from pgdyno.features.cluster.ray import NodeFacts, RayCluster, RayNode
from pgdyno.features.fleet.host import (
    ActorLinks,
    Answer,
    Chunk,
    HostEnd,
    HostLinks,
    HostMessage,
    HostStatus,
    HostTask,
    SnapshotEnd,
    SnapshotReceiver,
)
from pgdyno.features.hosts.fleet_record import (
    SUFFIX,
    FleetRecord,
    FleetStudy,
    HostState,
    HostWork,
    write_fleet,
)
from pgdyno.interruption import Interruption
from pgdyno.results.records import StudyEnd

# ----------------------------------------------------------------------
# The coordinator of a fleet study: starts the hosts, follows them, and collects their results files.
#
# Each host answers one poll at a time. The polls of all hosts have a fixed total rate, so that the load of
# the coordinator does not grow with the number of hosts.
# ----------------------------------------------------------------------

POLLS_PER_S_MAX = 25
"""Total rate of polls. Up to this number of hosts, each is polled once per second."""

SNAPSHOT_S = 300.0
"""Minimum time between two snapshots of a host: at most this much is lost with the host, and a block."""

START_LIMIT_S = 120.0
"""Maximum time until a node has started its agent."""

ANSWER_LIMIT_S = 120.0
"""Maximum delay of an answer, also after a stop. Then the host is lost."""

COLLECTIONS_MAX = 3
"""Maximum number of transfers of a results file whose digest does not match."""

RECORD_S = 5.0
"""Minimum time between two writes of the record while nothing ends."""

WAIT_S = 0.5
"""Maximum wait for answers, and for the reaction to Ctrl-C."""


class FleetWatch(Protocol):
    """Receiver of the progress of all hosts."""

    def show(self, work: HostWork, status: HostStatus) -> None:
        """Show the state of a host."""

    def warn(self, text: str) -> None:
        """Show a message at once."""


@dataclass
class _Active:
    """A host that works. ``number``: last message received. ``failures``: transfers that did not match."""

    place: int  # of its work in the record
    receiver: SnapshotReceiver
    limit_s: float  # monotonic: without an answer until then the host is lost
    status: HostStatus = field(default_factory=HostStatus)
    number: int = 0
    again: bool = False
    failures: int = 0
    has_begun: bool = False
    is_stopped: bool = False
    is_copying: bool = False


class Coordinator:
    """Runs the works of a record. ``task_of`` returns the task of a work."""

    def __init__(
        self,
        links: HostLinks,
        path: Path,
        record: FleetRecord,
        task_of: Callable[[HostWork], HostTask],
        watch: FleetWatch,
        interruption: Interruption,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._links, self._path, self._record, self._task_of = links, path, record, task_of
        self._watch, self._interruption, self._now_s = watch, interruption, now_s
        self._active: dict[str, _Active] = {}
        self._free: list[str] = []
        self._waiting: list[tuple[str, ...]] = []  # cases of lost hosts
        self._written_s = float("-inf")

    def run(self) -> FleetRecord:
        """Run all works whose state is MEASURING. Return the final record. It is also in the file."""
        try:
            for place, work in enumerate(self._record.works):
                if work.state is HostState.MEASURING:
                    self._begin(place)
            while self._active:
                for answer in self._links.answers(WAIT_S):
                    self._handle(answer)
                self._lose_silent_hosts()
                if self._interruption.requested:
                    self._stop()
                elif self._waiting and self._free:
                    self._move(self._waiting.pop(0), self._free.pop(0))
                self._write()
        finally:
            for active in self._active.values():
                active.receiver.close()
            self._write(now=True)
        return self._record

    @property
    def _wait_s(self) -> float:
        return max(1.0, len(self._active) / POLLS_PER_S_MAX)

    def _begin(self, place: int) -> None:
        work = self._record.works[place]
        receiver = SnapshotReceiver(self._path.with_name(work.file))
        self._active[work.host] = _Active(place, receiver, self._now_s() + START_LIMIT_S)
        known = receiver.path if receiver.path.exists() else None
        self._links.begin(work.host, self._task_of(work), known)
        self._show(work.host)

    def _handle(self, answer: Answer) -> None:
        active = self._active.get(answer.host)
        if active is None:
            return
        if answer.is_lost:
            self._finish(answer.host, HostState.LOST, answer.error)
            return
        if answer.message is not None:
            active.limit_s = self._now_s() + self._wait_s + ANSWER_LIMIT_S
            if self._receive(answer.host, active, answer.message):
                return
        elif not active.has_begun:
            if answer.error:
                self._finish(answer.host, HostState.FAILED, answer.error)
                return
            active.has_begun = True
            self._change(active.place, has_begun=True)
            active.limit_s = self._now_s() + self._wait_s + ANSWER_LIMIT_S
        wait_s = 0.0 if active.is_stopped and active.again else self._wait_s
        self._links.poll(answer.host, active.number, wait_s, active.again)
        active.again = False

    def _receive(self, host: str, active: _Active, message: HostMessage) -> bool:
        """Store the content of a message. Return True if it was the last one of the host."""
        active.number, active.status = message.number, message.status
        active.is_copying = isinstance(message.part, Chunk)
        for warning in message.warnings:
            self._watch.warn(f"{host}: {warning}")
        try:
            if message.part is not None:
                active.receiver.add(message.part)
            if isinstance(message.part, SnapshotEnd):
                self._change(active.place, is_collected=True)
        except EvidenceError as error:
            active.failures += 1
            if active.failures >= COLLECTIONS_MAX:
                self._finish(host, HostState.FAILED, str(error), keep_files=True)
                return True
            active.again = True
        if message.end is not None and not active.again:
            state, reason = self._state_of(message.end)
            self._finish(host, state, reason, keep_files=bool(message.end.error))
            return True
        self._show(host)
        return False

    def _state_of(self, end: HostEnd) -> tuple[HostState, str]:
        if end.ending == StudyEnd.INTERRUPTED or (end.error and self._interruption.requested):
            return HostState.INTERRUPTED, end.error
        if end.error or end.ending == StudyEnd.FAILED:
            return HostState.FAILED, end.error or "its blocks failed"
        return HostState.DONE, ""

    def _finish(self, host: str, state: HostState, reason: str, *, keep_files: bool = False) -> None:
        active = self._active.pop(host)
        active.receiver.close()
        work = self._change(active.place, state=state, reason=reason)
        is_whole = work.is_collected and state in (HostState.DONE, HostState.INTERRUPTED)
        self._links.end(host, remove_files=is_whole and not keep_files)
        if state is HostState.DONE:
            self._free.append(host)
        elif state is HostState.LOST and work.cases:
            self._waiting.append(work.cases)
        self._watch.show(work, active.status)
        if reason:
            self._watch.warn(f"{host} {state}: {reason}")

    def _move(self, cases: tuple[str, ...], host: str) -> None:
        """Let a host that is done measure the cases of a lost one, from the beginning."""
        for place, work in enumerate(self._record.works):
            if work.cases == cases and work.state is HostState.LOST:
                self._change(place, is_moved=True)
        files = {work.file for work in self._record.works}
        stem = next(work.file for work in self._record.works if work.host == host).removesuffix(".sqlite")
        names = (f"{stem}-{n}.sqlite" for n in count(2))
        file = next(name for name in names if name not in files and not self._path.with_name(name).exists())
        work = HostWork(host=host, file=file, cases=cases, has_begun=False)
        self._record = self._record.model_copy(update={"works": (*self._record.works, work)})
        self._watch.warn(f"{host} measures the cases of a lost host from the beginning")
        self._begin(len(self._record.works) - 1)

    def _lose_silent_hosts(self) -> None:
        now_s = self._now_s()
        for host in [host for host, active in self._active.items() if now_s > active.limit_s]:
            limit_s = ANSWER_LIMIT_S if self._active[host].has_begun else START_LIMIT_S
            hint = "" if self._active[host].has_begun else "; another study may have claimed it"
            self._finish(host, HostState.LOST, f"no answer within {limit_s:.0f} s{hint}")

    def _stop(self) -> None:
        """Stop every host once. A host that has not begun is stopped after its beginning."""
        for host, active in self._active.items():
            if active.has_begun and not active.is_stopped:
                active.is_stopped = True
                active.limit_s = self._now_s() + self._wait_s + ANSWER_LIMIT_S
                self._links.stop(host)
                self._show(host)

    def _show(self, host: str) -> None:
        active = self._active[host]
        step = "copying the results file" if active.is_copying else active.status.step
        step = "stopping" if active.is_stopped else step
        self._watch.show(self._record.works[active.place], active.status.model_copy(update={"step": step}))

    def _change(self, place: int, **fields: object) -> HostWork:
        works = list(self._record.works)
        works[place] = works[place].model_copy(update=fields)
        self._record = self._record.model_copy(update={"works": tuple(works)})
        return works[place]

    def _write(self, *, now: bool = False) -> None:
        if now or self._now_s() - self._written_s >= RECORD_S:
            self._written_s = self._now_s()
            write_fleet(self._path, self._record)


# ----------------------------------------------------------------------
# A fleet study: hosts from the nodes of a cluster, their works, and the run by the coordinator.
# ----------------------------------------------------------------------

SNAPSHOT_VARIABLE = "PGDYNO_FLEET_SNAPSHOT_S"
"""Environment variable with another time between snapshots, for tests."""


@dataclass(frozen=True)
class Hosts:
    """The nodes that measure, by name of the host. ``unused``: sentences about the other nodes."""

    nodes: Mapping[str, RayNode]
    unused: Sequence[str]


def hosts_of(nodes: Sequence[RayNode], facts: Mapping[str, NodeFacts], *, share_machines: bool) -> Hosts:
    """Return the hosts: one node of each machine, or all of them with ``share_machines``.

    Raises UsageError if the results files of two hosts would have the same name.
    """
    found: dict[str, RayNode] = {}
    first_of: dict[str, str] = {}
    unused = []
    for node in nodes:
        machine = facts[node.name].boot_id
        if machine in first_of and not share_machines:
            unused.append(f"node {node.name} is not used: it is on the same machine as {first_of[machine]}")
            continue
        first_of.setdefault(machine, node.name)
        name = file_part(node.name)
        if name in found:
            raise UsageError(
                f"the nodes {found[name].name!r} and {node.name!r} would have results files of the same "
                "name: start one of them with another --node-name"
            )
        found[name] = node
    return Hosts(found, unused)


def file_part(name: str) -> str:
    """Return the name of a node as a part of a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "host"


def paths_of(base: Path) -> tuple[Path, str]:
    """Return the path of the record, and the stem of the results files, of ``--evidence base``."""
    stem = base.name.removesuffix(SUFFIX).removesuffix(".sqlite")
    return base.with_name(stem + SUFFIX), stem


def new_works(hosts: Sequence[str], stem: str, spread: Sequence[str] = ()) -> tuple[HostWork, ...]:
    """Return the work of each host: all cases, or an equal share of the cases ``spread`` in turn.

    Hosts without a case have no work.
    """
    shares = [tuple(spread[place :: len(hosts)]) for place in range(len(hosts))]
    return tuple(
        HostWork(host=host, file=f"{stem}-{host}.sqlite", cases=cases, has_begun=False)
        for host, cases in zip(hosts, shares, strict=True)
        if cases or not spread
    )


def require_new(path: Path, works: Sequence[HostWork]) -> None:
    """Raise EvidenceExistsError if a file of the study exists."""
    for file in (path, *(path.with_name(work.file) for work in works)):
        if file.exists():
            raise EvidenceExistsError(file)


def resumed(record: FleetRecord, hosts: Sequence[str], more_minutes: float | None) -> FleetRecord:
    """Return the record in which works continue: unfinished ones, or with ``more_minutes`` all of them.

    Raises UsageError for a host that the cluster does not have.
    """
    works = []
    for work in record.works:
        goes_on = not work.is_moved and (work.state is not HostState.DONE or more_minutes is not None)
        if goes_on and work.host not in hosts:
            raise UsageError(
                f"the cluster has no node {work.host!r}, which measured {work.file}: start Ray there with "
                f"--node-name {work.host}, or report the files with pgdyno report"
            )
        update = {"state": HostState.MEASURING, "reason": ""} if goes_on else {}
        works.append(work.model_copy(update=update))
    busy = [work.host for work in works if work.state is HostState.MEASURING]
    if repeated := {host for host in busy if busy.count(host) > 1}:
        raise UsageError(
            f"{', '.join(sorted(repeated))} has several unfinished files: resume without --minutes"
        )
    return record.model_copy(update={"works": tuple(works)})


def task_of(work: HostWork, record: FleetRecord, *, is_resumed: bool, more_minutes: float | None) -> HostTask:
    """Return the task of a work; one that has not begun is new. The password is that of this process."""
    return HostTask(
        **{field: getattr(record, field) for field in FleetStudy.model_fields},
        name=work.file.removesuffix(".sqlite"),
        cases=work.cases,
        is_resumed=is_resumed and work.has_begun,
        more_minutes=more_minutes,
        password=os.environ.get("PGPASSWORD"),
        snapshot_s=float(os.environ.get(SNAPSHOT_VARIABLE, SNAPSHOT_S)),
    )


def run_fleet(
    cluster: RayCluster,
    hosts: Hosts,
    path: Path,
    record: FleetRecord,
    watch: FleetWatch,
    interruption: Interruption,
    *,
    is_resumed: bool = False,
    more_minutes: float | None = None,
) -> FleetRecord:
    """Run the unfinished works of a record on their hosts. Return the final record."""
    task = partial(task_of, record=record, is_resumed=is_resumed, more_minutes=more_minutes)
    return Coordinator(ActorLinks(cluster, hosts.nodes), path, record, task, watch, interruption).run()
