"""Where a file is going to be written: whether that will do is known before minutes go into making it.

Replaced is only what pgdyno wrote, or what ``--force`` names; evidence, links, devices and pipes never are.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import secrets
import stat
import tempfile
from pathlib import Path

import psutil

from pgdyno.errors import PgdynoError, UsageError

MARK = '<meta name="generator" content="pgdyno">'
"""What the templates of all pages have in their heads."""

_SQLITE = b"SQLite format 3\0"
_COMPANIONS = ("-wal", "-shm", "-journal")
"""SQLite takes them for a part of the file beside which they lie, whoever left them there."""

_MARK_WITHIN = 4096
"""Bytes of a page in which its mark stands: it is in the head, before anything else."""

_PART = re.compile(r"\.([0-9]{1,9})\.[0-9a-f]{16}\.part")
"""After the name of a page: the process that writes it, and what nobody can guess."""

_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}


def require_place(path: Path) -> None:
    """Before minutes go into loading data: of a new evidence file. Raises UsageError."""
    _require_directory(path)
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a directory")
    if path.is_symlink():
        raise UsageError(f"cannot write {path}: it is a symbolic link; name the file itself")
    if path.exists() and not path.is_file():
        raise UsageError(f"cannot write {path}: it is not a regular file; name another")
    if not path.exists():
        for end in _COMPANIONS:
            left = path.with_name(path.name + end)
            if os.path.lexists(left):
                raise UsageError(
                    f"{left} lies where SQLite would take it for a part of {path}: remove it, or name another"
                )


def require_place_of_text(path: Path, evidence: Path | None = None, *, force: bool = False) -> None:
    """Of a page: that it can be written, and that no file of somebody else's is lost. Raises UsageError.

    ``evidence`` is about to be made, and has a name of its own. ``force`` gives up other regular files.
    """
    if _descriptor(path) is not None:
        return
    _require_regular(path, evidence)
    if not force and not _may_be_replaced(path):
        raise UsageError(f"{path} was not written by pgdyno: name another file, or replace it with --force")


def require_summary(path: Path, evidence: Path | None = None) -> None:
    """Of a text that is appended to what is there, whoever wrote that. Raises UsageError."""
    if _descriptor(path) is None:
        _require_regular(path, evidence)


def _require_regular(path: Path, evidence: Path | None) -> None:
    _require_directory(path)
    if (evidence is not None and path.resolve() == evidence.resolve()) or _starts_with(path, _SQLITE):
        raise UsageError(f"{path} is evidence, which is never overwritten: name another file for the report")
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise UsageError(f"cannot write {path}: it is a symbolic link; name the file itself")
    if stat.S_ISDIR(mode):
        raise UsageError(f"cannot write {path}: it is a directory")
    if not stat.S_ISREG(mode):
        raise UsageError(f"cannot write {path}: it is not a regular file; name another, or /dev/stdout")
    # Root may write it in any case; who took the permission away did not want it written.
    if not mode & 0o222 or not os.access(path, os.W_OK):
        raise UsageError(f"cannot write {path}: it is write-protected; chmod u+w it, or name another file")


def _require_directory(path: Path) -> None:
    try:
        # The answer that counts is the file system's: root may write everywhere, but not on a read-only disk.
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}: name another file, or make the directory writable"
        ) from None


def _descriptor(path: Path) -> int | None:
    """Of ``/dev/stdout``, ``/dev/fd/3`` and the like: what is open already, and replaces no file."""
    text = str(path)
    numbered = re.fullmatch(r"/(?:dev|proc/self)/fd/([0-9]{1,9})", text)
    number = int(numbered[1]) if numbered else _STANDARD.get(text)
    if number is not None:
        try:
            os.fstat(number)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}: name a file") from None
    return number


def _may_be_replaced(path: Path) -> bool:
    """What is not there, empty, or a page of ours."""
    return not path.exists() or path.stat().st_size == 0 or MARK.encode() in _beginning(path)


def _starts_with(path: Path, begin: bytes) -> bool:
    # Nothing is read from a pipe or a device: that may wait for ever, or change it.
    return path.is_file() and _beginning(path).startswith(begin)


def _beginning(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MARK_WITHIN)
    except OSError:
        return b""


def _remove_parts_of_the_dead(path: Path) -> None:
    """What processes that were killed while they wrote this very file have left beside it."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        ours = _PART.fullmatch(part.name.removeprefix(f".{path.name}"))
        if ours and not psutil.pid_exists(int(ours[1])):
            part.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, force: bool = False) -> None:
    """At once, if it is a file: where the disk is full, what stood there still does.

    Whether it may be replaced is asked again, as minutes have gone by. Raises PgdynoError.
    """
    try:
        if (number := _descriptor(path)) is not None:
            _write_through(number, text)
            return
        require_place_of_text(path, force=force)
        _remove_parts_of_the_dead(path)
        # A name that nobody can guess and put a link at; "x" follows none and takes no file over.
        part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(8)}.part")
        try:
            with part.open("x", encoding="utf-8") as file:
                file.write(text)
            _put(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise PgdynoError(f"cannot write the report to {path}: {error.strerror}") from error


def _put(part: Path, path: Path) -> None:
    """Where there is a file, the new one has its mode and owner: who may read it stays the user's choice."""
    with contextlib.suppress(FileNotFoundError):
        before = path.lstat()
        part.chmod(stat.S_IMODE(before.st_mode))
        with contextlib.suppress(PermissionError):  # of a user who may not give files away
            os.chown(part, before.st_uid, before.st_gid)
    part.replace(path)


def append_text(path: Path, text: str) -> None:
    """To a regular file, or to what is open already. Raises PgdynoError."""
    try:
        if (number := _descriptor(path)) is not None:
            _write_through(number, text)
            return
        # Without O_NONBLOCK a pipe that came here meanwhile would be waited for.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o666), "w", encoding="utf-8") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise PgdynoError(f"cannot write the summary to {path}: it is not a regular file")
            file.write(text)
    except OSError as error:
        raise PgdynoError(f"cannot write the summary to {path}: {error.strerror}") from error


def _write_through(number: int, text: str) -> None:
    """Behind what was written there before: opened anew, a file would be cut to nothing."""
    with os.fdopen(os.dup(number), "w", encoding="utf-8") as file:
        file.write(text)
