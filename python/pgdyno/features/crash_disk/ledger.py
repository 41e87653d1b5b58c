"""The ledger: what was acknowledged, and the audit of what is left of it after a crash.

- The ledger that the engine writes: which transactions were sent and acknowledged, and when.
- The audit after a crash: the ledger against the rows that the recovered server has. Pure functions.
- Tables of the ledger on a server.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg

from pgdyno.features.crash_disk.records import AuditCounts
from pgdyno.server.processes import Connection

# ----------------------------------------------------------------------
# The ledger that the engine writes: which transactions were sent and acknowledged, and when.
#
# Records of 24 bytes, little-endian: client, event (1 sent, 2 acknowledged), number of the transaction, and
# nanoseconds of the monotonic clock. See docs/reference/engine-protocol.md.
# ----------------------------------------------------------------------

RECORD = np.dtype([("client", "<u4"), ("event", "<u4"), ("sequence", "<u8"), ("at_ns", "<u8")])
SENT = 1
ACKNOWLEDGED = 2

Records = npt.NDArray[np.void]


def read_ledger(path: Path) -> Records:
    """Return the records of a file; none if it does not exist. A last record that is incomplete is left out:
    the engine was killed while it wrote it.
    """
    content = path.read_bytes() if path.exists() else b""
    return np.frombuffer(content, RECORD, len(content) // RECORD.itemsize)


# ----------------------------------------------------------------------
# The audit after a crash: the ledger against the rows that the recovered server has. Pure functions.
#
# - A transaction that was acknowledged before the crash must be present; otherwise it is lost.
# - One that was sent and not acknowledged is in doubt: present and absent are both right.
# - One that is present and was never sent is a phantom.
# - A lost transaction is a hole if a later one of the same client is present.
# - A row whose checksum or filler is wrong, that is there twice, or that contradicts the slots is damaged.
# ----------------------------------------------------------------------

CLIENT_SHIFT = np.uint64(40)
"""An identifier has the client in its upper bits and the number of the transaction below."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Rows:
    """Rows of the table of transactions or of slots, as arrays of equal length."""

    client: npt.NDArray[np.int64]
    sequence: npt.NDArray[np.int64]
    checksum: npt.NDArray[np.int64]
    slot: npt.NDArray[np.int64]
    is_filler_right: npt.NDArray[np.bool_]


def acknowledged_before(records: Records, crash_ns: int) -> int:
    """Return the number of transactions that were acknowledged before the crash."""
    before = records[(records["event"] == ACKNOWLEDGED) & (records["at_ns"] < crash_ns)]
    return len(np.unique(before[["client", "sequence"]]))


def mix(z: Words) -> Words:
    """Return the finalizer of SplitMix64 (Steele, Lea, Flood 2014), as the engine computes it."""
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))


def derive(seed: Words, number: Words) -> Words:
    """Return a seed made of a seed and a number: ``derive_seed`` of the engine."""
    return mix(mix(seed + _GOLDEN) + number * _GOLDEN)


def checksums(key: int, client: npt.NDArray[np.int64], sequence: npt.NDArray[np.int64]) -> Words:
    """Return the checksums of transactions."""
    keys = np.full(len(client), key, np.uint64)
    return derive(derive(keys, client.astype(np.uint64)), sequence.astype(np.uint64))


def audit(
    records: Records, rows: Rows, slots: Rows, *, key: int, slots_per_client: int, clients: int, crash_ns: int
) -> AuditCounts:
    """Compare the ledger with the rows. Records from ``crash_ns`` on do not count: what was acknowledged
    then, no machine had written.
    """
    records = records[records["at_ns"] < crash_ns]
    acknowledgements = records[records["event"] == ACKNOWLEDGED]
    acknowledged = _identifiers(acknowledgements["client"], acknowledgements["sequence"])
    begun = records[records["event"] == SENT]
    sent = np.union1d(_identifiers(begun["client"], begun["sequence"]), acknowledged)
    present, copies = np.unique(_identifiers(rows.client, rows.sequence), return_counts=True)
    is_lost = ~np.isin(acknowledged, present)
    lost = acknowledged[is_lost]
    doubt = np.setdiff1d(sent, acknowledged)
    right = _is_right(rows, key, slots_per_client)
    first_ns = acknowledgements["at_ns"][is_lost].min(initial=crash_ns)
    return AuditCounts(
        lost=len(np.unique(lost)),
        in_doubt=len(doubt),
        in_doubt_present=int(np.isin(doubt, present).sum()),
        phantoms=int((~np.isin(present, sent)).sum()),
        holes=_holes(np.unique(lost), present),
        damaged=int((~right).sum())
        + int((copies - 1).sum())
        + _wrong_slots(rows, right, slots, key, slots_per_client, clients),
        loss_window_s=(crash_ns - int(first_ns)) / 1e9 if len(lost) else None,
    )


