"""A cluster without Ray for tests: hosts that answer by a script, in the order of the requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pgdyno.features.fleet.host import (
    Answer,
    Chunk,
    HostEnd,
    HostMessage,
    HostStatus,
    HostTask,
    SnapshotSender,
)

Step = Callable[["FakeHost"], None]


@dataclass
class FakeHost:
    """One host. Each poll runs the next step, and then returns a message like ``HostAgent.poll``."""

    steps: deque[Step] = field(default_factory=deque)
    begin_error: str = ""
    status: HostStatus = field(default_factory=HostStatus)
    sender: SnapshotSender = field(default_factory=SnapshotSender)
    snapshot: Path | None = None
    end: HostEnd | None = None
    lost: str = ""
    is_silent: bool = False
    damage: int = 0  # of the next chunks
    is_sending: bool = False
    number: int = 0
    tasks: list[HostTask] = field(default_factory=list)
    received: list[Path | None] = field(default_factory=list)
    stops: int = 0
    removed: list[bool] = field(default_factory=list)

    def message(self, again: bool) -> HostMessage:
        if again and self.snapshot is not None:
            self.sender.forget()
            self.sender.begin(self.snapshot)
        elif self.steps and not self.is_sending:
            self.steps.popleft()(self)
        part = self.sender.next()
        self.is_sending = isinstance(part, Chunk)
        if isinstance(part, Chunk) and self.damage:
            self.damage -= 1
            part = Chunk(part.offset, part.data, b"damaged")
        self.number += 1
        return HostMessage(self.number, self.status, [], part, self.end if part is None else None)


class FakeLinks:
    """The links to fake hosts. ``answers`` answers every request since the last call."""

    def __init__(self, hosts: dict[str, FakeHost]) -> None:
        self.hosts = hosts
        self._requests: list[tuple[str, bool | None]] = []
        self.waits_s: list[float] = []

    def begin(self, host: str, task: HostTask, evidence: Path | None) -> None:
        self.hosts[host].tasks.append(task)
        self.hosts[host].number, self.hosts[host].end = 0, None
        self.hosts[host].sender = SnapshotSender()
        self.hosts[host].received.append(evidence)
        self._requests.append((host, None))

    def poll(self, host: str, acknowledged: int, wait_s: float, again: bool) -> None:
        assert acknowledged == self.hosts[host].number
        self.waits_s.append(wait_s)
        self._requests.append((host, again))

    def stop(self, host: str) -> None:
        self.hosts[host].stops += 1
        self.hosts[host].end = HostEnd("interrupted")

    def end(self, host: str, *, remove_files: bool) -> None:
        self.hosts[host].removed.append(remove_files)
        self.hosts[host].sender.close()

    def answers(self, timeout_s: float) -> Sequence[Answer]:
        del timeout_s
        requests, self._requests = self._requests, []
        found = []
        for name, again in requests:
            host = self.hosts[name]
            if host.is_silent:
                continue
            if again is None:
                found.append(Answer(name, error=host.begin_error))
                continue
            message = host.message(again)
            found.append(Answer(name, error=host.lost, is_lost=True) if host.lost else Answer(name, message))
        return found


def collects(path: Path) -> Step:
    """Return the step in which a host has measured a block, and sends a snapshot."""

    def step(host: FakeHost) -> None:
        host.status = host.status.model_copy(update={"blocks": host.status.blocks + 1})
        host.snapshot = path
        host.sender.begin(path)

    return step


def ends(ending: str = "verdict", error: str = "") -> Step:
    """Return the last step of a host."""

    def step(host: FakeHost) -> None:
        host.end = HostEnd(ending, error)

    return step


def is_lost(reason: str = "its node has left the cluster") -> Step:
    """Return the step in which the agent of a host is gone."""

    def step(host: FakeHost) -> None:
        host.lost = reason

    return step


def falls_silent(host: FakeHost) -> None:
    """Answer no further request."""
    host.is_silent = True
