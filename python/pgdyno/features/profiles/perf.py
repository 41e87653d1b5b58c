"""CPU profiles of server processes with Linux ``perf``.

    profiler = Profiler.start(postmaster_pid, hz=199)       # raises ProbeError with a remedy
    …                                                       # the measured part
    profiler.halt()
    rows = profiler.stop()                                  # a row of facts, then one per stack

Samples follow the CPU time of the server processes (event cpu-clock, available in every kernel and virtual
machine). So a waiting server has no samples, and shares are shares of its CPU time. Stacks are unwound with
frame pointers: for programs without them only the innermost functions are reliable.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Self

from pgdyno.measure.arms import LabArm
from pgdyno.measure.host_counters import child_pids
from pgdyno.measure.server_probes import Row
from pgdyno.measure.telemetry_collection import ProbeError, ProbeKind
from pgdyno.server.cache_directory import Cache
from pgdyno.server.processes import Runs
from pgdyno.study.plan import Study

EVENT = "cpu-clock"

HZ_MAX = 199
"""Samples per second of CPU time. 499 cost a loop 2% on a virtual machine with two busy cores. Not 200, to
avoid synchronization with periodic work of the server."""

SAMPLES_MAX = 400_000
"""Maximum number of samples per trial: 100 MB on disk until they are counted. Longer windows have a lower
rate."""

STACKS_MAX = 3000
"""Maximum number of stacks in the results file, those with the most samples; others count for their innermost
function."""

DEPTH_MAX = 64

ANSWER_S = 10.0
END_S = 60.0
"""Timeout for perf to write its data, which takes about a second."""

COUNT_S = 600.0

ATTEMPTS = 5
GONE = "No such process"
"""Error of perf if a process ended after it was listed: the list is then read again."""

UNKNOWN = "[unknown]"
"""Name in perf for an unknown function."""


@dataclass
class Profiler:
    """A running perf. ``folder``: its temporary directory, which ``cleanup`` removes."""

    process: subprocess.Popen[bytes]
    orders: IO[bytes]
    answers: IO[bytes]
    folder: Path
    hz: int
    cleanup: contextlib.ExitStack

    @classmethod
    def start(cls, postmaster_pid: int, hz: int, runs: Runs) -> Self:
        """Start perf and wait until it samples all server processes. Later processes are added.

        ``runs`` has its temporary directory, so that the next pgdyno removes it after a kill.
        """
        for _ in range(ATTEMPTS):
            profiler = cls._launch([postmaster_pid, *child_pids(postmaster_pid)], hz, runs)
            try:
                profiler._send("enable")
                return profiler
            except ProbeError as error:
                profiler.give_up()
                if GONE not in str(error):
                    raise
        raise ProbeError("the server processes exit before perf can attach")

    @classmethod
    def _launch(cls, pids: Sequence[int], hz: int, runs: Runs) -> Self:
        """Start perf without sampling."""
        perf = shutil.which("perf")
        if perf is None:
            raise ProbeError("perf is not installed: install linux-perf, perf or linux-tools")
        cleanup = contextlib.ExitStack()
        folder = cleanup.enter_context(runs.open("profile")).path
        (order_in, order_out), (answer_in, answer_out) = os.pipe(), os.pipe()
        command = [perf, "record", "-e", EVENT, "-F", str(hz), "-g", "-N", "-B", "-D", "-1"]
        command += ["-o", str(folder / "data"), "--control", f"fd:{order_in},{answer_out}"]
        command += ["-p", ",".join(map(str, pids))]
        with (folder / "errors").open("wb") as errors:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                pass_fds=(order_in, answer_out),
                start_new_session=True,  # only pgdyno handles Ctrl-C
            )
        os.close(order_in)
        os.close(answer_out)
        return cls(process, os.fdopen(order_out, "wb", 0), os.fdopen(answer_in, "rb", 0), folder, hz, cleanup)

    def halt(self) -> None:
        """Stop sampling. ``stop`` repeats the command, and raises its error."""
        with contextlib.suppress(ProbeError):
            self._send("disable")

    def stop(self) -> list[Row]:
        """End perf and count the stacks. Raises ProbeError."""
        try:
            self._send("disable")
            self.process.send_signal(signal.SIGINT)
            self.process.wait(END_S)
            return rows_of(self._stacks(), self.hz)
        except subprocess.TimeoutExpired as error:
            raise ProbeError(f"perf timed out after {error.timeout:g} s") from None
        finally:
            self.give_up()

    def give_up(self) -> None:
        """Kill perf and remove its files. Never raises."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pipe in (self.orders, self.answers):
            with contextlib.suppress(OSError):
                pipe.close()
        self.cleanup.close()

    def _send(self, order: str) -> None:
        """Send a command to perf and wait until it is executed. If perf ends, it closes the pipe."""
        with contextlib.suppress(BrokenPipeError):
            self.orders.write(f"{order}\n".encode())
        ready, _, _ = select.select([self.answers], [], [], ANSWER_S)
        if not ready or not self.answers.read(5).startswith(b"ack"):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(ANSWER_S)
            raise ProbeError(reason_of((self.folder / "errors").read_text(errors="replace")))

    def _stacks(self) -> Counter[tuple[str, ...]]:
        """Count the stacks while perf prints them: its whole output may have gigabytes."""
        command = ["perf", "script", "-i", str(self.folder / "data"), "-F", "comm,ip,sym", "--no-inline"]
        errors, begun_s = self.folder / "script-errors", time.monotonic()
        with (
            errors.open("wb") as stderr,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=stderr, text=True, errors="replace"
            ) as script,
        ):
            assert script.stdout is not None
            limit = threading.Timer(COUNT_S, script.kill)
            limit.start()
            try:
                stacks = stacks_of(line.rstrip("\n") for line in script.stdout)
                script.wait()
            finally:
                limit.cancel()
                script.kill()
        if script.returncode != 0:
            if time.monotonic() - begun_s >= COUNT_S:
                raise ProbeError(f"perf script timed out after {COUNT_S:g} s")
            raise ProbeError(reason_of(errors.read_text(errors="replace")))
        return stacks


