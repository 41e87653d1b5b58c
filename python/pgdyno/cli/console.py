"""The two streams: data on standard output, progress and messages on standard error."""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from pgdyno.errors import shortened
from pgdyno.report.visible import visible, visible_json

PLAIN = "pgdyno-plain"
"""How what a locale cannot write is written: ``errors=PLAIN`` of a stream."""

_INSTEAD = str.maketrans(
    {"−": "-", "–": "-", "\u00a0": " ", "…": "..", "×": "x", "µ": "u", "’": "'", "▶": ">"}
    | dict(zip("▁▂▃▄▅▆▇█→", "__--==##>", strict=True))
)


def _in_plain_letters(error: UnicodeError) -> tuple[str, int]:
    """A minus must stay a minus; what has no likeness becomes a question mark."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end].translate(_INSTEAD)
    return text.encode("ascii", "replace").decode(), error.end


codecs.register_error(PLAIN, _in_plain_letters)


class _Terminal(io.FileIO):
    """A terminal that may be closed while we write to it: then nobody reads, and that is no reason to
    fail."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return memoryview(data).nbytes


def survive_hangup() -> None:
    """Lets a closed terminal swallow what is written to it. A run then ends in order after SIGHUP."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream.isatty():
            stream.flush()
            raw = _Terminal(stream.fileno(), "w", closefd=False)
            again = io.TextIOWrapper(
                io.BufferedWriter(raw), stream.encoding, stream.errors, line_buffering=True
            )
            setattr(sys, name, again)


class VisibleConsole(Console):
    """A console on which nothing from outside is obeyed: no markup, no emoji codes, no escape sequences.

    It looks at what is about to be written, so that tables and the live view are covered as well.
    """

    def __init__(self, *, stderr: bool = False, **of_rich: Any) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False, **of_rich)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as rich does, hidden characters made visible. rich's own control codes pass."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


out = VisibleConsole()
err = VisibleConsole(stderr=True)


SAID_CHARS_MAX = 20_000
"""Of one message: the help of a command is the longest of ours."""


def say(text: str) -> None:
    """A message for people, on standard error; never interpreted as markup."""
    err.print(shortened(text, SAID_CHARS_MAX), soft_wrap=True)


def print_json(value: Any) -> None:
    """JSON on standard output, one document."""
    out.print(visible_json(json.dumps(value, indent=2)), soft_wrap=True)
