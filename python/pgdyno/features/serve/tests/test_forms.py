"""Forms of ``pgdyno serve``: who may send them, and what they do with results files and their studies."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from report_forms import analyze_once
from starlette.testclient import TestClient
from synthetic_study import (
    CREATED_UNIX_S,
    QuickWriter,
    Synthetic,
    arms_of,
    study_of,
    write_block,
    write_study,
)

from pgdyno.features.serve import filing, stop, studies
from pgdyno.features.serve import index as files
from pgdyno.features.serve.access import Guard
from pgdyno.features.serve.filing import rename
from pgdyno.features.serve.forms import FORM_BYTES_MAX
from pgdyno.features.serve.index import Index, identifier, writer_of
from pgdyno.features.serve.options import WebOptions
from pgdyno.features.serve.server import all_pages
from pgdyno.features.serve.studies import Studies, end_of_log, log_of
from pgdyno.features.serve.tags import tags_of
from pgdyno.interruption import Interruption
from pgdyno.results.reader import Evidence

TOKEN, PORT, HOST = "secret-token", 8123, "http://127.0.0.1:8123"
WANTED = Synthetic(effects=(1.0, 1.2), blocks=6)
SLEEPING = ("/bin/sh", "-c", "exec sleep 60", "sh")
HOSTILE = """<b>"it's" & 50%.sqlite"""


@pytest.fixture(autouse=True)
def _each_file_is_analyzed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    analyze_once(monkeypatch, files, filing)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_study(tmp_path / "e.sqlite", WANTED)
    return tmp_path / "e.sqlite"


@pytest.fixture
def client(path: Path) -> TestClient:
    """A browser that has the token and sends forms of this server's pages."""
    found = TestClient(
        Guard(all_pages(Index(path.parent)), TOKEN, PORT),
        base_url=HOST,
        headers={"origin": HOST},
        follow_redirects=False,
    )
    assert found.get(f"/?token={TOKEN}").status_code == 200
    return found


def run_of(path: Path) -> str:
    return f"/run/{identifier(path.parent, path)}"


def live_of(path: Path) -> str:
    return f"/live/{identifier(path.parent, path)}"


# ----------------------------------------------------------------------
# Who may send a form
# ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "origin", [None, "null", "http://attacker.example", "http://127.0.0.1:9", HOST + "/"]
)
def test_a_form_of_another_site_is_refused(client: TestClient, path: Path, origin: str | None) -> None:
    if origin is None:
        del client.headers["origin"]
    else:
        client.headers["origin"] = origin
    found = client.post(f"{run_of(path)}/tags", data={"tags": "a"})
    assert found.status_code == 403 and not tags_of(path)


def test_a_form_without_the_cookie_is_refused_even_with_the_token_in_its_address(
    client: TestClient, path: Path
) -> None:
    client.cookies.clear()
    found = client.post(f"{run_of(path)}/tags?token={TOKEN}", data={"tags": "a"})
    assert found.status_code == 403 and not tags_of(path)


def test_a_browser_sends_the_origin_of_its_forms(client: TestClient) -> None:
    assert client.get("/").headers["referrer-policy"] == "same-origin"  # no-referrer would make it null


@pytest.mark.parametrize("form", ["stop", "continue"])
def test_a_page_changes_nothing(client: TestClient, path: Path, form: str) -> None:
    assert client.get(f"{live_of(path)}/{form}").status_code == 405
    assert client.get(f"{run_of(path)}/delete").status_code == 405 and path.exists()


def test_a_form_that_is_too_long_or_no_text_is_refused(client: TestClient, path: Path) -> None:
    long = client.post(f"{run_of(path)}/tags", data={"tags": "a" * FORM_BYTES_MAX})
    assert long.status_code == 422 and "shorten its values" in long.text
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert client.post(f"{run_of(path)}/tags", content=b"tags=%ff", headers=kind).status_code == 422
    client.post(f"{run_of(path)}/tags", content=b"tags=a", headers={"content-type": "text/plain"})
    assert not tags_of(path)


# ----------------------------------------------------------------------
# Results files
# ----------------------------------------------------------------------


def test_a_file_is_deleted_with_what_belongs_to_it_if_the_form_confirms_it(
    client: TestClient, path: Path
) -> None:
    for end in ("-wal", "-shm", ".log", ".stop", ".tags"):
        path.with_name(f"e.sqlite{end}").touch()
    other = path.with_name("e.sqlite.own")
    other.touch()
    assert "e.sqlite-wal" in client.get(f"{run_of(path)}/manage").text
    assert client.post(f"{run_of(path)}/delete").status_code == 422 and path.exists()
    found = client.post(f"{run_of(path)}/delete", data={"confirm": run_of(path).rpartition("/")[2]})
    assert (found.status_code, found.headers["location"]) == (303, "/")
    assert list(path.parent.iterdir()) == [other]
    assert "0 of 0 files" in client.get("/").text
    assert client.post(f"{run_of(path)}/delete").status_code == 404


