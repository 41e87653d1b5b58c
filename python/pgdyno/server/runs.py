"""Live data directories: each has an owner, and what a dead owner left is cleared away.

with runs.open("arm-0") as run:                  # a directory of one's own, kept for the whole study
    restore(dataset.snapshot, run.data_dir, account)
    with Cluster(build, run.data_dir, account, run.log_path).start(settings) as server: ...
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pgdyno.server.disk import locked, locked_if_free
from pgdyno.server.killed_postmaster import clear_after_kill
from pgdyno.server.user import Account

OWNER = "owner.lock"
PREFIX = "run-"
END_TIMEOUT_MS = 20_000


@dataclass(frozen=True)
class Run:
    """One live directory: the data directory in it, and the server's log beside that."""

    path: Path

    @property
    def data_dir(self) -> Path:
        """For ``restore`` and ``Cluster``."""
        return self.path / "data"

    @property
    def log_path(self) -> Path:
        """For ``Cluster``: copy it into the evidence before the run ends."""
        return self.path / "server.log"


@dataclass(frozen=True)
class Runs:
    """The live directories in one directory of the cache."""

    room: Path
    account: Account

    @contextlib.contextmanager
    def open(self, label: str) -> Iterator[Run]:
        """A fresh directory, removed at the end. Its servers must be stopped by then."""
        with locked(self.room / ".sweep.lock", shared=True):  # no sweep between the making and the locking
            path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{label}-", dir=self.room))
            owning = contextlib.ExitStack()
            owning.enter_context(locked(path / OWNER))
        if self.account.switch:
            path.chmod(0o711)  # the servers' user passes through to its data directory
        try:
            with owning:
                yield Run(path)
        finally:
            clear_after_kill(path / "data", self.account)
            shutil.rmtree(path, ignore_errors=True)

    def sweep(self, *, dry_run: bool = False) -> list[Path]:
        """Stop the servers of owners that are gone and remove their directories; returns these."""
        swept = []
        with locked(self.room / ".sweep.lock"):
            for path in sorted(self.room.glob(f"{PREFIX}*")):
                with locked_if_free(path / OWNER) as free:
                    if not free:
                        continue
                    swept.append(path)
                    if not dry_run:
                        end_postmaster(path / "data")
                        clear_after_kill(path / "data", self.account)
                        shutil.rmtree(path, ignore_errors=True)
        return swept


def end_postmaster(data_dir: Path) -> None:
    """Stop at once the server that runs on that very directory, if one does; wait for its end.

    The number in postmaster.pid may by now be another program's. A postmaster's working directory is its data
    directory: only a process of which that is true is touched.
    """
    try:
        pid = int((data_dir / "postmaster.pid").read_text().split("\n", 1)[0])
        descriptor = os.pidfd_open(pid)
    except (OSError, ValueError):
        return
    try:
        if not Path(f"/proc/{pid}/cwd").samefile(data_dir):
            return
        for number in (signal.SIGQUIT, signal.SIGKILL):
            signal.pidfd_send_signal(descriptor, number)
            if select.select([descriptor], [], [], END_TIMEOUT_MS / 1000)[0]:
                return
    except OSError:
        return  # it ended by itself
    finally:
        os.close(descriptor)
