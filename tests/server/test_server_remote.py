"""Servers that run already: what is checked, what is made, and what is never touched."""

from __future__ import annotations

import os
import subprocess

import pytest
from psycopg.conninfo import make_conninfo

from pgdyno.errors import ConnectError, DatasetError
from pgdyno.lab.dsn_arm import drop_copies_of_the_dead, trial_purpose
from pgdyno.server.dsn import Dsn
from pgdyno.server.remote import Remote, database_name
from pgdyno.server.running import Server

pytestmark = pytest.mark.server


@pytest.fixture
def remote(running_server: Server) -> Remote:
    return Remote(Dsn(running_server.conninfo()))


def test_a_running_server_describes_itself(remote: Remote, running_server: Server) -> None:
    found = remote.check()
    assert found.version == running_server.build.version
    assert found.is_local
    assert found.superuser
    assert found.effective["fsync"] == "on"


def test_a_database_is_copied_for_each_trial_and_dropped(remote: Remote) -> None:
    pristine, copy = database_name("t", 1), database_name("t", 1, "trial")
    with Remote(remote.create(pristine, "t, 1")).connect() as connection:
        connection.execute("create table t as select 42 as n")
    with Remote(remote.create(copy, "trial", template=pristine)).connect() as connection:
        assert connection.execute("select n from t").fetchone() == (42,)
    assert remote.own_databases() == {pristine: "t, 1", copy: "trial"}
    for name in (copy, pristine, pristine):
        remote.drop(name)
    assert remote.own_databases() == {}


def test_a_database_without_the_mark_is_never_dropped_or_copied(remote: Remote) -> None:
    with remote.connect() as connection:
        connection.execute("create database pgdyno_of_somebody_else")
    with pytest.raises(DatasetError, match="not made by pgdyno"):
        remote.drop("pgdyno_of_somebody_else")
    with pytest.raises(DatasetError, match="not made by pgdyno"):
        remote.create("pgdyno_copy", "copy", template="pgdyno_of_somebody_else")
    with pytest.raises(DatasetError, match="already exists"):
        remote.create("pgdyno_of_somebody_else", "again")
    with remote.connect() as connection:
        connection.execute("drop database pgdyno_of_somebody_else")


def test_a_user_who_may_not_create_databases_is_told_what_to_do(
    remote: Remote, running_server: Server
) -> None:
    with remote.connect() as connection:
        connection.execute("create role humble login")
    humble = Remote(Dsn(make_conninfo(running_server.conninfo(), user="humble")))
    with pytest.raises(ConnectError, match="ALTER ROLE humble CREATEDB"):
        humble.check()


@pytest.mark.parametrize(
    ("dsn", "words"),
    [
        ("host=/nonexistent dbname=x password=hunter2", "nonexistent"),
        ("postgresql://u:hunter2@127.0.0.1:1/x", "refused"),
        ("host=/tmp port=5 password=hunter2 sslmode=disable", "no connection"),
    ],
)
def test_an_unreachable_server_is_named_without_the_password(dsn: str, words: str) -> None:
    with pytest.raises(ConnectError, match=words) as raised:
        Remote(Dsn(dsn)).check()
    assert "hunter2" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_only_copies_of_dead_processes_of_this_machine_are_dropped(remote: Remote) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    whose = {
        "pgdyno_dead": trial_purpose(ended.pid),
        "pgdyno_alive": trial_purpose(os.getpid()),
        "pgdyno_elsewhere": trial_purpose(ended.pid) + ".of.another.machine",
        "pgdyno_pristine": "tpcc, 1 warehouses, pristine",
    }
    for name, purpose in whose.items():
        remote.create(name, purpose)
    drop_copies_of_the_dead(remote)
    assert set(whose) - remote.own_databases().keys() == {"pgdyno_dead"}
    for name in whose:
        remote.drop(name)