@pytest.mark.parametrize("form", ["delete", "rename"])
def test_a_file_that_is_being_written_is_left_alone(client: TestClient, path: Path, form: str) -> None:
    data = {"confirm": run_of(path).rpartition("/")[2], "name": "f"}
    with QuickWriter.resume(path):
        found = client.post(f"{run_of(path)}/{form}", data=data)
        assert found.status_code == 422 and "being written" in found.text
    assert path.exists()


def test_a_lock_that_is_older_than_the_process_with_its_number_is_that_of_another(path: Path) -> None:
    lock = path.with_name(f"{path.name}.lock")
    lock.write_text(f"{os.getpid()}\n")
    assert writer_of(path) == os.getpid()
    os.utime(lock, (1.0, 1.0))
    assert writer_of(path) is None


@pytest.mark.parametrize("form", ["delete", "rename"])
def test_a_file_that_was_deleted_meanwhile_is_missed(client: TestClient, path: Path, form: str) -> None:
    client.get("/")
    path.unlink()
    data = {"confirm": run_of(path).rpartition("/")[2], "name": "f"}
    assert client.post(f"{run_of(path)}/{form}", data=data).status_code in (404, 422)
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize("name", ["f", "f.sqlite", HOSTILE, " f "])
def test_a_file_is_renamed_with_its_tags_and_its_log(client: TestClient, path: Path, name: str) -> None:
    client.post(f"{run_of(path)}/tags", data={"tags": "a"})
    log_of(path).touch()
    found = client.post(f"{run_of(path)}/rename", data={"name": name})
    to = path.with_name(f"{name.strip().removesuffix('.sqlite')}.sqlite")
    assert found.headers["location"] == f"{run_of(to)}/manage"
    assert not path.exists() and log_of(to).exists() and tags_of(to) == ["a"]
    page = client.get(found.headers["location"]).text
    assert "<b>" not in page and 'value="a"' in page


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../f", "/tmp/f", "a/b", "-f", ".f", "a\x00b", "a\nb", "\u202ef", "é" * 200]
)
def test_a_name_outside_of_the_directory_or_an_invisible_one_is_refused(
    client: TestClient, path: Path, name: str
) -> None:
    assert client.post(f"{run_of(path)}/rename", data={"name": name}).status_code == 422
    assert [one.name for one in path.parent.iterdir()] == ["e.sqlite"]


@pytest.mark.parametrize("existing", ["f.sqlite", "f.sqlite-wal", "f.sqlite.tags"])
def test_no_file_is_replaced_by_a_renamed_one(client: TestClient, path: Path, existing: str) -> None:
    path.with_name("e.sqlite-wal").touch()
    path.with_name("e.sqlite.tags").touch()
    path.with_name(existing).write_text("mine")
    before = sorted(one.name for one in path.parent.iterdir())
    found = client.post(f"{run_of(path)}/rename", data={"name": "f"})
    assert found.status_code == 422 and "choose another name" in found.text
    assert path.with_name(existing).read_text() == "mine"
    assert sorted(one.name for one in path.parent.iterdir()) == before


def test_a_renamed_file_keeps_transactions_that_are_only_in_its_wal(tmp_path: Path) -> None:
    path, to = tmp_path / "a.sqlite", tmp_path / "b.sqlite"
    with closing(sqlite3.connect(path)) as writer, closing(sqlite3.connect(path)) as reader:
        writer.execute("PRAGMA journal_mode = wal")
        writer.execute("CREATE TABLE t AS SELECT 1 AS x")
        writer.commit()
        reader.execute("SELECT * FROM t").fetchall()
        writer.execute("INSERT INTO t VALUES (2)")
        writer.commit()
        assert path.with_name("a.sqlite-wal").stat().st_size
        rename(path, to)
    with closing(sqlite3.connect(to)) as renamed:
        assert renamed.execute("SELECT count(*) FROM t").fetchone() == (2,)
    assert not list(tmp_path.glob("a.sqlite*"))


def test_a_symbolic_link_is_neither_deleted_nor_renamed(client: TestClient, path: Path) -> None:
    link = path.with_name("link.sqlite")
    link.symlink_to(path)
    data = {"confirm": run_of(link).rpartition("/")[2], "name": "f"}
    for form in ("delete", "rename"):
        assert client.post(f"{run_of(link)}/{form}", data=data).status_code == 422
    assert link.is_symlink() and path.exists()


