"""Reading of a database with masked columns: the output of pg_dump goes through the masks to a file."""

from __future__ import annotations

import contextlib
import gzip
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg

from pgdyno.errors import DatasetError, UsageError
from pgdyno.server.build import read_tool_major
from pgdyno.server.dump_masking import DumpMasking
from pgdyno.server.mask_columns import masks_of, read_keys
from pgdyno.study.mask_rules import MaskRule

CHECK_S = 0.2
"""Interval of the check for an interrupt while pg_dump sends nothing."""

PIECE_BYTES = 1 << 20

DATABASE = (
    "SELECT to_jsonb(d), pg_encoding_to_char(encoding) FROM pg_database AS d "
    "WHERE datname = current_database()"
)
PROVIDERS = {"i": "icu", "b": "builtin", "c": "libc"}


class MaskedReading:
    """One reading. It reads the catalogs first. Raises UsageError for rules that do not fit."""

    def __init__(self, connection: psycopg.Connection[Any], rules: Sequence[MaskRule]) -> None:
        columns, keys = read_keys(connection)
        self.masks = masks_of(columns, keys, rules)
        if not self.masks:
            raise UsageError("--mask: all rules keep values: remove them")
        self._header = _header(connection)

    @property
    def labels(self) -> tuple[str, ...]:
        """The masked columns with their actions."""
        return tuple(
            f"{schema}.{table}.{column}={mask.action}"
            for (schema, table), masks in sorted(self.masks.items())
            for column, mask in sorted(masks.items())
        )

    def read(
        self,
        pg_dump: Path,
        arguments: Sequence[str],
        target: Path,
        timeout_s: float,
        check: Callable[[], None],
        *,
        is_part: bool,
    ) -> str:
        """Write the masked dump to the target. Return the messages of pg_dump if it failed; else empty.

        ``is_part``: tables may be left out. Large objects and statistics are not read: they contain values of
        rows. ``check`` may raise. Raises DatasetError, subprocess.TimeoutExpired.
        """
        command = [str(pg_dump), "--format=plain", "--encoding=UTF8", "--no-blobs", *arguments]
        if read_tool_major(pg_dump) >= 18:
            command.append("--no-statistics")
        masking = DumpMasking(self.masks)
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(
                command, bufsize=0, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
            ) as process,
        ):
            try:
                lines = masking.masked(_lines(process, command, time.monotonic() + timeout_s, check))
                with gzip.open(target, "wb", compresslevel=1) as file:
                    file.write(self._header.encode())
                    file.writelines(lines)
            except DatasetError:
                process.kill()
                process.wait()
                if message := _text_of(errors):
                    return message
                raise
            except BaseException:
                process.kill()
                raise
            if process.wait() != 0:
                return _text_of(errors) or "pg_dump failed"
        unseen = self.masks.keys() - masking.seen
        if unseen and not is_part:
            raise DatasetError(f"pg_dump did not read {'.'.join(min(unseen))}: read the database again")
        return ""


def _header(connection: psycopg.Connection[Any]) -> str:
    """Return a comment with encoding and locale of the database, as pg_dump --create writes them."""
    row = connection.execute(DATABASE.encode()).fetchone()
    assert row is not None
    facts: Mapping[str, Any] = row[0]
    provider = PROVIDERS.get(str(facts.get("datlocprovider", "c")), "libc")
    options = {"ENCODING": row[1], "LC_COLLATE": facts["datcollate"], "LC_CTYPE": facts["datctype"]}
    if provider != "libc":
        locale = facts.get("datlocale") or facts.get("daticulocale")
        options |= {"LOCALE_PROVIDER": provider, f"{provider.upper()}_LOCALE": locale}
    written = " ".join(f"{name} = '{value}'" for name, value in options.items())
    return f"-- CREATE DATABASE masked WITH TEMPLATE = template0 {written};\n"


def _lines(
    process: subprocess.Popen[bytes], command: Sequence[str], deadline_s: float, check: Callable[[], None]
) -> Iterator[bytes]:
    """Yield the lines of the output."""
    assert process.stdout is not None
    descriptor, rest = process.stdout.fileno(), b""
    while True:
        check()
        if time.monotonic() > deadline_s:
            raise subprocess.TimeoutExpired(list(command), 0)
        if not select.select([descriptor], [], [], CHECK_S)[0]:
            continue
        piece = os.read(descriptor, PIECE_BYTES)
        if not piece:
            break
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line + b"\n" for line in lines)
    if rest:
        yield rest


def _text_of(errors: Any) -> str:
    with contextlib.suppress(OSError):
        errors.seek(0)
        return str(errors.read(1 << 12).decode(errors="replace")).strip()
    return ""
