"""The three standard streams as pgdyno finds them: closed, full, or of a terminal of no width."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import sys
from collections.abc import MutableMapping
from typing import Any

COLUMNS_MIN, COLUMNS_MAX = 20, 1000
"""Below, no table can be laid out; above, one line of a table would take megabytes."""


def ready_streams(errors: str) -> None:
    """Make all three usable: what is written to a closed one fails with an error, as it should.

    Without it the next file that is opened would get a closed stream's number, and what is printed.
    """
    for descriptor, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, flags)  # takes the lowest number that is free: this one
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # nobody wants messages
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def sane_size(environ: MutableMapping[str, str] = os.environ) -> None:
    """Forget a COLUMNS or LINES that no terminal has: then the terminal's own size counts, or 80 columns."""
    for name, least in (("COLUMNS", COLUMNS_MIN), ("LINES", 1)):
        value = environ.get(name)
        fits = value is not None and re.fullmatch(r"[0-9]{1,4}", value)
        if value is not None and not (fits and least <= int(value) <= COLUMNS_MAX):
            del environ[name]


def without_output() -> None:
    """Drop what is left for a standard output that fails: the interpreter flushes it at its end."""
    with contextlib.suppress(OSError, ValueError):  # of a test's own stream, which has no number
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


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
