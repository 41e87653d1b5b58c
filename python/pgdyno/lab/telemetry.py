"""The telemetry of a run's trials: what probes read around its measured part, and sample while it goes on.

Probes never fail a trial: what they cannot tell has its reason in the evidence. A server that is lost fails
the trial by the driver's word, not by theirs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import psycopg
from psycopg import sql

from pgdyno.caveats import Caveat, Code
from pgdyno.errors import ServerError
from pgdyno.evidence.records import Moment, Reading, Series
from pgdyno.lab.arm import Connection, LabArm
from pgdyno.lab.trial import Lab, Trial
from pgdyno.probe.host_counters import HostCounters
from pgdyno.probe.sample import sample, sample_waits
from pgdyno.probe.sampled_server import Target
from pgdyno.probe.sampler import Cost, Sampler, monotonic_of
from pgdyno.probe.series import Chunk, step_for
from pgdyno.probe.server import EXTENSIONS, PROBES, read

AFTER_VACUUM = ("relations", "database")
"""What is read once more after a VACUUM: sizes."""

SAMPLED = frozenset(name for name, probe in PROBES.items() if probe.in_series)
"""Probes of which something is in the one-second series of the server."""


@dataclass
class Telemetry:
    """Of the trials that are up together. ``epoch_unix_s``, ``driver_pid``: known when the run starts."""

    lab: Lab
    trials: Sequence[Trial]
    connections: dict[int, Connection]  # by trial id; an arm whose server was lost is not among them
    epoch_unix_s: float = 0.0
    driver_pid: int | None = None
    _sampler: Sampler | None = None
    _host: HostCounters | None = None
    _cost: Cost | None = None
    _readings: dict[int, list[Reading]] = field(default_factory=dict)

    @classmethod
    @contextlib.contextmanager
    def open(cls, lab: Lab, trials: Sequence[Trial]) -> Iterator[Telemetry]:
        """Connects to every server, with the extensions that the probes need where the database is ours."""
        with contextlib.ExitStack() as stack:
            connections = {}
            for trial in trials if lab.study.probes else ():
                if trial.arm.is_restored():
                    _create_extensions(lab, trial.arm)
                connections[trial.id] = trial.arm.connect()
                stack.callback(connections[trial.id].close)
            telemetry = cls(lab, trials, connections)
            stack.callback(telemetry._stop_sampling)
            yield telemetry

    def note_driver(self, pid: int) -> None:
        """The driver has started."""
        self.driver_pid = pid

    def begin(self) -> None:
        """At the barrier before the measured part."""
        if not self.lab.study.probes:
            return
        if "host" in self.lab.study.probes:
            paths = [path for trial in self.trials if (path := trial.arm.data_path()) is not None]
            self._host = HostCounters(paths, self.driver_pid)
        self._read(Moment.BEGIN)
        asked = frozenset(self.lab.study.probes)
        targets = [
            Target(
                number,
                trial.arm.connect,
                sample if asked & SAMPLED else None,
                sample_waits if "waits" in asked else None,
                trial.arm.postmaster_pid,
            )
            for number, trial in enumerate(self.trials)
        ]
        host = self._host.read if self._host else dict
        self._sampler = Sampler(
            targets, host, monotonic_of(self.epoch_unix_s), step_s=step_for(self.lab.study.window_likely_s())
        )
        self._sampler.start()

    def end(self) -> None:
        """At the barrier after it."""
        if not self.lab.study.probes:
            return
        self._stop_sampling()
        self._read(Moment.END)

    def store_series(self) -> None:
        """What was sampled since the last time goes into the evidence."""
        if self._sampler is not None:
            for chunk in self._sampler.drain():
                self._store(chunk)

    def vacuum_and_read(self, trial: Trial) -> None:
        """VACUUM, and what it leaves. Raises psycopg.Error, ServerError."""
        with trial.arm.connect() as connection:
            connection.execute("VACUUM")
        for probe in AFTER_VACUUM:
            if probe in self.lab.study.probes:
                self._note(trial, Moment.AFTER, probe)

    def readings_of(self, trial: Trial) -> Sequence[Reading]:
        """All of a trial."""
        return self._readings.get(trial.id, [])

    def cpu_s(self, trial: Trial) -> float | None:
        """What sampling this trial's server has cost: its backend and its share of our thread."""
        return None if self._cost is None else self._cost.of(list(self.trials).index(trial))

    def _stop_sampling(self) -> None:
        if self._sampler is not None:
            self._sampler.stop()
            self.store_series()
            self._cost = self._sampler.mark()
            self._sampler = None

    def _store(self, chunk: Chunk) -> None:
        trial = self.trials[chunk.target]
        if len(chunk.points):
            self.lab.writer.add_series(trial.id, Series(chunk.probe, chunk.columns, chunk.points))
        if chunk.reason:
            self._say_why(trial, chunk.probe, chunk.reason)

    def _read(self, moment: Moment) -> None:
        for trial in self.trials:
            for probe in self.lab.study.probes:
                self._note(trial, moment, probe)

    def _note(self, trial: Trial, moment: Moment, probe: str) -> None:
        at_s = time.time() - self.epoch_unix_s
        if probe == "host":
            begun_s = time.monotonic()
            rows = [dict(self._host.read())] if self._host else None
            reading = Reading(probe, moment, at_s, time.monotonic() - begun_s, rows)
        else:
            reading = self._asked(trial, moment, probe, at_s)
        self._readings.setdefault(trial.id, []).append(reading)

    def _asked(self, trial: Trial, moment: Moment, probe: str, at_s: float) -> Reading:
        try:
            found = read(self.connections[trial.id], probe)
        except psycopg.Error as error:
            return Reading(probe, moment, at_s, 0.0, None, f"the connection was lost: {_in_one_line(error)}")
        return Reading(probe, moment, at_s, found.took_s, found.rows, found.reason)

    def _say_why(self, trial: Trial, probe: str, reason: str) -> None:
        names = {"arm": trial.arm.name, "probes": f"the series of {probe}", "reason": reason}
        self.lab.writer.add_caveat(Caveat(Code.PROBE_UNAVAILABLE, names, trial.id), self.lab.case)


def _create_extensions(lab: Lab, arm: LabArm) -> None:
    """In a database of ours; where the build has them. What is missing is the probe's to say."""
    for probe in lab.study.probes:
        if name := EXTENSIONS.get(probe):
            with contextlib.suppress(psycopg.Error, ServerError), arm.connect() as connection:
                connection.execute(sql.SQL("CREATE EXTENSION IF NOT EXISTS {}").format(sql.Identifier(name)))


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())
