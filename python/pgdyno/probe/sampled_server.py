"""One server as the sampler sees it: a connection that may be lost and is made again, and three series.

``server`` (its counters), ``waits`` (what its backends wait for) and ``host`` (this machine, and the server's
processes on it). Only the sampler's thread works with it; ``cpu_s`` and ``cut`` are for other threads, too.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import psycopg

from pgdyno.errors import PgdynoError, in_one_line
from pgdyno.probe.cpu import process_cpu_s, server_cpu_s
from pgdyno.probe.series import Chunk, Ending, Gathering
from pgdyno.probe.session import prepare
from pgdyno.server.running import Connection

SERVER, WAITS, HOST = "server", "waits", "host"

SAMPLES = "samples"
"""Column of the waits: how often was looked in this step. The others are sums over these looks."""

Sample = Callable[[Connection], Mapping[str, float]]
Now = Callable[[], float]


@dataclass(frozen=True)
class Target:
    """What the sampler needs of an arm. ``number`` is the caller's own, and stands on its chunks.

    ``sample`` and ``sample_waits`` are left out where there is nothing to sample. ``postmaster_pid`` gives
    None where the server's processes are none of this machine. ``each_look``: every look at the waits is a
    sample of its own, so that it is known which slice it lies in; else a sample sums those since the last.
    """

    number: int
    connect: Callable[[], Connection]
    sample: Sample | None = None
    sample_waits: Sample | None = None
    postmaster_pid: Callable[[], int | None] = lambda: None
    each_look: bool = False


class SampledServer:
    """See the module. ``now_s`` gives the time as the series count it."""

    def __init__(self, target: Target, now_s: Now) -> None:
        self.target = target
        self.cpu_s: float | None = None  # of the sampler's backends on this server so far; None: not known
        self._now_s = now_s
        self._connection: Connection | None = None
        self._ended_cpu_s = 0.0  # of backends that are no more
        self._counters = Gathering(target.number, SERVER)
        self._waits = Gathering(target.number, WAITS, absent=0.0)
        self._host = Gathering(target.number, HOST)
        self._looks: Counter[str] = Counter()
        asked = [(self._counters, target.sample), (self._waits, target.sample_waits)]
        self._asked = [gathering for gathering, sample in asked if sample is not None]

    def tick(self, due_s: float, machine: Mapping[str, float]) -> Iterator[Chunk]:
        """A sample of everything that was due at that time; yields series that end. To a lost server it
        connects again.
        """
        self._host.add(*self._moment(due_s), {**machine, **self._processes()})
        if not self._asked:
            return
        if self._connection is None:
            yield from self._connect()
        if self.target.sample is not None and self._connection is not None:
            moment = self._moment(due_s)
            found, ended = self._ask(self.target.sample)
            if found is not None:
                self._counters.add(*moment, found)
            yield from ended
        yield from self.look(due_s)
        self._note_looks(due_s)

    def look(self, due_s: float) -> Iterator[Chunk]:
        """At what the backends wait for now; yields series that end."""
        if self.target.sample_waits is not None and self._connection is not None:
            found, ended = self._ask(self.target.sample_waits, self._waits)
            if found is not None:
                self._looks.update({SAMPLES: 1, **found})
                if self.target.each_look:
                    self._note_looks(due_s)
            yield from ended
        self._note_cpu()

    def take(self) -> Iterator[Chunk]:
        """What was gathered since the last time."""
        for gathering in (*self._asked, self._host):
            if chunk := gathering.take():
                yield chunk

    def end(self, failure: str = "") -> Iterator[Chunk]:
        """The rest, and the end of the connection. Series end with the sampler's failure, if there is one."""
        self._note_looks(self._now_s())
        for gathering in (*self._asked, self._host):
            if chunk := gathering.fail(Ending.SAMPLER_FAILED, failure) if failure else gathering.take():
                yield chunk
        self._let_go()

    def cut(self) -> None:
        """Ends what the connection waits for, from another thread."""
        connection = self._connection
        if connection is None:
            return
        # The thread may close it at any moment: our own duplicate of its socket stays good.
        with (
            contextlib.suppress(OSError, psycopg.Error),
            socket.socket(fileno=os.dup(connection.fileno())) as ours,
        ):
            ours.shutdown(socket.SHUT_RDWR)

    def _moment(self, due_s: float) -> tuple[float, float]:
        at_s = self._now_s()
        return at_s, max(at_s - due_s, 0.0)

    def _ask(
        self, sample: Sample, of: Gathering | None = None
    ) -> tuple[Mapping[str, float] | None, list[Chunk]]:
        """What the server answers; or nothing, and the series that end for it: all, when it is lost."""
        assert self._connection is not None
        try:
            return sample(self._connection), []
        except Exception as error:  # noqa: BLE001
            # A fault of ours in one sample must not take the other series with it, but be seen.
            if self._connection.closed or _is_fatal(error):
                self._let_go()
                return None, self._fail(Ending.SERVER_LOST, error)
            ending = Ending.QUERY_FAILED if isinstance(error, psycopg.Error) else Ending.PROBE_FAILED
            chunk = (of or self._counters).fail(ending, _with_its_kind(error))
            return None, [chunk] if chunk else []

    def _connect(self) -> Iterator[Chunk]:
        try:
            self._connection = self.target.connect()
            # Its time limits are the others': a query that waits for a lock must not stop their series.
            prepare(self._connection)
        except (PgdynoError, psycopg.Error, OSError) as error:
            self._let_go()
            yield from self._fail(Ending.NOT_CONNECTED, error)

    def _fail(self, ending: Ending, error: Exception) -> list[Chunk]:
        self._note_looks(self._now_s())
        return [chunk for one in self._asked if (chunk := one.fail(ending, _with_its_kind(error)))]

    def _let_go(self) -> None:
        if self._connection is not None:
            self._note_cpu()
            self._ended_cpu_s = self.cpu_s or 0.0
            self._connection.close()
            self._connection = None

    def _note_looks(self, due_s: float) -> None:
        if self._looks:
            self._waits.add(*self._moment(due_s), self._looks)
            self._looks = Counter()

    def _note_cpu(self) -> None:
        if self._connection is None or self.target.postmaster_pid() is None:
            return
        # A backend that has ended reads as 0: what it had used when last seen stands.
        used_s = self._ended_cpu_s + process_cpu_s(self._connection.info.backend_pid)
        self.cpu_s = max(self.cpu_s or 0.0, used_s)

    def _processes(self) -> Mapping[str, float]:
        pid = self.target.postmaster_pid()
        if pid is None:
            return {}
        try:
            return {"server_cpu_s": server_cpu_s(pid)}
        except ProcessLookupError:
            return {}


def _is_fatal(error: Exception) -> bool:
    """Whether the server ends the session with it: libpq may not have seen the socket closed yet."""
    return isinstance(error, psycopg.Error) and error.diag.severity_nonlocalized in ("FATAL", "PANIC")


def _with_its_kind(error: Exception) -> str:
    words = in_one_line(error)
    return words if isinstance(error, (psycopg.Error, PgdynoError)) else f"{type(error).__name__}: {words}"
