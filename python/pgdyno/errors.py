"""The exceptions of pgdyno, as one tree.

::

    PgdynoError                 exit status 1: something failed
    ├── UsageError              exit status 2: the request itself is wrong
    │   ├── StudyFileError      a key of a study file, with its path
    │   └── EvidenceExistsError a results file would be overwritten
    ├── ServerError             a build or a running server
    │   ├── FetchError          a build could not be fetched or verified
    │   ├── BuildError          a build from source failed
    │   ├── StartError          a server did not start, or started with other settings than requested
    │   └── ConnectError        a server was not reachable, refused the connection, or is too old
    ├── EngineError             the engine could not be started, or failed
    ├── FleetError              a Ray cluster or one of its nodes
    ├── DiskFullError           the disk is full, or too small by a forecast
    ├── DatasetError            a dataset is missing, incomplete or wrong
    ├── EvidenceError           a results file is damaged, of another version, or in use
    └── Interrupted             the user asked to stop; measurements are kept

A message contains the failure, the offending value, and the remedy. Only ``cli`` prints errors and exits.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

CONDITION_MET = 3
"""Exit status if a condition of ``--fail-if`` is met."""

INCONCLUSIVE = 4
"""Exit status if results neither meet a condition nor rule it out, or a search finds no commit."""

MESSAGE_CHARS_MAX = 4000
"""Maximum length of a message: a server may send megabytes. On 80 columns it takes 50 lines."""


def shortened(text: str, chars_max: int = MESSAGE_CHARS_MAX) -> str:
    """Return the beginning of a text that is too long, and the number of omitted characters."""
    if len(text) <= chars_max:
        return text
    return f"{text[:chars_max]}… ({len(text) - chars_max:,} more characters)"


class PgdynoError(Exception):
    """Root of the exceptions. The text is one line for the user; a long one is shortened."""

    exit_status = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(shortened(message))


class UsageError(PgdynoError):
    """The request is wrong: an unknown version, profile, setting, option or file."""

    exit_status = 2


class StudyFileError(UsageError):
    """An error at one place of a study file. ``path`` has the keys and indexes of the place."""

    def __init__(self, path: tuple[str | int, ...], message: str) -> None:
        self.path, self.message = path, message
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
        super().__init__(f"{place.removeprefix('.')}: {message}" if path else message)


@contextlib.contextmanager
def naming(option: str) -> Iterator[None]:
    """Context in which a UsageError gets the name of the option or key that has the value."""
    try:
        yield
    except UsageError as error:
        message = str(error)
        raise UsageError(f"{option}{' ' if message.startswith('must ') else ': '}{message}") from None


def plain_message(message: str) -> str:
    """Convert ``Input should be a valid integer``, a message of pydantic, to ``must be an integer``."""
    text = message.partition(", unable to parse string as")[0]
    text = re.sub(
        r"(String|Tuple) should have at least 1 \w+( after validation, not 0)?", "must not be empty", text
    )
    text = re.sub(r"\b(String|Tuple|List|Dictionary) should\b", "must", text)
    for theirs, ours in (
        ("Value error, ", ""),
        ("Input should be", "must be"),
        ("a valid integer", "an integer"),
        ("a valid boolean", "true or false"),
        ("a valid string", "a string in quotes"),
        ("a valid number", "a number"),
        ("a valid tuple", "a list"),
        ("a valid array", "a list"),
        ("an object", "a table"),
        ("a valid dictionary", "a table"),
        ("Field required", "is missing"),
    ):
        text = text.replace(theirs, ours)
    return text


class EvidenceExistsError(UsageError):
    """The path of a new results file exists: pgdyno never overwrites one."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} exists already: use another name, or continue it with --resume {path}")


class ServerError(PgdynoError):
    """A build or a running server failed."""


class FetchError(ServerError):
    """A build could not be fetched, verified or unpacked."""


class BuildError(ServerError):
    """PostgreSQL could not be built from source."""


class StartError(ServerError):
    """A server did not start, or did not accept the requested settings."""


class ConnectError(ServerError):
    """A server was not reachable, refused the connection, or is too old."""


class EngineError(PgdynoError):
    """The engine could not be started, or ended without a result."""


class FleetError(PgdynoError):
    """A Ray cluster is not reachable, or a node is lost or unsuitable."""


class DiskFullError(PgdynoError):
    """The disk has too little free space."""


class DatasetError(PgdynoError):
    """A dataset is missing, incomplete, or of another workload or scale."""


class WorkloadError(PgdynoError):
    """Every transaction of a kind failed on an arm: a repetition would fail, too."""


class EvidenceError(PgdynoError):
    """A results file is damaged, has another version, or is in use by another pgdyno."""


class Interrupted(PgdynoError):
    """The user stopped the run. Completed measurements are in the results file.

    ``exit_status`` is that of the signal: 130 (SIGINT), 143 (SIGTERM), 129 (SIGHUP).
    """

    def __init__(self, message: str, exit_status: int = 130) -> None:
        super().__init__(message)
        self.exit_status = exit_status


def in_one_line(error: Exception | str) -> str:
    """Join the lines of a message without duplicates.

    libpq repeats a server's refusal for every address and every kind of encryption, a server log for every
    client.
    """
    unique: dict[str, str] = {}
    for part in shortened(str(error)).splitlines():
        for line in " ".join(part.split()).split(" / "):
            unique.setdefault(line.partition("FATAL: ")[2] or line, line)
    return " / ".join(line for line in unique.values() if line and not line.endswith("All failures were:"))
