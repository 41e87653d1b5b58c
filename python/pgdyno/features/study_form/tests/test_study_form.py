"""The form for a new study: what it starts, and what no page may start."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

from pgdyno.cli.main import SETTINGS, Loading
from pgdyno.features.serve import studies
from pgdyno.features.serve.access import Guard
from pgdyno.features.serve.index import Index
from pgdyno.features.serve.server import all_pages
from pgdyno.features.serve.studies import end_of_log, parsed

HOST = "http://127.0.0.1:8123"
FORM = {"arms": "17\nlow=18,work_mem=4MB", "workload": "pgbench", "minutes": "2", "clients": "3"}


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    pages = Guard(all_pages(Index(tmp_path)), "token", 8123)
    found = TestClient(pages, base_url=HOST, headers={"origin": HOST}, follow_redirects=False)
    found.get("/?token=token")
    return found


def test_the_form_shows_the_command_and_the_plan_and_starts_nothing(
    client: TestClient, tmp_path: Path
) -> None:
    assert client.get("/new").status_code == 200
    page = client.get(f"/new?{urlencode(FORM)}").text
    assert "pgdyno compare 17 low=18,work_mem=4MB --workload=pgbench --minutes=2 --clients=3" in page
    assert "3 clients; at most 2 min in all" in page and "free" in page and ">Start</button>" in page
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arms",
    [
        "",
        "18",
        "18\n" * 9,
        "18\ngit:master",
        "18\ngit:/tmp/x@main,build_options=--prefix=/tmp",
        "18\n/usr/lib/postgresql/15/bin",
        "18\nsystem",
        "18\nhost=db.example user=x",
        "18\npostgresql://db.example/x",
        "18\nlive=postgresql://db.example/x",
        "18\n18,@/etc/passwd.conf",
        "18\n18,@../x.conf",
        "18\n18,extension=git:/tmp/x@main",
        "18\n18,wal_dir=/tmp",
        "18\n18,data=pg_upgrade:17",
        "18\n18,age=1000",
        "18\n18,archive_command=reboot",
        "18\n18,archive_command=1",
        "18\n18,ARCHIVE_COMMAND='true'",
        "18\n18,shared_preload_libraries=off",
        "18\n18,jit_provider=llvmjit",
        "18\n18,log_directory=/tmp",
        "18\n18,work_mem='4MB;x'",
        "18\n18,port=1",
        "18\n18,work_mem=4MB,5",
        "-S\n18",
        "--data=x\n18",
    ],
)
def test_no_build_program_connection_or_place_is_reached_by_the_form(
    client: TestClient, tmp_path: Path, arms: str
) -> None:
    form = {**FORM, "arms": arms}
    page = client.get(f"/new?{urlencode(form)}").text
    assert 'role="alert"' in page and ">Start</button>" not in page
    assert client.post("/new", data={**form, "name": "e"}).status_code == 422
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("field", "value"),
    [("minutes", "-1"), ("clients", "0"), ("clients", "1 --data x"), ("workload", "own"), ("name", "../e")],
)
def test_values_are_those_of_the_command_line(
    client: TestClient, tmp_path: Path, field: str, value: str
) -> None:
    found = client.post("/new", data={**FORM, "name": "e", field: value})
    assert found.status_code == 422 and 'role="alert"' in found.text
    assert not list(tmp_path.iterdir())


def begun_by(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Return the processes of studies, which only end, as a list that grows."""
    found: list[subprocess.Popen[bytes]] = []

    def begin(path: Path, words: Sequence[str]) -> studies._Started:
        one = before(path, words)
        found.append(one.process)
        return one

    before = studies._started
    monkeypatch.setattr(studies, "PROGRAM", ("/bin/true",))
    monkeypatch.setattr(studies, "_started", begin)
    return found


def test_a_study_begins_and_its_page_waits_for_it(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = begun_by(monkeypatch)
    plan = client.get("/new", params={**FORM, "arms": FORM["arms"].replace("\n", "\r\n")}).text
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', plan))
    assert hidden.keys() == {*FORM, "name"}
    form = {**hidden, "name": "e", "data": "/etc/passwd", "evidence": "/tmp/x"}
    found = client.post("/new", data=form)
    assert found.status_code == 303
    page = client.get(found.headers["location"])
    path = tmp_path / "e.sqlite"
    assert begun[0].wait(60) == 0
    words = shlex.split(end_of_log(path)[0])[1:]
    assert words == [
        *("pgdyno", "compare", "17", "low=18,work_mem=4MB", "--workload=pgbench", "--minutes=2"),
        *("--clients=3", f"--evidence={path}"),
    ]
    assert page.status_code == 200 and "e.sqlite" in page.text
    path.touch()
    again = client.post("/new", data={**FORM, "name": "e"})
    assert again.status_code == 422 and "exists" in again.text


def test_a_parsed_command_line_leaves_the_help_of_its_command_as_it_is() -> None:
    command = Loading()["compare"]
    parsed(["compare", "17", "18"])
    option = command.get_help_option(command.make_context("compare", ["17", "18"], **SETTINGS))
    assert {*option.opts} == {"-h", "--help"}