def test_tags_are_beside_the_file_and_filter_the_list(client: TestClient, path: Path) -> None:
    write_study(path.with_name("f.sqlite"), WANTED)
    before = path.read_bytes()
    client.post(f"{run_of(path)}/tags", data={"tags": " nightly, <b>x</b>,  ,nightly,zwei  Wörter"})
    assert tags_of(path) == ["nightly", "<b>x</b>", "zwei Wörter"] and path.read_bytes() == before
    page = client.get("/", params={"tag": "<b>x</b>"}).text
    assert "1 of 2 files" in page and "<b>x" not in page and "&lt;b&gt;x&lt;/b&gt;</option>" in page
    assert "0 of 2 files" in client.get("/", params={"tag": "none"}).text
    client.post(f"{run_of(path)}/tags", data={"tags": " "})
    assert not tags_of(path) and not path.with_name("e.sqlite.tags").exists()


@pytest.mark.parametrize("tags", ["a" * 41, "a\x07b", ",".join(map(str, range(21)))])
def test_tags_that_are_too_long_too_many_or_invisible_are_refused(
    client: TestClient, path: Path, tags: str
) -> None:
    assert client.post(f"{run_of(path)}/tags", data={"tags": tags}).status_code == 422
    assert not tags_of(path)


def test_the_history_of_a_study_has_the_files_with_its_title(client: TestClient, path: Path) -> None:
    for day in range(1, 4):
        wanted = Synthetic(effects=(1.0, 1.2), blocks=6, created_unix_s=CREATED_UNIX_S + day * 86_400)
        write_study(path.with_name(f"{day}.sqlite"), wanted)
    write_study(path.with_name("other.sqlite"), Synthetic(title="Another", blocks=6))
    page = client.get(f"{run_of(path)}/history")
    assert page.status_code == 200 and "4 files" in page.text and "<svg" in page.text
    assert "other.sqlite" not in page.text


# ----------------------------------------------------------------------
# Running studies
# ----------------------------------------------------------------------


BLOCK = SimpleNamespace(order=(1, 0))


def lab_of(path: Path, interruption: Interruption) -> Any:
    return SimpleNamespace(writer=SimpleNamespace(path=path), interruption=interruption)


@pytest.mark.parametrize(
    "hook",
    [lambda lab: stop.after_block(lab, 0, None), lambda lab: stop.before_drive(lab, BLOCK, {1: None}, [])],
)
def test_a_request_stops_its_process_once_as_ctrl_c_does(path: Path, hook: Callable[[Any], object]) -> None:
    with Interruption() as interruption:
        assert not hook(lab_of(path, interruption)) and not interruption.requested
        stop.ask(path, os.getpid() + 1)
        assert not hook(lab_of(path, interruption)) and not interruption.requested
        stop.ask(path, os.getpid())
        assert not hook(lab_of(path, interruption))
        assert (interruption.requested, interruption.number) == (True, signal.SIGINT)
        stop.ask(path, os.getpid())
        hook(lab_of(path, interruption))  # a second signal would abort it
    assert not stop.request_of(path).exists()


def test_a_block_that_has_begun_is_measured_to_its_end(path: Path) -> None:
    stop.ask(path, os.getpid())
    with Interruption() as interruption:
        stop.before_drive(lab_of(path, interruption), BLOCK, {0: None}, [])
        assert not interruption.requested


def test_a_request_for_an_earlier_process_is_void(path: Path) -> None:
    stop.ask(path, os.getpid())
    WebOptions().begin(path)
    assert stop.request_of(path).exists()  # for this one
    stop.ask(path, os.getpid() + 1)
    WebOptions().begin(path)
    assert not stop.request_of(path).exists()


def test_the_page_of_a_running_study_has_a_form_that_stops_it(client: TestClient, path: Path) -> None:
    path.unlink()
    wanted = Synthetic(effects=(1.0, 1.2), blocks=6, ended=None)
    with QuickWriter.create(path, study_of(wanted), arms_of(wanted)) as writer:
        write_block(writer, wanted, 0, np.random.default_rng(1))
        page = client.get(live_of(path)).text
        assert f'action="{live_of(path)}/stop" data-in="beginning running">' in page
        assert client.post(f"{live_of(path)}/stop").headers["location"] == live_of(path)
        assert stop.request_of(path).read_text() == f"{os.getpid()}\n"
        assert ">stopping</span>" in client.get(live_of(path)).text
        busy = client.post(f"{live_of(path)}/continue")
        assert busy.status_code == 422 and "is running" in busy.text
    late = client.post(f"{live_of(path)}/stop")
    assert late.status_code == 422 and "it has ended" in late.text


