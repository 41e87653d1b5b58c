"""Server processes: start that ties them to the life of pgdyno, and cleanup after a killed postmaster.

After a kill, backends and shared memory can remain. PostgreSQL removes both at the next start on the same
data directory. A data directory that is about to be restored or deleted has no such start: its backends could
still write into it, and its shared memory would stay until the machine restarts.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Literal

import psutil

from pgdyno.interruption import SIGNALS
from pgdyno.server import child
from pgdyno.server.server_account import Account

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
    """Start a server as that user and append its output to the log. It has its own session, so Ctrl-C in the
    terminal does not reach it.
    """
    with log_path.open("ab") as log:
        return _launcher.submit(
            subprocess.Popen,
            _launcher_command("alone", command, account),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=clean_environment(),
            start_new_session=True,
        ).result()


def launch_tree(
    command: Sequence[str],
    account: Account,
    *,
    output: IO[bytes] | int,
    errors: IO[bytes] | None = None,
    stdin: int = subprocess.DEVNULL,
    directory: Path = Path("/"),
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program whose descendants end with it, and with pgdyno. End it by ``end_tree``, or by SIGTERM,
    which gives it child.GRACE_S. ``errors``: None for ``output``. ``environment``: instead of the clean one.
    """
    return _launcher.submit(
        subprocess.Popen[bytes],
        _launcher_command("tree", command, account),
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


def run_tool(
    command: Sequence[str],
    account: Account,
    timeout_s: float,
    *,
    feed: Iterable[bytes] = (),
    check: Callable[[], None] = lambda: None,
    directory: Path = Path("/"),
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a tool of a build (initdb, psql …) as that user, wait for its end and capture its output.

    Like a server it ends when pgdyno is killed: otherwise initdb would write into a directory that the next
    pgdyno removes. So do its children, such as shell commands in SQL files. ``feed`` is its standard input.
    ``check`` is called every CHECK_S and may raise. ``environment``: instead of the clean one. Raises
    subprocess.TimeoutExpired.
    """
    deadline_s = time.monotonic() + timeout_s
    # Files, not pipes: a tool that waits for a full pipe would not read its input.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = launch_tree(
            command,
            account,
            output=out,
            errors=err,
            stdin=subprocess.PIPE,
            directory=directory,
            environment=environment,
        )
        with process:
            try:
                _feed(process, feed, check)
                while process.poll() is None:
                    check()
                    if time.monotonic() > deadline_s:
                        raise subprocess.TimeoutExpired(command, timeout_s)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(min(CHECK_S, max(0.0, deadline_s - time.monotonic())))
            except BaseException:
                end_tree(process)
                raise
        texts = [_first_bytes(file).decode(errors="replace") for file in (out, err)]
    return subprocess.CompletedProcess(command, process.returncode, *texts)


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
    deadline_s = time.monotonic() + timeout_s
    with tempfile.TemporaryFile() as err:
        process = launch_tree(command, account, output=subprocess.PIPE, errors=err, environment=environment)
        with process:
            try:
                assert process.stdout is not None
                descriptor, pending = process.stdout.fileno(), [b""]
                while True:
                    check()
                    if time.monotonic() > deadline_s:
                        raise subprocess.TimeoutExpired(command, timeout_s)
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
            except BaseException:
                end_tree(process)
                raise
        if process.returncode != 0:
            messages = _first_bytes(err).decode(errors="replace")
            raise subprocess.CalledProcessError(process.returncode, command, stderr=messages)


CHECK_S = 0.2
"""Interval of the check for an interrupt while a tool runs."""

READ_BYTES = 1 << 20
"""Size of the pieces in which a tool's output is read."""

OUTPUT_BYTES_MAX = 64 << 20
"""Maximum size of a tool's output that is read: that of a schema of thousands of tables."""


FEED_BYTES = 1 << 16
"""Size of the pieces in which a tool's input is written."""


def _feed(process: subprocess.Popen[bytes], feed: Iterable[bytes], check: Callable[[], None]) -> None:
    """Write the input of a tool. A tool that ends before it has read all of it is no error here.

    The pipe does not block, so that a tool that reads nothing for hours can be interrupted.
    """
    assert process.stdin is not None
    with process.stdin as pipe:
        os.set_blocking(pipe.fileno(), False)
        try:
            for piece in _pieces(feed):
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


def _first_bytes(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(OUTPUT_BYTES_MAX)


def _launcher_command(mode: Literal["alone", "tree"], command: Sequence[str], account: Account) -> list[str]:
    """Return the command line that executes ``command`` as that user and ends with pgdyno."""
    uid, gid = (account.uid, account.gid) if account.switch else (-1, -1)
    ours = [sys.executable, "-I", "-S", child.__file__, str(os.getpid()), str(uid), str(gid), mode]
    return [*ours, *command]


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
        if _is_on(pid, data_dir):  # of a postmaster; negative for a server that initdb runs
            return
        _end_processes(data_dir)
        lock.unlink()  # PostgreSQL does not start while a zombie process has that ID
        _release_shared_memory(data_dir, account)
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


def _is_on(pid: int, data_dir: Path) -> bool:
    """Return whether that process is a server on that directory, which is then its working directory."""
    try:
        process = Path("/proc", str(pid))
        return (process / "cwd").samefile(data_dir) and (process / "exe").readlink().name == "postgres"
    except OSError:
        return False  # it has ended, or belongs to another user


def _end_processes(data_dir: Path) -> None:
    """Kill the remaining processes of the server. Backends detect the end of the postmaster only when they
    wait."""
    for pid in psutil.pids():
        if not _is_on(pid, data_dir):
            continue
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            try:
                if _is_on(pid, data_dir):  # checked again: the handle refers to the same process
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    select.select([handle], [], [], END_TIMEOUT_S)
            finally:
                os.close(handle)


def _release_shared_memory(data_dir: Path, account: Account) -> None:
    """Run PostgreSQL in check mode, with which initdb tests settings.

    It removes the shared memory of the last start, creates its own and removes that, too. It runs no recovery
    and reads no data.
    """
    note, options = _note(data_dir), data_dir / "postmaster.opts"
    program = note.read_bytes() if note.exists() else options.read_bytes().split(b' "', 1)[0].strip()
    major = int((data_dir / "PG_VERSION").read_text().split(".", 1)[0])
    check = ["--check"] if major >= FIRST_MAJOR_WITH_CHECK else ["--boot", "-x0"]
    small = ["-c", "shared_buffers=1MB", "-c", "huge_pages=off"]
    run_tool([os.fsdecode(program), *check, "-D", str(data_dir), *small], account, RELEASE_TIMEOUT_S)
