"""Invariants and sampled columns on a real server."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pgdyno.errors import DatasetError, PgdynoError
from pgdyno.features.own_data.plan import Invariant
from pgdyno.features.own_data_checks.preflight import ColumnSample, check_invariants, read_sample
from pgdyno.server.processes import Server

pytestmark = pytest.mark.server

SHOP = Path(__file__).parents[5] / "tests" / "data" / "shop"


@pytest.fixture(scope="module")
def origin(running_server: Server) -> Server:
    """A server with the shop."""
    with running_server.connect() as connection:
        for name in ("schema.sql", "rows.sql"):
            connection.execute((SHOP / "load" / name).read_bytes())
    return running_server


def test_an_invariant_counts_rows_and_never_reads_their_values(origin: Server) -> None:
    sold = Invariant(name="sold.sql", text=(SHOP / "sold.sql").read_text())
    few = Invariant(name="few.sql", text="SELECT email\nFROM customer WHERE id <= 3")
    long = Invariant(name="long", text=f"SELECT 1 WHERE '{'x' * 200}' = ''")
    checks = check_invariants(origin.connect, [sold, few, long])
    assert [check.passed for check in checks] == [True, True, False, True]
    assert checks[3].name.endswith("x…") and checks[3].name.count("x") < 100
    assert checks[2].name == "invariant few.sql: SELECT email"
    assert checks[2].detail == "returned 3 rows"
    with pytest.raises(PgdynoError, match="must be a query"):
        check_invariants(origin.connect, [Invariant(name="w", text="DELETE FROM customer")])


def test_a_sample_is_the_same_each_time_and_follows_its_weighting(origin: Server) -> None:
    with origin.connect() as connection:
        parse, every = ColumnSample.parse, {str(n) for n in range(1, 201)}
        uniform = read_sample(connection, parse("public.customer.id"), 1)
        assert (set(uniform.values), len(uniform.values)) == (every, 200)
        assert (uniform.is_number, uniform.is_part) == (True, False)
        assert read_sample(connection, parse("customer.id"), 1) == uniform
        assert read_sample(connection, parse("customer.id"), 2).values != uniform.values
        rows = read_sample(connection, parse("purchase.product_id frequency"), 1)
        assert Counter(rows.values).most_common(1)[0][1] >= 2000 // 50
        assert len(rows.values) == 2000
        emails = read_sample(connection, parse("customer.email"), 1, bytes_max=300)
        assert emails.is_part
        assert not emails.is_number
        assert 200 < sum(map(len, emails.values)) <= 300


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("custmer.id", 'relation "custmer" does not exist'),
        ("customer.no", 'column "no" does not exist'),
        ("nothing.a", "has no value"),
        ("seen.id frequency", "seen is no table"),
    ],
)
def test_a_column_without_values_cannot_be_sampled(source: str, message: str, origin: Server) -> None:
    with origin.connect() as connection:
        connection.execute("CREATE TEMP TABLE nothing AS SELECT NULL::int AS a")
        connection.execute("CREATE TEMP VIEW seen AS SELECT id FROM customer")
        with pytest.raises(DatasetError, match=message):
            read_sample(connection, ColumnSample.parse(source), 1)
