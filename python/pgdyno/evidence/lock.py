"""One writer per evidence file: a lock on a file beside it, which the kernel drops when the writer dies.

SQLite's own locks are per transaction and cannot say "a study is running"; and opening the database a second
time just to lock it would drop SQLite's locks when closed (POSIX). Hence a file of its own, ``NAME.lock``.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

from pgdyno.errors import EvidenceError

_OWN_BYTES_MAX = 64
"""More than the digits of any process id."""


class WriterLock:
    """Held from the constructor to ``release``, or to the death of the process, however it dies."""

    def __init__(self, evidence: Path) -> None:
        """Take the lock of this evidence file, or raise EvidenceError with the holder's process id."""
        self._path = evidence.with_name(evidence.name + ".lock")
        self._descriptor = self._take()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def _take(self) -> int:
        while True:
            try:
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            except OSError as error:
                raise EvidenceError(
                    f"cannot write beside the evidence: {error.strerror}: {self._path}"
                ) from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
                os.close(descriptor)
                raise EvidenceError(
                    f"{self._path.with_suffix('')} is being written by another pgdyno (process {holder}): "
                    "wait for it, or name another file"
                ) from error
            if self._is_current(descriptor):
                self._refuse_a_foreign_file(descriptor)
                return descriptor
            # The former holder removed the file between our open and our lock: ours has no name any more.
            os.close(descriptor)

    def _refuse_a_foreign_file(self, descriptor: int) -> None:
        """Of a process that died its number is left. Anything else is somebody's file, such as Cargo.lock."""
        if re.fullmatch(rb"[0-9]*\n?", os.pread(descriptor, _OWN_BYTES_MAX, 0)):
            return
        os.close(descriptor)
        raise EvidenceError(
            f"{self._path} is not a lock of pgdyno, and would be replaced: name another file for the evidence"
        )

    def _is_current(self, descriptor: int) -> bool:
        try:
            named = self._path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(descriptor))

    def release(self) -> None:
        """Remove the file, then the lock: in this order nobody can lock a file that is about to vanish."""
        if self._descriptor >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1
