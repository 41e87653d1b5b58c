"""The two streams: data on standard output, progress and messages on standard error."""

from __future__ import annotations

import codecs
import contextlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from pgdyno.cli.streams import sane_size, without_output
from pgdyno.errors import PgdynoError, shortened
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


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Within it standard output is written.

    Raises PgdynoError where that fails, and BrokenPipeError where its reader has gone.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        without_output()
        raise PgdynoError(f"cannot write to standard output: {error.strerror or error}") from error


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


class _Output(VisibleConsole):
    def print(self, *values: Any, **how: Any) -> None:
        """As the console does."""
        with writing():
            super().print(*values, **how)


sane_size()
out = _Output()
err = VisibleConsole(stderr=True)

SAID_CHARS_MAX = 20_000
"""Of one message: the help of a command is the longest of ours."""


def say(text: str) -> None:
    """A message for people, on standard error; never interpreted as markup.

    One that cannot be written is lost: the exit status still tells.
    """
    with contextlib.suppress(OSError):
        err.print(shortened(text, SAID_CHARS_MAX), soft_wrap=True)


def print_json(value: Any) -> None:
    """JSON on standard output, one document."""
    out.print(visible_json(json.dumps(value, indent=2)), soft_wrap=True)
