"""Collection of the telemetry of trials: probes around the measured part, samples during it.

Probes never fail a trial: the results file has the reason for missing readings. After the loss of a server
the driver fails the trial, not the probes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import psycopg
from psycopg import sql

from pgdyno.analysis.telemetry.counters import SCAN
from pgdyno.analysis.telemetry.trial_telemetry import ON_CPU, RUNNABLE, SWITCHES
from pgdyno.caveats import Caveat
from pgdyno.errors import ServerError, in_one_line
from pgdyno.hooks import Hooks
from pgdyno.measure.arms import Connection, LabArm, brief_session
from pgdyno.measure.host_counters import HostCounters, ServerCpu, scheduled, server_cpu
from pgdyno.measure.sampler import (
    Chunk,
    Cost,
    Sample,
    Sampler,
    SeriesEnd,
    Target,
    WorkerTimes,
    monotonic_of,
    sample,
    sample_waits,
    step_for,
)
from pgdyno.measure.server_probes import EXTENSIONS, PROBES, Row, find_clients, read_probe
from pgdyno.measure.trial import Lab, RunningTrial
from pgdyno.results.records import Moment, SampleSeries, StoredReading
from pgdyno.server.snapshots import WAL
from pgdyno.study.defaults import Absence
from pgdyno.study.plan import Study

OF_SEVERAL_ARMS = "its server counts what other arms do, too"

AFTER_VACUUM = ("relations", "database", "pgstattuple")
"""Probes that are read again after a VACUUM: sizes and free space."""

SEPARATE_SAMPLES_S_MAX = 600.0
"""Longest run in which each wait-event sample is stored separately, so that even a slice of half a second has
samples. In longer runs slices are long, and five rows or more per second would be too many.
"""

SAMPLED = frozenset(name for name, probe in PROBES.items() if probe.in_series)
"""Probes with values in the one-second series of the server."""


CPU_ERROR_SHARE_MAX = 0.05
"""Maximum error of the server's CPU time as a share of it. If processes of the server ended in the window, a
time below 0.4 s is not precise enough.
"""

CPU_TOO_SHORT = (
    "processes of the server ended meanwhile, the kernel rounds their CPU time to 10 ms: measure for longer"
)


class ProbeError(Exception):
    """Raised if a probe of a feature is not possible; the message has the reason and the remedy."""


class RunningProbe(Protocol):
    """A probe of a feature while it runs."""

    def halt(self) -> None:
        """End its measurement promptly, before the last readings. Never raises; safe to call twice."""

    def stop(self) -> Sequence[Row]:
        """Return its rows after ``halt``; this may take minutes. Raises ProbeError."""

    def give_up(self) -> None:
        """End it without rows. Never raises; safe to call twice."""


class OpenCounters(Protocol):
    """Counters of a feature, which are read before and after the measured part."""

    def read(self) -> Row:
        """Return the counts since the start."""

    def close(self) -> None:
        """End counting. Safe to call twice."""


@dataclass(frozen=True)
class ProbeKind:
    """A probe of a feature.

    ``start``: starts it on the server of an arm with the measured part of a trial. ``count``: opens counters
    of the server before the clients connect. ``after``: returns rows after all other readings. All raise
    ProbeError.
    """

    name: str
    start: Callable[[LabArm, Study], RunningProbe] | None = None
    count: Callable[[LabArm], OpenCounters] | None = None
    after: Callable[[LabArm, Study], Sequence[Row]] | None = None


PROBE_KINDS: Hooks[ProbeKind] = Hooks("probes")


@dataclass
class TelemetryCollection:
    """Telemetry of trials that run at the same time. ``epoch_unix_s`` and ``driver_pid`` are set at the start
    of the run. ``driven``: number of the trial that is driven now; None: all of them."""

    lab: Lab
    trials: Sequence[RunningTrial]
    epoch_unix_s: float = 0.0
    driver_pid: int | None = None
    driven: int | None = None
    _sampler: Sampler | None = None
    _host: HostCounters | None = None
    _cost: Cost | None = None
    _readings: dict[int, list[StoredReading]] = field(default_factory=dict)
    _running: list[tuple[RunningTrial, str, RunningProbe]] = field(default_factory=list)
    _counters: dict[tuple[int, str], OpenCounters | ProbeError] = field(default_factory=dict)
    _clients: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by trial: their server processes
    _server_cpu: dict[int, list[ServerCpu]] = field(default_factory=dict)  # by trial: at the barriers
    _ended_s: float = 0.0

    @classmethod
    @contextlib.contextmanager
    def open(cls, lab: Lab, trials: Sequence[RunningTrial]) -> Iterator[TelemetryCollection]:
        """Create extensions for the probes in restored databases, and open the counters. Stop
        sampling and counting at the end.
        """
        for trial in trials:
            if trial.arm.is_restored():
                _create_extensions(lab, trial.arm)
        telemetry = cls(lab, trials)
        try:
            telemetry._open_counters()
            yield telemetry
        finally:
            telemetry._stop_sampling()
            telemetry._close_counters()
            for _, _, probe in telemetry._running:
                probe.give_up()

    def note_driver(self, pid: int) -> None:
        """Store the process ID of the driver."""
        self.driver_pid = pid

    def begin(self) -> None:
        """Read the probes and start sampling, at the barrier before the measured part."""
        if not self.lab.study.probes:
            return
        if "host" in self.lab.study.probes:
            paths = [path for trial in self.trials if (path := trial.arm.data_path()) is not None]
            self._host = HostCounters([*paths, *(path / WAL for path in paths)], self.driver_pid)
        self._read(Moment.BEGIN)
        asked = frozenset(self.lab.study.probes)
        targets = [
            Target(
                number,
                trial.arm.connect,
                sample if asked & SAMPLED else None,
                _wait_sampler(trial.arm) if "waits" in asked else None,
                trial.arm.postmaster_pid,
                each_look=self.lab.study.window_likely_s() <= SEPARATE_SAMPLES_S_MAX,
            )
            for number, trial in enumerate(self.trials)
        ]
        host = self._host.read if self._host else dict
        zero_s, step_s = monotonic_of(self.epoch_unix_s), step_for(self.lab.study.window_likely_s())
        self._sampler = Sampler(targets, host, zero_s, step_s=step_s, driven=lambda: self.driven)
        self._sampler.prepare()
        self._sampler.start()
        for kind in PROBE_KINDS:
            if kind.start is not None and kind.name in asked:
                for trial in self.trials:
                    self._start(kind.name, kind.start, trial)
        self._count(Moment.BEGIN)

    def end(self) -> None:
        """End all measurements and read the probes, at the barrier after the measured part."""
        if not self.lab.study.probes:
            return
        self._count(Moment.END)
        self._close_counters()
        self._ended_s = self._now_s()
        for _, _, probe in self._running:
            probe.halt()
        self._stop_sampling()
        self._read(Moment.END)

    def finish(self) -> None:
        """Store the rows of the features' probes, after all readings of the window."""
        for trial, name, probe in self._running:
            self._end(trial, name, probe.stop)
        self._running.clear()
        for kind in PROBE_KINDS:
            if kind.after is None or kind.name not in self.lab.study.probes:
                continue
            for trial in self.trials:
                begun = StoredReading(kind.name, Moment.BEGIN, self._ended_s, 0.0, ())
                self._readings.setdefault(trial.id, []).append(begun)
                self._end(trial, kind.name, partial(kind.after, trial.arm, self.lab.study))

    def store_series(self) -> None:
        """Write the samples since the last call to the results file."""
        if self._sampler is not None:
            for chunk in self._sampler.drain():
                self._store(chunk)

    def vacuum_and_read(self, trial: RunningTrial) -> None:
        """Run VACUUM and read sizes and free space after it. Raises psycopg.Error, ServerError."""
        with trial.arm.connect() as connection:
            connection.execute("VACUUM")
        self._read_trial(
            trial, Moment.AFTER, [probe for probe in self.lab.study.probes if probe in AFTER_VACUUM]
        )

    def readings_of(self, trial: RunningTrial) -> Sequence[StoredReading]:
        """Return all readings of a trial."""
        return self._readings.get(trial.id, [])

    def read_server_cpu(self) -> None:
        """Read the CPU time of the servers that have only one arm's work."""
        for trial in self.trials:
            pid = trial.arm.postmaster_pid()
            if pid is None or trial.arm.shares_server:
                continue
            # The driver detects and reports a server that has ended.
            with contextlib.suppress(ProcessLookupError):
                self._server_cpu.setdefault(trial.id, []).append(server_cpu(pid))

    def server_cpu_s(self, trial: RunningTrial) -> float | None:
        """Return the CPU time of the trial's server between the barriers; None, with a caveat, if it is less
        than the error allows.
        """
        readings = self._server_cpu.get(trial.id, [])
        if len(readings) != 2:
            return None
        used = readings[1].since(readings[0])
        if used.error_s <= CPU_ERROR_SHARE_MAX * used.used_s:
            return used.used_s
        self._add_unavailable(trial, "CPU time of the server", CPU_TOO_SHORT)
        return None

    def cpu_s(self, trial: RunningTrial) -> float | None:
        """Return the CPU time of sampling this trial's server: its backend and its share of the thread."""
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
            self.lab.writer.add_series(trial.id, SampleSeries(chunk.probe, chunk.columns, chunk.points))
        if chunk.ending is not None:
            self._add_unavailable(trial, chunk.probe, _reason_text(chunk.ending, chunk.reason))

    def _read(self, moment: Moment) -> None:
        """Read the probes. A scan has a session of its own, which reports its blocks when it ends."""
        queried = [probe for probe in self.lab.study.probes if probe == "host" or probe in PROBES]
        parts = [[probe for probe in queried if (probe == SCAN) is scans] for scans in (False, True)]
        for trial in self.trials:
            for probes in filter(None, parts[::-1] if moment is Moment.BEGIN else parts):
                self._read_trial(trial, moment, probes)

    def _read_trial(self, trial: RunningTrial, moment: Moment, probes: Sequence[str]) -> None:
        """Read probes over a new connection, so that only the sampler's connection exists during the
        window."""
        readings = self._readings.setdefault(trial.id, [])
        try:
            with brief_session(trial.arm) as connection:
                if moment is Moment.BEGIN and trial.arm.postmaster_pid() is not None:
                    idle = trial.crash_detector and trial.crash_detector.info.backend_pid
                    found = find_clients(connection)
                    self._clients[trial.id] = tuple(pid for pid in found if pid != idle)
                readings += [self._reading(trial, connection, moment, probe) for probe in probes]
        except (psycopg.Error, ServerError) as error:
            at_s, lost = self._now_s(), _reason_text(SeriesEnd.SERVER_LOST, in_one_line(error))
            readings += [StoredReading(probe, moment, at_s, 0.0, None, lost) for probe in probes]

    def _reading(
        self, trial: RunningTrial, connection: Connection, moment: Moment, probe: str
    ) -> StoredReading:
        at_s, begun_s = self._now_s(), time.monotonic()
        if probe == "host":
            rows = [{**self._host.read(), **self._scheduled(trial)}] if self._host else None
            return StoredReading(probe, moment, at_s, time.monotonic() - begun_s, rows)
        if trial.arm.shares_server and PROBES[probe].of_server:
            return StoredReading(probe, moment, at_s, 0.0, None, OF_SEVERAL_ARMS, Absence.SHARED_SERVER)
        found = read_probe(connection, probe)
        return StoredReading(probe, moment, at_s, found.took_s, found.rows, found.reason, found.absence)

    def _scheduled(self, trial: RunningTrial) -> Mapping[str, float]:
        """Return the CPU time, runnable time and context switches of the backends of the clients."""
        clients = self._clients.get(trial.id)
        of = scheduled(clients) if clients else None
        return {} if of is None else {ON_CPU: of.on_cpu_s, RUNNABLE: of.ready_s, SWITCHES: of.switches}

    def _open_counters(self) -> None:
        """Open the counters of servers that have only one arm's work, before the clients connect."""
        for kind in PROBE_KINDS:
            if kind.count is None or kind.name not in self.lab.study.probes:
                continue
            for trial in self.trials:
                if not trial.arm.shares_server:
                    try:
                        self._counters[trial.id, kind.name] = kind.count(trial.arm)
                    except ProbeError as error:
                        self._counters[trial.id, kind.name] = error

    def _count(self, moment: Moment) -> None:
        """Read the counters: last before the measured part and first after it, without our own
        queries, as the CPU time.
        """
        for (trial_id, name), counters in self._counters.items():
            at_s, begun_s = self._now_s(), time.monotonic()
            if isinstance(counters, ProbeError):
                reading = StoredReading(name, moment, at_s, 0.0, None, str(counters))
            else:
                rows = [counters.read()]
                reading = StoredReading(name, moment, at_s, time.monotonic() - begun_s, rows)
            self._readings.setdefault(trial_id, []).append(reading)

    def _close_counters(self) -> None:
        for counters in self._counters.values():
            if not isinstance(counters, ProbeError):
                counters.close()
        self._counters.clear()

    def _start(self, name: str, start: Callable[[LabArm, Study], RunningProbe], trial: RunningTrial) -> None:
        reason = ""
        try:
            self._running.append((trial, name, start(trial.arm, self.lab.study)))
        except ProbeError as error:
            reason = str(error)
        begun = StoredReading(name, Moment.BEGIN, self._now_s(), 0.0, None if reason else (), reason)
        self._readings.setdefault(trial.id, []).append(begun)

    def _end(self, trial: RunningTrial, name: str, stop: Callable[[], Sequence[Row]]) -> None:
        begun_s = time.monotonic()
        rows, reason = None, ""
        try:
            rows = stop()
        except ProbeError as error:
            reason = str(error)
        took_s = time.monotonic() - begun_s
        ended = StoredReading(name, Moment.END, self._ended_s, took_s, rows, reason)
        self._readings[trial.id].append(ended)

    def _now_s(self) -> float:
        return time.time() - self.epoch_unix_s

    def _add_unavailable(self, trial: RunningTrial, probes: str, reason: str) -> None:
        caveat = Caveat.of("probe-unavailable", trial.id, arm=trial.arm.name, probes=probes, reason=reason)
        self.lab.writer.add_caveat(caveat, self.lab.case)


def _wait_sampler(arm: LabArm) -> Sample:
    return sample_waits if arm.postmaster_pid() is None else partial(sample_waits, workers=WorkerTimes())


def _reason_text(ending: SeriesEnd, reason: str) -> str:
    """Return the reason; for a lost server with a uniform prefix, as the error message varies."""
    return f"the server was lost: {reason}" if ending is SeriesEnd.SERVER_LOST else reason


def _create_extensions(lab: Lab, arm: LabArm) -> None:
    """Create the extensions that the build has. A probe reports a missing one."""
    for probe in lab.study.probes:
        if name := EXTENSIONS.get(probe):
            with contextlib.suppress(psycopg.Error, ServerError), arm.connect() as connection:
                connection.execute(sql.SQL("CREATE EXTENSION IF NOT EXISTS {}").format(sql.Identifier(name)))
