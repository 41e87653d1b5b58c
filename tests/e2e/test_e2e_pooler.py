"""Commands through a pooler with transaction pooling: rejected, with a remedy."""

from __future__ import annotations

from contextlib import closing

import pytest
from program import SMALLEST, Program

from pgdyno.server.running import Server
from pooler import pooler

DRIVE = ("--clients", "2", "--warmup", "0.2s", "--window", "0.4s", "--quiet")


@pytest.mark.parametrize(
    "words",
    [
        ("load", "pooled"),
        ("load", "postgres", "--into-existing", "--workload", "pgbench"),
        ("drive", "postgres", "--into-existing", "--workload", "pgbench", *DRIVE),
        ("check", "postgres"),
        ("compare", "postgres", "postgres", *SMALLEST),
        ("compare", "postgres", "template1", "--into-existing", *SMALLEST),
    ],
)
def test_no_command_works_through_transaction_pooling_and_none_leaves_a_lock(
    program: Program, running_server: Server, words: tuple[str, ...]
) -> None:
    seen = (
        "select (select array_agg(datname order by datname) from pg_database),"
        " (select count(*) from pg_locks where locktype = 'advisory'),"
        " (select count(*) from pg_stat_activity where state like 'idle in transaction%')"
    )
    databases = {"pooled", "postgres", "template1"}
    with pooler(running_server) as between, closing(running_server.connect()) as observer:
        before = observer.execute(seen).fetchone()
        arguments = [between.dsn(word) if word in databases else word for word in words]
        refused = program.run(*arguments)
        assert refused.status == 1
        assert len(refused.complaints) == 1
        assert "transaction pooling" in refused.complaints[0]
        assert "connect directly" in refused.complaints[0]
        assert observer.execute(seen).fetchone() == before
