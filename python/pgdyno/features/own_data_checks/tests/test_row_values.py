"""Errors and logs of servers without values of rows."""

from __future__ import annotations

import pytest

from pgdyno.features.own_data_checks.preflight import log_without_values, message_without_values

PLANTED = "Planted 4711"

MESSAGES = {
    "22P02": (
        f'invalid input syntax for type integer: "{PLANTED}"',
        'invalid input syntax for type integer: "…"',
    ),
    "22003": (f'value "{PLANTED}" is out of range for type integer', 'value "…" is out of range for type'),
    "23505": (
        f'duplicate key value violates unique constraint "customer_key"; Key (email)=({PLANTED}) exists.',
        'duplicate key value violates unique constraint "customer_key"',
    ),
    "P0001": (f"no such customer {PLANTED}", "a message of RAISE"),
    "42P01": ('relation "nothing" does not exist', 'relation "nothing" does not exist'),
}


@pytest.mark.parametrize("sqlstate", MESSAGES)
def test_a_message_names_objects_and_no_values(sqlstate: str) -> None:
    message, expected = MESSAGES[sqlstate]
    shown = message_without_values(message, sqlstate)
    assert shown.startswith(expected)
    assert PLANTED not in shown


def test_a_log_keeps_its_lines_and_messages() -> None:
    log = (
        "2026-11-25 20:00:00.000 UTC [1] LOG:  database system is ready to accept connections\n"
        f'2026-11-25 20:00:00.000 UTC [2] ERROR:  invalid input syntax for type integer: "{PLANTED}"\n'
        f"2026-11-25 20:00:00.000 UTC [2] DETAIL:  Key (email)=({PLANTED}) already exists.\n"
        f"2026-11-25 20:00:00.000 UTC [2] STATEMENT:  SELECT '{PLANTED}'\n\tFROM {PLANTED};\n"
    )
    shown = log_without_values(log)
    assert PLANTED not in shown
    assert shown.count("\n") == log.count("\n")
    assert "ready to accept connections" in shown
    assert log_without_values(log[:300] + "\n").startswith(log_without_values(log)[:200])
