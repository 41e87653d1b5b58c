"""WAL of the measured part by type of record: the probe ``wal_records``.

pg_waldump of the server's build reads the files, or that of another build of its major version here.
Without one, or if the server's files are not here, the extension pg_walinspect (15) is needed. It is created
before the clients connect, because that writes WAL.
Both run after the measured part, and read its last READ_BYTES_MAX at most: a checkpoint may have removed what
is older.
"""

from __future__ import annotations

import contextlib
import functools
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg

from pgdyno.errors import ServerError, in_one_line
from pgdyno.measure.arms import Connection, LabArm, brief_session
from pgdyno.measure.drive import Targets
from pgdyno.measure.server_probes import Row
from pgdyno.measure.telemetry_collection import ProbeError, ProbeKind
from pgdyno.measure.trial import Lab, RunningTrial
from pgdyno.server.builds import Build, read_build
from pgdyno.server.cache_directory import Cache
from pgdyno.study.plan import Study
from pgdyno.study.schedule import PlannedBlock

READ_BYTES_MAX = 256 << 20
"""WAL that is read per trial at most. pg_waldump took 1.1 s for 272 MB, beside other load."""

READ_S_MAX = 120.0

READ_SHARE_MIN = 0.8
"""Least share of the WAL that must be read if pg_waldump ends with an error."""

_TYPE = re.compile(r"^(\S+)\s+(\d+)\s+\([^)]*\)\s+(\d+)\s+\([^)]*\)\s+(\d+)\s+\(")
_SEGMENT = re.compile(r"^[0-9A-F]{24}$")


@dataclass
class WalReader:
    """The probe while it runs. ``begin`` and ``end``: WAL positions around the measured part, in bytes."""

    arm: LabArm
    begin: int
    end: int | None = None

    @classmethod
    def start(cls, arm: LabArm, _study: Study) -> WalReader:
        """Note the position. Raises ProbeError."""
        if arm.shares_server:
            raise ProbeError("the server writes the WAL of several arms together")
        try:
            with brief_session(arm) as connection:
                if _waldump(arm) is None:
                    _require_walinspect(connection)
                return cls(arm, _position(connection))
        except (psycopg.Error, ServerError) as error:
            raise ProbeError(in_one_line(error)) from None

    def halt(self) -> None:
        """Note the position. After an error ``stop`` asks again."""
        with contextlib.suppress(psycopg.Error, ServerError), brief_session(self.arm) as connection:
            self.end = _position(connection)

    def stop(self) -> Sequence[Row]:
        """Return a row of facts, then one per type of record. Raises ProbeError."""
        try:
            with brief_session(self.arm) as connection:
                end = _position(connection) if self.end is None else self.end
                found = _waldump(self.arm)
                segment = int(_value(connection, "SELECT pg_size_bytes(current_setting('wal_segment_size'))"))
                # An error about removed WAL would be in the server log, and exclude the trial.
                files = _files(connection) if found is None else [path.name for path in found[1].iterdir()]
                begin = first_readable(files, max(self.begin, end - READ_BYTES_MAX), end, segment)
                if found is None:
                    types = _by_walinspect(connection, begin, end)
                else:
                    program, folder = found
                    timeline = int(_value(connection, "SELECT timeline_id FROM pg_control_checkpoint()"))
                    types = _by_waldump(program, folder, timeline, begin, end)
        except (psycopg.Error, ServerError) as error:
            raise ProbeError(in_one_line(error)) from None
        return [{"wal_bytes": end - self.begin, "read_bytes": end - begin}, *types]

    def give_up(self) -> None:
        """Nothing runs in between."""


def _value(connection: Connection, query: str) -> str:
    row = connection.execute(f"/* pgdyno probe */ {query}".encode()).fetchone()
    return str(row[0]) if row else ""


def _files(connection: Connection) -> list[str]:
    rows = connection.execute(b"/* pgdyno probe */ SELECT name FROM pg_ls_waldir()").fetchall()
    return [str(name) for (name,) in rows]


def _position(connection: Connection) -> int:
    """Return the position up to which the WAL is in the files."""
    return int(_value(connection, "SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint"))


def _waldump(arm: LabArm) -> tuple[Path, Path] | None:
    """Return pg_waldump for the server's build and the directory of its WAL; None if one is missing."""
    pid, data = arm.postmaster_pid(), arm.data_path()
    if pid is None or data is None:
        return None
    program = waldump_of(Path(f"/proc/{pid}/exe").resolve().parent)
    folder = data / "pg_wal"
    return (program, folder) if program and folder.is_dir() else None


