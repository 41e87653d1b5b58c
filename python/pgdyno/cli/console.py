"""Output streams: data on standard output, progress and messages on standard error."""

from __future__ import annotations

import codecs
import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from pgdyno.cli.streams import sane_size, without_output
from pgdyno.errors import PgdynoError, shortened
from pgdyno.report.hidden_characters import visible
from pgdyno.report.json_text import json_text

PLAIN = "pgdyno-plain"
"""Error handler of streams (``errors=PLAIN``) for characters that the locale cannot encode."""

_INSTEAD = str.maketrans(
    {"−": "-", "–": "-", "\u00a0": " ", "…": "..", "×": "x", "µ": "u", "’": "'", "▶": ">"}
    | dict(zip("▁▂▃▄▅▆▇█→", "__--==##>", strict=True))
)


def _in_plain_letters(error: UnicodeError) -> tuple[str, int]:
    """Replace characters by similar ASCII ones: a minus stays a minus; the rest become question marks."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end].translate(_INSTEAD)
    return text.encode("ascii", "replace").decode(), error.end


codecs.register_error(PLAIN, _in_plain_letters)


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Context for writes to standard output.

    Raises PgdynoError if a write fails, BrokenPipeError if the reader has exited.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        without_output()
        raise PgdynoError(f"cannot write to standard output: {error.strerror or error}") from error


class VisibleConsole(Console):
    """Console that escapes control characters and interprets no markup or emoji codes.

    It filters rendered segments, which covers tables and the live view.
    """

    def __init__(self, *, stderr: bool = False, **of_rich: Any) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False, **of_rich)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render with hidden characters escaped, except the control codes of rich."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


class _Output(VisibleConsole):
    def print(self, *values: Any, **how: Any) -> None:
        """Print, converting errors of standard output to PgdynoError."""
        with writing():
            super().print(*values, **how)


sane_size()
out = _Output()
err = VisibleConsole(stderr=True)

MESSAGE_CHARS_MAX = 20_000
"""Maximum length of a message; the help of a command is the longest one."""


def say(text: str, *, wrap: bool = False) -> None:
    """Print a message on standard error, without interpreting markup.

    ``wrap``: on a terminal, break lines between words. Commands to copy must not have line breaks. A
    message that cannot be written is dropped; the exit status still reports the outcome.
    """
    with contextlib.suppress(OSError):
        err.print(shortened(text, MESSAGE_CHARS_MAX), soft_wrap=not (wrap and err.is_terminal))


def print_json(value: Any) -> None:
    """Print one JSON document on standard output, in UTF-8 as reports. NaN and infinity become null."""
    write_out(json_text(value))


def write_out(text: str) -> None:
    """Write UTF-8 in every locale, so that names keep their characters."""
    with writing():
        sys.stdout.flush()
        sys.stdout.buffer.write((text if text.endswith("\n") else f"{text}\n").encode())
        sys.stdout.buffer.flush()
