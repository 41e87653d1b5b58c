"""Standard streams: closed, full, with the encoding of a locale, or on a terminal without width.

Imports no other module of pgdyno's output, because every start of the program needs this one.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import re
import sys
from collections.abc import Iterator, MutableMapping
from typing import Any

from pgdyno.errors import PgdynoError

COLUMNS_MIN, COLUMNS_MAX = 20, 1000
"""Accepted terminal widths: below, tables do not fit; above, a table line would take megabytes."""


def ready_streams(errors: str) -> None:
    """Make all three streams usable: a write to a closed stream fails with an error.

    Otherwise the next opened file would get the descriptor of a closed stream, and its output.
    """
    for descriptor, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, flags)  # takes the lowest free descriptor, which is this one
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # messages are not wanted
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def sane_size(environ: MutableMapping[str, str] = os.environ) -> None:
    """Unset COLUMNS or LINES with an impossible value; the terminal's size or 80 columns apply then."""
    for name, least in (("COLUMNS", COLUMNS_MIN), ("LINES", 1)):
        value = environ.get(name)
        fits = value is not None and re.fullmatch(r"[0-9]{1,4}", value)
        if value is not None and not (fits and least <= int(value) <= COLUMNS_MAX):
            del environ[name]


sane_size()


def without_output() -> None:
    """Discard pending output of a failing standard output, which the interpreter flushes at exit."""
    with contextlib.suppress(OSError, ValueError):  # a stream of a test has no descriptor
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


class _Terminal(io.FileIO):
    """Terminal that may be closed during a write: the output is then discarded without an error."""

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
    """Discard output to a closed terminal, so that a run shuts down in order after SIGHUP."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream.isatty():
            stream.flush()
            raw = _Terminal(stream.fileno(), "w", closefd=False)
            again = io.TextIOWrapper(
                io.BufferedWriter(raw), stream.encoding, stream.errors, line_buffering=True
            )
            setattr(sys, name, again)


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
