"""Check of the server log after a trial: every entry at WARNING or above must be expected.

The log is stderr of PostgreSQL 10 to 18, in English, with any log_line_prefix that ends before the severity.
The list of expected entries is fixed. Entries for events that the driver counts, too, must not exceed its
counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pgdyno.results.records import Check

QUOTED_MAX = 3
QUOTED_CHARACTERS_MAX = 300
"""Maximum length of a quoted entry: statements in a log have any length."""

ENTRY = re.compile(
    r"^(?P<prefix>(?!\t).*?)(?P<severity>DEBUG\d?|LOG|INFO|NOTICE|WARNING|ERROR|FATAL|PANIC"
    r"|DETAIL|HINT|STATEMENT|CONTEXT|QUERY|LOCATION|BACKTRACE):  ?(?P<message>.*)$"
)
LOG_CHECK = "server log"

GRAVE_CHARACTERS_MAX = 160

DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded|wrote only \d+ of \d+ bytes")

SEVERE = frozenset({"WARNING", "ERROR", "FATAL", "PANIC"})
STOP_REQUEST = re.compile(r"received (smart|fast|immediate) shutdown request")

LOG_OF_A_DEATH = re.compile(
    r"was terminated by signal|was terminated by exception|terminating any other active server processes"
    r"|all server processes terminated; reinitializing|was interrupted|was not properly shut down"
)
"""PostgreSQL reports crashes of processes, and the recovery after them, at severity LOG."""


@dataclass(frozen=True)
class Expected:
    """Expected entries. ``when``: always, after a shutdown request, or at most as many as the driver counted
    under that name."""

    severity: str
    message: re.Pattern[str]
    when: Literal["always", "stopping"] | str


EXPECTED = (
    Expected("ERROR", re.compile(r"item number is not valid"), "rolled_back"),
    Expected("ERROR", re.compile(r"could not serialize access|deadlock detected"), "conflicts"),
    Expected("ERROR", re.compile(r"canceling statement due to user request"), "failed"),
    Expected("ERROR", re.compile(r"canceling autovacuum task"), "always"),
    Expected("FATAL", re.compile(r"the database system is (starting up|shutting down)"), "always"),
    Expected("FATAL", re.compile(r"terminating .* due to administrator command"), "stopping"),
    Expected("FATAL", re.compile(r"terminating .* due to immediate shutdown"), "stopping"),
    Expected("WARNING", re.compile(r"terminating connection"), "stopping"),
)


EXPECTED_OF_ANY_SCRIPT = (
    Expected("WARNING", re.compile(r"^(?!terminating connection)"), "always"),
    Expected("ERROR", re.compile(r""), "failed"),
)
"""Further expected entries of user scripts: warnings, and an error for each failed transaction."""


@dataclass(frozen=True)
class LogMessage:
    """One message of the log, without its DETAIL, HINT, CONTEXT and STATEMENT."""

    severity: str
    message: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.message}"[:QUOTED_CHARACTERS_MAX]


def entries(log: str) -> Iterator[LogMessage]:
    """Yield the messages of a log. A line of unknown format, for example an error of a library, has the
    severity UNKNOWN."""
    for line in log.splitlines():
        found = ENTRY.match(line)
        if found:
            yield LogMessage(found["severity"], found["message"])
        elif line.strip() and not line.startswith("\t"):
            yield LogMessage("UNKNOWN", line)


def check_log(log: str, counted: Mapping[str, int], expected: Sequence[Expected] = EXPECTED) -> Check:
    """Check that the log has no unexpected entries.

    ``counted``: counts of the driver: ``rolled_back`` (by design), ``conflicts`` (attempts that ended in a
    serialization failure or a deadlock), ``failed`` transactions. Missing ones are 0.
    """
    left = Counter(counted)
    unexpected: list[LogMessage] = []
    seen, stopping = 0, False
    for entry in entries(log):
        seen += 1
        stopping = stopping or (entry.severity == "LOG" and STOP_REQUEST.search(entry.message) is not None)
        if not _is_expected(entry, left, stopping, expected):
            unexpected.append(entry)
    if not unexpected:
        return Check(LOG_CHECK, True, statistic=0.0, detail=f"{seen} entries, none unexpected")
    quoted = " | ".join(str(entry) for entry in unexpected[:QUOTED_MAX])
    detail = f"{len(unexpected)} unexpected entries, the first: {quoted}"
    return Check(LOG_CHECK, False, statistic=float(len(unexpected)), detail=detail)


def _is_expected(entry: LogMessage, left: Counter[str], stopping: bool, every: Sequence[Expected]) -> bool:
    """Return whether the entry is expected; subtracts it from the remaining counts (``left``)."""
    if entry.severity == "UNKNOWN":
        return False
    if entry.severity == "LOG":
        return LOG_OF_A_DEATH.search(entry.message) is None
    if entry.severity not in SEVERE:
        return True
    for expected in every:
        if expected.severity == entry.severity and expected.message.search(entry.message):
            if expected.when in ("always", "stopping"):
                return expected.when == "always" or stopping
            left[expected.when] -= 1
            return left[expected.when] >= 0
    return False


def first_unexpected_error(log: str) -> str:
    """Return the first unexpected ERROR, FATAL or PANIC, shortened; empty without one. A full disk gets a
    remedy.
    """
    for entry in entries(log):
        if entry.severity not in SEVERE - {"WARNING"}:
            continue
        if any(e.severity == entry.severity and e.message.search(entry.message) for e in EXPECTED):
            continue
        short = f"{entry.severity}: {entry.message}"
        if len(short) > GRAVE_CHARACTERS_MAX:
            short = f"{short[: GRAVE_CHARACTERS_MAX - 1]}…"
        if DISK_FULL.search(entry.message):
            place = "wal_dir or PGDYNO_CACHE" if "pg_wal/" in entry.message else "PGDYNO_CACHE"
            short += f" (run pgdyno cache prune, or set {place} to a larger disk)"
        return short
    return ""


def counted_in(totals: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the driver's counts of events in the server log, from the counts of all kinds since
    connection."""
    counts = list(totals)
    rolled_back, failed, retried = (
        sum(c[key] for c in counts) for key in ("rolled_back", "failed", "retried")
    )
    return {"rolled_back": rolled_back, "failed": failed, "conflicts": retried + failed}
