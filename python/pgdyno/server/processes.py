"""Servers of ours: clusters, processes that end with pgdyno, and what a killed pgdyno leaves.

- Server processes: start that ties them to the life of pgdyno, and cleanup after a killed postmaster.
- Directories in use: live data directories and socket directories, and cleanup after dead owners.
- A server started by pgdyno: connections, log and shutdown.
- Crash detector: a connection that is idle during a trial and ends with a crash or restart.
- A cluster: one data directory and the server that runs on it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, Self

import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from pgdyno.errors import ConnectError, ServerError, StartError, UsageError, in_one_line
from pgdyno.hooks import Hooks
from pgdyno.interruption import SIGNALS, stopping
from pgdyno.server import child
from pgdyno.server.builds import Build
from pgdyno.server.connections import NoAnswer, connect
from pgdyno.server.directories import Account, locked, locked_if_free
from pgdyno.server.settings import BASE, base_settings, config_text, refuse_reserved, verify

# ----------------------------------------------------------------------
# Server processes: start that ties them to the life of pgdyno, and cleanup after a killed postmaster.
#
# After a kill, backends and shared memory can remain. PostgreSQL removes both at the next start on the same
# data directory. A data directory that is about to be restored or deleted has no such start: its backends
# could still write into it, and its shared memory would stay until the machine restarts.
# ----------------------------------------------------------------------

StopMode = Literal["smart", "fast", "immediate"]
STOP_SIGNALS: Mapping[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}

# The kernel sends a child its death signal when the THREAD that started it ends. So one thread that lives as
# long as pgdyno starts all servers, also for callers in a short-lived thread of a pool.
# It blocks signals: a signal delivered to it would not wake the main thread.
_launcher = ThreadPoolExecutor(
    max_workers=1,
    thread_name_prefix="pgdyno-launcher",
    initializer=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS),
)


def clean_environment() -> dict[str, str]:
    """Return the environment of a server and its tools, without PG* variables, locale and time zone."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}


def launch(command: Sequence[str], account: Account, log_path: Path) -> subprocess.Popen[bytes]:
    """Start a server as that user and append its output to the log. It ends with pgdyno."""
    with log_path.open("ab") as log:
        account.own(log_path)  # a logging collector opens it again
        return launch_tree(command, account, output=log, mode="alone")


def launch_tree(
    command: Sequence[str],
    account: Account,
    *,
    output: IO[bytes] | int,
    errors: IO[bytes] | None = None,
    stdin: int = subprocess.DEVNULL,
    directory: Path = Path("/"),
    environment: Mapping[str, str] | None = None,
    mode: Literal["alone", "tree"] = "tree",
) -> subprocess.Popen[bytes]:
    """Start a program whose descendants end with it, and with pgdyno. End it by ``end_tree``, or by SIGTERM,
    which gives it child.GRACE_S. It has its own session, so Ctrl-C in the terminal does not reach it.

    ``errors``: None for ``output``. ``environment``: instead of the clean one. ``mode``: see ``child``.
    """
    uid, gid = (account.uid, account.gid) if account.switch else (-1, -1)
    parts = (os.getpid(), uid, gid, account.control_group, mode)
    ours = [sys.executable, "-I", "-S", child.__file__, *map(str, parts)]
    return _launcher.submit(
        subprocess.Popen[bytes],
        [*ours, *command],
        bufsize=0,
        cwd=directory,
        stdin=stdin,
        stdout=output,
        stderr=output if errors is None else errors,
        env=clean_environment() if environment is None else environment,
        start_new_session=True,
    ).result()


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a program of ``launch_tree`` with its descendants, and wait for their end. Safe to call twice."""
    if process.poll() is None:
        process.send_signal(signal.SIGQUIT)
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def running_tool(
    command: Sequence[str], account: Account, timeout_s: float, check: Callable[[], None], **how: Any
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], None]]]:
    """Start a tool, and provide it with a check for the time limit and an interrupt. After an error in the
    block it is killed; else the end of the block waits for it.
    """
    deadline_s = time.monotonic() + timeout_s

    def check_all() -> None:
        check()
        if time.monotonic() > deadline_s:
            raise subprocess.TimeoutExpired(command, timeout_s)

    with launch_tree(command, account, **how) as process:
        try:
            yield process, check_all
        except BaseException:
            end_tree(process)
            raise


def run_tool(
    command: Sequence[str],
    account: Account,
    timeout_s: float,
    *,
    feed: Callable[[subprocess.Popen[bytes]], None] | None = None,
    check: Callable[[], None] = lambda: None,
    directory: Path = Path("/"),
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a tool of a build (initdb, psql …) as that user, wait for its end and capture its output.

    Like a server it ends when pgdyno is killed: otherwise initdb would write into a directory that the next
    pgdyno removes. So do its children, such as shell commands in SQL files. ``feed`` writes its standard
    input. ``check`` is called every CHECK_S and may raise. ``environment``: instead of the clean one. Raises
    subprocess.TimeoutExpired.
    """
    # Files, not pipes: a tool that waits for a full pipe would not read its input.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        how = {"output": out, "errors": err, "directory": directory, "environment": environment}
        stdin = subprocess.DEVNULL if feed is None else subprocess.PIPE
        with running_tool(command, account, timeout_s, check, stdin=stdin, **how) as (process, check_all):
            if feed is not None:
                feed(process)
            while process.poll() is None:
                check_all()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(CHECK_S)
        texts = [first_bytes(file).decode(errors="replace") for file in (out, err)]
    return subprocess.CompletedProcess(command, process.returncode, *texts)


