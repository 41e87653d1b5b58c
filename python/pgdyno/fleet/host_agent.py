"""The agent of a host: starts the process of its study, and answers the polls of the coordinator.

An actor of Ray runs it. Its methods return errors as values: an exception would appear in Ray's logs.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO

from pgdyno.errors import PgdynoError, in_one_line
from pgdyno.fleet.host_evidence import SnapshotSender, take_snapshot, write_chunks
from pgdyno.fleet.host_files import HostFiles
from pgdyno.fleet.host_messages import Chunk, HostEnd, HostMessage, HostStatus, HostTask, SnapshotEnd

WARNINGS_MAX = 20
"""Maximum number of warnings in one message; the results file has the reasons of all failed trials."""

LOG_BYTES_MAX = 2000
"""Bytes at the end of the log in which the reason of an unexpected end is searched."""


class HostAgent:
    """Runs one task. ``poll`` and ``stop`` may be called by different threads."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._number = 0
        self._sent: HostMessage | None = None
        self._status = HostStatus()
        self._warnings: list[str] = []
        self._sender = SnapshotSender()
        self._end: HostEnd | None = None
        self._files: HostFiles | None = None
        self._held = contextlib.ExitStack()
        self._child: subprocess.Popen[str] | None = None

    def begin(self, task: HostTask, evidence: Sequence[Chunk]) -> str:
        """Start the process of the study. Return the error, or an empty text.

        ``evidence``: chunks of the results file to be resumed. They are ignored if this host has the file,
        which is as new as any copy, or newer.
        """
        try:
            self._files = HostFiles.of(task.name)
            self._held.enter_context(self._files.held())
            if evidence and not self._files.evidence.exists():
                write_chunks(evidence, self._files.evidence)
            command = [sys.executable, "-m", "pgdyno.fleet.host_process"]
            with self._files.log.open("w", encoding="utf-8") as log:
                self._child = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    encoding="utf-8",
                    start_new_session=True,
                )
            assert self._child.stdin is not None
            assert self._child.stdout is not None
            self._child.stdin.write(task.model_dump_json() + "\n")
            self._child.stdin.flush()
        except (PgdynoError, OSError) as error:
            return in_one_line(error)
        threading.Thread(target=self._read, args=(self._child.stdout,), daemon=True).start()
        return ""

    def poll(self, acknowledged: int, wait_s: float, again: bool = False) -> HostMessage:
        """Return the news of at least ``wait_s``; at once when the study has ended.

        A message that was not ``acknowledged`` is returned again. ``again``: the coordinator lost its chunks,
        so that the whole snapshot is sent.
        """
        with self._news:
            if again:
                self._sent = None
                self._sender.forget()
                self._resend()
            if self._sent is not None and self._sent.number != acknowledged:
                return self._sent
            self._news.wait_for(lambda: self._end is not None, wait_s)
            self._number += 1
            part = self._next_part()
            self._sent = HostMessage(
                self._number,
                self._status,
                self._warnings,
                part if isinstance(part, Chunk) else None,
                part if isinstance(part, SnapshotEnd) else None,
                self._end if part is None else None,
            )
            self._warnings = []
            return self._sent

    def stop(self) -> None:
        """Stop the study gracefully."""
        if self._child is not None and self._child.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self._child.stdin.close()

    def remove_files(self) -> None:
        """Remove the files of the task: the coordinator has the results file."""
        self._sender.close()
        if self._files is not None:
            self._files.remove()
            self._held.close()

    def _next_part(self) -> Chunk | SnapshotEnd | None:
        try:
            return self._sender.next()
        except OSError as error:
            self._warnings.append(f"the snapshot of the results file cannot be read: {error}")
            self._sender.close()
            return None

    def _resend(self) -> None:
        if self._files is not None and self._files.snapshot.exists():
            self._sender.begin(self._files.snapshot)

    def _read(self, lines: IO[str]) -> None:
        """Read the lines of the process until its end."""
        end: HostEnd | None = None
        for line in lines:
            try:
                value = json.loads(line)
            except ValueError:
                continue  # output of a library
            with self._news:
                if "status" in value:
                    self._status = HostStatus.model_validate(value["status"])
                elif "warning" in value:
                    self._warnings = [*self._warnings, value["warning"]][-WARNINGS_MAX:]
                elif "snapshot" in value:
                    self._resend()
                elif "end" in value:
                    end = HostEnd(**value["end"])
        lines.close()
        self.stop()  # closes the input, too
        self._finish(end)

    def _finish(self, end: HostEnd | None) -> None:
        """Take the last snapshot, also after a process that was killed."""
        assert self._child is not None
        assert self._files is not None
        status = self._child.wait()
        error = "" if end is not None else f"its process ended with status {status}{self._last_words()}"
        if self._files.evidence.exists():
            try:
                take_snapshot(self._files.evidence, self._files.snapshot)
            except (OSError, sqlite3.Error) as problem:
                error = error or f"no snapshot of the results file: {problem}"
        with self._news:
            self._resend()
            self._end = end if end is not None and not error else HostEnd("", error)
            self._news.notify_all()

    def _last_words(self) -> str:
        assert self._files is not None
        try:
            text = self._files.log.read_bytes()[-LOG_BYTES_MAX:].decode("utf-8", "replace").strip()
        except OSError:
            return ""
        return f": {text.splitlines()[-1]}" if text else ""
