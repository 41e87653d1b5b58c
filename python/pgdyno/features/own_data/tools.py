"""Tools of PostgreSQL with much output or input: pg_dump, pg_restore, psql."""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

from pgdyno.server.directories import Account
from pgdyno.server.processes import CHECK_S, first_bytes, running_tool

READ_BYTES = 1 << 20
"""Size of the pieces in which a tool's output is read."""


def tool_lines(
    command: Sequence[str],
    account: Account,
    timeout_s: float,
    *,
    check: Callable[[], None] = lambda: None,
    environment: Mapping[str, str] | None = None,
) -> Generator[bytes, None, None]:
    """Run a tool like ``run_tool`` and yield the lines of its output while it runs. The tool is killed if the
    caller stops early. Raises subprocess.CalledProcessError with its messages, subprocess.TimeoutExpired.
    """
    with tempfile.TemporaryFile() as err:
        how = {"output": subprocess.PIPE, "errors": err, "environment": environment}
        with running_tool(command, account, timeout_s, check, **how) as (process, check_all):
            assert process.stdout is not None
            descriptor, pending = process.stdout.fileno(), [b""]
            while True:
                check_all()
                if not select.select([descriptor], [], [], CHECK_S)[0]:
                    continue
                if not (piece := os.read(descriptor, READ_BYTES)):
                    break
                pending.append(piece)
                if b"\n" in piece:
                    *lines, rest = b"".join(pending).split(b"\n")
                    pending = [rest]
                    yield from (line + b"\n" for line in lines)
            if rest := b"".join(pending):
                yield rest
        if process.returncode != 0:
            messages = first_bytes(err).decode(errors="replace")
            raise subprocess.CalledProcessError(process.returncode, command, stderr=messages)


FEED_BYTES = 1 << 16
"""Size of the pieces in which a tool's input is written."""


def feed_lines(lines: Iterable[bytes], check: Callable[[], None], process: subprocess.Popen[bytes]) -> None:
    """Write the input of a tool. A tool that ends before it has read all of it is no error here.

    The pipe does not block, so that a tool that reads nothing for hours can be interrupted.
    """
    assert process.stdin is not None
    with process.stdin as pipe:
        os.set_blocking(pipe.fileno(), False)
        try:
            for piece in _pieces(lines):
                rest = memoryview(piece)
                while rest:
                    check()
                    if select.select([], [pipe], [], CHECK_S)[1]:
                        rest = rest[os.write(pipe.fileno(), rest) :]
        except BrokenPipeError:
            pass


def _pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines to pieces of at least FEED_BYTES, except the last one."""
    joined = bytearray()
    for line in lines:
        joined += line
        if len(joined) >= FEED_BYTES:
            yield bytes(joined)
            joined.clear()
    if joined:
        yield bytes(joined)