CHECK_S = 0.2
"""Interval of the check for an interrupt while a tool runs."""

OUTPUT_BYTES_MAX = 64 << 20
"""Maximum size of a tool's output that is read: that of a schema of thousands of tables."""


def first_bytes(file: IO[bytes]) -> bytes:
    """Return the beginning of a file of output, at most OUTPUT_BYTES_MAX."""
    file.seek(0)
    return file.read(OUTPUT_BYTES_MAX)


READY_TIMEOUT_S = 120.0
"""Timeout of a start, until the server accepts connections. A clean start takes less than 1 s, with large
shared memory longer."""

RECOVERY_TIMEOUT_S = 3600.0
"""Timeout of a start with crash recovery. Replay takes 50 to 500 MB of WAL per second, of up to tens of
GB.
"""

END_TIMEOUT_S = 20.0
"""Timeout for the end of a killed process. Only a disk that does not answer takes longer."""

RELEASE_TIMEOUT_S = 60.0
"""Timeout of a start that only creates shared memory, which takes well under a second."""

FIRST_MAJOR_WITH_CHECK = 15
"""Earlier versions use ``postgres --boot -x0`` instead of ``postgres --check``."""


def clear_after_kill(data_dir: Path, account: Account) -> None:
    """End the processes and release the shared memory of a server that was not shut down.

    Does nothing after a shutdown or while the postmaster runs. Never raises: no trial depends on the
    cleanup.
    """
    lock = data_dir / "postmaster.pid"
    with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
        pid = int(lock.read_bytes().split(b"\n", 1)[0])
        if is_on(pid, data_dir):  # of a postmaster; negative for a server that initdb runs
            return
        # Backends detect the end of the postmaster only when they wait.
        for other in psutil.pids():
            _end(other, data_dir, signal.SIGKILL)
        try:
            _release_shared_memory(data_dir, account)
        finally:
            remove_segments(abs(pid), account)
        forget_program(data_dir)


def note_program(data_dir: Path, postgres: Path) -> None:
    """Store the path of ``postgres`` next to the data directory while initdb runs. A server writes the path
    to ``postmaster.opts``, initdb does not.
    """
    _note(data_dir).write_bytes(os.fsencode(postgres))


def forget_program(data_dir: Path) -> None:
    """Remove the file of ``note_program`` after initdb."""
    _note(data_dir).unlink(missing_ok=True)


def _note(data_dir: Path) -> Path:
    return data_dir.with_name(f"{data_dir.name}.initdb")


