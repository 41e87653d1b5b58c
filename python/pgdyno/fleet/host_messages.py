"""Messages between the coordinator of a fleet study and its hosts."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from pgdyno.results.fleet_file import StudyChoices


class HostTask(BaseModel):
    """Work of one host. ``name``: unique name of its results file without suffix. ``cases``: empty for all.

    ``password``: value of PGPASSWORD for the processes of the study; never stored. ``snapshot_s``: minimum
    time between two snapshots of the results file during the study.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    study: str
    text: str
    choices: StudyChoices
    command: str
    cases: tuple[str, ...] = ()
    is_resumed: bool = False
    more_minutes: float | None = None
    password: str | None = None
    snapshot_s: float


class HostStatus(BaseModel):
    """Progress of one host. ``step``: current activity. ``total_s``: estimated total time, or None.

    ``blocks``: finished blocks in this run. ``standings``: interim results by case, as text.
    """

    step: str = "starting"
    case: str = ""
    block: int | None = None
    blocks: int = 0
    elapsed_s: float = 0.0
    total_s: float | None = None
    rate: float | None = None
    standings: dict[str, list[str]] = {}


@dataclass(frozen=True)
class Chunk:
    """A part of a snapshot. ``data``: compressed by zlib; ``digest``: BLAKE2b of the uncompressed bytes."""

    offset: int
    data: bytes
    digest: bytes


@dataclass(frozen=True)
class SnapshotEnd:
    """All changed chunks of a snapshot were sent. ``digest``: BLAKE2b of the whole file."""

    size_bytes: int
    digest: bytes


@dataclass(frozen=True)
class HostEnd:
    """The study of a host ended. ``ending``: its StudyEnd; empty after an error, which ``error`` has."""

    ending: str
    error: str = ""


@dataclass(frozen=True)
class HostMessage:
    """Answer of a host to a poll. ``number``: the next poll acknowledges it; otherwise it is sent again."""

    number: int
    status: HostStatus
    warnings: list[str] = field(default_factory=list)
    chunk: Chunk | None = None
    snapshot_end: SnapshotEnd | None = None
    end: HostEnd | None = None
