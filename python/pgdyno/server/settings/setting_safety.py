"""Safety of the effective settings of a server, as badges: durability, backup and maintenance.

A pure function of the settings as ``SHOW`` prints them (``Server.effective``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pgdyno.units import format_size, parse_duration_s, parse_size_bytes

Kept = Literal["yes", "partly", "no", "unknown"]


@dataclass(frozen=True)
class SafetyProperty:
    """One property: its stable key for JSON, its name for output, whether it is kept, and the reason if
    not."""

    key: str
    name: str
    kept: Kept
    reason: str = ""


@dataclass(frozen=True)
class Safety:
    """The badges in their order of output, and the distance between checkpoints as text."""

    badges: tuple[SafetyProperty, ...]
    checkpoint_distance: str

    @property
    def given_up(self) -> tuple[SafetyProperty, ...]:
        """Badges that are not fully kept."""
        return tuple(badge for badge in self.badges if badge.kept != "yes")

    def kept(self, key: str) -> Kept:
        """Return whether the badge with that key is kept."""
        return next(badge.kept for badge in self.badges if badge.key == key)


def safety(effective: Mapping[str, str]) -> Safety:
    """Return the safety of the settings. A setting that is missing (not readable) makes its badge unknown."""
    badges = [
        _process_crash(effective),
        _power_loss(effective),
        _torn_pages(effective),
        _replicated(effective),
        _point_in_time(effective),
        _autovacuum(effective),
        _checksums(effective),
    ]
    return Safety(tuple(badges), _checkpoint_distance(effective))


def _lost_commits(effective: Mapping[str, str]) -> str:
    # PostgreSQL manual, synchronous_commit: the delay is at most three times wal_writer_delay.
    delay_s = parse_duration_s(effective.get("wal_writer_delay", "200ms"), bare="ms")
    return f"synchronous_commit is off: up to {3 * delay_s * 1000:g} ms of acknowledged commits are lost"


def _process_crash(effective: Mapping[str, str]) -> SafetyProperty:
    key, name = "process-crash", "survives a crash of the server"
    match effective.get("synchronous_commit"):
        case None:
            return SafetyProperty(key, name, "unknown", "synchronous_commit is unknown")
        case "off":
            return SafetyProperty(key, name, "partly", _lost_commits(effective))
        case _:
            return SafetyProperty(key, name, "yes")


def _power_loss(effective: Mapping[str, str]) -> SafetyProperty:
    key, name = "power-loss", "survives a crash of the system or a power loss"
    if "fsync" not in effective or "synchronous_commit" not in effective:
        return SafetyProperty(key, name, "unknown", "fsync or synchronous_commit is unknown")
    if effective["fsync"] == "off":
        return SafetyProperty(key, name, "no", "fsync is off: the cluster may be corrupted beyond repair")
    if effective["synchronous_commit"] == "off":
        return SafetyProperty(key, name, "partly", _lost_commits(effective) + "; the rest stays consistent")
    return SafetyProperty(key, name, "yes")


def _torn_pages(effective: Mapping[str, str]) -> SafetyProperty:
    key, name = "torn-pages", "torn-page protection"
    if "full_page_writes" not in effective or "fsync" not in effective:
        return SafetyProperty(key, name, "unknown", "full_page_writes or fsync is unknown")
    if effective["full_page_writes"] == "off":
        return SafetyProperty(
            key, name, "no", "full_page_writes is off: safe only if the disk writes pages atomically"
        )
    if effective["fsync"] == "off":
        return SafetyProperty(key, name, "no", "fsync is off: full-page images may be missing on disk, too")
    return SafetyProperty(key, name, "yes")


def _wal_is_minimal(effective: Mapping[str, str]) -> bool:
    return effective.get("wal_level") == "minimal"


def _replicated(effective: Mapping[str, str]) -> SafetyProperty:
    key, name = "replication", "can be replicated"
    if "wal_level" not in effective or "max_wal_senders" not in effective:
        return SafetyProperty(key, name, "unknown", "wal_level or max_wal_senders is unknown")
    if _wal_is_minimal(effective):
        return SafetyProperty(key, name, "no", "wal_level is minimal: replicas need replica or logical")
    if effective["max_wal_senders"] == "0":
        return SafetyProperty(key, name, "no", "max_wal_senders is 0: no replica can connect")
    return SafetyProperty(key, name, "yes")


# Commands that report success without storing WAL: a common way to make archive_mode cheap in a benchmark.
_DISCARDING = frozenset({"true", "/bin/true", "/usr/bin/true", ":", "cd .", "exit 0"})


def _point_in_time(effective: Mapping[str, str]) -> SafetyProperty:
    key, name = "point-in-time", "can be restored to a point in time"
    if "wal_level" not in effective or "archive_mode" not in effective:
        return SafetyProperty(key, name, "unknown", "wal_level or archive_mode is unknown")
    if _wal_is_minimal(effective):
        return SafetyProperty(key, name, "no", "wal_level is minimal")
    if effective["archive_mode"] == "off":
        return SafetyProperty(
            key, name, "partly", "archive_mode is off: only with a program such as pg_receivewal"
        )
    command = effective.get("archive_command", "").strip()
    if effective.get("archive_library", "") == "" and command in ("", "(disabled)"):
        return SafetyProperty(key, name, "no", "archive_mode is on without archive_command: WAL accumulates")
    if command in _DISCARDING:
        return SafetyProperty(key, name, "no", f"archive_command is {command!r}: it stores no WAL")
    return SafetyProperty(key, name, "yes")


def _autovacuum(effective: Mapping[str, str]) -> SafetyProperty:
    key, name = "autovacuum", "autovacuum is on"
    if "autovacuum" not in effective:
        return SafetyProperty(key, name, "unknown", "autovacuum is unknown")
    for setting in ("autovacuum", "track_counts"):
        if effective.get(setting) == "off":
            return SafetyProperty(
                key, name, "no", f"{setting} is off: tables bloat, and statistics become stale"
            )
    return SafetyProperty(key, name, "yes")


def _checksums(effective: Mapping[str, str]) -> SafetyProperty:
    key, name = "checksums", "data pages have checksums"
    match effective.get("data_checksums"):
        case "on":
            return SafetyProperty(key, name, "yes")
        case None:
            return SafetyProperty(key, name, "unknown", "data_checksums is unknown")
        case _:
            return SafetyProperty(key, name, "no", "corruption on disk is not detected")


def _checkpoint_distance(effective: Mapping[str, str]) -> str:
    timeout, size = effective.get("checkpoint_timeout"), effective.get("max_wal_size")
    if timeout is None or size is None:
        return "unknown"
    return f"every {timeout}, or earlier to keep WAL below {format_size(parse_size_bytes(size))}"
