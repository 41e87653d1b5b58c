"""Crash test in its small form, and proof that it detects violations."""

from __future__ import annotations

import lzma
import os
import shutil
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from crash import PHASES, SIZES, CrashTest, Deck, prepared
from crash_ledger import faults, finished
from crash_victims import VICTIMS, find, strike
from program import Program, begun

from pgdyno.results.reader import Evidence
from pgdyno.results.records import TrialStatus
from pgdyno.study.schedule import block_of

SEED = 1060
KILLS = 5
"""One of each victim."""


FAULTS = (
    ("update trial set started_unix_s = 1 where trial = 1", "finished trial 1 is changed"),
    (
        "update histogram set pairs = cast(pairs || x'00' as blob) where trial = 2",
        "finished trial 2 is changed",
    ),
    ("delete from reading where trial = 1", "finished trial 1 is changed"),
    ("update block set seed = 1", "finished block 0 0 is changed"),
    ("update block set block = block + 9", "are not numbered"),
    ("update trial set attempt = 2", "attempts of a trial are not numbered"),
    ("update trial set status = 'failed' where trial = 1", "a finished block lacks a finished trial"),
    ("update trial set status = 'running' where trial = 1", "a trial is still running"),
    ("update trial set transactions = transactions + 1", "do not add up to its transactions"),
    ("update histogram set n = n - 1000", "do not hold its counted transactions"),
    ("update histogram set n = n + 1", "it cannot be read"),
    ("delete from slice_count where trial = 1", "has no counts"),
    ("delete from check_result where trial = 2", "failed a check, or had none"),
    ("update slice set trial = 99 where trial = 1", "foreign_key_check"),
    ("update study set ended_because = null", "the study has no ending"),
)
"""Changes of a results file, and what the examination finds then."""


FLAWLESS = Path(__file__).parents[1] / "data" / "results_version_4" / "compare.sqlite.xz"


@pytest.fixture
def world(server_dir: Path) -> Iterator[Program]:
    """pgdyno with its own cache, home and directory."""
    program = prepared(server_dir)
    yield program
    program.end()
    assert program.survivors() == []


def test_no_kill_loses_a_finished_trial_or_leaves_anything(
    world: Program, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crash.SIZES", (*SIZES, "--clients", "1"))  # two would fill both cores
    lines: list[str] = []
    test = CrashTest(world, server, Deck(SEED), KILLS, lines.append)
    test.run()
    assert {kill.victim for kill in test.kills} == set(VICTIMS), lines
    assert len(lines) == KILLS
    assert any(key[0] == "trial" for study in test.studies for key in study.finished)


@pytest.mark.long  # kills and resumes: above; two studies on one cache: test_e2e_dsn.py
def test_a_killed_pgdyno_and_its_resume_do_not_disturb_another_one_on_the_same_cache(
    world: Program, server: str
) -> None:
    lives, dies = world.folder / "lives.sqlite", world.folder / "dies.sqlite"
    words = ("compare", *SIZES, "--seed", "1", "--window", "0.4s")
    loading = world.start(*words, server, server)
    loading.until(lambda: any(world.cache.glob("datasets/.*.part")))
    loading.signal(signal.SIGKILL)
    loading.ended()
    assert world.survivors() == []
    assert [path.suffix for path in folders(world.cache / "datasets")] == [".part"]

    # Every block of the other study is counted, including those with a kill.
    undisturbed = world.start(*words, "--blocks", "3", "--evidence", lives, server, server)
    killed = world.start(*words, "--blocks", "2", "--window", "1s", "--evidence", dies, server, server)
    killed.until(lambda: begun(dies, block=1))
    assert strike(find(psutil.Process(killed.process.pid), "everything"))
    loads = killed.ended().err.count(": copy")
    with Evidence(dies) as opened:
        study = opened.study().plan
        assert opened.study().ended_unix_s is None
        assert [block.status for block in opened.blocks()] == ["done", "running"]
    before = finished(dies)
    resumed = world.run("compare", "--resume", dies, "--json")
    assert resumed.case["comparisons"][0]["blocks"] == [0, 1]
    ended = undisturbed.ended()
    assert (resumed.status, ended.status) == (0, 0), (resumed.err, ended.err)
    assert loads + ended.err.count(": copy") == 1
    (dataset,) = folders(world.cache / "datasets")
    assert not dataset.name.startswith(".")
    assert faults(lives, {}, ended=True) == []
    assert faults(dies, before, ended=True) == []
    with Evidence(lives) as opened:
        assert {trial.status for trial in opened.trials(all_attempts=True)} == {TrialStatus.OK}
    with Evidence(dies) as opened:
        blocks, trials = opened.blocks(), opened.trials(all_attempts=True)
        assert opened.study().ended_because == "blocks"
    assert [(b.block, b.seed, tuple(b.arm_order)) for b in blocks] == [
        (planned.index, planned.seed, planned.order) for planned in (block_of(study, 0), block_of(study, 1))
    ]
    # The broken attempt is kept next to the new one.
    attempts = Counter((trial.block, trial.attempt) for trial in trials)
    assert attempts == {(0, 1): 2, (1, 1): 2, (1, 2): 2}
    assert not list(world.cache.glob("runs/run-*"))
    assert not list(world.sockets.iterdir())


def folders(path: Path) -> list[Path]:
    return [one for one in path.iterdir() if one.is_dir()]


def test_a_seed_determines_victims_and_times() -> None:
    drawn = [[deck.draw(under_way=False) for _ in range(40)] for deck in (Deck(3), Deck(3), Deck(4))]
    assert drawn[0] == drawn[1] != drawn[2]
    assert {kill.victim for kill in drawn[0]} == set(VICTIMS)
    assert {kill.phase for kill in drawn[0]} == set(PHASES)


def test_the_examination_finds_each_planted_fault(tmp_path: Path) -> None:
    results = tmp_path / "e.sqlite"
    results.write_bytes(lzma.decompress(FLAWLESS.read_bytes()))
    assert faults(results, {}, ended=True) == []
    before = finished(results)
    for number, (change, finding) in enumerate(FAULTS):
        evidence = shutil.copy(results, results.with_name(f"fault{number}.sqlite"))
        with closing(sqlite3.connect(evidence)) as changed:
            changed.execute("pragma foreign_keys = off")
            changed.execute(change)
            changed.commit()
        assert any(finding in fault for fault in faults(evidence, before, ended=True)), change


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