def is_on(pid: int, data_dir: Path) -> bool:
    """Return whether that process is a server on that directory, which is then its working directory.

    So is a process that is being killed, which still holds memory and files but has no program (``exe``).
    """
    try:
        process = Path("/proc", str(pid))
        return (process / "cwd").samefile(data_dir) and (process / "comm").read_text() == "postgres\n"
    except OSError:
        return False  # it has ended, or belongs to another user


def _end(pid: int, data_dir: Path, *signals: signal.Signals) -> None:
    """Send a process of the server on that directory these signals until it ends. Others are not signaled:
    the process ID may belong to another program by now.
    """
    with contextlib.suppress(OSError):  # it has ended
        handle = os.pidfd_open(pid)
        try:
            if is_on(pid, data_dir):
                for number in signals:
                    signal.pidfd_send_signal(handle, number)
                    if select.select([handle], [], [], END_TIMEOUT_S)[0]:
                        return
        finally:
            os.close(handle)


def _release_shared_memory(data_dir: Path, account: Account) -> None:
    """Run PostgreSQL in check mode, with which initdb tests settings.

    It removes the shared memory of the last start, creates its own and removes that, too. It runs no recovery
    and reads no data. Repeated once, in case it is killed itself.
    """
    note, options = _note(data_dir), data_dir / "postmaster.opts"
    program = note.read_bytes() if note.exists() else options.read_bytes().split(b' "', 1)[0].strip()
    major = int((data_dir / "PG_VERSION").read_text().split(".", 1)[0])
    check = ["--check"] if major >= FIRST_MAJOR_WITH_CHECK else ["--boot", "-x0"]
    small = ["-c", "shared_buffers=1MB", "-c", "huge_pages=off"]
    for _ in range(2):
        # PostgreSQL does not start while a zombie process has that ID.
        (data_dir / "postmaster.pid").unlink(missing_ok=True)
        command = [os.fsdecode(program), *check, "-D", str(data_dir), *small]
        if run_tool(command, account, RELEASE_TIMEOUT_S).returncode == 0:
            break


def remove_segments(creator: int, account: Account) -> None:
    """Remove the System V segments that this ended process created and no process has attached.

    A server that is killed before it has written the header of its segment (it syncs postmaster.pid between
    the two) leaves one that PostgreSQL takes for that of another program.
    """
    for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]:
        segment, _, _, creator_of, _, attached, owner = map(int, line.split()[1:8])
        if (creator_of, attached, owner) == (creator, 0, account.uid):
            ctypes.CDLL(None).shmctl(segment, IPC_RMID, None)


IPC_RMID = 0
"""Command of shmctl(2) that removes a segment, from sys/ipc.h."""


# ----------------------------------------------------------------------
# Directories in use: live data directories and socket directories, and cleanup after dead owners.
#
# with runs.open("arm-0") as run:                  # a private directory, kept for the whole study
# restore(dataset.snapshot, run.data_dir, account) with Cluster(build, run.data_dir, account,
# run.log_path).start(settings) as server: ...
# ----------------------------------------------------------------------

PORT = 5432  # only part of the socket name: the server does not listen on the network
# The path of a socket has at most 107 bytes (sun_path). A longer TMPDIR is replaced by /tmp.
SOCKET_PATH_BYTES_MAX = 107
SOCKET_PREFIX = "pgdyno-socket-"
UNFINISHED_S = 60.0
"""Age after which a directory with its temporary name is abandoned. The creator renames it within
milliseconds."""


@dataclass(frozen=True)
class SocketDirectory:
    """Private directory of the socket of one server.

    Its creator holds a lock on it while it lives. A directory without a lock is abandoned.
    """

    path: Path
    lock: int  # a descriptor, open while the directory exists

    @classmethod
    def create(cls, account: Account) -> Self:
        """Create a directory that only the user of the servers can enter, with a short path for the
        socket."""
        # Locked under a name that no cleanup removes, and then renamed, so it is never without a lock.
        path = Path(tempfile.mkdtemp(prefix=f".{SOCKET_PREFIX}", dir=_parent(account)))
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        account.own(path)
        return cls(path.rename(path.with_name(path.name[1:])), lock)

    def settings(self) -> dict[str, str]:
        """Return the settings with which a server listens only here."""
        return {
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": str(self.path),
            "unix_socket_permissions": "0700",
        }

    def remove(self) -> None:
        """Delete the directory with its content. Safe to call twice."""
        if self.path.exists():
            shutil.rmtree(self.path, ignore_errors=True)
            if not self.path.exists():
                os.close(self.lock)


