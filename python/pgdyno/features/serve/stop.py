"""A request to stop a study: a file beside its results file, which the study's own process reads.

It reads the file after each block, and before the load of the next one. Then it stops as after Ctrl-C. No
process sends a signal to another one, whose ID may meanwhile be that of a third.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgdyno.measure.drive import Targets
    from pgdyno.measure.study_runner import Budget
    from pgdyno.measure.trial import Lab, RunningTrial
    from pgdyno.study.schedule import PlannedBlock


def request_of(path: Path) -> Path:
    """Return the path of the request for a results file."""
    return path.with_name(f"{path.name}.stop")


def ask(path: Path, pid: int) -> None:
    """Ask the process that writes a results file to stop. Another process ignores the request."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(request_of(path), flags, 0o644), "w") as file:
        file.write(f"{pid}\n")


def forget(path: Path) -> None:
    """Remove a request that came too late for an earlier process."""
    if not _is_for_us(request_of(path)):
        request_of(path).unlink(missing_ok=True)


def _is_for_us(request: Path) -> bool:
    with suppress(OSError, ValueError):
        return int(request.read_text()) == os.getpid()
    return False


def _stop_if_requested(lab: Lab) -> None:
    request = request_of(lab.writer.path)
    if _is_for_us(request):
        request.unlink(missing_ok=True)
        if not lab.interruption.requested:
            signal.raise_signal(signal.SIGINT)


def after_block(lab: Lab, _block: int, _budget: Budget) -> bool:
    """Stop if it was requested. Return that the block is not to be repeated."""
    _stop_if_requested(lab)
    return False


def before_drive(
    lab: Lab, block: PlannedBlock, trials: Mapping[int, RunningTrial], _targets: Targets
) -> None:
    """Stop if it was requested during preparation, before the first arm of the block."""
    if block.order[0] in trials:
        _stop_if_requested(lab)
