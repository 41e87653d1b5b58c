"""A crash test: kills pgdyno, its engine or a server at random moments, resumes, and looks at what is left.

    python tests/e2e/crash.py --kills 50 --seed 7        # make crash-test N=50 SEED=7

Studies run one after the other in a cache of their own. Every kill is drawn from the seed: the victim, the
phase that it waits for, and how long after that it strikes. After each death of pgdyno the evidence is
examined, and the study is resumed until it ends in order. The first violation ends the test and keeps its
directory.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil
from crash_ledger import Digests, faults, finished
from crash_victims import ENDS_PGDYNO, VICTIMS, Victim, find, strike
from program import END_S, PAUSE_S, SCRIPT, Program, Running

from pgdyno.results.reader import Evidence
from pgdyno.server.build_store import system_builds
from shared_memory import Segment, of_postmaster, still_there

T = TypeVar("T")

BLOCKS = 3
SIZES = (
    *("--workload", "pgbench", "--scale", "1", "--clients", "2", "--minutes", "60", "--stop", "budget"),
    *("--slice", "0.2s", "--warmup", "0.2s", "--blocks", str(BLOCKS)),
)
"""The smallest study of real servers, with blocks of 1 to 2 s. --blocks ends it within a wide budget."""

SCHEDULES = ("slices", "blocks", "duet")

PHASES: dict[str, tuple[float, tuple[Victim, ...]]] = {
    "start": (0.4, VICTIMS),
    "loading": (0.2, VICTIMS),
    "restore": (0.02, VICTIMS),
    "block": (0.3, VICTIMS),
    "block end": (0.1, VICTIMS),
    "report": (0.15, ("pgdyno", "everything")),
    "anywhere": (1.0, VICTIMS),
}
"""Phases that a kill waits for, with the maximum delay as a share of the duration of a run, and possible
victims.
"""

AT_THE_START = frozenset({"start", "loading"})
"""Phases in the first seconds of a run: their kills are drawn before pgdyno starts."""

RUN_S = 12.0
"""Assumed duration of a run of pgdyno, until one has been completed."""


class Violation(AssertionError):
    """A state that no kill may cause."""


@dataclass(frozen=True)
class Kill:
    """A planned kill. ``delay``: share of the duration of a run."""

    victim: Victim
    phase: str
    delay: float


class Deck:
    """Draws kills, with equal numbers per victim and about equal numbers per phase."""

    def __init__(self, seed: int) -> None:
        self._random, self._choice = random.Random(seed), random.Random(seed)
        self._victims: list[Victim] = []
        self._phases: list[str] = []

    def one_of(self, processes: Sequence[psutil.Process]) -> list[psutil.Process]:
        """Draw one of several victims, if there are any."""
        return self._choice.sample(processes, min(1, len(processes)))

    def draw(self, *, under_way: bool) -> Kill:
        """Draw the next kill. ``under_way``: pgdyno has started and no longer loads."""
        victim = self._next(self._victims, VICTIMS, lambda _: True)
        phase = self._next(
            self._phases,
            list(PHASES),
            lambda one: victim in PHASES[one][1] and not (under_way and one in AT_THE_START),
        )
        return Kill(victim, phase, self._random.uniform(0, PHASES[phase][0]))

    def give_back(self, victim: Victim) -> None:
        """Return a kill that found no victim: it is the next one again."""
        self._victims.insert(0, victim)

    def options(self) -> tuple[str, ...]:
        """Draw the options of the next study."""
        seed = self._random.randrange(1 << 32)
        window = self._random.choice(("0.4s", "1s"))
        return ("--seed", str(seed), "--window", window, "--schedule", self._random.choice(SCHEDULES))

    def _next(self, left: list[T], everything: Sequence[T], fits: Callable[[T], bool]) -> T:
        """Draw the first matching kill of a shuffled deck, refilled if none matches."""
        if not any(map(fits, left)):
            left += self._random.sample(everything, len(everything))
        chosen = next(filter(fits, left))
        left.remove(chosen)
        return chosen


@dataclass
class StudyUnderTest:
    """A study over several runs of pgdyno."""

    number: int
    evidence: Path
    options: Sequence[str]
    runs: int = 0
    finished: Digests = field(default_factory=dict)
    memory: set[Segment] = field(default_factory=set)  # of servers when something was killed
    may_fail: bool = False  # an engine or a server was killed

    @property
    def ended(self) -> bool:
        """Return whether the results file is complete, so that nothing can be resumed."""
        if not self.evidence.exists():
            return False
        with Evidence(self.evidence) as opened:
            return opened.study().ended_because is not None


@dataclass
class CrashTest:
    """The complete test: studies with kills, up to a number of kills."""

    program: Program
    server: str
    deck: Deck
    kills_wanted: int
    say: Callable[[str], None]
    kills: list[Kill] = field(default_factory=list)
    studies: list[StudyUnderTest] = field(default_factory=list)
    run_s: float = RUN_S

    def run(self) -> None:
        """Run the test. Raises Violation."""
        while self._wants_more:
            name = f"study-{len(self.studies) + 1}.sqlite"
            study = StudyUnderTest(len(self.studies) + 1, self.program.folder / name, self.deck.options())
            self.studies.append(study)
            while not self._run_once(study):
                pass

    def summary(self) -> str:
        """Summarize victims, phases and results."""
        victims = Counter(kill.victim for kill in self.kills)
        phases = Counter(kill.phase for kill in self.kills)
        runs = sum(study.runs for study in self.studies)
        trials = sum(key[0] == "trial" for study in self.studies for key in study.finished)
        return "\n".join(
            (
                f"{len(self.kills)} kills in {runs} runs of {len(self.studies)} studies: no violation.",
                "victims: " + ", ".join(f"{name} {n}" for name, n in sorted(victims.items())),
                "phases: " + ", ".join(f"{name} {n}" for name, n in sorted(phases.items())),
                f"{trials} finished trials, each unchanged after every later kill and resume",
            )
        )

    @property
    def _wants_more(self) -> bool:
        return len(self.kills) < self.kills_wanted

    def _run_once(self, study: StudyUnderTest) -> bool:
        """Run pgdyno once, until it ends or is killed, and examine the results. Return whether the study is
        complete.
        """
        kill = self.deck.draw(under_way=False) if self._wants_more else None
        if kill is not None and kill.phase == "loading":
            for path in self.program.cache.glob("datasets/[!.]*"):
                shutil.rmtree(path)
        resumes = study.evidence.exists()
        words: tuple[str | Path, ...] = (
            ("compare", "--resume", study.evidence)
            if resumes
            else ("compare", *SIZES, *study.options, "--evidence", study.evidence, self.server, self.server)
        )
        running = self.program.start(*words)
        study.runs += 1
        begun_s = time.monotonic()
        self._disturb(study, running, kill)
        status = running.ended().status
        self._examine(study, running)
        if status == 0:
            self.run_s = time.monotonic() - begun_s
        return status >= 0 and (status == 0 or study.ended)

    def _disturb(self, study: StudyUnderTest, running: Running, kill: Kill | None) -> None:
        """Kill until pgdyno is dead or has ended."""
        begun_s = time.monotonic()
        while kill is not None:
            if not self._kill(study, running, kill, begun_s):
                self.deck.give_back(kill.victim)
            ended = running.process.poll() is not None
            kill = self.deck.draw(under_way=True) if self._wants_more and not ended else None
        running.ended()

    def _kill(self, study: StudyUnderTest, running: Running, kill: Kill, begun_s: float) -> bool:
        """Wait for the phase, kill, and record the outcome. Return False if there was no victim."""
        if not self._wait_for(study, running, kill):
            return False
        at_s, said = time.monotonic() - begun_s, len(running.err.read_text())
        met = self._strike(study, running, kill)
        if not met:
            return False
        self.kills.append(kill)
        whom = f"{kill.victim} ({', '.join(map(str, met))})"
        outcome = self._outcome(study, running, kill, said)
        self.say(
            f"kill {len(self.kills)} of {self.kills_wanted}: study {study.number}, run {study.runs} "
            f"at {at_s:.2f} s: {kill.phase}: {whom}: {outcome}"
        )
        return True

    def _wait_for(self, study: StudyUnderTest, running: Running, kill: Kill) -> bool:
        """Return whether the phase was reached, with a victim, before pgdyno ended."""
        reached = self._phase(study, running, kill.phase)
        if not _until(running, reached):
            return False
        moment_s = time.monotonic() + kill.delay * self.run_s
        root = psutil.Process(running.process.pid)
        return _until(running, lambda: time.monotonic() >= moment_s and bool(find(root, kill.victim)))

    def _phase(self, study: StudyUnderTest, running: Running, phase: str) -> Callable[[], bool]:
        """Return whether the phase is reached. The results file is not opened: a reader would prevent its
        writer from leaving a single file.
        """
        cache, err = self.program.cache, running.err

        def lines(word: str) -> int:
            return sum(word in line for line in err.read_text().splitlines())

        match phase:
            case "loading":
                return lambda: any(cache.glob("datasets/.*.part"))
            case "restore":
                return lambda: any(
                    not p.with_name("data.restored").exists() for p in cache.glob("runs/run-*/data")
                )
            case "block":
                before = lines("block ")
                return lambda: lines("block ") > before
            case "block end":
                before = lines("tx/s")
                return lambda: lines("tx/s") > before
            case "report":
                lock = study.evidence.with_name(f"{study.evidence.name}.lock")
                return lambda: study.runs > 0 and lines("block ") > 0 and not lock.exists()
            case _:
                return lambda: True

    def _strike(self, study: StudyUnderTest, running: Running, kill: Kill) -> list[int]:
        """Return the process IDs of killed processes; empty if they had ended."""
        root = psutil.Process(running.process.pid)
        study.memory.update(*(of_postmaster(process.pid) for process in find(root, "postmaster")))
        if kill.victim not in ENDS_PGDYNO:
            met = strike(self.deck.one_of(find(root, kill.victim)))
            study.may_fail |= bool(met)
            return met
        # Stopped first, so that everything recorded before its death can be read.
        running.signal(signal.SIGSTOP)
        if not _until(running, lambda: root.status() == psutil.STATUS_STOPPED):
            return []
        if study.evidence.exists():
            with contextlib.suppress(sqlite3.OperationalError):  # the file is being merged with its journal
                study.finished = {**study.finished, **finished(study.evidence)}
        return strike(find(root, kill.victim))

    def _outcome(self, study: StudyUnderTest, running: Running, kill: Kill, said: int) -> str:
        """Describe the outcome in a few words, as soon as it is known."""
        if kill.victim in ENDS_PGDYNO:
            running.ended()
            return f"dead; {sum(key[0] == 'trial' for key in study.finished)} trials were finished"
        _until(running, lambda: len(running.err.read_text()) > said)
        return (running.err.read_text()[said:].strip().splitlines() or ["no word of it"])[0]

    def _examine(self, study: StudyUnderTest, running: Running) -> None:
        """Examine the remains of pgdyno. Raises Violation."""
        ended = running.ended()
        wrong = [f"still running: {line}" for line in self.program.survivors()]
        if "Traceback" in ended.err:
            wrong.append(f"a traceback: {ended.err}")
        if ended.status not in {0, -signal.SIGKILL} and not (ended.status == 1 and study.may_fail):
            wrong.append(f"exit status {ended.status}: {ended.err}")
        if study.evidence.exists():
            wrong += faults(study.evidence, study.finished, ended=ended.status == 0)
            study.finished = finished(study.evidence)
            wrong += self._report_of(study)
        if ended.status >= 0:
            wrong += self._left(study)
        if wrong:
            raise Violation("\n".join(wrong))

    def _report_of(self, study: StudyUnderTest) -> list[str]:
        report = self.program.run("report", study.evidence, "--json")
        if report.status != 0 or not report.json():
            return [f"report ends with status {report.status}: {report.err}"]
        return []

    def _left(self, study: StudyUnderTest) -> list[str]:
        """Return objects that must not exist after a normal end of pgdyno."""
        cache, folder = self.program.cache, self.program.folder
        paths = [*cache.glob("runs/run-*")]
        for kind in ("datasets", "templates"):
            paths += [*cache.glob(f"{kind}/.*.part"), *cache.glob(f"{kind}/.*.gone")]
        paths += [*self.program.sockets.iterdir()]
        if study.ended:  # otherwise its journal files remain for the next resume
            paths += [p for p in folder.iterdir() if p.suffix not in {".sqlite", ".html", ".out", ".err"}]
        mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(cache) in line]
        left = [*paths, *mounts, *(f"shared memory {segment}" for segment in still_there(study.memory))]
        return [f"left: {what}" for what in left]


def _until(running: Running, condition: Callable[[], bool]) -> bool:
    """Wait until the condition holds; False if pgdyno ended first. Raises Violation on a timeout."""
    deadline_s = time.monotonic() + END_S
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.process.wait(PAUSE_S)
            return False
        if condition():
            return True
        if time.monotonic() > deadline_s:
            raise Violation(f"pgdyno hangs; so far it said: {running.err.read_text()}")


def prepared(root: Path) -> Program:
    """pgdyno with separate directories below ``root``: cache, home, state, work."""
    for path in (root, *(root / name for name in ("cache", "cache/sockets", "home", "work"))):
        path.mkdir(mode=0o755, exist_ok=True)
        path.chmod(0o755)  # servers run as another user, whatever the umask is
    home = str(root / "home")
    environ = {"HOME": home, "XDG_CACHE_HOME": f"{home}/cache", "XDG_STATE_HOME": f"{home}/state"}
    return Program(root / "cache", root / "work", environ)


def some_server() -> str:
    """Return the bin directory of an installed server, or of a fetched one in the user's cache."""
    if builds := system_builds():
        return str(builds[0].bin_dir)
    return subprocess.run(
        [SCRIPT, "servers", "path", "18"], capture_output=True, text=True, check=True
    ).stdout.strip()