def sweep(account: Account) -> list[Path]:
    """Remove the socket directories of killed pgdynos. Return their paths."""
    return [path for path in _ours(account) if _remove_if_dead(path)]


def _ours(account: Account) -> Iterator[Path]:
    """Yield the socket directories of the user of the servers; those of other users are not opened. A
    directory with its temporary name counts only if it is older than UNFINISHED_S.
    """
    parent = _parent(account)
    for path in (*sorted(parent.glob(f"{SOCKET_PREFIX}*")), *sorted(parent.glob(f".{SOCKET_PREFIX}*"))):
        try:
            found = path.lstat()
        except FileNotFoundError:
            continue
        unfinished = path.name[0] == "."
        owners = {account.uid, os.geteuid()} if unfinished else {account.uid}
        if unfinished and time.time() - found.st_mtime < UNFINISHED_S:
            continue
        if path.is_dir() and not path.is_symlink() and found.st_uid in owners:
            yield path


def _remove_if_dead(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False  # its owner removed it
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        shutil.rmtree(path, ignore_errors=True)
        return True
    finally:
        os.close(descriptor)


def _parent(account: Account) -> Path:
    parent = Path(tempfile.gettempdir())
    too_long = len(os.fsencode(parent)) > SOCKET_PATH_BYTES_MAX - 40
    return Path("/tmp") if too_long or not account.can_reach(parent / "x") else parent


ReleaseDisks = Callable[[Path], Sequence[str]]
"""Removes the disks of a feature below a directory. Returns what remains."""

DISKS: Hooks[ReleaseDisks] = Hooks("disks")

OWNER = "owner.lock"
PREFIX = "run-"


@dataclass(frozen=True)
class LiveDirectory:
    """One live directory: a data directory, and the server log next to it."""

    path: Path

    @property
    def data_dir(self) -> Path:
        """Data directory for ``restore`` and ``Cluster``."""
        return self.path / "data"

    @property
    def log_path(self) -> Path:
        """Server log for ``Cluster``. Copy it to the results file before the run ends."""
        return self.path / "server.log"


@dataclass(frozen=True)
class Runs:
    """The live directories in one directory of the cache."""

    directory: Path
    account: Account

    @contextlib.contextmanager
    def open(self, label: str) -> Iterator[LiveDirectory]:
        """Create a directory and remove it at the end. Its servers must be stopped before that."""
        with locked(self.directory / ".sweep.lock", shared=True):  # no cleanup between creation and lock
            path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{label}-", dir=self.directory))
            owning = contextlib.ExitStack()
            owning.enter_context(locked(path / OWNER))
        if self.account.switch:
            path.chmod(0o711)  # the user of the servers needs access to its data directory
        try:
            with owning:
                yield LiveDirectory(path)
        finally:
            clear_after_kill(path / "data", self.account)
            _remove(path)

    def sweep(self) -> list[Path]:
        """Stop the servers of owners that have ended and remove their directories. Return the paths."""
        swept = []
        with locked(self.directory / ".sweep.lock"):
            for path in sorted(self.directory.glob(f"{PREFIX}*")):
                with locked_if_free(path / OWNER) as free:
                    if not free:
                        continue
                    swept.append(path)
                    end_postmaster(path / "data")
                    clear_after_kill(path / "data", self.account)
                    _remove(path)
        return swept


def _remove(path: Path) -> None:
    """Delete a directory and the disks in it. It stays if a disk cannot be removed: its files are in use, and
    the next cleanup tries again.
    """
    if not [left for release in DISKS for left in release(path)]:
        shutil.rmtree(path, ignore_errors=True)


def end_postmaster(data_dir: Path) -> None:
    """Stop the server on that directory immediately, if one runs, and wait for its end."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((data_dir / "postmaster.pid").read_bytes().split(b"\n", 1)[0])
        _end(pid, data_dir, signal.SIGQUIT, signal.SIGKILL)


# ----------------------------------------------------------------------
# A server started by pgdyno: connections, log and shutdown.
# ----------------------------------------------------------------------

SUPERUSER = "pgdyno"
STOP_TIMEOUT_S = 300.0  # a fast stop writes a checkpoint: all of shared_buffers, on a slow disk
KILL_TIMEOUT_S = 20.0  # 5 s after SIGQUIT the postmaster kills its remaining children
POLL_END_S = 0.05  # interval of the check for an interrupt meanwhile
LOG_WORDS_MAX = 4  # lines of the server log in an error message
POLL_S = 0.01
READY = b"ready"
TELLING = (
    *("FATAL:", "PANIC:", "ERROR:", "DETAIL:", "HINT:", "error:"),
    *("unrecognized configuration parameter", "for parameter"),
)
_LOG_PREFIX = re.compile(r"^[-\d]+ [:.\d]+ \w+ \[\d+\] ")

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass
class Server:
    """A running server. As a context manager it stops the server at the end: fast, or immediate after an
    error.

    ``effective`` has the value of every setting as ``SHOW`` prints it (``{"shared_buffers": "2GB"}``).
    ``dropped`` has the optional settings that are not in effect, each with the reason. ``ready_s`` is the
    time from the start of the process until it accepted connections, including recovery.
    """

    build: Build
    data_dir: Path
    log_path: Path
    socket: SocketDirectory
    process: subprocess.Popen[bytes]
    log_start_bytes: int = 0
    ready_s: float = 0.0
    effective: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)

    @property
    def postmaster_pid(self) -> int:
        """Process ID of the postmaster, the parent of all server processes."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Return whether the postmaster runs."""
        return self.process.poll() is None

    def conninfo(self, dbname: str = "postgres") -> str:
        """Return a libpq connection string for the engine, psycopg and the tools of PostgreSQL.

        ``options`` is set to an empty string: otherwise ``PGOPTIONS`` of the user would change the
        measurement.
        """
        return make_conninfo(host=str(self.socket.path), port=PORT, user=SUPERUSER, dbname=dbname, options="")

    def connect(self, dbname: str = "postgres") -> Connection:
        """Open a connection in autocommit mode. Raises ConnectError."""
        try:
            return connect(self.conninfo(dbname))
        except psycopg.Error as error:
            why = f"it exited: {self.last_words()}" if not self.alive else in_one_line(error)
            raise ConnectError(f"no connection to {self.build.label}: {why}") from error

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until the server accepts connections. Raises StartError if it exits or takes too long."""
        begun_s = time.monotonic()
        deadline = begun_s + timeout_s
        while True:
            # Waiting for the process is the pause between attempts: its end is detected at once.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(POLL_S)
                raise StartError(f"{self.build.label} did not start: {self.last_words()}")
            if self._says_ready():
                return
            if stopping.is_over(begun_s):
                raise StartError(f"interrupted while {self.build.label} was starting")
            if time.monotonic() > deadline:
                raise StartError(
                    f"{self.build.label} did not start within {timeout_s:g} s: {self.last_words()}"
                )

    def _says_ready(self) -> bool:
        """Return whether the eighth line of postmaster.pid reports ready, as it does for a hot standby, too.
        "standby" means recovery with hot_standby off: a connection would write FATAL to the log.
        """
        try:
            # Bytes: it contains a path.
            lines = (self.data_dir / "postmaster.pid").read_bytes().split(b"\n")
        except FileNotFoundError:
            return False
        pid = str(self.postmaster_pid).encode()
        return len(lines) >= 8 and lines[0] == pid and lines[7].strip() == READY

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server and wait for its end. Raises ServerError if it has exited before, or must be
        killed.
        """
        timeout_s = KILL_TIMEOUT_S if mode == "immediate" else STOP_TIMEOUT_S
        if not self.alive:
            self.socket.remove()
            raise ServerError(f"{self.build.label} exited unexpectedly: {self.last_words()}")
        self.process.send_signal(STOP_SIGNALS[mode])
        if not self._ends_within(timeout_s):
            self.abandon()
            raise ServerError(
                f"{self.build.label} did not stop ({mode}) within {timeout_s:g} s and was killed: "
                "its data directory needs crash recovery"
            )
        self.socket.remove()

    def abandon(self) -> None:
        """End the server immediately, whatever its state. Its data directory then needs crash recovery."""
        if self.alive:
            self.process.send_signal(STOP_SIGNALS["immediate"])
            if not self._ends_within(KILL_TIMEOUT_S):
                self._kill()
        self.socket.remove()

    def _ends_within(self, timeout_s: float) -> bool:
        """Wait for the postmaster. Return False after the timeout or the grace period of an interrupt."""
        begun_s = time.monotonic()
        while self.alive:
            if time.monotonic() - begun_s >= timeout_s or stopping.is_over(begun_s):
                return False
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(POLL_END_S)
        return True

    def _kill(self) -> None:
        """Kill the postmaster and its children, because a frozen child would outlive it."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        self.process.kill()
        self.process.wait()

    def log(self) -> str:
        """Return the server log since this start."""
        with self.log_path.open("rb") as log:
            log.seek(self.log_start_bytes)
            return log.read().decode(errors="replace")

    def last_words(self) -> str:
        """Return the last messages of the log in one line, for an error message."""
        words = last_messages(self.log()) or "its log is empty"
        status = self.process.poll()
        if status is not None and status < 0:
            return (
                f"its postmaster was killed by signal {-status} (if memory ran out, dmesg says so): {words}"
            )
        return words

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self.alive:
            self.stop()
        else:
            self.abandon()


def last_messages(text: str) -> str:
    """Return the lines with an error (FATAL, ERROR, HINT …) as one line, or the last lines if none has."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if any(mark in line for mark in TELLING)]
    words = dict.fromkeys(
        _LOG_PREFIX.sub("", line) for line in telling or lines
    )  # clients repeat the same line
    return " / ".join([*words][-LOG_WORDS_MAX:])


# ----------------------------------------------------------------------
# Crash detector: a connection that is idle during a trial and ends with a crash or restart.
#
# Server processes share memory: if one crashes, PostgreSQL terminates all of them and restarts at once.
# Clients that were idle at that moment may not notice it, and the log of a remote server is not accessible.
# ----------------------------------------------------------------------


def keep_idle(connection: Connection) -> Connection:
    """Disable the idle timeout of the session, and return the connection."""
    if connection.info.server_version >= 14_00_00:
        connection.execute("set idle_session_timeout = 0")
    return connection


def require_no_crash(detector: Connection) -> None:
    """Raise ServerError if the connection was lost."""
    try:
        detector.execute("select 1")
    except NoAnswer as error:
        raise ServerError(str(error)) from None
    except psycopg.Error:
        raise ServerError(
            "the server crashed or restarted during the trial: an idle connection was lost"
        ) from None


# ----------------------------------------------------------------------
# A cluster: one data directory and the server that runs on it.
#
# cluster = Cluster(build, data_dir, account) cluster.initdb() with cluster.start({"shared_buffers": "2GB"})
# as server: server.connect("postgres").execute("select 1")
#
# The server listens only on a Unix socket in a directory that only its user (and root) can enter, so
# ``trust`` authentication is safe. It ends with pgdyno, whatever ends pgdyno (see ``child``).
# ----------------------------------------------------------------------

INITDB_TIMEOUT_S = 300.0  # it takes seconds on any disk that is suitable for a benchmark

CONFIG_FILE = "pgdyno.conf"


@dataclass(frozen=True)
class InitOptions:
    """Options of initdb, part of the key of a dataset. All arms have the same, as defaults vary by
    version."""

    checksums: bool = True  # the default from PostgreSQL 18 on
    wal_segment_mb: int | None = None  # from PostgreSQL 11 on
    sync: bool = True

    def arguments(self, build: Build) -> list[str]:
        """Return the arguments of initdb, without program and directory. Raises UsageError."""
        arguments = ["--username", SUPERUSER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C"]
        if build.version.major >= 15:
            arguments += ["--locale-provider", "libc"]
        if self.checksums:
            arguments.append("--data-checksums")
        elif build.version.major >= 18:
            arguments.append("--no-data-checksums")
        if self.wal_segment_mb is not None:
            if build.version.major < 11:
                raise UsageError("initdb.wal_segment requires PostgreSQL 11 or newer (got 10)")
            arguments.append(f"--wal-segsize={self.wal_segment_mb}")
        return arguments if self.sync else [*arguments, "--no-sync"]


@dataclass
class Cluster:
    """One data directory of one build. The output of the server is appended to ``log_path``."""

    build: Build
    data_dir: Path
    account: Account
    log_path: Path = field(default=Path())

    def __post_init__(self) -> None:
        if self.log_path == Path():
            self.log_path = self.data_dir.with_name(f"{self.data_dir.name}.log")

    def initdb(self, options: InitOptions | None = None, more: Sequence[str] = ()) -> None:
        """Create the data directory, which must be missing or empty. ``more``: arguments that override those
        of the options. Raises StartError, UsageError.
        """
        arguments = [*(options or InitOptions()).arguments(self.build), *more]
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.account.own(self.data_dir)
        # --no-clean: after a crash of initdb, the files that it would remove identify its shared memory.
        program = [str(self.build.program("initdb")), "--no-clean"]
        command = [*program, "--pgdata", str(self.data_dir), *arguments]
        note_program(self.data_dir, self.build.program("postgres"))
        done = run_tool(command, self.account, INITDB_TIMEOUT_S)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).splitlines(keepends=True)
            why = last_messages("".join(line for line in said if "not removed at user's request" not in line))
            raise StartError(f"initdb of {self.build.label} failed: {why}")
        forget_program(self.data_dir)
        with (self.data_dir / "postgresql.conf").open("a") as config:
            config.write(f"\ninclude_if_exists = '{CONFIG_FILE}'\n")

    def start(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        optional: Collection[str] = (),
        ready_timeout_s: float = READY_TIMEOUT_S,
    ) -> Server:
        """Start the server and wait until it accepts connections.

        Compares every setting with the value in effect. A setting that is unknown to this version or not in
        effect is an error, unless its name is in ``optional``: ``Server.dropped`` lists those. Raises
        UsageError (a reserved setting), StartError.
        """
        requested = dict(settings or {})
        refuse_reserved(requested)
        base = base_settings(self.build.version.major)
        # Snapshots of a version in development may lack a setting of it.
        unknown = self._unknown({*optional, *(base.keys() - BASE.keys())})
        self._write_config({n: value for n, value in {**base, **requested}.items() if n not in unknown})
        socket = SocketDirectory.create(self.account)
        log_start_bytes = self.log_path.stat().st_size if self.log_path.exists() else 0
        begun_s = time.monotonic()
        try:
            process = launch(self._command(socket), self.account, self.log_path)
        except BaseException:
            socket.remove()
            raise
        server = Server(self.build, self.data_dir, self.log_path, socket, process, log_start_bytes)
        try:
            server.wait_ready(ready_timeout_s)
            server.ready_s = time.monotonic() - begun_s
            server.effective, server.dropped = verify(server.connect(), requested, optional)
        except BaseException:
            server.abandon()
            raise
        return server

    def _unknown(self, optional: Collection[str]) -> set[str]:
        """Return the optional settings that this version does not know."""
        # The list of --describe-config lacks those that are not in postgresql.conf.sample: jit_expressions.
        show = [str(self.build.program("postgres")), "-D", str(self.data_dir), "-C"]
        names = [name for name in optional if "." not in name]
        said = {name: run_tool([*show, name], self.account, 60.0).stderr for name in names}
        return {name for name, error in said.items() if "unrecognized configuration parameter" in error}

    def _write_config(self, settings: Mapping[str, str]) -> None:
        path = self.data_dir / CONFIG_FILE
        path.write_text(config_text(settings))
        path.chmod(0o600)
        self.account.own(path)

    def _command(self, socket: SocketDirectory) -> list[str]:
        log = {"log_directory": str(self.log_path.parent), "log_filename": self.log_path.name}
        own = {**socket.settings(), **log}
        program = [str(self.build.program("postgres")), "-D", str(self.data_dir)]
        return [*program, *(part for name, value in own.items() for part in ("-c", f"{name}={value}"))]
