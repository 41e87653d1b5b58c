"""State of a fleet study in NAME.fleet.json: its study, and the results file of each host.

It is enough to resume a fleet study, and to report it.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pgdyno.errors import EvidenceError
from pgdyno.server.directories import renew

SUFFIX = ".fleet.json"
RECORD_BYTES_MAX = 64 << 20
"""Maximum size of a file; that of 10,000 hosts is smaller."""


class HostState(StrEnum):
    """State of the work of one host. All except MEASURING are final."""

    MEASURING = "measuring"
    DONE = "done"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    LOST = "lost"


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StudyChoices(_Value):
    """Options of ``pgdyno run`` that every host applies to the study file."""

    fit: bool = False
    anyway: bool = False
    minutes: float | None = None
    nearest: bool = False
    no_aa: bool = False
    into_existing: bool = False
    data: str | None = None


class HostWork(_Value):
    """The cases that one host measures into one file. ``cases``: empty for all cases of the study.

    ``reason``: why the work failed or was lost, or why its last blocks were not collected. ``is_collected``:
    the file is in the directory of the record. ``is_moved``: another host measures these cases from the
    beginning. ``has_begun``: the host has accepted the work, so that a file of this name there is its own.
    """

    host: str
    file: str = Field(pattern=r"^[^/\x00]*[^/\x00.][^/\x00]*$")  # beside the record: neither . nor ..
    cases: tuple[str, ...] = ()
    state: HostState = HostState.MEASURING
    reason: str = ""
    is_collected: bool = False
    is_moved: bool = False
    has_begun: bool = True  # also in records of versions without it


class FleetStudy(_Value):
    """A study. ``study``: name of the study file; ``text``: its content; ``command``: command line."""

    title: str
    study: str
    text: str
    choices: StudyChoices
    command: str


class FleetRecord(FleetStudy):
    """A study and the works of its hosts."""

    works: tuple[HostWork, ...]


def read_fleet(path: Path) -> FleetRecord:
    """Return the record of a fleet study. Raises EvidenceError: no such file, damaged."""
    try:
        if path.stat().st_size > RECORD_BYTES_MAX:
            raise EvidenceError(f"{path} is larger than any record of a fleet study: check the name")
        return FleetRecord.model_validate_json(path.read_bytes())
    except OSError as error:
        raise EvidenceError(f"cannot read {path}: {error.strerror}: check the name") from error
    except ValidationError as error:
        message = error.errors()[0]["msg"]
        raise EvidenceError(f"{path} is damaged ({message}): report its results files instead") from error


def write_fleet(path: Path, record: FleetRecord) -> None:
    """Write the record atomically."""
    renew(path, record.model_dump_json(indent=1))
