"""Commands in processes of their own: a study outlives no script, and its signals are its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import IO, Any

from pgdyno import errors
from pgdyno.errors import PgdynoError

CHILD = "pgdyno.features.python_api.child"

SAID_LINES_MAX = 20
"""Lines of messages that an error without a text quotes."""


FORCING_COLORS = ("FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
"""Variables, set by notebooks, that make a pipe a terminal for rich: it would draw the live view there."""


class Command:
    """A running command of pgdyno. Its messages appear on standard error, in a notebook too.

    It has a session of its own, so that Ctrl-C reaches it through ``stop`` only, once. ``is_stopped``: it was
    still running then.
    """

    def __init__(self, words: Sequence[str], *, output: int = subprocess.DEVNULL) -> None:
        self._failure = tempfile.TemporaryFile()  # noqa: SIM115  # closed when the command has ended
        self._error: PgdynoError | None = None
        self._said: list[str] = []
        self.is_stopped = False
        is_terminal = _is_terminal(sys.stderr)
        forcing = () if is_terminal else FORCING_COLORS
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", CHILD, str(os.getpid()), str(self._failure.fileno()), *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=None if is_terminal else subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if name not in forcing},
            pass_fds=[self._failure.fileno()],
        )
        self._reader = threading.Thread(target=self._forward, args=(self.process.stderr,), daemon=True)
        if not is_terminal:
            self._reader.start()

    def _forward(self, messages: IO[str]) -> None:
        show = _in_notebook()
        with messages:
            for line in messages:
                self._said = [*self._said, line.rstrip()][-SAID_LINES_MAX:]
                if show:
                    show(self.said)
                else:
                    sys.stderr.write(line)

    def is_running(self, wait_s: float = 0.0) -> bool:
        """Return whether it still runs after at most this time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(wait_s)
        return self.process.returncode is None

    def stop(self) -> None:
        """End it as Ctrl-C does: measurements are kept, servers are stopped. Returns after its end."""
        if self.is_running():
            self.is_stopped = True
            self.process.send_signal(signal.SIGINT)
        self._wait()

    def status(self) -> int:
        """Wait for its end and return its exit status. Raises its error, or KeyboardInterrupt."""
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise
        if self._error is not None:
            raise self._error
        return self.process.returncode

    @property
    def said(self) -> str:
        """The last messages; empty if they went to a terminal."""
        return "\n".join(self._said)

    def _wait(self) -> None:
        self.process.wait()
        if self._reader.is_alive():
            self._reader.join()
        if not self._failure.closed:
            with self._failure as file:
                file.seek(0)
                written = file.read()
            self._error = _error(json.loads(written)) if written else None


def _error(said: Mapping[str, str]) -> PgdynoError:
    kind: type[PgdynoError] = getattr(errors, said["kind"], PgdynoError)
    found = kind.__new__(kind)
    PgdynoError.__init__(found, said["message"])  # some have more arguments of their own
    return found


def _in_notebook() -> Callable[[str], None] | None:
    """Return a function that shows the last messages in the output of the cell; None outside of notebooks."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not hasattr(shell, "kernel"):
        return None
    display = import_module("IPython.display")
    area = display.display({"text/plain": ""}, raw=True, display_id=True)
    return lambda text: area.update({"text/plain": text}, raw=True)


def _is_terminal(stream: Any) -> bool:
    """Return whether a child can inherit this standard error: a notebook replaces the stream."""
    try:
        return stream is not None and stream.isatty() and stream.fileno() == sys.__stderr__.fileno()  # type: ignore[union-attr]
    except (OSError, ValueError, AttributeError):
        return False


def document_of(words: Sequence[str]) -> Any:
    """Carry out a command with ``--json`` and return its document. Raises its error."""
    with tempfile.TemporaryFile() as output:
        command = Command([*words, "--json"], output=output.fileno())
        status = command.status()
        output.seek(0)
        printed = output.read()
    if not printed:
        raise PgdynoError(command.said or f"the command ended with status {status}")
    return json.loads(printed)
