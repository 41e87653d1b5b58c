"""Cost of a program: its own CPU time from the kernel, and the other CPU time of the machine."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pgdyno.measure.host_counters import machine_cpu


@dataclass(frozen=True)
class Cost:
    """Cost of one program from start to exit. ``other_cpu_s`` is all other CPU time: that of the server."""

    wall_s: float
    cpu_s: float
    other_cpu_s: float
    output: str


def run(command: Sequence[str], text_in: str = "") -> Cost:
    """Run a program to completion. Raises RuntimeError with the end of its output if it fails.

    Its standard input stays open until it exits: end of file tells the engine to stop.
    """
    with tempfile.TemporaryFile("w+") as output_file:
        busy_s, begun_s = machine_cpu().busy_s, time.monotonic()
        process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=output_file, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdin is not None
        process.stdin.write(text_in)
        process.stdin.flush()
        _, status, usage = os.wait4(process.pid, 0)
        process.stdin.close()
        process.returncode = os.waitstatus_to_exitcode(status)
        wall_s, busy_s = time.monotonic() - begun_s, machine_cpu().busy_s - busy_s
        output_file.seek(0)
        output = output_file.read()
    if process.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {process.returncode}: {output[-600:]}")
    cpu_s = usage.ru_utime + usage.ru_stime
    return Cost(wall_s, cpu_s, max(busy_s - cpu_s, 0.0), output)
