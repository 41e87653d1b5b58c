"""Load of the coordinator of a fleet study. ``python -m bench fleet`` prints a table by number of hosts.

The hosts are simulated: they answer at once with what a real host sends, in virtual time. Only the CPU time
of the coordinator is measured, with its disk writes. ``--ray`` measures what Ray adds to each message in this
process, with actors on a cluster of this machine that it starts itself.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

from bench.ray_messages import ray_actors, us_per_message
from bench.stopping import table
from pgdyno.features.fleet.coordinator import SNAPSHOT_S, Coordinator, new_works, task_of
from pgdyno.features.fleet.host import (
    CHUNK_BYTES,
    COMPRESSION,
    Answer,
    Chunk,
    HostEnd,
    HostMessage,
    HostStatus,
    HostTask,
    SnapshotEnd,
)
from pgdyno.features.hosts.fleet_record import FleetRecord, HostState, HostWork, StudyChoices
from pgdyno.interruption import Interruption

HOSTS = (10, 100, 1000)
NEW_CHUNKS = 1
"""Chunks of 1 MiB that each snapshot adds to a file; the first chunk changes, too."""

STATUS = HostStatus(
    step="measuring 18",
    case="clients 8",
    block=7,
    blocks=7,
    elapsed_s=700.0,
    total_s=3600.0,
    rate=4321.0,
    standings={"clients 8": ["18 vs. 17: +4.2% (+0.9% to +7.6%), undecided, about 12 more blocks (20 min)"]},
)


@dataclass
class _SimulatedHost:
    """State of one host: when its poll is answered, and what its next messages have."""

    answer_s: float = 0.0
    snapshot_s: float = SNAPSHOT_S
    number: int = 0
    parts: tuple[Chunk | SnapshotEnd, ...] = ()
    chunks: int = 1


class _SimulatedLinks:
    """Answers polls in virtual time. ``own_s``: CPU time of the simulation itself."""

    def __init__(self, hosts: Sequence[str], duration_s: float) -> None:
        self.now_s = self.own_s = 0.0
        self.messages = self.sent_bytes = 0
        self._duration_s = duration_s
        self._hosts = {host: _SimulatedHost() for host in hosts}
        self._polled: set[str] = set()
        self._begun: list[str] = []
        data = np.random.default_rng(1).integers(0, 16, CHUNK_BYTES, np.uint8).tobytes()
        self._packed, self._digest = zlib.compress(data, COMPRESSION), blake2b(data).digest()
        self._data = data
        self._whole: dict[int, bytes] = {}

    def begin(self, host: str, task: HostTask, evidence: Path | None) -> None:
        """Answer at the next collection."""
        del task, evidence
        self._begun.append(host)

    def poll(self, host: str, acknowledged: int, wait_s: float, again: bool) -> None:
        """Answer after ``wait_s``."""
        assert acknowledged == self._hosts[host].number
        assert not again
        self._hosts[host].answer_s = self.now_s + wait_s
        self._polled.add(host)

    def stop(self, host: str) -> None:
        """Do nothing: no host is stopped."""

    def end(self, host: str, *, remove_files: bool) -> None:
        """Do nothing: simulated hosts have no files."""

    def answers(self, timeout_s: float) -> Sequence[Answer]:
        """Return the answers that are due, and let time pass."""
        begun_s = time.process_time()
        found = [Answer(host) for host in self._begun]
        self._begun = []
        self.now_s += timeout_s
        due = sorted(host for host in self._polled if self._hosts[host].answer_s <= self.now_s)
        self._polled.difference_update(due)
        found += [Answer(host, self._message(self._hosts[host])) for host in due]
        self.own_s += time.process_time() - begun_s
        return found

    def _message(self, host: _SimulatedHost) -> HostMessage:
        if self.now_s >= host.snapshot_s:
            host.snapshot_s += SNAPSHOT_S
            changed = [0, *range(host.chunks, host.chunks + NEW_CHUNKS)]
            host.chunks += NEW_CHUNKS
            chunks = [Chunk(n * CHUNK_BYTES, self._packed, self._digest) for n in changed]
            host.parts = (*chunks, SnapshotEnd(host.chunks * CHUNK_BYTES, self._whole_digest(host.chunks)))
        part, host.parts = (host.parts[0], host.parts[1:]) if host.parts else (None, ())
        is_over = self.now_s >= self._duration_s and part is None
        host.number += 1
        self.messages += 1
        self.sent_bytes += len(part.data) if isinstance(part, Chunk) else 0
        return HostMessage(host.number, STATUS, [], part, HostEnd("budget") if is_over else None)

    def _whole_digest(self, chunks: int) -> bytes:
        if chunks not in self._whole:
            self._whole[chunks] = blake2b(self._data * chunks).digest()
        return self._whole[chunks]


class _Unwatched:
    def show(self, work: HostWork, status: HostStatus) -> None:
        """Show nothing."""

    def warn(self, text: str) -> None:
        """Show nothing."""


@dataclass(frozen=True)
class Load:
    """Load of the coordinator. ``cpu_us``: per message, without Ray. ``bytes_per_h``: sent, compressed."""

    hosts: int
    messages_per_s: float
    cpu_us: float
    bytes_per_h: float
    memory_bytes: int

    def core_share(self, ray_us: float) -> float:
        """Return the share of one core, if Ray needs ``ray_us`` for each message."""
        return self.messages_per_s * (self.cpu_us + ray_us) / 1e6


def simulated(hosts: int, duration_s: float) -> Load:
    """Return the load of a study of this duration (virtual time)."""
    names = [f"host{n:04}" for n in range(hosts)]
    record = FleetRecord(
        title="simulated",
        study="s.toml",
        text="x" * 2000,
        choices=StudyChoices(),
        command="pgdyno run s.toml --fleet",
        works=new_works(names, "s"),
    )
    links = _SimulatedLinks(names, duration_s)

    def task(work: HostWork) -> HostTask:
        return task_of(work, record, is_resumed=False, more_minutes=None)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.fleet.json"
        coordinator = Coordinator(
            links, path, record, task, _Unwatched(), Interruption(), lambda: links.now_s
        )
        begun_s = time.process_time()
        found = coordinator.run()
        cpu_s = time.process_time() - begun_s - links.own_s
    assert all(work.state is HostState.DONE for work in found.works)
    return Load(
        hosts,
        links.messages / links.now_s,
        1e6 * cpu_s / links.messages,
        3600 * links.sent_bytes / links.now_s,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


class _Answering:
    """An actor that answers polls at once."""

    def poll(self, number: int) -> HostMessage:
        """Return a message without a chunk."""
        return HostMessage(number, STATUS)


def ray_us_per_message() -> float:
    """Return the CPU time that Ray needs in this process for a message, in µs."""
    with ray_actors(_Answering) as (ray, actors):
        return us_per_message(ray, actors, lambda actor, number: actor.poll.remote(number))


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench fleet", description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="+", default=HOSTS)
    parser.add_argument("--minutes", type=float, default=60.0, help="duration of the study, in virtual time")
    parser.add_argument("--ray", action="store_true", help="measure the messages of Ray, too")
    chosen = parser.parse_args(arguments)
    ray_us = ray_us_per_message() if chosen.ray else 0.0
    rows = []
    for hosts in chosen.hosts:
        load = simulated(hosts, 60 * chosen.minutes)
        rows.append(
            [
                f"{load.hosts:,}",
                f"{load.messages_per_s:.1f}",
                f"{load.cpu_us:.0f}",
                f"{ray_us:.0f}" if chosen.ray else "",
                f"{load.core_share(ray_us):.2%}",
                f"{load.bytes_per_h / 2**20:,.0f}",
                f"{load.memory_bytes / 2**20:.0f}",
            ]
        )
    head = ("hosts", "messages/s", "CPU per message, µs", "Ray's CPU per message, µs")
    print(table((*head, "of a core", "collected, MiB/h", "memory, MiB"), rows))
    return 0
