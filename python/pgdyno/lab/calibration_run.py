"""Execution of a calibration: a study of A/A cases, with its results in the history."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgdyno import __version__
from pgdyno.analysis.comparison.calibration import Calibration, as_values, find_calibration
from pgdyno.errors import UsageError
from pgdyno.interruption import Interruption
from pgdyno.lab.noise_history import Entry, machine_of
from pgdyno.lab.study_runner import Request, WatchFor, resume_study, start_study
from pgdyno.results.reader import Evidence
from pgdyno.server.build import Build
from pgdyno.server.cache_directory import Cache
from pgdyno.server.find_build import system_builds

TITLE = "Calibration of this machine"


def newest_available(cache: Cache) -> str:
    """Return the newest server that is installed or cached, without a download. Raises UsageError if none
    is."""
    here: list[Build] = [*system_builds(), *cache.store().cached()]
    if not here:
        raise UsageError(
            "no server is available for the calibration: run `pgdyno servers install 18`, or use --server"
        )
    newest = max(here, key=lambda build: build.version)
    return str(newest.bin_dir) if newest.provider == "system" else str(newest.version)


def measure(path: Path, request: Request, minutes: float, watch_for: WatchFor, stop: Interruption) -> None:
    """Run the calibration with a new results file, or continue an existing one."""
    if path.exists():
        resume_study(path, minutes, watch_for, stop)
    else:
        start_study(path, request, watch_for, stop)


@dataclass(frozen=True)
class CalibrationOutcome:
    """Result; ``entry`` is its line in the history, unless the calibration ``is_short``."""

    calibration: Calibration
    entry: Entry


def calibration_outcome(path: Path) -> CalibrationOutcome | None:
    """Return the result; None without a finished block."""
    with Evidence(path) as evidence, evidence.snapshot():
        calibration = find_calibration(evidence)
        study, arm = evidence.study(), evidence.arms()[0]
    if not any(one.blocks for one in calibration.measured):
        return None
    alarms = calibration.alarms
    entry: dict[str, Any] = {
        "kind": "calibration",
        "id": f"calibration {study.created_unix_s}",
        "at_unix_s": time.time(),
        "pgdyno_version": __version__,
        "machine": machine_of(study.host),
        "server": arm.server_facts.shown,
        "workload": study.plan.workload.name,
        "clients": arm.clients,
        "results": as_values(calibration),
        "sd_restart": calibration.sd_restart,
        "alarms": None if alarms is None else {"called": alarms.false_alarms, "series": alarms.series},
        "best": {
            schedule: best.slice_s
            for schedule in dict.fromkeys(one.schedule for one in calibration.measured)
            if (best := calibration.best(schedule)) is not None
        },
    }
    return CalibrationOutcome(calibration, entry)
