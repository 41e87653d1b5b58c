"""Connection poolers: one with transaction pooling is rejected, and nothing is left there."""

from __future__ import annotations

import pytest

from pgdyno.errors import ConnectError
from pgdyno.features.running_server.remote import Remote, held_locks, take_lock
from pgdyno.server.connections import Dsn
from pgdyno.server.processes import Server
from pooler import Pooler

pytestmark = pytest.mark.server


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
