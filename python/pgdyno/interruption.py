"""Ctrl-C, SIGTERM and a closed terminal, in order: the first signal asks what is going on to end well, the
second ends it at once."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

from pgdyno.errors import DatasetError, EngineError, Interrupted, ServerError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends a run in order. A SIGHUP that is ignored when pgdyno starts (``nohup``) stays ignored."""

STOP_GRACE_S = 3.0
"""How long waits for servers may go on after the first signal: with the report that follows a stopped
program ends within 5 s."""

WAIT_MIN_S = 0.5
"""What a wait may take that begins after that: a server that answers does so within it."""

STATUS_OF_SIGNAL = 128
"""A shell's exit status of a program that a signal ended, less the signal's number."""


class _Stop:
    """The first signal of this process. Threads and connections ask ``is_over``, wherever they wait."""

    def __init__(self) -> None:
        self.since_s: float | None = None
        self.grace_s = STOP_GRACE_S

    def is_over(self, begun_s: float) -> bool:
        """Whether a wait that began at this instant (monotonic, s) has to end because of a signal."""
        if self.since_s is None:
            return False
        return time.monotonic() >= max(self.since_s + self.grace_s, begun_s + min(WAIT_MIN_S, self.grace_s))


stopping = _Stop()
"""Signals are the process's, and so is this."""


class Interruption:
    """While it is open, the first of SIGNALS sets ``requested`` and calls whoever listens.

    Long steps listen (a run of the engine stops gracefully and keeps its result), short ones call ``check``
    between them; a wait for a server ends after ``grace_s`` (``stopping.is_over``). A second signal raises
    KeyboardInterrupt where it strikes; on the way out of here it becomes Interrupted, so that the program
    says what happened. So does the failure of a server or the engine after a signal.
    """

    def __init__(self, grace_s: float = STOP_GRACE_S) -> None:
        self.requested = False
        self.number: int = signal.SIGINT
        self._grace_s = grace_s
        self._listeners: list[Callable[[], None]] = []
        self._before: dict[int, Any] = {}

    @property
    def exit_status(self) -> int:
        """Of a program that the signal ended: 130 (SIGINT), 143 (SIGTERM), 129 (SIGHUP)."""
        return STATUS_OF_SIGNAL + self.number

    def check(self) -> None:
        """Raises Interrupted when the user has asked to stop."""
        if self.requested:
            raise self.interrupted("interrupted; completed measurements are kept")

    def interrupted(self, message: str) -> Interrupted:
        """The error that ends the program with the signal's exit status."""
        return Interrupted(message, self.exit_status)

    @contextmanager
    def tell(self, listener: Callable[[], None]) -> Iterator[None]:
        """Calls ``listener`` when the signal comes, or at once if it came already."""
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        stopping.since_s = None
        if kind is KeyboardInterrupt:
            raise self.interrupted("aborted; the evidence file keeps everything measured before") from error
        if self.requested and kind is not None and _may_come_of_a_stop(kind):
            raise self.interrupted(f"interrupted ({error})") from error


def _may_come_of_a_stop(kind: type[BaseException]) -> bool:
    """Errors of servers and the engine, psycopg's among them, which is not loaded for them."""
    is_psycopgs = any(base.__module__.startswith("psycopg") for base in kind.__mro__)
    return is_psycopgs or issubclass(kind, (ServerError, EngineError, DatasetError))
