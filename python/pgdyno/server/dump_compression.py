"""Compressed SQL files: gzip, bzip2, xz, zip, and zstd and lz4 by their programs."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import shutil
import subprocess
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pgdyno.errors import DatasetError, UsageError
from pgdyno.server.server_account import OURSELVES
from pgdyno.server.server_process import tool_lines

UNPACK_TIMEOUT_S = 6 * 3600.0
ARCHIVE, TAR = b"PGDMP", b"ustar"
HEAD_BYTES = 512

_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"PK\3\4": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\x1f\x9d": "uncompress",
    b"7z\xbc\xaf\x27\x1c": "7z",
}
"""First bytes of a file, and its compression."""

_COMMANDS = {
    "gzip": "gzip -dk",
    "bzip2": "bzip2 -dk",
    "xz": "xz -dk",
    "zip": "unzip",
    "zstd": "zstd -d",
    "lz4": "lz4 -d",
    "uncompress": "uncompress -k",
    "7z": "7z x",
}
"""Commands that unpack a file."""

_BY_PROGRAM = frozenset({"zstd", "lz4"})


def is_archive(head: bytes) -> bool:
    """Return whether a file with these first bytes is an archive of pg_dump."""
    return head.startswith(ARCHIVE) or head[257:262] == TAR


def compression_of(path: Path) -> str:
    """Return the compression of a file; empty if unknown. Raises OSError."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "")


def require_readable(path: Path, compression: str) -> None:
    """Raise UsageError, with the command that unpacks the file, unless pgdyno can read it."""
    unpack = f"unpack it with {_COMMANDS[compression]} {path}"
    if compression in ("uncompress", "7z"):
        raise UsageError(f"--data: {path} is compressed in a way that pgdyno does not read: {unpack}")
    if compression in _BY_PROGRAM and shutil.which(compression) is None:
        raise UsageError(
            f"--data: {path} needs {compression}, which is not installed: install it, or {unpack}"
        )
    try:
        head = b"".join(_first(lines_of_plain_dump(path), HEAD_BYTES))
    except DatasetError as error:
        raise UsageError(f"--data: {error}") from None
    if is_archive(head):
        raise UsageError(f"--data: {path} is a compressed archive of pg_dump: {unpack}")
    if b"\0" in head:
        raise UsageError(f"--data: {path} contains neither a dump of pg_dump nor SQL")


def _first(lines: Iterator[bytes], size_bytes: int) -> Iterator[bytes]:
    for line in lines:
        yield line
        size_bytes -= len(line)
        if size_bytes <= 0:
            return


def lines_of_plain_dump(path: Path) -> Iterator[bytes]:
    """Yield the lines of an SQL file, which may be compressed. Raises DatasetError."""
    try:
        yield from _lines(path, compression_of(path))
    except subprocess.CalledProcessError as error:
        raise DatasetError(f"cannot read {path}: {error.stderr.strip()}") from None
    except (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, RuntimeError) as error:
        raise DatasetError(f"cannot read {path}: {error}") from error


def _lines(path: Path, compression: str) -> Iterator[bytes]:
    if compression == "zip":
        with zipfile.ZipFile(path) as packed:
            names = [info.filename for info in packed.infolist() if not info.is_dir()]
            if len(names) != 1:
                raise DatasetError(f"{path} contains {len(names)} files: unpack it with unzip {path}")
            with packed.open(names[0]) as file:
                yield from file
    elif compression in _BY_PROGRAM:
        command = [shutil.which(compression) or compression, "-dc", str(path)]
        with contextlib.closing(tool_lines(command, OURSELVES, UNPACK_TIMEOUT_S)) as lines:
            yield from lines
    else:
        with _OPEN.get(compression, Path.open)(path, "rb") as file:
            yield from file


_OPEN: Mapping[str, Callable[[Path, Any], Any]] = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}
