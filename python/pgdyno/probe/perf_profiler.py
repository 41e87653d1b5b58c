"""CPU profiles of a server's processes by Linux ``perf``.

    profiler = Profiler.start(postmaster_pid, hz=199)       # raises ProfileError, which says what would help
    …                                                       # the measured part
    rows = profiler.stop()                                  # a row of facts, then one a stack

Samples are taken by the CPU time of the server's processes (the event cpu-clock, which every kernel and every
virtual machine has), so that a server that waits gives none, and the shares are shares of its CPU time.
Stacks are followed by frame pointers: of programs built without them only the innermost functions are sure.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from pgdyno.probe.cpu_time import child_pids
from pgdyno.probe.probe_session import Row

EVENT = "cpu-clock"

HZ_MAX = 199
"""In a second of CPU: 499 cost a loop 2 % on a virtual machine of two busy cores. Not 200: it must not keep
step with what the server does by the clock."""

SAMPLES_MAX = 400_000
"""Of one trial: 100 MB on the disk while they wait to be counted. Longer windows are sampled more rarely."""

STACKS_MAX = 3000
"""In the evidence, those with the most samples; the others count for their innermost function."""

DEPTH_MAX = 64

ANSWER_S = 10.0
END_S = 60.0
"""For perf to write down what it has, which takes a second or so."""

COUNT_S = 600.0

ATTEMPTS = 5
GONE = "No such process"
"""What perf says where a process ended after we had listed it: then the list is made anew."""

UNKNOWN = "[unknown]"
"""As perf says where it has no name."""


class ProfileError(Exception):
    """There is no profile; the message says why, and what would help."""


@dataclass
class Profiler:
    """perf while it runs. ``folder`` is its own, and is removed."""

    process: subprocess.Popen[bytes]
    orders: IO[bytes]
    answers: IO[bytes]
    folder: Path
    hz: int

    @classmethod
    def start(cls, postmaster_pid: int, hz: int) -> Self:
        """Returns when it samples all processes that the server has; those that it starts later are added."""
        for _ in range(ATTEMPTS):
            profiler = cls._launch([postmaster_pid, *child_pids(postmaster_pid)], hz)
            try:
                profiler._tell("enable")
                return profiler
            except ProfileError as error:
                profiler.give_up()
                if GONE not in str(error):
                    raise
        raise ProfileError("the server processes exit before perf can attach")

    @classmethod
    def _launch(cls, pids: Sequence[int], hz: int) -> Self:
        """Not sampling yet."""
        perf = shutil.which("perf")
        if perf is None:
            raise ProfileError("perf is not installed: install linux-perf, perf or linux-tools")
        folder = Path(tempfile.mkdtemp(prefix="pgdyno-profile-"))
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
                start_new_session=True,  # Ctrl-C is ours to answer
            )
        os.close(order_in)
        os.close(answer_out)
        return cls(process, os.fdopen(order_out, "wb", 0), os.fdopen(answer_in, "rb", 0), folder, hz)

    def stop(self) -> list[Row]:
        """Ends it and counts the stacks. Raises ProfileError."""
        try:
            self._tell("disable")
            self.process.send_signal(signal.SIGINT)
            self.process.wait(END_S)
            return rows_of(self._stacks(), self.hz)
        except subprocess.TimeoutExpired as error:
            raise ProfileError(f"perf timed out after {error.timeout:g} s") from None
        finally:
            self.give_up()

    def give_up(self) -> None:
        """Ends it at once and removes what it wrote. Never raises."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pipe in (self.orders, self.answers):
            with contextlib.suppress(OSError):
                pipe.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _tell(self, order: str) -> None:
        """And wait until it is done. perf that ends instead closes its end."""
        with contextlib.suppress(BrokenPipeError):
            self.orders.write(f"{order}\n".encode())
        ready, _, _ = select.select([self.answers], [], [], ANSWER_S)
        if not ready or not self.answers.read(5).startswith(b"ack"):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(ANSWER_S)
            raise ProfileError(reason_of((self.folder / "errors").read_text(errors="replace")))

    def _stacks(self) -> Counter[tuple[str, ...]]:
        command = ["perf", "script", "-i", str(self.folder / "data"), "-F", "comm,ip,sym", "--no-inline"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=COUNT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise ProfileError(f"perf script timed out after {error.timeout:g} s") from None
        if done.returncode != 0:
            raise ProfileError(reason_of(done.stderr))
        return stacks_of(done.stdout.splitlines())


def hz_for(window_s: float, cores: int) -> int:
    """So that a window of so many seconds with all cores busy stays under SAMPLES_MAX."""
    return max(1, min(HZ_MAX, int(SAMPLES_MAX / max(1.0, window_s * cores))))


def reason_of(errors: str) -> str:
    """In one line, with what would help."""
    if "perf_event_paranoid" in errors or "ermission" in errors:
        return "perf is not permitted: set kernel.perf_event_paranoid to 1 (sysctl), or run as root"
    words = " ".join(errors.split())
    return f"perf failed: {words[:200] or 'it said nothing'}"


def stacks_of(lines: Iterable[str]) -> Counter[tuple[str, ...]]:
    """Of what ``perf script`` prints: a line for the sample, then its functions, the innermost first.

    What has no name is left out, but where it is the innermost.
    """
    found: Counter[tuple[str, ...]] = Counter()
    stack: list[str] = []
    for line in [*lines, ""]:
        frame = re.match(r"\s+[0-9a-f]+\s+(.*)$", line)
        if frame is not None:
            stack.append(frame[1].strip() or UNKNOWN)
        elif stack and not line.strip():
            known = [stack[0], *(name for name in stack[1:] if name != UNKNOWN)]
            found[tuple(reversed(known[:DEPTH_MAX]))] += 1
            stack = []
    return found


def rows_of(stacks: Counter[tuple[str, ...]], hz: int) -> list[Row]:
    """Facts, then stacks from the outermost function to the innermost, joined by semicolons."""
    kept: Counter[str] = Counter()
    for rank, (stack, n) in enumerate(stacks.most_common()):
        kept[";".join(stack) if rank < STACKS_MAX else stack[-1]] += n
    rows: list[Row] = [{"event": EVENT, "hz": hz, "samples": stacks.total()}]
    rows += [{"stack": stack, "n": n} for stack, n in kept.most_common()]
    return rows