def main() -> int:
    """Run the command line. Exit status 0: no violation."""
    parser = argparse.ArgumentParser(
        description="Kill pgdyno and what it has started; resume; look at what is left."
    )
    parser.add_argument("--kills", type=int, default=50, help="how many, default %(default)s")
    parser.add_argument("--seed", type=int, default=None, help="of victims and moments, default drawn")
    given = parser.parse_args()
    if given.kills < 1:
        parser.error(f"--kills must be at least 1 (got {given.kills})")
    seed = secrets.randbelow(1 << 32) if given.seed is None else given.seed
    root = Path(tempfile.mkdtemp(prefix="pgdyno-crash-"))
    program = prepared(root)
    print(f"seed {seed}: {given.kills} kills in {root}", flush=True)
    test = CrashTest(program, some_server(), Deck(seed), given.kills, lambda line: print(line, flush=True))
    begun_s = time.monotonic()
    try:
        test.run()
    except AssertionError as violation:
        print(f"VIOLATION after {len(test.kills)} kills (seed {seed}), all is kept in {root}:\n{violation}")
        return 1
    except KeyboardInterrupt:
        print(f"stopped after {len(test.kills)} kills (seed {seed}); all is kept in {root}")
        return 130
    finally:
        program.end()
    shutil.rmtree(root)
    print(f"{test.summary()}\n{time.monotonic() - begun_s:.0f} s, seed {seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