def test_a_study_is_continued_as_its_command_does_with_a_log_beside_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(studies, "PROGRAM", ("/bin/echo",))
    of = Studies(Index(path.parent))
    assert not of.is_beginning(path)
    of.start(path, ["compare", "--resume", str(path), "--minutes=5"])
    of._started[path].process.wait(60)
    assert end_of_log(path) == [
        f"$ pgdyno compare --resume {path} --minutes=5",
        f"compare --resume {path} --minutes=5",
    ]
    assert of.pid_of(path) is None and not of.is_beginning(path)


@pytest.mark.parametrize("minutes", ["-1", "0", "x", "5 --web", "nan", "1e999"])
def test_minutes_are_validated_by_the_command_line(client: TestClient, path: Path, minutes: str) -> None:
    found = client.post(f"{live_of(path)}/continue", data={"minutes": minutes})
    assert found.status_code == 422 and "--minutes" in found.text
    assert not log_of(path).exists()


def test_a_file_without_a_study_is_not_continued(client: TestClient, path: Path) -> None:
    path.with_name("f.sqlite").write_text("no database")
    assert client.post(f"{live_of(path.with_name('f.sqlite'))}/continue").status_code == 404


SQL = {"kind": "pgbench", "scale": 1, "scripts": [{"name": "x", "text": "COPY t TO PROGRAM 'evil'"}]}


def change(path: Path, place: str, value: object, of: str = "TRUE") -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        query = f"UPDATE study_case SET plan = json_set(plan, '$.{place}', json(?)) WHERE {of}"
        assert connection.execute(query, (json.dumps(value),)).rowcount


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("beside", ["pg_dump"]),
        ("workload", SQL),
        ("workload", {"kind": "sysbench", "allow_os": True}),
        ("workload", {"kind": "load", "dataset": SQL}),
        ("workload.upgrade_from", "git:/tmp/evil@main"),
        ("warmup_workload", SQL),
        ("drivings", [{"workload": SQL, "clients": 1}] * 2),
        ("arms[1].server", "18,extension=/tmp/evil"),
        ("arms[1].is_dsn", True),
        ("arms[1].extension", "/tmp/evil"),
        ("arms[1].settings", {"archive_command": "evil"}),
    ],
)
def test_a_study_with_a_program_is_continued_by_its_command_only(
    client: TestClient, path: Path, place: str, value: object
) -> None:
    change(path, place, value)
    found = client.post(f"{live_of(path)}/continue")
    assert found.status_code == 422 and f"pgdyno compare --resume {path}" in found.text
    assert not log_of(path).exists()


def test_a_program_of_a_later_case_is_not_started_either(client: TestClient, path: Path) -> None:
    path.unlink()
    write_study(path, *(replace(WANTED, levels={"clients": n}) for n in "12"))
    change(path, "beside", ["pg_dump"], "case_id = 1")
    found = client.post(f"{live_of(path)}/continue")
    assert found.status_code == 422 and f"pgdyno compare --resume {path}" in found.text


def test_a_study_with_built_in_scripts_may_be_continued(client: TestClient, path: Path) -> None:
    change(path, "workload", {"kind": "pgbench", "scale": 1})
    found = client.post(f"{live_of(path)}/continue", data={"minutes": "0"})
    assert found.status_code == 422 and "--minutes" in found.text  # which the command line refuses


def test_a_started_study_has_the_priority_that_the_server_had_at_first(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(studies, "PROGRAM", SLEEPING)
    monkeypatch.setattr(studies, "parsed", lambda _: {})
    before, found = psutil.Process().nice(), list[int]()

    def serve() -> None:
        of = Studies(Index(path.parent))
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(19, before + 7))
        of.start(path, ["compare"])
        process = of._started[path].process
        found.append(psutil.Process(process.pid).nice())
        process.kill()
        process.wait()

    thread = threading.Thread(target=serve)  # its priority ends with it
    thread.start()
    thread.join()
    assert found == [before]


def test_a_study_keeps_its_state_while_its_process_prepares(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(studies, "PROGRAM", SLEEPING)
    monkeypatch.setattr(studies, "parsed", lambda _: {})
    index = Index(path.parent)
    of = Studies(index)
    of.start(path, ["compare"])
    process = of._started[path].process
    try:
        assert index.wait(60)  # a reader keeps the writer waiting
        assert of.is_beginning(path) and of.pid_of(path) == process.pid
        with QuickWriter.resume(path):
            assert not of.is_beginning(path)
        with Evidence(path, verify=False) as evidence:
            assert evidence.study().ended_because is None
    finally:
        process.kill()
        process.wait()
    assert of.pid_of(path) is None
