"""A host of a fleet study: its status, its files, its messages, transfer of its results.

- Messages between the coordinator of a fleet study and its hosts.
- Transfer of a results file from a host in chunks: only changed chunks, each with a digest.
- Files of a fleet study on one of its hosts: a directory per work, in ``fleet`` of its cache.
- The current status of a host, made from the progress events of the lab.
- Interface of a cluster for the coordinator of a fleet study: agents on hosts, and their answers.
- The agent of a host: starts the process of its study, and answers the polls of the coordinator.
- Agents as actors of Ray. Each claims its node, so that no two studies measure on one machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol

from pydantic import BaseModel

from pgdyno.cli.live_view import standing_lines
from pgdyno.errors import EvidenceError, FleetError, PgdynoError, UsageError, in_one_line
from pgdyno.features.cluster.ray import RayCluster, RayNode, last_line
from pgdyno.features.hosts.fleet_record import FleetStudy
from pgdyno.measure.progress import (
    BlockEnded,
    BlockStarted,
    InterimVerdicts,
    LoadProgress,
    PreparationStep,
    Progress,
    Running,
)
from pgdyno.server.cache_directory import FLEET_LOCK, Cache
from pgdyno.server.directories import locked
from pgdyno.server.processes import OWNER

# ----------------------------------------------------------------------
# Messages between the coordinator of a fleet study and its hosts.
# ----------------------------------------------------------------------


class HostTask(FleetStudy):
    """Work of one host. ``name``: unique name of its results file without suffix. ``cases``: empty for all.

    ``password``: value of PGPASSWORD for the processes of the study; never stored. ``snapshot_s``: minimum
    time between two snapshots of the results file during the study.
    """

    name: str
    cases: tuple[str, ...] = ()
    is_resumed: bool = False
    more_minutes: float | None = None
    password: str | None = None
    snapshot_s: float


class HostStatus(BaseModel):
    """Progress of one host. ``step``: current activity. ``total_s``: estimated total time, or None.

    ``blocks``: finished blocks in this run. ``standings``: interim results by case, as text.
    """

    step: str = "starting"
    case: str = ""
    block: int | None = None
    blocks: int = 0
    elapsed_s: float = 0.0
    total_s: float | None = None
    rate: float | None = None
    standings: dict[str, list[str]] = {}


@dataclass(frozen=True)
class Chunk:
    """A part of a snapshot. ``data``: compressed by zlib; ``digest``: BLAKE2b of the uncompressed bytes."""

    offset: int
    data: bytes
    digest: bytes


@dataclass(frozen=True)
class SnapshotEnd:
    """All changed chunks of a snapshot were sent. ``digest``: BLAKE2b of the whole file."""

    size_bytes: int
    digest: bytes


@dataclass(frozen=True)
class HostEnd:
    """The study of a host ended. ``ending``: its StudyEnd; empty after an error, which ``error`` has."""

    ending: str
    error: str = ""


@dataclass(frozen=True)
class HostMessage:
    """Answer of a host to a poll. ``number``: the next poll acknowledges it; otherwise it is sent again."""

    number: int
    status: HostStatus
    warnings: list[str] = field(default_factory=list)
    part: Chunk | SnapshotEnd | None = None
    end: HostEnd | None = None


# ----------------------------------------------------------------------
# Transfer of a results file from a host in chunks: only changed chunks, each with a digest.
#
# A snapshot is a consistent copy of a results file that is being written. The receiver keeps its last chunks
# in ``.NAME.part`` and replaces NAME only after the digest of the whole file has been verified.
# ----------------------------------------------------------------------

CHUNK_BYTES = 1 << 20
COMPRESSION = 1
"""Level of zlib: the host measures while it compresses."""


def take_snapshot(source: Path, target: Path) -> None:
    """Copy a results file consistently, also while it is being written. Raises sqlite3.Error, OSError."""
    part = target.with_name(f".{target.name}.part")
    part.unlink(missing_ok=True)
    with (
        contextlib.closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", uri=True)) as here,
        contextlib.closing(sqlite3.connect(part)) as there,
    ):
        here.backup(there)
        there.execute("PRAGMA journal_mode = DELETE")
    part.replace(target)


class SnapshotSender:
    """Sends snapshots of one file. It remembers the digests of the chunks that the receiver has.

    The snapshot stays open, so that a later one with the same name does not mix with it.
    """

    def __init__(self) -> None:
        self._received: dict[int, bytes] = {}
        self._file: BinaryIO | None = None
        self._whole = blake2b()

    @property
    def is_sending(self) -> bool:
        """True until the end of the current snapshot is sent."""
        return self._file is not None

    def begin(self, path: Path) -> None:
        """Start to send this snapshot from its beginning, instead of the current one. Raises OSError."""
        self.close()
        self._file, self._whole = path.open("rb"), blake2b()

    def close(self) -> None:
        """Send nothing until the next snapshot."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def forget(self) -> None:
        """Send all chunks of later snapshots: the receiver has lost its chunks."""
        self._received.clear()

    def next(self) -> Chunk | SnapshotEnd | None:
        """Return the next changed chunk, or the end of the snapshot; None without one. Raises OSError."""
        if self._file is None:
            return None
        offset = self._file.tell()
        while data := self._file.read(CHUNK_BYTES):
            digest = blake2b(data).digest()
            self._whole.update(data)
            if self._received.get(offset) != digest:
                self._received[offset] = digest
                return Chunk(offset, zlib.compress(data, COMPRESSION), digest)
            offset += len(data)
        self.close()
        return SnapshotEnd(offset, self._whole.digest())