def start(arm: LabArm, study: Study) -> Profiler:
    """Start perf on the server of an arm. Raises ProbeError."""
    pid = arm.postmaster_pid()
    if pid is None:
        raise ProbeError("only servers started by pgdyno can be profiled")
    hz = hz_for(study.window_likely_s(), len(os.sched_getaffinity(0)))
    return Profiler.start(pid, hz, Cache.open().live_runs())


def hz_for(window_s: float, cores: int) -> int:
    """Return the rate at which a window of this length with all cores busy stays below SAMPLES_MAX."""
    return max(1, min(HZ_MAX, int(SAMPLES_MAX / max(1.0, window_s * cores))))


def reason_of(errors: str) -> str:
    """Return the error in one line, with the remedy."""
    if "perf_event_paranoid" in errors or "ermission" in errors:
        return "perf is not permitted: set kernel.perf_event_paranoid to 1 (sysctl), or run as root"
    words = " ".join(errors.split())
    return f"perf failed: {words[:200] or 'no error message'}"


def stacks_of(lines: Iterable[str]) -> Counter[tuple[str, ...]]:
    """Count the stacks in the output of ``perf script``: a line per sample, then its functions, the innermost
    first.

    Functions without a name are excluded unless they are the innermost.
    """
    found: Counter[tuple[str, ...]] = Counter()
    stack: list[str] = []
    for line in chain(lines, [""]):
        frame = re.match(r"\s+[0-9a-f]+\s+(.*)$", line)
        if frame is not None:
            stack.append(frame[1].strip() or UNKNOWN)
        elif stack and not line.strip():
            known = [stack[0], *(name for name in stack[1:] if name != UNKNOWN)]
            found[tuple(reversed(known[:DEPTH_MAX]))] += 1
            stack = []
    return found


def rows_of(stacks: Counter[tuple[str, ...]], hz: int) -> list[Row]:
    """Return a row of facts, then stacks from the outermost function to the innermost, joined by
    semicolons."""
    kept: Counter[str] = Counter()
    for rank, (stack, n) in enumerate(stacks.most_common()):
        kept[";".join(stack) if rank < STACKS_MAX else stack[-1]] += n
    rows: list[Row] = [{"event": EVENT, "hz": hz, "samples": stacks.total()}]
    rows += [{"stack": stack, "n": n} for stack, n in kept.most_common()]
    return rows


PROBE = ProbeKind("profile", start=start)
