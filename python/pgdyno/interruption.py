"""Ctrl-C and SIGTERM, in order: the first asks what is going on to end well, the second ends it at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

from pgdyno.errors import Interrupted


class Interruption:
    """While it is open, the first SIGINT or SIGTERM sets ``requested`` and calls whoever listens.

    Long steps listen (a run of the engine stops gracefully and keeps its result), short ones call
    ``check`` between them. A second signal raises KeyboardInterrupt where it strikes; on the way out of here
    it becomes Interrupted, so that the program says what happened.
    """

    def __init__(self) -> None:
        self.requested = False
        self._listeners: list[Callable[[], None]] = []
        self._before: dict[int, Any] = {}

    def check(self) -> None:
        """Raises Interrupted when the user has asked to stop."""
        if self.requested:
            raise Interrupted("stopped at your request; what was measured is kept")

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
        del number, frame
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        for listener in self._listeners:
            listener()

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if kind is KeyboardInterrupt:
            raise Interrupted("ended at once; what was in the evidence is safe") from error
