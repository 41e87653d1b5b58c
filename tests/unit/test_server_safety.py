"""Safety: a table of settings and their guarantees."""

from __future__ import annotations

import pytest

from pgdyno.server.settings import safety

SAFE = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "wal_level": "replica",
    "max_wal_senders": "10",
    "archive_mode": "on",
    "archive_command": "cp %p /archive/%f",
    "autovacuum": "on",
    "track_counts": "on",
    "data_checksums": "on",
    "wal_writer_delay": "200ms",
    "checkpoint_timeout": "5min",
    "max_wal_size": "1GB",
}


def test_a_safe_server_loses_no_guarantee() -> None:
    assert safety(SAFE).given_up == ()
    assert safety(SAFE).checkpoint_distance == "every 5min, or earlier to keep WAL below 1 GB"


@pytest.mark.parametrize(
    ("changed", "given_up"),
    [
        ({"synchronous_commit": "off"}, {"process-crash": "partly", "power-loss": "partly"}),
        ({"synchronous_commit": "local"}, {}),
        ({"synchronous_commit": "remote_apply"}, {}),
        ({"fsync": "off"}, {"power-loss": "no", "torn-pages": "no"}),
        ({"full_page_writes": "off"}, {"torn-pages": "no"}),
        (
            {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"},
            {"process-crash": "partly", "power-loss": "no", "torn-pages": "no"},
        ),
        ({"wal_level": "minimal", "max_wal_senders": "0"}, {"replication": "no", "point-in-time": "no"}),
        ({"wal_level": "logical"}, {}),
        ({"max_wal_senders": "0"}, {"replication": "no"}),
        ({"archive_mode": "off", "archive_command": "(disabled)"}, {"point-in-time": "partly"}),
        ({"archive_command": ""}, {"point-in-time": "no"}),
        ({"archive_command": "/bin/true"}, {"point-in-time": "no"}),
        ({"archive_command": "", "archive_library": "basic_archive"}, {}),
        ({"autovacuum": "off"}, {"autovacuum": "no"}),
        ({"track_counts": "off"}, {"autovacuum": "no"}),
        ({"data_checksums": "off"}, {"checksums": "no"}),
    ],
)
def test_the_guarantees_lost_by_a_setting(changed: dict[str, str], given_up: dict[str, str]) -> None:
    found = safety(SAFE | changed)
    assert {badge.key: badge.kept for badge in found.given_up} == given_up
    assert all(badge.reason for badge in found.given_up)


def test_the_commits_that_may_be_lost_are_reported_as_time() -> None:
    found = safety(SAFE | {"synchronous_commit": "off", "wal_writer_delay": "1s"})
    assert "up to 3000 ms" in found.given_up[0].reason


def test_settings_that_cannot_be_read_are_unknown_and_not_safe() -> None:
    found = safety({})
    assert {badge.kept for badge in found.badges} == {"unknown"}
    assert found.checkpoint_distance == "unknown"
