"""Sampler of servers and machine, once per second during a run: one thread, one connection per server.

    targets = [Target(trial, arm.connect, sample, sample_waits, arm.postmaster_pid)]
    sampler = Sampler(targets, HostCounters([data_dir]).read, monotonic_of(epoch_unix_s))
    with sampler:
        …                                   # the run
        for chunk in sampler.drain():       # now and then, and once more after its end
            …

The schedule is absolute: a tick is due at whole steps since ``zero_s``, without drift. A late tick is taken
at once, with the delay in ``late_s``; ticks that were due in between are skipped. Wait events are sampled
``WAITS_PER_TICK`` times per step.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from pgdyno.measure.server_probes import Chunk, SampledServer, Target

STEP_S = 1.0
POINTS_MAX = 21_600
"""Maximum samples of a series: six hours of seconds. A hundred columns have 17 MB per trial before
compression, and no chart shows more."""

WAITS_PER_TICK = 5
"""Wait-event samples per tick. Each costs 0.5 ms of CPU, mostly for the wake-up."""

CHUNK_S = 600.0
"""Duration of a chunk: ten minutes. A power loss loses one, of a trial that is repeated anyway. Chunks of a
minute would need 1.6 times the space, for column names and partly filled pages.
"""

CHUNKS_MAX = 1000
"""Maximum number of chunks that wait to be drained: a day of two servers, 200 MB. Then the sampler ends."""

GRACE_S = 2.0
"""Time for a running sample after ``stop``, before its connection is closed."""

CUT_S = 5.0
"""Time for the thread to end after that. It takes longer only while it connects to a server that does not
answer, and is then abandoned."""
CUT_STEP_S = 0.1

Host = Callable[[], Mapping[str, float]]
Wait = Callable[[float], bool]


def step_for(window_s: float) -> float:
    """Return the seconds between samples for a run of this length: 1 up to six hours, then the smallest
    integer that keeps ``POINTS_MAX``.
    """
    return max(STEP_S, float(math.ceil(window_s / (POINTS_MAX * STEP_S))))


@dataclass(frozen=True)
class Cost:
    """CPU time of the sampler: of its thread, and of its backends by target, None for remote servers."""

    thread_s: float
    backends_s: Mapping[int, float | None]

    def of(self, target: int) -> float:
        """Return the CPU time of one target: its backend and its share of the thread."""
        return (self.backends_s[target] or 0.0) + self.thread_s / len(self.backends_s)


def monotonic_of(unix_s: float) -> float:
    """Convert a Unix time to the monotonic clock."""
    return time.monotonic() - (time.time() - unix_s)


class Sampler:
    """See the module. Only tests replace ``clock`` and ``wait`` (which returns whether to stop)."""

    def __init__(
        self,
        targets: Sequence[Target],
        host: Host,
        zero_s: float,
        *,
        step_s: float = STEP_S,
        clock: Callable[[], float] = time.monotonic,
        wait: Wait | None = None,
    ) -> None:
        self._stopping = threading.Event()
        self._host = host
        self._zero_s = zero_s
        self._step_s = step_s
        self._slot_s = step_s / WAITS_PER_TICK
        self._clock = clock
        self._wait = wait or self._stopping.wait
        self._servers = [SampledServer(target, self._now_s) for target in targets]
        self._chunks: list[Chunk] = []
        self._lock = threading.Lock()
        self._thread_s = 0.0
        self._marked = Cost(0.0, {server.target.number: 0.0 for server in self._servers})
        self._thread = threading.Thread(target=self.run, name="pgdyno-sampler", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread promptly. Never raises. Its samples can still be drained."""
        self._stopping.set()
        if self._thread.ident is None:
            return
        self._thread.join(GRACE_S)
        # Repeated, because the thread may continue with the next server.
        for _ in range(round(CUT_S / CUT_STEP_S)):
            if not self._thread.is_alive():
                return
            for server in self._servers:
                server.cut()
            self._thread.join(CUT_STEP_S)

    def drain(self) -> list[Chunk]:
        """Return the finished chunks, each once. Runs on the caller's thread."""
        with self._lock:
            chunks, self._chunks = self._chunks, []
        return chunks

    def mark(self) -> Cost:
        """Return the cost of the sampler since the last call or the start, up to its last wait-event sample,
        at most 1 / WAITS_PER_TICK of a step ago.
        """
        now = Cost(self._thread_s, {server.target.number: server.cpu_s for server in self._servers})
        before, self._marked = self._marked, now
        return Cost(
            now.thread_s - before.thread_s,
            {
                number: None if cpu_s is None else cpu_s - (before.backends_s[number] or 0.0)
                for number, cpu_s in now.backends_s.items()
            },
        )

    def run(self) -> None:
        """Run the loop of the thread until it is stopped."""
        try:
            self._go_on()
            reason = ""
        except Exception as error:  # noqa: BLE001
            # A fault of a probe must not fail the trial, but is reported.
            reason = f"the sampler failed: {type(error).__name__}: {error}"
        for server in self._servers:
            self._hand_over(server.end(reason))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _now_s(self) -> float:
        return self._clock() - self._zero_s

    def _go_on(self) -> None:
        slot = math.ceil(self._now_s() / self._slot_s)
        chunk_from_s = slot * self._slot_s
        while not self._wait(max(slot * self._slot_s - self._now_s(), 0.0)):
            latest = max(slot, math.floor(self._now_s() / self._slot_s))
            tick = math.ceil(slot / WAITS_PER_TICK)  # the first tick that is due
            if tick * WAITS_PER_TICK <= latest:
                self._tick(tick * self._step_s)
            else:
                for server in self._servers:
                    self._hand_over(server.look(slot * self._slot_s))
            if self._now_s() - chunk_from_s >= CHUNK_S:
                chunk_from_s += CHUNK_S * math.floor((self._now_s() - chunk_from_s) / CHUNK_S)
                for server in self._servers:
                    self._hand_over(server.take())
            if len(self._chunks) > CHUNKS_MAX:
                raise RuntimeError(f"{CHUNKS_MAX} chunks were not drained")
            self._thread_s = time.thread_time()
            slot = latest + 1

    def _tick(self, due_s: float) -> None:
        machine = self._host()
        for server in self._servers:
            self._hand_over(server.tick(due_s, machine))

    def _hand_over(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            with self._lock:
                self._chunks.append(chunk)
