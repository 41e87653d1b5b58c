"""Every error that pgdyno raises on purpose, as one tree.

::

    PgdynoError                 exit status 1: something failed
    ├── UsageError              exit status 2: the request itself is wrong
    │   ├── StudyFileError      a key of a study file, with its path
    │   └── EvidenceExistsError evidence would have to be overwritten
    ├── ServerError             a build or a running server
    │   ├── FetchError          a build could not be fetched or verified
    │   ├── StartError          a server did not start, or started with other settings than asked
    │   └── ConnectError        a server was not reachable, refused us, or is too old
    ├── EngineError             the engine could not be started, or ended badly
    ├── DiskFullError           a forecast or a write says that the disk cannot hold it
    ├── DatasetError            a dataset is missing, half-made or not what it should be
    ├── EvidenceError           an evidence file is damaged, of another version, or in use
    └── Interrupted             the user asked to stop; what was measured is kept

A message says what failed, on what, and what to do about it. Only ``cli`` prints errors and exits.
"""

from __future__ import annotations

from pathlib import Path

MESSAGE_CHARS_MAX = 4000
"""Of an error message: a server may send megabytes as one. A terminal of 80 columns shows 50 lines of it."""


def shortened(text: str, chars_max: int = MESSAGE_CHARS_MAX) -> str:
    """Return the beginning of a text that is too long, and how much is left out."""
    if len(text) <= chars_max:
        return text
    return f"{text[:chars_max]}… ({len(text) - chars_max:,} more characters)"


class PgdynoError(Exception):
    """The root: something failed. The text is one line, fit to be shown; a long one is shortened."""

    exit_status = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(shortened(message))


class UsageError(PgdynoError):
    """The request is wrong: an unknown version, profile, setting, option or file."""

    exit_status = 2


class StudyFileError(UsageError):
    """What is wrong at one place of a study file. ``path``: the keys and indexes that lead there."""

    def __init__(self, path: tuple[str | int, ...], message: str) -> None:
        self.path, self.message = path, message
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
        super().__init__(f"{place.removeprefix('.')}: {message}" if path else message)


class EvidenceExistsError(UsageError):
    """New evidence was to be written where there is a file: nothing is ever overwritten."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} exists already: name another file, or continue it with --resume {path}")


class ServerError(PgdynoError):
    """A build or a running server failed us."""


class FetchError(ServerError):
    """A build could not be fetched, verified or unpacked."""


class StartError(ServerError):
    """A server did not start, or did not take the settings that were asked for."""


class ConnectError(ServerError):
    """A server was not reachable, refused the connection, or is too old."""


class EngineError(PgdynoError):
    """The engine could not be started, or ended without a result."""


class DiskFullError(PgdynoError):
    """The disk cannot hold what was asked for."""


class DatasetError(PgdynoError):
    """A dataset is missing, half-made, or not of the workload and scale asked for."""


class EvidenceError(PgdynoError):
    """An evidence file is damaged, of another version, or held by another pgdyno."""


class Interrupted(PgdynoError):
    """The user asked to stop. What was measured until then is in the evidence.

    ``exit_status`` is that of the signal: 130 (SIGINT), 143 (SIGTERM), 129 (SIGHUP).
    """

    def __init__(self, message: str, exit_status: int = 130) -> None:
        super().__init__(message)
        self.exit_status = exit_status


def in_one_line(error: Exception | str) -> str:
    """A message of several lines, each thing said once: libpq repeats a server's refusal for every address
    and every kind of encryption that it tried, a server's log for every client.
    """
    said: dict[str, str] = {}
    for part in shortened(str(error)).splitlines():
        for line in " ".join(part.split()).split(" / "):
            said.setdefault(line.partition("FATAL: ")[2] or line, line)
    return " / ".join(line for line in said.values() if line and not line.endswith("All failures were:"))
