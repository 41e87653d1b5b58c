"""Servers that already run: what is checked, what is created, and what is never changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row
from typer.testing import CliRunner

from example_studies import make_study
from pgdyno.errors import ConnectError, DatasetError, DiskFullError, UsageError
from pgdyno.features.cache import command as cache
from pgdyno.features.running_server import remote as remote_module
from pgdyno.features.running_server.arms import require_room
from pgdyno.features.running_server.remote import (
    Remote,
    TrialCopy,
    connections_max,
    free_for_data,
    held_locks,
    take_lock,
)
from pgdyno.measure.preflight import OWN_CONNECTIONS, require_connections
from pgdyno.server import connections
from pgdyno.server.connections import READ_ROWS_MAX, Dsn, ReadLimitExceeded
from pgdyno.server.processes import Server
from pgdyno.study.arm_spec import parse_arms
from pooler import Pooler

pytestmark = pytest.mark.server


# The tests of poolers come first: others leave locks of sessions that are just ending.


@pytest.mark.parametrize(("size", "is_round_robin"), [(1, False), (2, False), (2, True), (5, True)])
def test_transaction_pooling_is_rejected_before_anything_is_locked(
    running_server: Server, size: int, is_round_robin: bool
) -> None:
    with Pooler(running_server, size, is_round_robin=is_round_robin) as between:
        remote = Remote(Dsn(between.dsn("postgres")))
        with pytest.raises(ConnectError, match=r"transaction pooling.*connect directly"):
            remote.check()
        with pytest.raises(ConnectError, match="transaction pooling"):
            remote.create("pgdyno_pooled", "a test")
        with running_server.connect() as connection:
            assert held_locks(connection) == set()
    assert not Remote(Dsn(running_server.conninfo())).has_database("pgdyno_pooled")


def test_session_pooling_is_a_session_like_any_other(running_server: Server) -> None:
    with Pooler(running_server, 3, "session") as between, running_server.connect() as observer:
        remote = Remote(Dsn(between.dsn("postgres")))
        with remote.connect() as connection:
            take_lock(connection, 4711)
            assert held_locks(observer) == {4711}
        assert remote.check().is_local


@pytest.fixture
def remote(running_server: Server) -> Remote:
    return Remote(Dsn(running_server.conninfo()))


def test_a_running_server_describes_itself(
    remote: Remote, running_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A direct connection needs no second one to tell it from a pooler.
    monkeypatch.setattr(remote_module, "_is_pooled_by_transaction", lambda *_: True)
    found = remote.check()
    assert found.version == running_server.build.version
    assert found.is_local and found.effective["fsync"] == "on"


def test_a_database_without_the_mark_is_never_dropped_or_copied(remote: Remote) -> None:
    with remote.connect() as connection:
        connection.execute("create database pgdyno_of_somebody_else")
    with pytest.raises(DatasetError, match="not created by pgdyno"):
        remote.drop("pgdyno_of_somebody_else")
    with pytest.raises(DatasetError, match="not created by pgdyno"):
        remote.create("pgdyno_copy", "copy", template="pgdyno_of_somebody_else")
    with pytest.raises(DatasetError, match="already exists"):
        remote.create("pgdyno_of_somebody_else", "again")
    with remote.connect() as connection:
        connection.execute("drop database pgdyno_of_somebody_else")


@pytest.fixture
def copy(remote: Remote) -> Iterator[TrialCopy]:
    """A copy of a dataset for a trial."""
    remote.create("pgdyno_pristine", "tpcc, 1 warehouse, pristine")
    made = TrialCopy(remote, "pgdyno_pristine")
    made.restore()
    yield made
    made.end()
    remote.drop("pgdyno_pristine")


def lose(copy: TrialCopy) -> None:
    """Close the connection that holds a copy, as a killed pgdyno does."""
    copy._holder.close()
    until_unlocked(copy.remote, copy.number)


def test_only_unlocked_copies_are_dropped(remote: Remote) -> None:
    remote.create("pgdyno_pristine", "tpcc, 1 warehouse, pristine")
    # The lock is held in another database than the query: advisory locks are per database.
    remote.create("pgdyno_other", "another study's database")
    held = TrialCopy(remote, "pgdyno_pristine")
    held._holder = Remote(remote.dsn.with_database("pgdyno_other")).connect()
    take_lock(held._holder, held.number)
    held.restore()
    left = TrialCopy(remote, "pgdyno_pristine")
    left.restore()
    lose(left)
    assert left.name != held.name
    remote.drop_what_nobody_holds()
    assert remote.own_databases().keys() == {"pgdyno_pristine", "pgdyno_other", held.name}
    held.end()
    assert remote.own_databases().keys() == {"pgdyno_pristine", "pgdyno_other"}
    for name in ("pgdyno_pristine", "pgdyno_other"):
        remote.drop(name)


def test_a_renamed_copy_of_a_trial_is_kept(remote: Remote, copy: TrialCopy) -> None:
    lose(copy)
    rename = sql.SQL("alter database {} rename to found_interesting").format(sql.Identifier(copy.name))
    with remote.connect() as connection:
        connection.execute(rename)
    remote.drop_what_nobody_holds()
    assert remote.has_database("found_interesting")
    remote.drop("found_interesting")


def until_unlocked(remote: Remote, number: int) -> None:
    """Wait for the lock of a backend, which ends some time after its client."""
    with remote.connect() as connection:
        connection.execute("select pg_advisory_lock(%s::bigint)", (number,))
        connection.execute("select pg_advisory_unlock(%s::bigint)", (number,))


def test_a_copy_is_held_again_after_its_connection_was_lost(remote: Remote, copy: TrialCopy) -> None:
    lost = copy._holder.info.backend_pid
    with remote.connect() as connection:
        connection.execute("select pg_terminate_backend(%s)", (lost,))
    copy.restore()
    remote.drop_what_nobody_holds()
    assert copy.name in remote.own_databases()


def test_sessions_that_a_lost_load_generator_left_do_not_keep_a_copy(remote: Remote, copy: TrialCopy) -> None:
    with Remote(remote.dsn.with_database(copy.name)).connect() as left:
        copy.restore()
        with pytest.raises(psycopg.OperationalError):
            left.execute("select 1")


def test_a_comment_with_only_the_prefix_of_the_marker_is_not_a_marker(remote: Remote) -> None:
    with remote.connect() as connection:
        connection.execute("create database theirs")
        for comment in ("pgdyno results of 2025", 'pgdyno {"purpose": 1}', "pgdyno []", 'pgdyno {"a": "b"}',
                        "pgdyno " + "[" * 900, "pgdyno " + "[" * 10**6):  # fmt: skip
            connection.execute(sql.SQL("comment on database theirs is {}").format(sql.Literal(comment)))
            assert "theirs" not in remote.own_databases()
            with pytest.raises(DatasetError, match="not created by pgdyno"):
                remote.drop("theirs")
        connection.execute("drop database theirs")


def test_a_database_in_the_making_is_dropped_when_its_maker_is_gone_and_only_then(remote: Remote) -> None:
    number = remote_module.random_lock()
    name, limit = remote_module.creation_name(number), remote_module.creation_limit(number)
    with remote.connect() as maker:
        take_lock(maker, number)
        maker.execute(sql.SQL("create database {} connection limit {}").format(sql.Identifier(name), limit))
        remote.drop_what_nobody_holds()
        assert remote.own_databases() == {name: f"in the making, held by the advisory lock {number}"}
    until_unlocked(remote, number)
    remote.drop_what_nobody_holds()
    assert not remote.has_database(name)


def test_the_name_of_an_incomplete_database_is_not_a_marker(remote: Remote) -> None:
    name = sql.Identifier(remote_module.creation_name(1))
    with remote.connect() as connection:
        connection.execute(sql.SQL("create database {}").format(name))
        for limit in (-1, 0, 1 << 30, remote_module.creation_limit(2)):
            connection.execute(sql.SQL("alter database {} connection limit {}").format(name, limit))
            remote.drop_what_nobody_holds()
            with pytest.raises(DatasetError, match="not created by pgdyno"):
                remote.drop(remote_module.creation_name(1))
        connection.execute(sql.SQL("drop database {}").format(name))


def test_a_result_with_too_many_rows_is_rejected_and_the_connection_is_usable(remote: Remote) -> None:
    with remote.connect() as connection:
        most = connection.execute("select generate_series(1, %s)", (READ_ROWS_MAX,)).fetchall()
        assert len(most) == READ_ROWS_MAX
        with pytest.raises(ReadLimitExceeded, match="100,001 rows"):
            connection.execute("select generate_series(1, %s)", (READ_ROWS_MAX + 1,))
        with pytest.raises(ReadLimitExceeded, match="100,001 rows"):
            connection.cursor(row_factory=dict_row).execute("select generate_series(1, 100001) as n")
        assert connection.execute("select 1").fetchone() == (1,)


def test_an_oversized_value_is_rejected_over_tcp(
    running_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "READ_BYTES_MAX", 2 << 20)
    with Pooler(running_server, 2, "session") as between:
        connection = Remote(Dsn(between.dsn("postgres"))).connect()
        with pytest.raises(ReadLimitExceeded, match="more than 2 MiB in one result"):
            connection.execute("select repeat('x', 3 << 20)")
        assert connection.closed


def test_a_database_is_incomplete_until_its_load_has_completed(remote: Remote) -> None:
    with remote.making("pgdyno_filled", "whole"):
        assert remote.own_databases() == {"pgdyno_filled": remote_module.INCOMPLETE}
        remote.drop_what_nobody_holds()
    assert remote.own_databases() == {"pgdyno_filled": "whole"}
    with remote.connect() as connection:
        limits = connection.execute("select datconnlimit from pg_database where datname = 'pgdyno_filled'")
        assert limits.fetchone() == (-1,)
    remote.drop("pgdyno_filled")
    with pytest.raises(ZeroDivisionError), remote.making("pgdyno_filled", "whole"):
        raise ZeroDivisionError
    assert remote.own_databases() == {}


def test_a_local_servers_disk_is_checked_if_its_data_directory_is_visible(
    remote: Remote, running_server: Server
) -> None:
    with remote.connect() as connection:
        free = free_for_data(connection)
        connection.execute("create role passer_by login")
    total = shutil.disk_usage(running_server.data_dir).total
    assert 0 < free <= total
    assert require_room(remote, "the data need", 1, "take less")
    with pytest.raises(DiskFullError, match=r"the data need about .* are free .*: take less, or"):
        require_room(remote, "the data need", 3 * total, "take less")
    humble = Remote(Dsn(make_conninfo(remote.dsn.conninfo, user="passer_by")))
    assert not require_room(humble, "the data need", 1 << 60, "take less")


def test_a_running_server_reports_the_connection_limit_of_its_user(running_server: Server) -> None:
    with running_server.connect() as connection:
        connection.execute("create role lowly login")
        connection.execute("create role limited login connection limit 7")
        all_of_them = int(running_server.effective["max_connections"])
        reserved = int(running_server.effective["superuser_reserved_connections"])
        assert connections_max(connection) == all_of_them
    for user, most in (("lowly", all_of_them - reserved), ("limited", 7)):
        with Remote(Dsn(make_conninfo(running_server.conninfo(), user=user))).connect() as connection:
            assert connections_max(connection) == most


def test_too_many_clients_for_a_running_server_are_rejected_for_every_arm(running_server: Server) -> None:
    most = int(running_server.effective["max_connections"])
    arms = tuple(parse_arms([running_server.conninfo()] * 2))
    # With slices both arms together have exactly the available amount.
    for each, schedule in ((most // 2, "slices"), (most, "blocks")):
        clients = each - OWN_CONNECTIONS
        require_connections(make_study(arms=arms, clients=clients, schedule=schedule), {})
        with pytest.raises(UsageError, match=rf"^--clients: .*\({most}\), .*\({most}\): set it to"):
            require_connections(make_study(arms=arms, clients=clients + 1, schedule=schedule), {})


def test_databases_are_dropped_unless_a_running_pgdyno_uses_one(remote: Remote, copy: TrialCopy) -> None:
    found = {of.name: of for of in remote.describe_databases()}
    assert found.keys() == {"pgdyno_pristine", copy.name}
    assert all(of.in_use and of.size_bytes > 1e6 for of in found.values())
    assert remote.prune() == []
    copy.end()
    until_unlocked(remote, copy.number)
    assert [of.name for of in remote.prune()] == ["pgdyno_pristine"]
    assert remote.describe_databases() == []


def test_a_dataset_is_kept_from_the_start_of_its_study_even_if_it_was_unused_when_listed(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.create("pgdyno_pristine", "tpcc, 1 warehouse, pristine")
    remote.create("pgdyno_unused", "tpcc, 2 warehouses, pristine")
    before = remote.describe_databases()
    assert [of.in_use for of in before] == [False, False]
    copies = [TrialCopy(remote, "pgdyno_pristine") for _ in range(2)]
    for copy in copies:
        copy.hold()  # no copy yet: another arm may be loading for hours
    assert {of.name: of.in_use for of in remote.describe_databases()} == {
        "pgdyno_pristine": True,
        "pgdyno_unused": False,
    }
    monkeypatch.setattr(Remote, "describe_databases", lambda _: before)
    assert [of.name for of in remote.prune()] == ["pgdyno_unused"]
    assert remote.own_databases().keys() == {"pgdyno_pristine"}
    for copy in copies:
        copy.end()
        until_unlocked(remote, copy.number)
    monkeypatch.undo()
    assert [of.name for of in remote.prune()] == ["pgdyno_pristine"]


def test_the_command_lists_and_drops_databases(remote: Remote) -> None:
    remote.create("pgdyno_loaded", "made by pgdyno load")
    remote.create("pgdyno_pristine", "[red]tpcc, pristine")
    given = ["--dsn", remote.dsn.conninfo, "--json"]
    listed = CliRunner().invoke(cache.app, ["list", *given])
    loaded, of = json.loads(listed.stdout)["databases"]
    assert (of["name"], of["purpose"], of["in_use"]) == ("pgdyno_pristine", "[red]tpcc, pristine", False)
    assert "[red]tpcc" in CliRunner().invoke(cache.app, ["list", *given[:2]]).output
    dry = CliRunner().invoke(cache.app, ["prune", "--dry-run", *given])
    assert json.loads(dry.stdout)["databases"] == [of] and remote.has_database("pgdyno_pristine")
    pruned = CliRunner().invoke(cache.app, ["prune", *given])
    assert json.loads(pruned.stdout)["databases"] == [of] and not remote.has_database("pgdyno_pristine")
    assert remote.has_database(loaded["name"])
    remote.drop(loaded["name"])
    refused = CliRunner().invoke(cache.app, ["prune", "--keep", "1", *given])
    assert isinstance(refused.exception, UsageError)


def test_a_server_is_found_without_a_database_of_the_users_name(
    running_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = conninfo_to_dict(running_server.conninfo())
    words.pop("dbname")
    with Remote(Dsn(running_server.conninfo())).connect() as connection:
        connection.execute("create role homeless superuser login")
    monkeypatch.delenv("PGDATABASE", raising=False)
    homeless = Remote(Dsn(make_conninfo("", **{**words, "user": "homeless"})))
    assert homeless.check().version == running_server.build.version
    with pytest.raises(ConnectError, match="homeless"):
        Remote(homeless.dsn.with_database("homeless")).check()
