"""The study of one host, as a child process of its agent: ``python -m pgdyno.features.fleet.host_process``.

The first line of the input is a HostTask in JSON. The line ``stop``, or the end of the input, stops the study
gracefully. The output is JSON lines: {"status": …}, {"warning": …}, {"snapshot": true}, {"end": …}.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import psycopg

from pgdyno.cli.error_reporting import as_pgdyno_error
from pgdyno.cli.features import features
from pgdyno.cli.options import Added, RunCall
from pgdyno.cli.run import requested_study
from pgdyno.errors import Interrupted, PgdynoError, in_one_line
from pgdyno.features.cluster.ray import undo_limits_of_ray
from pgdyno.features.fitting.options import ANYWAY, FitOptions
from pgdyno.features.fleet.host import HostFiles, HostTask, StatusOfProgress, take_snapshot
from pgdyno.features.own_data.options import OtherData
from pgdyno.interruption import Interruption
from pgdyno.measure.progress import BlockEnded, LoadProgress, Progress, Running, Warned
from pgdyno.measure.study_runner import resume_study, start_study
from pgdyno.results.records import StudyEnd

STATUS_S = 1.0
"""Minimum time between two lines for the progress within a block or a load."""


class _Reporter:
    """Receiver of progress: writes lines, and takes snapshots between blocks, when nothing is measured."""

    def __init__(self, files: HostFiles, snapshot_s: float) -> None:
        self._files, self._snapshot_s = files, snapshot_s
        self._status = StatusOfProgress()
        self._written_s = self._snapshot_taken_s = float("-inf")

    def __call__(self, progress: Progress) -> None:
        """Write the line of an event, if it is due."""
        self._status.note(progress)
        now_s = time.monotonic()
        if isinstance(progress, Warned):
            write_line({"warning": progress.text})
        elif not isinstance(progress, Running | LoadProgress) or now_s - self._written_s >= STATUS_S:
            self._written_s = now_s
            write_line({"status": self._status.status.model_dump()})
        if isinstance(progress, BlockEnded) and now_s - self._snapshot_taken_s >= self._snapshot_s:
            self._snapshot_taken_s = now_s
            self._snapshot()

    def _snapshot(self) -> None:
        """Take a snapshot. Without one the study goes on: the next one is due after the same time."""
        try:
            take_snapshot(self._files.evidence, self._files.snapshot)
        except (OSError, sqlite3.Error) as error:
            write_line({"warning": f"no snapshot of the results file: {error}"})
        else:
            write_line({"snapshot": True})


def write_line(value: dict[str, Any]) -> None:
    """Write one line. If the agent has ended, so does this process, by the end of its input."""
    try:
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the end of the process


def _stop_on_request() -> None:
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGINT)


def run_task(task: HostTask) -> str:
    """Run or resume the study. Return its StudyEnd. Raises PgdynoError, psycopg.Error, OSError."""
    files = HostFiles(task.name)

    def watch_for(_: Sequence[str]) -> AbstractContextManager[_Reporter]:
        return nullcontext(_Reporter(files, task.snapshot_s))

    with files.held(), Interruption() as interruption:
        files.study.write_text(task.text, encoding="utf-8")
        threading.Thread(target=_stop_on_request, daemon=True).start()
        if task.is_resumed and files.evidence.exists():
            return resume_study(files.evidence, task.more_minutes, watch_for, interruption).value
        given = task.choices
        fit = ANYWAY if given.anyway else "" if given.fit else None
        call = RunCall(
            files.study,
            minutes=given.minutes,
            nearest=given.nearest,
            no_aa=given.no_aa,
            into_existing=given.into_existing,
            command=task.command,
            added=Added([FitOptions(fit), OtherData(given.data)]),
        )
        request = requested_study(call, task.cases).request
        return start_study(files.evidence, request, watch_for, interruption).value


def main() -> None:
    """Run the task of the first line. An error becomes the last line of the output."""
    features()
    task = HostTask.model_validate_json(sys.stdin.readline())
    if niceness := undo_limits_of_ray():
        write_line({"warning": f"niceness {niceness}, set by Ray: start Ray with RAY_worker_niceness=0"})
    if task.password is not None:
        os.environ["PGPASSWORD"] = task.password
    try:
        end = {"ending": run_task(task), "error": ""}
    except Interrupted:
        end = {"ending": StudyEnd.INTERRUPTED.value, "error": ""}
    except (PgdynoError, OSError) as error:
        end = {"ending": "", "error": in_one_line(error)}
    except (psycopg.Error, ValueError) as error:
        known = as_pgdyno_error(error)
        if known is None:
            raise
        end = {"ending": "", "error": in_one_line(known)}
    write_line({"end": end})


if __name__ == "__main__":
    main()
