"""``pgdyno check``: its output and exit status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import pytest
from checks_population import populate

from pgdyno.cli.options import expanded
from pgdyno.errors import ConnectError, DatasetError, PgdynoError, UsageError
from pgdyno.features.runs import command
from pgdyno.server.processes import Server

check = expanded(command.check)
pytestmark = pytest.mark.server


@pytest.fixture
def dsn(running_server: Server) -> Iterator[str]:
    with closing(running_server.connect()) as conn:
        conn.execute("CREATE DATABASE check_command")
        with closing(running_server.connect("check_command")) as inside:
            populate(inside, warehouses=1, customers=10)
        yield running_server.conninfo("check_command")
        conn.execute("DROP DATABASE check_command")


def test_valid_data_gives_status_0_and_a_line_per_condition_and_a_violation_status_1_and_json(
    dsn: str, running_server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(dsn) == 0
    assert capsys.readouterr().out.count(" yes ") == 12
    with closing(running_server.connect("check_command")) as conn:
        conn.execute("UPDATE customer SET c_ytd_payment = 0 WHERE c_id = 3 AND c_d_id = 1")
    assert check(dsn, as_json=True) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["passed"] is False
    assert [c["name"] for c in found["checks"] if not c["passed"]] == ["condition 12"]
    assert "1 violations, the first: c_w_id 1, c_d_id 1, c_id 3, " in found["checks"][11]["detail"]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("host=/nowhere/at/all", ConnectError, "no connection to host=/nowhere/at/all: "),
        ("postgresql://user:secret@[broken", UsageError, "the connection string is malformed"),
    ],
)
def test_a_database_out_of_reach_is_one_line_without_a_password(
    text: str, kind: type[PgdynoError], message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        check(text)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_database_that_is_not_tpcc_is_rejected(running_server: Server) -> None:
    with pytest.raises(DatasetError, match="the database postgres contains no tpcc data"):
        check(running_server.conninfo())
