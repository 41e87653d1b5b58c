"""Parameters of connection strings for the engine are those that libpq uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.server.connections import resolved


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passwords = tmp_path / "pgpass"
    passwords.write_text("h1:*:*:*:one\nh2:6000:*:*:two\nlocalhost:*:*:*:socket\n")
    passwords.chmod(0o600)
    (tmp_path / "services").write_text("[shop]\nhost=h1,h2\nport=5432,6000\ndbname=shop\nuser=clerk\n")
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))


@pytest.mark.parametrize(
    ("conninfo", "passwords"),
    [
        ("", ["socket"]),
        ("host=h1,h2,h3", ["one", None, None]),
        ("host=h2,h1 port=6000", ["two", "one"]),
        ("host=h3,h1 hostaddr=10.0.0.1,::1", [None, "one"]),
        ("service=shop", ["one", "two"]),
        ("postgresql://u:a%20b@h1,h2/d", ["a b", "a b"]),
    ],
)
def test_each_host_has_the_password_that_libpq_finds(conninfo: str, passwords: list[str | None]) -> None:
    values = resolved(conninfo)
    assert values["passwords"] == passwords
    assert not {"password", "passfile", "service"} & values.keys()


def test_a_string_precedes_its_service_and_the_service_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGUSER", "somebody")
    monkeypatch.setenv("PGSSLMODE", "require")
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    monkeypatch.setenv("PGGSSENCMODE", "disable")
    values = resolved("service=shop dbname=other")
    names = ("host", "port", "user", "dbname", "sslmode", "gssencmode", "client_encoding")
    assert [values[name] for name in names] == [
        "h1,h2",
        "5432,6000",
        "clerk",
        "other",
        "require",
        "disable",
        "",
    ]