def _identifiers(client: npt.NDArray[np.integer], sequence: npt.NDArray[np.integer]) -> Words:
    return (client.astype(np.uint64) << CLIENT_SHIFT) | sequence.astype(np.uint64)


def _holes(lost: Words, present: Words) -> int:
    """Return how many lost transactions precede a present one of the same client."""
    if not len(present):
        return 0
    # Identifiers are sorted, and those of a client are adjacent.
    after = np.searchsorted(present, lost)
    has_next = after < len(present)
    following = present[np.minimum(after, len(present) - 1)]
    return int((has_next & (following >> CLIENT_SHIFT == lost >> CLIENT_SHIFT)).sum())


def _is_right(rows: Rows, key: int, slots_per_client: int) -> npt.NDArray[np.bool_]:
    expected = checksums(key, rows.client, rows.sequence)
    in_slot = rows.slot == (expected % np.uint64(slots_per_client)).astype(np.int64)
    right: npt.NDArray[np.bool_] = (rows.checksum == expected.view(np.int64)) & in_slot & rows.is_filler_right
    return right


def _wrong_slots(
    rows: Rows, right: npt.NDArray[np.bool_], slots: Rows, key: int, slots_per_client: int, clients: int
) -> int:
    """Return how many slots are missing, duplicate, or do not have the last present transaction that wrote
    to them: the two changes of a transaction are atomic.
    """
    shape = (clients, slots_per_client)
    right = right & (rows.client >= 0) & (rows.client < clients)
    last = np.zeros(shape, np.int64)
    np.maximum.at(last, (rows.client[right], rows.slot[right]), rows.sequence[right])
    inside = (
        (slots.client >= 0) & (slots.client < clients) & (slots.slot >= 0) & (slots.slot < slots_per_client)
    )
    expected = np.where(slots.sequence == 0, np.uint64(0), checksums(key, slots.client, slots.sequence)).view(
        np.int64
    )
    sound = inside & (slots.checksum == expected) & slots.is_filler_right
    places = (slots.client[sound], slots.slot[sound])
    found = np.full(shape, -1, np.int64)
    found[places] = slots.sequence[sound]
    surplus = len(slots.slot) - int((found >= 0).sum())
    # A wrong slot is counted once: as missing here, or as surplus if its place has a sound row, too.
    return int((found != last).sum()) + max(0, surplus - int((found < 0).sum()))


# ----------------------------------------------------------------------
# Tables of the ledger on a server.
# ----------------------------------------------------------------------

_SQL = resources.files(__package__).joinpath("sql")


def _statement(name: str) -> bytes:
    return _SQL.joinpath(f"{name}.sql").read_bytes()


def create_ledger(connection: Connection, clients: int, slots: int) -> None:
    """Create the tables, with the slots of all clients. Raises psycopg.Error."""
    connection.execute(_statement("create_tables"))
    connection.execute(_statement("fill_slots"), {"clients": clients, "slots": slots}, prepare=False)


def read_rows(connection: Connection) -> Rows:
    """Return all rows of transactions. Raises psycopg.Error."""
    return _rows(connection, "read_rows", ("client", "sequence", "checksum", "slot"))


def read_slots(connection: Connection) -> Rows:
    """Return all slots. Raises psycopg.Error."""
    return _rows(connection, "read_slots", ("client", "slot", "sequence", "checksum"))


def _rows(connection: Connection, name: str, columns: tuple[str, ...]) -> Rows:
    with psycopg.Cursor(connection) as cursor:
        cursor.execute(_statement(name), binary=True)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    values = np.array(found, np.int64).reshape(-1, len(columns) + 1)
    return Rows(
        **{column: values[:, index] for index, column in enumerate(columns)},
        is_filler_right=values[:, -1].astype(bool),
    )
