"""The audit of a ledger: every deviation is found and counted as what it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pgdyno.features.crash_disk.ledger import (
    ACKNOWLEDGED,
    RECORD,
    ROLLED_BACK,
    SENT,
    Records,
    Rows,
    acknowledged_before,
    audit,
    checksums,
    read_ledger,
)
from pgdyno.features.crash_disk.records import AuditCounts

KEY = 7
CLIENTS = 3
SLOTS = 5
CRASH_NS = 1_000_000_000

Transaction = tuple[int, int]


def ledger_of(sent: list[Transaction], acknowledged: list[Transaction]) -> Records:
    """The n-th transaction is sent and acknowledged at n microseconds."""
    records = [(client, SENT, sequence, 1000 * n) for n, (client, sequence) in enumerate(sent, 1)]
    records += [
        (client, ACKNOWLEDGED, sequence, 1000 * n) for n, (client, sequence) in enumerate(acknowledged, 1)
    ]
    return np.array(records, RECORD)


def rows_of(present: list[Transaction]) -> Rows:
    client = np.array([client for client, _ in present], np.int64)
    sequence = np.array([sequence for _, sequence in present], np.int64)
    expected = checksums(KEY, client, sequence)
    slot = (expected % np.uint64(SLOTS)).astype(np.int64)
    return Rows(client, sequence, expected.view(np.int64), slot, np.ones(len(present), bool))


def slots_of(present: list[Transaction]) -> Rows:
    """The slots as these transactions leave them."""
    last = np.zeros((CLIENTS, SLOTS), np.int64)
    rows = rows_of(present)
    for client, slot, sequence in zip(rows.client, rows.slot, rows.sequence, strict=True):
        last[client, slot] = max(last[client, slot], sequence)
    clients, slots = (index.ravel() for index in np.indices(last.shape))
    sequence = last.ravel()
    checksum = np.where(sequence == 0, np.uint64(0), checksums(KEY, clients, sequence)).view(np.int64)
    return Rows(clients, sequence, checksum, slots, np.ones(len(slots), bool))


def audited(records: Records, rows: Rows, slots: Rows) -> AuditCounts:
    return audit(records, rows, slots, key=KEY, slots_per_client=SLOTS, clients=CLIENTS, crash_ns=CRASH_NS)


def found(
    acknowledged: list[Transaction], present: list[Transaction], sent: list[Transaction] | None = None
) -> AuditCounts:
    begun = sent if sent is not None else acknowledged
    return audited(ledger_of(begun, acknowledged), rows_of(present), slots_of(present))


ALL = [(client, sequence) for sequence in range(1, 21) for client in range(CLIENTS)]


def test_acknowledged_and_absent_is_lost_with_the_time_from_its_acknowledgement_to_the_crash() -> None:
    result = found(ALL, [one for one in ALL if one[1] <= 18])
    assert (result.lost, result.holes) == (6, 0)
    # The 55th acknowledgement, at 55 µs, is the first lost one.
    assert result.loss_window_s == pytest.approx((CRASH_NS - 55_000) / 1e9)


@pytest.mark.parametrize(("present", "window_s"), [(0, 29e-6), (20, 9e-6), (40, 0.0)])
def test_the_loss_window_ends_with_the_kill_of_a_backend(present: int, window_s: float) -> None:
    """Others can acknowledge until the end of the load."""
    records, rows, slots = ledger_of(ALL, ALL), rows_of(ALL[:present]), slots_of(ALL[:present])
    of = {"key": KEY, "slots_per_client": SLOTS, "clients": CLIENTS, "crash_ns": CRASH_NS}
    result = audit(records, rows, slots, **of, killed_ns=30_000)
    assert (result.lost, result.loss_window_s) == (len(ALL) - present, pytest.approx(window_s))


def test_records_after_the_crash_do_not_count() -> None:
    records = np.array([(0, SENT, 1, 10), (0, ACKNOWLEDGED, 1, CRASH_NS)], RECORD)
    result = audited(records, rows_of([]), slots_of([]))
    assert (acknowledged_before(records, CRASH_NS), result.lost, result.in_doubt) == (0, 0, 1)


@pytest.mark.parametrize("present", [[], [(0, 1)]])
def test_a_transaction_that_was_rolled_back_is_not_in_doubt(present: list[Transaction]) -> None:
    records = np.array([(0, SENT, 1, 10), (0, ROLLED_BACK, 1, 20), (1, SENT, 1, 30)], RECORD)
    result = audited(records, rows_of(present), slots_of(present))
    assert (result.in_doubt, result.in_doubt_present, result.phantoms) == (1, 0, len(present))


def without(rows: Rows, index: int) -> Rows:
    return Rows(*(np.delete(values, index) for values in vars(rows).values()))


def changed(rows: Rows, **columns: Any) -> Rows:
    """``rows`` with another value of a column in the fifth row."""
    return replace(
        rows,
        **{name: np.where(np.arange(len(ALL)) == 4, to, getattr(rows, name)) for name, to in columns.items()},
    )


ROWS, SLOTS_OF_ALL = rows_of(ALL), slots_of(ALL)
WRITTEN = int(np.flatnonzero(SLOTS_OF_ALL.sequence)[0])
LAST = (SLOTS_OF_ALL.client[WRITTEN], SLOTS_OF_ALL.sequence[WRITTEN])
DAMAGE: Mapping[str, tuple[Rows, Rows]] = {
    "checksum": (changed(ROWS, checksum=ROWS.checksum[4] + 1), SLOTS_OF_ALL),
    "slot": (changed(ROWS, slot=ROWS.slot[4] + 1), SLOTS_OF_ALL),
    "filler": (changed(ROWS, is_filler_right=False), SLOTS_OF_ALL),
    "checksum of another run": (
        changed(ROWS, checksum=checksums(KEY + 1, ROWS.client, ROWS.sequence).view(np.int64)),
        SLOTS_OF_ALL,
    ),
    "row twice": (rows_of([*ALL, ALL[0]]), SLOTS_OF_ALL),
    "missing slot": (ROWS, without(SLOTS_OF_ALL, WRITTEN)),
    "stale slot": (ROWS, slots_of([one for one in ALL if one != LAST])),
    "slot twice": (ROWS, Rows(*(np.append(values, values[:1]) for values in vars(SLOTS_OF_ALL).values()))),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_wrong_missing_stale_and_duplicate_rows_are_damage(kind: str) -> None:
    # The slot that a wrong row wrote may be counted, too: nothing sound accounts for its content.
    damaged = audited(ledger_of(ALL, ALL), *DAMAGE[kind]).damaged
    assert damaged == 1 or (damaged == 2 and kind in ("checksum", "slot", "checksum of another run"))


LOSS = {(0, 5), (0, 6), (1, 20)}


@settings(max_examples=50)
@given(st.sets(st.sampled_from(ALL)), st.sets(st.sampled_from(ALL)), st.sets(st.sampled_from(ALL)))
@example(set(), set(ALL), set(ALL))
@example(set(), set(ALL), set(ALL) - LOSS)  # two holes
@example({(0, 20), (1, 20)}, set(ALL[:-3]), set(ALL[:-3]) | {(0, 20), (2, 20)})  # in doubt, and a phantom
def test_counts_are_those_of_set_arithmetic(
    more_sent: set[Transaction], acknowledged: set[Transaction], present: set[Transaction]
) -> None:
    sent = sorted(more_sent | acknowledged)
    result = found(sorted(acknowledged), sorted(present), sent)
    lost = acknowledged - present
    doubt = set(sent) - acknowledged
    holes = [one for one in lost if any(p[0] == one[0] and p[1] > one[1] for p in present)]
    records = ledger_of(sent, sorted(acknowledged))
    assert acknowledged_before(records, CRASH_NS) == len(acknowledged)
    assert result.lost == len(lost)
    assert result.holes == len(holes)
    assert (result.in_doubt, result.in_doubt_present) == (len(doubt), len(doubt & present))
    assert result.phantoms == len(present - set(sent))
    assert result.damaged == 0
    assert (result.loss_window_s is None) == (not lost)


def test_checksums_are_those_of_the_engine() -> None:
    """crates/engine/src/ledger.rs has the same number."""
    assert checksums(7, np.array([3]), np.array([1])).tolist() == [9039918076914087103]


def test_an_incomplete_last_record_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    assert len(read_ledger(path)) == 0
    path.write_bytes(ledger_of([(1, 2)], [(1, 2)]).tobytes()[:-1])
    assert read_ledger(path)["client"].tolist() == [1]