class SnapshotReceiver:
    """Receives the snapshots of one host into ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._part = path.with_name(f".{path.name}.part")
        self._part.unlink(missing_ok=True)

    def add(self, part: Chunk | SnapshotEnd) -> None:
        """Store a chunk, or verify the whole snapshot and replace the file. Raises EvidenceError if it was
        damaged on the way, OSError.
        """
        if isinstance(part, Chunk):
            write_chunks([part], self._part)
        else:
            self._finish(part)

    def _finish(self, end: SnapshotEnd) -> None:
        with self._part.open("r+b") as file:
            file.truncate(end.size_bytes)
            digest = file_digest(file, blake2b).digest()
        if digest != end.digest:
            self._part.unlink()
            raise EvidenceError("the digest of the collected results file does not match")
        ready = self.path.with_name(f".{self.path.name}.ready")
        shutil.copyfile(self._part, ready)
        with ready.open("rb") as file:
            os.fsync(file.fileno())
        ready.replace(self.path)

    def close(self) -> None:
        """Remove the chunks."""
        self._part.unlink(missing_ok=True)


def unpacked(chunk: Chunk) -> bytes:
    """Return the bytes of a chunk. Raises EvidenceError if they do not match the digest."""
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(chunk.data, CHUNK_BYTES + 1)
    except zlib.error as error:
        raise EvidenceError(f"a chunk of a results file is damaged: {error}") from error
    if len(data) > CHUNK_BYTES or blake2b(data).digest() != chunk.digest:
        raise EvidenceError("the digest of a chunk of a results file does not match")
    return data


def chunks_of(path: Path) -> Iterator[Chunk]:
    """Yield all chunks of a file. Raises OSError."""
    sender = SnapshotSender()
    sender.begin(path)
    while isinstance(part := sender.next(), Chunk):
        yield part


def write_chunks(chunks: Sequence[Chunk], path: Path) -> None:
    """Write chunks to their places in a file. Raises EvidenceError if one was damaged on the way, OSError."""
    with path.open("r+b" if path.exists() else "w+b") as file:
        for chunk in chunks:
            file.seek(chunk.offset)
            file.write(unpacked(chunk))


# ----------------------------------------------------------------------
# Files of a fleet study on one of its hosts: a directory per work, in ``fleet`` of its cache.
# ----------------------------------------------------------------------

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class HostFiles:
    """Files of one work. They stay on the host until the coordinator has the results file.

    ``held`` creates their directory. ``snapshot`` is the last one of the results file, and ``log`` has the
    messages of the process of the study, for unexpected errors. Raises UsageError: invalid name, no cache.
    """

    def __init__(self, name: str) -> None:
        if not NAME.fullmatch(name):
            raise UsageError(f"{name!r} cannot be the name of a results file: use letters, digits, - and _")
        self.folder = Cache.open().fleet / name
        self.evidence = self.folder / f"{name}.sqlite"
        self.snapshot = self.folder / f"{name}.snapshot"
        self.study = self.folder / f"{name}.toml"
        self.log = self.folder / f"{name}.log"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Create the directory, and keep it from ``pgdyno cache prune``.

        The agent and the process of the study hold it both, because each can outlive the other. Raises
        OSError.
        """
        with contextlib.ExitStack() as holding:
            with locked(self.folder.parent / FLEET_LOCK, shared=True):  # no pruning in between
                self.folder.mkdir(mode=0o700, exist_ok=True)
                holding.enter_context(locked(self.folder / OWNER, shared=True))
            yield

    def remove(self) -> None:
        """Remove all files."""
        shutil.rmtree(self.folder, ignore_errors=True)


