"""Error messages."""

from __future__ import annotations

import pytest

from pgdyno.errors import in_one_line
from pgdyno.server.processes import last_messages

REFUSED = "FATAL:  the database system is in recovery mode"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            "column x does not exist\nLINE 1: select x\n               ^",
            "column x does not exist / LINE 1: select x / ^",
        ),
        (
            f'connection failed: connection to server at "::1", port 5432 failed: {REFUSED}\n'
            f'connection to server at "::1", port 5432 failed: {REFUSED}\n'
            "Multiple connection attempts failed. All failures were:\n"
            f"- host: 'localhost', hostaddr: '::1': connection failed: {REFUSED}\n"
            f"- host: 'localhost', hostaddr: '127.0.0.1': connection failed: {REFUSED}",
            'connection failed: connection to server at "::1", port 5432 failed: '
            "FATAL: the database system is in recovery mode",
        ),
        (
            "it ended: FATAL:  one / HINT:  a / FATAL:  two / FATAL:  one",
            "it ended: FATAL: one / HINT: a / FATAL: two",
        ),
    ],
)
def test_a_message_of_several_lines_becomes_one_without_repetitions(error: str, line: str) -> None:
    assert in_one_line(Exception(error)) == line


def test_an_error_sent_to_every_client_is_reported_once() -> None:
    log = "".join(
        f"2026-11-22 13:00:0{n}.000 UTC [10{n}] FATAL:  terminating connection due to immediate shutdown\n"
        for n in range(5)
    )
    assert last_messages(log) == "FATAL:  terminating connection due to immediate shutdown"
