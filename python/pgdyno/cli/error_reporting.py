"""Messages for errors: library errors as PgdynoError, unexpected ones in one line with a traceback file."""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import psycopg
from pydantic import ValidationError

from pgdyno import __version__
from pgdyno.cli.options import option_of_fields
from pgdyno.errors import PgdynoError, UsageError, plain_message
from pgdyno.results.password_masking import MASK, mask_passwords
from pgdyno.server.connections import NoAnswer
from pgdyno.server.directories import state_directory


def as_pgdyno_error(error: Exception) -> PgdynoError | None:
    """Return the error as PgdynoError; None for an unexpected one, which needs its traceback."""
    if isinstance(error, ValidationError):
        return UsageError(_first_complaint(error))
    if isinstance(error, psycopg.Error):
        # Reached only if no caller handled the error: the server's message, without the statement.
        if isinstance(error, NoAnswer):
            return PgdynoError(str(error))
        message = error.diag.message_primary or str(error).strip().partition("\n")[0]
        return PgdynoError(f"server error: {message}")
    return None


def _first_complaint(error: ValidationError) -> str:
    first = error.errors()[0]
    if first["type"] == "string_unicode":
        return f"{mask_passwords(str(first['input']))} is not UTF-8: use another name"
    text = plain_message(first["msg"])
    names = [place for place in first["loc"] if isinstance(place, str)]  # the others are list indexes
    return f"{option_of_fields(names)}: {text}" if names else text


EXIT_STATUS = 70
"""EX_SOFTWARE of sysexits.h: an internal error, distinct from every other status."""

KEPT_MAX = 20
"""Number of traceback files kept, so that a loop in a pipeline cannot fill the disk."""

TEXT_MAX = 1 << 20
"""Maximum length of a traceback; its end is kept. A message may contain megabytes of a server's response."""

_PREFIX, _SUFFIX = "traceback-", ".txt"
_SECRET_VARIABLES = ("PGPASSWORD", "PGSSLPASSWORD")


def unexpected(error: BaseException, arguments: Sequence[str]) -> str:
    """Return one line about an internal error, with the path of its traceback."""
    first = " ".join(_without_passwords(f"{type(error).__name__}: {error}").split())[:200].rstrip(": ")
    path = _written(_described(error, arguments))
    place = f"the traceback is in {path}" if path else "the traceback could not be written"
    return f"internal error ({first}): {place}; please report it"


def _described(error: BaseException, arguments: Sequence[str]) -> str:
    """Return version, command and traceback, without local variables, which may contain secrets."""
    trace = "".join(traceback.format_exception(error))[-TEXT_MAX:]
    lines = (
        f"pgdyno {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"command: {' '.join(['pgdyno', *arguments])}",
        trace,
    )
    return _without_passwords("\n".join(lines))


def _without_passwords(text: str, environ: Mapping[str, str] = os.environ) -> str:
    for name in _SECRET_VARIABLES:
        if secret := environ.get(name):
            text = text.replace(secret, MASK)
    return mask_passwords(text)


def _written(text: str) -> Path | None:
    """Write the text to the user's state directory, else to the temporary directory."""
    for folder in (state_directory(), Path(tempfile.gettempdir())):
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            # mkstemp creates a new file with mode 0600 and follows no symbolic link.
            stamp = time.strftime(f"{_PREFIX}%Y%m%d-%H%M%S-")
            descriptor, name = tempfile.mkstemp(_SUFFIX, stamp, folder)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
            _remove_oldest(folder)
            return Path(name)
    return None


def _remove_oldest(folder: Path) -> None:
    mine = [path for path in folder.glob(f"{_PREFIX}*{_SUFFIX}") if path.lstat().st_uid == os.geteuid()]
    for path in sorted(mine)[:-KEPT_MAX]:  # names start with the time
        path.unlink(missing_ok=True)