# ----------------------------------------------------------------------
# The current status of a host, made from the progress events of the lab.
# ----------------------------------------------------------------------


class StatusOfProgress:
    """Keeps the status after each event, so that a message has the same size for any number of events."""

    def __init__(self) -> None:
        self.status = HostStatus()
        self._arms: tuple[str, ...] = ()

    def note(self, progress: Progress) -> None:
        """Update the status."""
        match progress:
            case PreparationStep(text):
                self._change(step=text, rate=None)
            case LoadProgress(dataset, phase, share):
                self._change(step=f"loading {dataset}: {phase} {share:.0%}")
            case BlockStarted(block, _, elapsed_s, total_s, _, case, arms):
                self._arms = arms
                self._change(block=block, case=case, elapsed_s=elapsed_s, total_s=total_s, rate=None)
            case Running(arm, role, rate):
                doing = "measuring" if role == "measure" else "warming up"
                name = self._arms[arm] if arm < len(self._arms) else f"arm {arm + 1}"
                self._change(step=f"{doing} {name}", rate=rate)
            case BlockEnded():
                self._change(blocks=self.status.blocks + 1)
            case InterimVerdicts(standings, block_s):
                lines = {self.status.case: standing_lines(standings, block_s)}
                self._change(standings={**self.status.standings, **lines})
            case _:
                pass

    def _change(self, **fields: object) -> None:
        self.status = self.status.model_copy(update=fields)


