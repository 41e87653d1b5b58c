"""Ctrl-C, SIGTERM and a closed terminal: the first signal stops gracefully, the second at once."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

from pgdyno.errors import DatasetError, EngineError, Interrupted, ServerError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that stop a run. A SIGHUP that is ignored when pgdyno starts (``nohup``) stays ignored."""

STOP_GRACE_S = 3.0
"""Maximum time of waits for servers after the first signal. Together with the final report, the program
ends within 5 s."""

WAIT_MIN_S = 0.5
"""Minimum time for a wait that begins after the first signal: a working server responds within it."""

STATUS_OF_SIGNAL = 128
"""Exit status of a program that a signal ended, minus the number of the signal, as in a shell."""

RAY_THREAD = "pgdyno-ray"
"""Name of threads with a call to Ray that may never return. The process ends without waiting for them."""


class _Stop:
    """State of the first signal to this process. Threads and connections poll ``is_over`` while they wait."""

    def __init__(self) -> None:
        self.since_s: float | None = None
        self.grace_s = STOP_GRACE_S

    def is_over(self, begun_s: float) -> bool:
        """Return whether a wait that began at this time (monotonic, s) must end because of a signal."""
        if self.since_s is None:
            return False
        return time.monotonic() >= max(self.since_s + self.grace_s, begun_s + min(WAIT_MIN_S, self.grace_s))


stopping = _Stop()
"""The only instance, because signals concern the process."""


class Interruption:
    """Context in which the first of SIGNALS sets ``requested`` and calls the listeners.

    Long steps register a listener: a run of the engine stops gracefully and keeps its result. Short steps
    call ``check`` in between. A wait for a server ends after ``grace_s`` (``stopping.is_over``). A second
    signal raises KeyboardInterrupt; at the exit of the context it becomes Interrupted, so that the program
    reports the interruption. The same applies to failures of a server or the engine after a signal.
    """

    def __init__(self, grace_s: float = STOP_GRACE_S) -> None:
        self.requested = False
        self.number: int = signal.SIGINT
        self._grace_s = grace_s
        self._listeners: list[Callable[[], None]] = []
        self._before: dict[int, Any] = {}

    @property
    def exit_status(self) -> int:
        """Exit status after the signal: 130 (SIGINT), 143 (SIGTERM), 129 (SIGHUP)."""
        return STATUS_OF_SIGNAL + self.number

    def check(self) -> None:
        """Raise Interrupted if the user has requested a stop."""
        if self.requested:
            raise self.interrupted("interrupted; completed measurements are kept")

    def interrupted(self, message: str) -> Interrupted:
        """Return the error that ends the program with the signal's exit status."""
        return Interrupted(message, self.exit_status)

    @contextmanager
    def tell(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call ``listener`` on the signal, or at once if it has arrived already."""
        self._listeners.append(listener)
        try:
            if self.requested:
                listener()
            yield
        finally:
            self._listeners.remove(listener)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.requested:
            raise KeyboardInterrupt
        self.requested, self.number = True, number
        stopping.since_s = time.monotonic()
        for listener in self._listeners:
            listener()

    def __enter__(self) -> Self:
        stopping.since_s, stopping.grace_s = None, self._grace_s
        for number in SIGNALS:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        stopping.since_s = None
        if kind is KeyboardInterrupt:
            raise self.interrupted("aborted; the results file keeps all completed measurements") from error
        if self.requested and kind is not None and _may_result_from_stop(kind):
            raise self.interrupted(f"interrupted ({error})") from error


def _may_result_from_stop(kind: type[BaseException]) -> bool:
    """Return whether an error is of a server or the engine, without importing psycopg for its errors."""
    is_psycopgs = any(base.__module__.startswith("psycopg") for base in kind.__mro__)
    return is_psycopgs or issubclass(kind, (ServerError, EngineError, DatasetError))
