"""Crash test in its small form, and proof that it detects violations."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from crash import PHASES, SIZES, CrashTest, Deck, prepared
from crash_ledger import faults, finished
from crash_victims import VICTIMS, find, strike
from program import Program, measuring

from pgdyno.results.reader import Evidence
from pgdyno.results.records import TrialStatus

SEED = 6
KILLS = 5
"""One of each victim."""


@pytest.fixture
def world(server_dir: Path) -> Iterator[Program]:
    """pgdyno with its own cache, home and directory."""
    program = prepared(server_dir)
    yield program
    program.end()
    assert program.survivors() == []


def test_no_kill_loses_a_finished_trial_or_leaves_anything(world: Program, server: str) -> None:
    lines: list[str] = []
    test = CrashTest(world, server, Deck(SEED), KILLS, lines.append)
    test.run()
    assert {kill.victim for kill in test.kills} == set(VICTIMS), lines
    assert len(lines) == KILLS
    assert any(key[0] == "trial" for study in test.studies for key in study.finished)


def test_a_killed_pgdyno_and_its_resume_do_not_disturb_another_one_on_the_same_cache(
    world: Program, server: str
) -> None:
    lives, dies = world.folder / "lives.sqlite", world.folder / "dies.sqlite"
    words = ("compare", *SIZES, "--seed", "1", "--window", "0.4s")
    killed = world.start(*words, "--evidence", dies, server, server)
    killed.until(lambda: measuring(dies))
    # Every block of the other study is counted, including those with a kill.
    undisturbed = world.start(*words, "--evidence", lives, server, server)
    undisturbed.until(lambda: measuring(lives))
    assert strike(find(psutil.Process(killed.process.pid), "everything"))
    killed.ended()
    resumed = world.run("compare", "--resume", dies, "--json")
    ended = undisturbed.ended()
    assert (resumed.status, ended.status) == (0, 0), (resumed.err, ended.err)
    for evidence in (lives, dies):
        assert faults(evidence, {}, ended=True) == []
    with Evidence(lives) as opened:
        assert {trial.status for trial in opened.trials(all_attempts=True)} == {TrialStatus.OK}
    assert not list(world.cache.glob("runs/run-*"))
    assert not list(world.sockets.iterdir())


def test_a_seed_determines_victims_and_times() -> None:
    drawn = [[deck.draw(under_way=False) for _ in range(40)] for deck in (Deck(3), Deck(3), Deck(4))]
    assert drawn[0] == drawn[1] != drawn[2]
    assert {kill.victim for kill in drawn[0]} == set(VICTIMS)
    assert {kill.phase for kill in drawn[0]} == set(PHASES)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ("update trial set started_unix_s = 1 where trial = 1", "finished trial 1 is changed"),
        (
            "update histogram set pairs = cast(pairs || x'00' as blob) where trial = 2",
            "finished trial 2 is changed",
        ),
        ("delete from reading where trial = 1", "finished trial 1 is changed"),
        ("update block set seed = 1", "finished block 0 0 is changed"),
        ("update block set block = 4", "are not numbered"),
        ("update trial set attempt = 2", "attempts of a trial are not numbered"),
        ("update trial set status = 'failed' where trial = 1", "a finished block lacks a finished trial"),
        ("update trial set status = 'running' where trial = 1", "a trial is still running"),
        ("update trial set transactions = transactions + 1", "do not add up to its transactions"),
        ("update histogram set n = n + 1", "do not hold its counted transactions"),
        ("delete from slice_count where trial = 1", "has no counts"),
        ("delete from check_result where trial = 2", "failed a check, or had none"),
        ("update slice set trial = 99 where trial = 1", "foreign_key_check"),
        ("update study set ended_because = null", "the study has no ending"),
    ],
)
def test_the_examination_of_evidence_finds(
    loaded: Program, tmp_path: Path, server: str, change: str, finding: str
) -> None:
    evidence = tmp_path / "e.sqlite"
    (made,) = loaded.folder.glob("pgdyno-*.sqlite")
    shutil.copy(made, evidence)
    before = finished(evidence)
    assert faults(evidence, before, ended=True) == []
    with closing(sqlite3.connect(evidence)) as changed:
        changed.execute("pragma foreign_keys = off")
        changed.execute(change)
        changed.commit()
    assert any(finding in fault for fault in faults(evidence, before, ended=True))


def test_only_own_descendants_are_killed() -> None:
    with subprocess.Popen(["sleep", "600"]) as child, subprocess.Popen(["sleep", "600"]) as other:
        root = psutil.Process(child.pid)
        assert find(root, "everything") == [root]
        assert find(psutil.Process(os.getpid()), "engine") == []
        assert strike([root]) == [child.pid]
        assert child.wait() == -signal.SIGKILL
        assert strike([root]) == []
        assert other.poll() is None
        other.kill()