# ----------------------------------------------------------------------
# Interface of a cluster for the coordinator of a fleet study: agents on hosts, and their answers.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """Answer to the last request to a host: the message of a poll; None for another request.

    ``error``: why the request failed; empty if it did not. ``is_lost``: the agent has ended.
    """

    host: str
    message: HostMessage | None = None
    error: str = ""
    is_lost: bool = False


class HostLinks(Protocol):
    """Requests to the agents of hosts, one at a time for each host, and their answers in any order."""

    def begin(self, host: str, task: HostTask, evidence: Path | None) -> None:
        """Request the start of a task. ``evidence``: results file to resume, sent if the host lacks it."""

    def poll(self, host: str, acknowledged: int, wait_s: float, again: bool) -> None:
        """Request a message, as ``HostAgent.poll``."""

    def stop(self, host: str) -> None:
        """Stop the study of a host gracefully, without an answer."""

    def end(self, host: str, *, remove_files: bool) -> None:
        """End the agent, without an answer. ``remove_files``: its results file was collected."""

    def answers(self, timeout_s: float) -> Sequence[Answer]:
        """Return the answers since the last call; wait for the first one up to ``timeout_s``."""


# ----------------------------------------------------------------------
# The agent of a host: starts the process of its study, and answers the polls of the coordinator.
#
# An actor of Ray runs it. Its methods return errors as values: an exception would appear in Ray's logs.
# ----------------------------------------------------------------------

WARNINGS_MAX = 20
"""Maximum number of warnings in one message; the results file has the reasons of all failed trials."""

LOG_BYTES_MAX = 2000
"""Bytes at the end of the log in which the reason of an unexpected end is searched."""


class HostAgent:
    """Runs one task. ``poll`` and ``stop`` may be called by different threads."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._number = 0
        self._sent: HostMessage | None = None
        self._status = HostStatus()
        self._warnings: list[str] = []
        self._sender = SnapshotSender()
        self._end: HostEnd | None = None
        self._files: HostFiles | None = None
        self._held = contextlib.ExitStack()
        self._child: subprocess.Popen[str] | None = None

    def begin(self, task: HostTask, evidence: Sequence[Chunk]) -> str:
        """Start the process of the study. Return the error, or an empty text.

        ``evidence``: chunks of the results file to be resumed. They are ignored if this host has the file,
        which is as new as any copy, or newer. A new study is refused if files of another are here: they
        would be sent as its results.
        """
        try:
            self._files = HostFiles(task.name)
            self._held.enter_context(self._files.held())
            earlier = (self._files.evidence, self._files.snapshot)
            if not task.is_resumed and any(file.exists() for file in earlier):
                raise UsageError(
                    f"{self._files.folder} has the results of an earlier study of this name: use another "
                    "--evidence, or move the directory"
                )
            if evidence and not self._files.evidence.exists():
                write_chunks(evidence, self._files.evidence)
            command = [sys.executable, "-m", "pgdyno.features.fleet.host_process"]
            with self._files.log.open("w", encoding="utf-8") as log:
                self._child = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    encoding="utf-8",
                    start_new_session=True,
                )
            assert self._child.stdin is not None
            assert self._child.stdout is not None
            self._child.stdin.write(task.model_dump_json() + "\n")
            self._child.stdin.flush()
        except (PgdynoError, OSError) as error:
            return in_one_line(error)
        threading.Thread(target=self._read, args=(self._child.stdout,), daemon=True).start()
        return ""

    def poll(self, acknowledged: int, wait_s: float, again: bool = False) -> HostMessage:
        """Return the news of at least ``wait_s``; at once when the study has ended.

        A message that was not ``acknowledged`` is returned again. ``again``: the coordinator lost its chunks,
        so that the whole snapshot is sent.
        """
        with self._news:
            if again:
                self._sent = None
                self._sender.forget()
                self._resend()
            if self._sent is not None and self._sent.number != acknowledged:
                return self._sent
            self._news.wait_for(lambda: self._end is not None, wait_s)
            self._number += 1
            part = self._next_part()
            self._sent = HostMessage(
                self._number, self._status, self._warnings, part, self._end if part is None else None
            )
            self._warnings = []
            return self._sent

    def stop(self) -> None:
        """Stop the study gracefully."""
        if self._child is not None and self._child.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self._child.stdin.close()

    def remove_files(self) -> None:
        """Remove the files of the task: the coordinator has the results file."""
        self._sender.close()
        if self._files is not None:
            self._files.remove()
            self._held.close()

    def _next_part(self) -> Chunk | SnapshotEnd | None:
        try:
            return self._sender.next()
        except OSError as error:
            self._cannot_send(error)
            return None

    def _resend(self) -> None:
        if self._files is not None and self._files.snapshot.exists():
            try:
                self._sender.begin(self._files.snapshot)
            except OSError as error:
                self._cannot_send(error)

    def _cannot_send(self, error: OSError) -> None:
        """Warn about a snapshot. The last one becomes the error of the end, so that the files stay here."""
        self._sender.close()
        self._warnings.append(f"the snapshot of the results file cannot be read: {error}")
        if self._end is not None:
            self._end = HostEnd("", self._end.error or self._warnings[-1])

    def _read(self, lines: IO[str]) -> None:
        """Read the lines of the process until its end."""
        end: HostEnd | None = None
        for line in lines:
            try:
                value = json.loads(line)
            except ValueError:
                continue  # output of a library
            with self._news:
                if "status" in value:
                    self._status = HostStatus.model_validate(value["status"])
                elif "warning" in value:
                    self._warnings = [*self._warnings, value["warning"]][-WARNINGS_MAX:]
                elif "snapshot" in value and not self._sender.is_sending:
                    self._resend()  # not during a transfer: with frequent ones, none would end
                elif "end" in value:
                    end = HostEnd(**value["end"])
        lines.close()
        self.stop()  # closes the input, too
        self._finish(end)

    def _finish(self, end: HostEnd | None) -> None:
        """Take the last snapshot, also after a process that was killed."""
        assert self._child is not None
        assert self._files is not None
        status = self._child.wait()
        error = "" if end is not None else f"its process ended with status {status}{self._last_words()}"
        if self._files.evidence.exists():
            try:
                take_snapshot(self._files.evidence, self._files.snapshot)
            except (OSError, sqlite3.Error) as problem:
                error = error or f"no snapshot of the results file: {problem}"
        with self._news:
            self._end = end if end is not None and not error else HostEnd("", error)
            self._resend()
            self._news.notify_all()

    def _last_words(self) -> str:
        assert self._files is not None
        try:
            text = self._files.log.read_bytes()[-LOG_BYTES_MAX:].decode("utf-8", "replace").strip()
        except OSError:
            return ""
        return f": {text.splitlines()[-1]}" if text else ""