@functools.cache
def waldump_of(bin_dir: Path) -> Path | None:
    """Return pg_waldump of a build, or of any other of its major version, whose WAL has the same format."""
    own = read_build(bin_dir, "directory", "")
    builds = [own, *(one for one in Cache.open().store().here() if _is_alike(one, own))]
    return next((build.program("pg_waldump") for build in builds if build.has("pg_waldump")), None)


def _is_alike(build: Build, own: Build) -> bool:
    """Return whether both have the same format of WAL. Pre-releases may change it."""
    a, b = build.version, own.version
    return a.major == b.major and not (a.stage or b.stage)


def add_walinspect(
    lab: Lab, _block: PlannedBlock, trials: Mapping[int, RunningTrial], _targets: Targets
) -> None:
    """Create the extension in restored data without pg_waldump. The probe reports a missing one."""
    for trial in trials.values() if "wal_records" in lab.study.probes else ():
        if trial.arm.is_restored() and _waldump(trial.arm) is None:
            with contextlib.suppress(psycopg.Error, ServerError), trial.arm.connect() as connection:
                connection.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")


def _require_walinspect(connection: Connection) -> None:
    """Raise ProbeError unless the extension is there."""
    version = connection.info.server_version // 10000
    no_program = f"no pg_waldump of {version} is on this machine, or the server's files are not"
    if version < 15:
        raise ProbeError(f"{no_program}: build it (`pgdyno servers build {version} --source …`)")
    if not _value(connection, "SELECT 1 FROM pg_extension WHERE extname = 'pg_walinspect'"):
        raise ProbeError(f"{no_program}: install the extension pg_walinspect in the database")


def first_readable(files: Sequence[str], begin: int, end: int, segment_bytes: int) -> int:
    """Return the first position from ``begin`` on from which all segments up to ``end`` exist.

    ``files``: names in the directory of the WAL. Raises ProbeError if the last one is missing.
    """
    per_file = (1 << 32) // segment_bytes
    there = {int(name[8:16], 16) * per_file + int(name[16:], 16) for name in files if _SEGMENT.match(name)}
    number = max(begin, end - 1) // segment_bytes
    if number not in there:
        raise ProbeError("the WAL of the measured part is no longer in pg_wal: increase wal_keep_size")
    while number - 1 in there and number * segment_bytes > begin:
        number -= 1
    return max(begin, number * segment_bytes)


def _by_waldump(program: Path, folder: Path, timeline: int, begin: int, end: int) -> list[Row]:
    if begin == end:
        return []
    command = [str(program), "--stats=record", "-p", str(folder), "-t", str(timeline)]
    command += ["-s", lsn(begin), "-e", lsn(end)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=READ_S_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise ProbeError(f"pg_waldump timed out after {READ_S_MAX:g} s") from None
    found = types_of(done.stdout)
    # An end within a record is an error, too, after nearly everything was read. Padding and page headers are
    # in no record.
    read = sum(int(row[column] or 0) for row in found for column in ("record_bytes", "image_bytes"))
    if not found or (done.returncode and read < READ_SHARE_MIN * (end - begin)):
        words = " ".join(done.stderr.split())
        raise ProbeError(f"pg_waldump failed: {words[:200] or 'no error message'}")
    return found


def types_of(text: str) -> list[Row]:
    """Return a row per type in the output of ``pg_waldump --stats=record``."""
    found = (_TYPE.match(line) for line in text.splitlines())
    return [_row(one[1], *map(int, one.group(2, 3, 4))) for one in found if one and one[1] != "Total"]


def _by_walinspect(connection: Connection, begin: int, end: int) -> list[Row]:
    if begin == end:
        return []
    rows = connection.execute(
        'SELECT /* pgdyno probe */ "resource_manager/record_type", count, record_size, fpi_size'
        " FROM pg_get_wal_stats(%s::pg_lsn, %s::pg_lsn, true) WHERE count > 0",
        (lsn(begin), lsn(end)),
    ).fetchall()
    return [_row(str(name), int(n), int(of_records), int(images)) for name, n, of_records, images in rows]


def _row(name: str, n: int, record_bytes: int, image_bytes: int) -> Row:
    return {"type": name, "n": n, "record_bytes": record_bytes, "image_bytes": image_bytes}


def lsn(position: int) -> str:
    """Return a position in bytes as PostgreSQL prints it: ``1/2A000028``."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


PROBE = ProbeKind("wal_records", start=WalReader.start)
