"""Parameters of connection strings for the engine are those that libpq uses."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from psycopg.pq import Conninfo

from pgdyno.errors import UsageError
from pgdyno.server.connections import Dsn, resolved
from pgdyno.study.arm_spec import parse_arm

SERVICE = "[shop]\nhost=h1,h2\nport=5432,6000\ndbname=shop\nuser=clerk\n"


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passwords = tmp_path / "pgpass"
    passwords.write_text("h1:*:*:*:one\nh2:6000:*:*:two\nlocalhost:*:*:*:socket\n")
    passwords.chmod(0o600)
    (tmp_path / "services").write_text(SERVICE)
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
    values = resolved("service=shop dbname=other")
    names = ("host", "port", "user", "dbname", "sslmode")
    assert [values[name] for name in names] == ["h1,h2", "5432,6000", "clerk", "other", "require"]
    assert "client_encoding" not in values


@pytest.mark.parametrize(
    ("conninfo", "reason"),
    [
        ("service=nope", 'definition of service "nope" not found'),
        ("host=a,b port=1,2,3", "could not match 3 port numbers to 2 hosts"),
        ("sslmode=strict", 'invalid sslmode value: "strict"'),
        ("gssencmode=strict", 'invalid gssencmode value: "strict"'),
        ("sslmode=strict password=strict", 'invalid sslmode value: "***"'),
    ],
)
def test_an_error_of_libpq_is_reported_without_the_password(conninfo: str, reason: str) -> None:
    with pytest.raises(UsageError, match=f"no connection to .*: {re.escape(reason)}"):
        resolved(conninfo)


def test_gssencmode_and_client_encoding_of_a_service_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "UTF8")
    default = {option.keyword: option.compiled for option in Conninfo.get_defaults()}[b"gssencmode"]
    for mode in ("disable", "prefer"):
        (tmp_path / "services").write_text(f"{SERVICE}gssencmode={mode}\nclient_encoding=LATIN1\n")
        values = resolved("service=shop")
        assert values.get("gssencmode", (default or b"").decode()) == mode
        assert values["client_encoding"] == "LATIN1"
    (tmp_path / "services").write_text(f"{SERVICE}gssencmode=strict\n")
    with pytest.raises(UsageError, match="gssencmode"):
        resolved("service=shop")


def test_defaults_of_libpq_are_not_sent_except_those_of_its_build() -> None:
    defaults = {option.keyword.decode(): option.compiled for option in Conninfo.get_defaults()}
    values = resolved("user=u dbname=d")
    sent = {name for name in values if name in defaults and values[name].encode() == defaults[name]}
    assert sent == {"port", "sslmode", "channel_binding"}


@pytest.mark.parametrize(
    "place", ["PGAPPNAME", "PGPASSWORD", "PGOPTIONS", "pgpass", "services", Dsn, resolved, parse_arm]
)
def test_a_value_that_is_not_utf8_is_an_error_without_the_value(
    place: str | Callable[[str], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"pgpass": "h1:*:*:*:hunter2\udcff\n", "services": f"{SERVICE}options=hunter2\udcff\n"}
    read, text = resolved, "service=shop"
    if place in files:
        (tmp_path / str(place)).write_text(files[str(place)], "utf-8", "surrogateescape")
    elif isinstance(place, str):
        monkeypatch.setenv(place, "hunter2\udcff")
        text = "host=h3"
    else:
        read, text = place, "host=h password=hunter2\udcff"
    with pytest.raises(UsageError, match="UTF-8" if isinstance(place, str) else None) as raised:
        read(text)
    assert "hunter2" not in str(raised.value)


def test_without_a_home_directory_no_root_certificate_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(path: Path) -> Path:
        raise RuntimeError(f"no home directory for {path}")

    assert resolved("host=h1")["sslrootcert"].endswith("/.postgresql/root.crt")
    monkeypatch.setattr(Path, "expanduser", no_home)
    assert "sslrootcert" not in resolved("host=h1")
    assert resolved("host=h1 sslrootcert=/r")["sslrootcert"] == "/r"