# ----------------------------------------------------------------------
# Agents as actors of Ray. Each claims its node, so that no two studies measure on one machine.
# ----------------------------------------------------------------------

BATCH_S = 0.05
"""Pause before answers are collected: at most 20 collections per second, for any number of hosts."""


def claim_of(node: RayNode) -> str:
    """Return the resource that a study claims: Ray gives every node one unit of it."""
    return f"node:{node.address}"


class ActorLinks:
    """Links to the agents of nodes, by name of the host."""

    def __init__(self, cluster: RayCluster, nodes: Mapping[str, RayNode]) -> None:
        self._cluster, self._ray, self._nodes = cluster, cluster.ray, nodes
        self._actors: dict[str, Any] = {}
        self._pending: dict[Any, str] = {}
        self._class = self._ray.remote(HostAgent)

    def begin(self, host: str, task: HostTask, evidence: Path | None) -> None:
        """Place an agent on the node of the host, send it the results file, and start the task."""
        node = self._nodes[host]
        actor = self._class.options(
            num_cpus=0,
            resources={claim_of(node): 1.0},
            max_concurrency=2,  # a stop during a poll
            max_restarts=0,
            **self._cluster.on(node),
        ).remote()
        self._actors[host] = actor
        chunks = list(chunks_of(evidence)) if evidence is not None else []
        self._pending[actor.begin.remote(task, chunks)] = host

    def poll(self, host: str, acknowledged: int, wait_s: float, again: bool) -> None:
        """Request a message."""
        self._pending[self._actors[host].poll.remote(acknowledged, wait_s, again)] = host

    def stop(self, host: str) -> None:
        """Stop the study of a host gracefully."""
        self._actors[host].stop.remote()

    def end(self, host: str, *, remove_files: bool) -> None:
        """End the agent; its node is free then."""
        actor = self._actors.pop(host)
        self._pending = {ref: name for ref, name in self._pending.items() if name != host}
        if remove_files:
            self._ray.wait([actor.remove_files.remote()], timeout=REMOVAL_S)
        # Without a head, the call would not return.
        threading.Thread(target=self._ray.kill, args=(actor,), daemon=True).start()

    def answers(self, timeout_s: float) -> Sequence[Answer]:
        """Return the answers since the last call; wait for the first one up to ``timeout_s``."""
        if not self._pending:
            time.sleep(timeout_s)
            return []
        ready, _ = self._ray.wait(list(self._pending), num_returns=1, timeout=timeout_s)
        if ready:
            time.sleep(BATCH_S)  # so that one call to Ray returns the answers of several hosts
            refs = list(self._pending)
            ready, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        return [self._answer(self._pending.pop(ref), ref) for ref in ready]

    def _answer(self, host: str, ref: Any) -> Answer:
        errors = self._ray.exceptions
        try:
            value = self._ray.get(ref)
        except errors.ActorDiedError:
            return Answer(host, error=self._cause(host), is_lost=True)
        except errors.RayError as error:
            return Answer(host, error=last_line(error))
        return Answer(host, value) if isinstance(value, HostMessage) else Answer(host, error=value)

    def _cause(self, host: str) -> str:
        """Return why the actor of a host has ended."""
        try:
            is_alive = any(node.id == self._nodes[host].id for node in self._cluster.nodes())
        except FleetError as error:
            return str(error)
        return "its agent was killed" if is_alive else "its node has left the cluster"


REMOVAL_S = 10.0
"""Maximum wait for the removal of files of a host whose results file was collected."""
