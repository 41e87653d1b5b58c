"""Names of wait events in all versions."""

from __future__ import annotations

import pytest

from pgdyno.analysis.telemetry.metrics import NEWEST, newest_name
from pgdyno.analysis.telemetry.trial_telemetry import resource_of


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("IO/WALSync", "IO/WalSync"),
        ("LWLock/WALWriteLock", "LWLock/WALWrite"),
        ("LWLock/CLogControlLock", "LWLock/XactSLRU"),
        ("LWLock/buffer_io", "IPC/BufferIo"),
        ("IPC/Hash/GrowBuckets/Allocating", "IPC/HashGrowBucketsReallocate"),
        ("Client/WalReceiverWaitStart", "IPC/WalReceiverWaitStart"),
        ("BufferPin/BufferPin", "Buffer/BufferCleanup"),
        ("Buffer/BufferShared", "LWLock/BufferContent"),
        ("Lock/transactionid", "Lock/transactionid"),
        ("running", "running"),
    ],
)
def test_a_wait_event_has_its_newest_name(old: str, new: str) -> None:
    assert newest_name(old) == new


def test_no_newest_name_is_an_old_one() -> None:
    assert {name for name in NEWEST.values() if newest_name(name) != name} == set()


def test_a_renamed_wait_event_keeps_its_resource() -> None:
    # The type of this event of the WAL receiver, which has no client, changed in 14.
    moved = {"Client/WalReceiverWaitStart"}
    assert {old for old, new in NEWEST.items() if resource_of(old) != resource_of(new)} == moved
