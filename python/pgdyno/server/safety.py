"""Safety of the effective settings of a server, as badges: durability, backup and maintenance.

A pure function of the settings as ``SHOW`` prints them (``Server.effective``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgdyno.results.records import Guarantee, Kept
from pgdyno.units import format_size, parse_duration_s, parse_size_bytes


@dataclass(frozen=True)
class Safety:
    """The badges by their keys in JSON, in the order of output, and the distance of checkpoints as text."""

    badges: Mapping[str, Guarantee]
    checkpoint_distance: str

    @property
    def given_up(self) -> dict[str, Guarantee]:
        """Badges that are not fully kept."""
        return {key: badge for key, badge in self.badges.items() if badge.kept is not Kept.YES}


def safety(effective: Mapping[str, str]) -> Safety:
    """Return the safety of the settings. A setting that is missing (not readable) makes its badge unknown."""
    badges = {}
    for key, name, needed in _BADGES:
        kept, reason = Kept.YES, ""
        if any(setting not in effective for setting in needed):
            kept, reason = Kept.UNKNOWN, f"{' or '.join(needed)} is unknown"
        elif broken := [rule for rule in _RULES if rule[0] == key and effective.get(rule[1]) == rule[2]]:
            _, setting, value, kept, words = broken[0]
            words = words.format(delay=_delay(effective)) if setting == "synchronous_commit" else words
            reason = f"{words}, as {setting} is {value}" if words else f"{setting} is {value}"
        elif key == "point-in-time" and (reason := _not_archived(effective)):
            kept = Kept.NO
        elif key == "checksums" and effective["data_checksums"] != "on":
            kept, reason = Kept.NO, "corruption on disk is not detected"
        badges[key] = Guarantee(name, kept, reason)
    return Safety(badges, _checkpoint_distance(effective))


def _delay(effective: Mapping[str, str]) -> str:
    # PostgreSQL manual, synchronous_commit: the delay is at most three times wal_writer_delay.
    delay_s = parse_duration_s(effective.get("wal_writer_delay", "200ms"), bare="ms")
    return f"up to {3 * delay_s * 1000:g} ms"


# Commands that report success without storing WAL: a common way to make archive_mode cheap in a benchmark.
_DISCARDING = frozenset({"true", "/bin/true", "/usr/bin/true", ":", "cd .", "exit 0"})


def _not_archived(effective: Mapping[str, str]) -> str:
    command = effective.get("archive_command", "").strip()
    if effective.get("archive_library", "") == "" and command in ("", "(disabled)"):
        return "archive_mode is on without archive_command: WAL accumulates"
    return f"archive_command is {command!r}: it stores no WAL" if command in _DISCARDING else ""


_BADGES: Sequence[tuple[str, str, tuple[str, ...]]] = (
    ("process-crash", "survives a crash of the server", ("synchronous_commit",)),
    ("power-loss", "survives a crash of the system or a power loss", ("fsync", "synchronous_commit")),
    ("torn-pages", "torn-page protection", ("full_page_writes", "fsync")),
    ("replication", "can be replicated", ("wal_level", "max_wal_senders")),
    ("point-in-time", "can be restored to a point in time", ("wal_level", "archive_mode")),
    ("autovacuum", "autovacuum is on", ("autovacuum",)),
    ("checksums", "data pages have checksums", ("data_checksums",)),
)
"""Key, name and needed settings of each badge, in their order of output."""

_LOST = "{delay} of commits are lost; the rest stays consistent"
_STALE = "tables bloat, and statistics become stale"
_RULES: Sequence[tuple[str, str, str, Kept, str]] = (
    ("process-crash", "synchronous_commit", "off", Kept.PARTLY, _LOST),
    ("power-loss", "fsync", "off", Kept.NO, "the cluster may be corrupted beyond repair"),
    ("power-loss", "synchronous_commit", "off", Kept.PARTLY, _LOST),
    ("torn-pages", "full_page_writes", "off", Kept.NO, "safe only if the disk writes pages atomically"),
    ("torn-pages", "fsync", "off", Kept.NO, "full-page images may be missing on disk, too"),
    ("replication", "wal_level", "minimal", Kept.NO, "replicas need replica or logical"),
    ("replication", "max_wal_senders", "0", Kept.NO, "no replica can connect"),
    ("point-in-time", "wal_level", "minimal", Kept.NO, ""),
    ("point-in-time", "archive_mode", "off", Kept.PARTLY, "only with a program such as pg_receivewal"),
    ("autovacuum", "autovacuum", "off", Kept.NO, _STALE),
    ("autovacuum", "track_counts", "off", Kept.NO, _STALE),
)
"""Badge, setting, value with which it is not kept, and the reason. The first rule of a badge applies."""


def _checkpoint_distance(effective: Mapping[str, str]) -> str:
    timeout, size = effective.get("checkpoint_timeout"), effective.get("max_wal_size")
    if timeout is None or size is None:
        return "unknown"
    return f"every {timeout}, or earlier to keep WAL below {format_size(parse_size_bytes(size))}"
