"""The agent of a host and the process of its study, without Ray and without servers."""

from __future__ import annotations

import io
import os
import sqlite3
import sys
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace

import pytest

from pgdyno.analysis.comparison import Verdict
from pgdyno.errors import UsageError
from pgdyno.features.fitting import options as fit_options
from pgdyno.features.fitting.fit import FitMachine
from pgdyno.features.fleet import host_process
from pgdyno.features.fleet.host import (
    CHUNK_BYTES,
    Chunk,
    HostAgent,
    HostEnd,
    HostFiles,
    HostMessage,
    HostTask,
    SnapshotEnd,
    SnapshotReceiver,
    StatusOfProgress,
    chunks_of,
)
from pgdyno.features.hosts.fleet_record import StudyChoices
from pgdyno.measure.progress import (
    ArmVerdict,
    BlockEnded,
    BlockStarted,
    InterimVerdicts,
    LoadProgress,
    PreparationStep,
    Running,
)
from pgdyno.results.records import StudyEnd
from pgdyno.server.cache_directory import Cache, items, prune
from pgdyno.study.cases import Request
from pgdyno.study.schedule import Role
from pgdyno.units import Better, Estimate


@pytest.fixture
def cache(server_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PGDYNO_CACHE", str(server_dir))
    return server_dir


def task(text: str, *, is_resumed: bool = False) -> HostTask:
    return HostTask(
        name="s-a",
        title="s",
        study="s.toml",
        text=text,
        choices=StudyChoices(),
        command="pgdyno run",
        is_resumed=is_resumed,
        password="hidden",
        snapshot_s=0.0,
    )


def messages(agent: HostAgent) -> list[HostMessage]:
    """Return the messages until the end of the study."""
    found = [agent.poll(0, 60.0)]
    while found[-1].end is None:
        found.append(agent.poll(found[-1].number, 60.0))
    return found


def test_an_error_in_the_study_is_the_end_of_the_host_whose_files_stay_without_its_password(
    cache: Path,
) -> None:
    """Files are pruned by age unless their agent or study lives."""
    old, agent = HostFiles("old"), HostAgent()
    with old.held():  # as the process of a study whose agent is lost
        old.evidence.write_bytes(b"x" * 9000)
        assert agent.begin(task("title = 1"), []) == ""
        end = messages(agent)[-1].end
        assert end is not None
        assert "s-a.toml" in end.error
        assert end.ending == ""
        paths = [path for path in (cache / "fleet" / "s-a").iterdir() if path.is_file()]
        assert "s-a.toml" in {path.name for path in paths}
        assert not [path for path in paths if b"hidden" in path.read_bytes()]
        found = items(Cache.open())
        assert [(one.kind, one.name, one.in_use) for one in found] == [
            ("fleet", "old", True),
            ("fleet", "s-a", True),
        ]
        assert found[0].size_bytes >= 9000
        for name in ("old", "s-a"):
            os.utime(cache / "fleet" / name, (0, 0))
        assert prune(Cache.open(), older_than_s=60.0) == []
    assert prune(Cache.open()) == [], "not collected yet"
    assert [one.name for one in prune(Cache.open(), older_than_s=60.0)] == ["old"]
    assert not old.folder.exists()
    assert HostFiles("s-a").study.exists()
    agent.remove_files()
    assert not items(Cache.open())


@pytest.mark.parametrize("suffix", ["sqlite", "snapshot"])
def test_a_new_study_neither_sends_nor_removes_files_of_an_earlier_one(cache: Path, suffix: str) -> None:
    files, agent = HostFiles("s-a"), HostAgent()
    earlier = files.folder / f"s-a.{suffix}"
    with files.held():
        earlier.write_bytes(b"earlier")
    assert "an earlier study" in agent.begin(task(""), [])
    assert earlier.read_bytes() == b"earlier" and not files.log.exists()
    agent.remove_files()


def test_a_host_keeps_its_own_newer_results_file(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = HostFiles("s-a")
    with own.held():
        own.evidence.write_bytes(b"newer")
    (tmp_path / "older").write_bytes(b"older")
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nread task\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    agent = HostAgent()
    assert agent.begin(task("", is_resumed=True), list(chunks_of(tmp_path / "older"))) == ""
    end = messages(agent)[-1].end
    assert end is not None and end.error
    assert own.evidence.read_bytes() == b"newer"
    agent.remove_files()


def test_the_results_file_is_sent_after_a_failure_and_messages_are_repeated(
    cache: Path, tmp_path: Path
) -> None:
    """The file of a resumed study arrives in chunks. The resume fails, because it is another database."""
    path = tmp_path / "e.sqlite"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE t (x)")
    agent = HostAgent()
    assert agent.begin(task("", is_resumed=True), list(chunks_of(path))) == ""
    receiver = SnapshotReceiver(tmp_path / "copy.sqlite")
    message = agent.poll(0, 60.0)
    assert agent.poll(0, 60.0) == message, "not acknowledged"
    while message.end is None:
        if message.part is not None:
            receiver.add(message.part)
        message = agent.poll(message.number, 60.0)
    assert message.end.error
    receiver.close()
    assert receiver.path.stat().st_size > 0
    assert agent.poll(message.number, 0.0, again=True).part is not None
    agent.remove_files()


def test_a_snapshot_taken_during_a_transfer_does_not_restart_it(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk is sent per poll: with a snapshot after every block, a large file would never arrive."""
    agent = HostAgent()
    agent._files = HostFiles("s-a")
    monkeypatch.setattr(agent, "_finish", lambda _: None)
    snapshot, sent = agent._files.snapshot, []
    with agent._files.held():
        for content in (b"a", b"b", b"c"):
            (snapshot.parent / "next").write_bytes(content * 2 * CHUNK_BYTES)
            (snapshot.parent / "next").replace(snapshot)
            agent._read(io.StringIO('{"snapshot": true}\n'))
            sent.append(agent.poll(len(sent), 0.0).part)
    assert [part.offset for part in sent[:2] if isinstance(part, Chunk)] == [0, CHUNK_BYTES]
    assert isinstance(sent[2], SnapshotEnd) and sent[2].size_bytes == 2 * CHUNK_BYTES
    assert sent[2].digest == blake2b(b"a" * 2 * CHUNK_BYTES).digest()


def test_a_last_snapshot_that_cannot_be_read_is_an_error_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("no such device")

    agent = HostAgent()
    agent._end = HostEnd("verdict")
    monkeypatch.setattr(agent._sender, "next", fail)
    end = agent.poll(0, 0.0).end
    assert end is not None and end.ending == "" and "no such device" in end.error


LEVELS = """
title = "t"
compare = ["settings"]
server = "18"
workload = {kind = "tpcc"}
run = {repeats = 10, window = "20s"}
source = {author = "a", year = 2020, title = "t", where = "w", machine = {cores = 64, memory = "64GB", disk = "d", description = "d"}}
[factors]
warehouses = [1, 2]
clients = [1, 64]
settings = {on = {synchronous_commit = "on"}, off = {synchronous_commit = "off"}}
"""  # noqa: E501 - a table within a table of TOML


def started(
    monkeypatch: pytest.MonkeyPatch, choices: StudyChoices, cores: int = 64, cases: tuple[str, ...] = ()
) -> Request:
    """Return the request with which the process of a host starts its study."""
    requests: list[Request] = []
    machine = FitMachine(cores, cores << 30, 1 << 40)

    def start(path: Path, request: Request, *_: object) -> StudyEnd:
        requests.append(request)
        return StudyEnd.BUDGET

    monkeypatch.setattr(host_process, "start_study", start)
    monkeypatch.setattr(fit_options, "fit_machine", lambda: machine)
    monkeypatch.setattr(host_process.threading, "Thread", lambda **_: SimpleNamespace(start=lambda: None))
    of = task(LEVELS).model_copy(update={"choices": choices, "cases": cases})
    assert host_process.run_task(of) == StudyEnd.BUDGET
    return requests[0]


def test_each_host_fits_the_study_to_itself(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choices = StudyChoices(fit=True, anyway=True, minutes=20.0)
    small, large = (started(monkeypatch, choices, cores) for cores in (2, 64))
    assert small.file == large.file == LEVELS, "the same study, so that the files can be pooled"
    assert small.changes and small.changes != large.changes
    assert [one.study.clients for one in small.cases] != [one.study.clients for one in large.cases]


def test_a_case_of_a_host_has_all_arms(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = "warehouses 2, clients 64"
    request = started(monkeypatch, StudyChoices(), cases=(asked,))
    (one,) = request.cases
    assert (one.name, [arm.name for arm in one.study.arms]) == (asked, ["on", "off"]) and request.is_part


@pytest.mark.parametrize("name", ["../x", "", "a/b", ".x"])
def test_a_name_cannot_leave_the_directory(cache: Path, name: str) -> None:
    with pytest.raises(UsageError):
        HostFiles(name)


def test_the_status_follows_the_progress() -> None:
    of = StatusOfProgress()
    for event in (
        PreparationStep("finding servers"),
        LoadProgress("tpcc", "load", 0.5),
        BlockStarted(0, 9, 1.0, 60.0, "tx/s", "clients 8", ("17", "18")),
        Running(1, Role.MEASURE, 1234.0, None),
    ):
        of.note(event)
    assert (of.status.step, of.status.case, of.status.rate) == ("measuring 18", "clients 8", 1234.0)
    change = Estimate(2.0, "%", 6, Better.MORE, 1.0, 3.0, 0.95)
    of.note(InterimVerdicts((ArmVerdict("18", "17", Verdict.UNDECIDED, change, 4),), 10.0))
    of.note(BlockEnded(0, (1.0, 2.0)))
    assert of.status.blocks == 1
    assert of.status.standings["clients 8"][0].startswith("18 vs. 17: +2")
