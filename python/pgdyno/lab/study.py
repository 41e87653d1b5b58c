"""A study from beginning to end: servers and datasets, the evidence file, the blocks; and its resumption."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pgdyno import __version__
from pgdyno.engine import build_info
from pgdyno.errors import EvidenceError
from pgdyno.evidence import records
from pgdyno.evidence.reader import Evidence
from pgdyno.evidence.records import BlockStatus, Ending, Schedule
from pgdyno.evidence.writer import Writer
from pgdyno.interruption import Interruption
from pgdyno.lab.block import Lab
from pgdyno.lab.prepare import Prepared, prepare
from pgdyno.lab.progress import Watch
from pgdyno.lab.run import run_study
from pgdyno.probe.host import describe_host
from pgdyno.study.plan import Study

WatchFor = Callable[[Sequence[str]], AbstractContextManager[Watch]]
"""Makes the watcher, given the names of the arms."""


def start_study(
    path: Path, study: Study, command: str, watch_for: WatchFor, interruption: Interruption
) -> Ending:
    """Runs a new study into a new evidence file. What is wrong with the request raises before it is made."""
    if path.exists():
        raise EvidenceError(f"{path} exists already: name another file, or continue it with --resume {path}")
    with watch_for([arm.name for arm in study.arms]) as watch, prepare(study, watch, interruption) as ready:
        record = study_record(ready.study, command, ready)
        with Writer.create(path, record, ready.records) as writer:
            for caveat in ready.caveats:
                writer.add_caveat(caveat)
            return _measure(Lab(ready.study, ready.arms, writer, watch, interruption), 0, 0.0)


def resume_study(
    path: Path, more_minutes: float | None, watch_for: WatchFor, interruption: Interruption
) -> Ending:
    """Goes on with the first block that is not done. ``more_minutes`` come on top of the time spent."""
    done = _read_progress(path)
    study = done.study
    if more_minutes is not None:
        study = study.model_copy(update={"budget_s": done.spent_s + 60 * more_minutes})
    with watch_for([arm.name for arm in study.arms]) as watch, prepare(study, watch, interruption) as ready:
        require_comparable(path, ready)
        with Writer.resume(path) as writer:
            lab = Lab(ready.study, ready.arms, writer, watch, interruption)
            return _measure(lab, done.next_block, done.spent_s)


@dataclass(frozen=True)
class _Progress:
    study: Study
    next_block: int
    spent_s: float


def _read_progress(path: Path) -> _Progress:
    with Evidence(path) as evidence:
        details = evidence.study().plan.details
        if "study" not in details:
            raise EvidenceError(f"{path} does not hold a study that can be resumed")
        blocks = [b for b in evidence.blocks() if b.status in (BlockStatus.DONE, BlockStatus.FAILED)]
    return _Progress(
        study=Study.model_validate(details["study"]),
        next_block=max((b.block + 1 for b in blocks), default=0),
        spent_s=sum((b.ended_unix_s or b.started_unix_s) - b.started_unix_s for b in blocks),
    )


HOST_FACTS = ("processor", "cores", "memory_bytes", "kernel", "architecture")
SERVER_FACTS = ("build_id", "version_text")
"""What must be the same when a study goes on."""


def require_comparable(path: Path, ready: Prepared) -> None:
    """Blocks of different servers, machines or schedules must not be pooled. Raises EvidenceError."""
    with Evidence(path) as evidence:
        arms, study = evidence.arms(), evidence.study()
    host = describe_host(ready.data_path)
    facts: list[tuple[str, object, object]] = [
        ("schedule", study.plan.schedule.value, ready.study.schedule),
        *((name, study.host.get(name), host[name]) for name in HOST_FACTS),
    ]
    for before, now in zip(arms, ready.records, strict=True):
        facts += [(f"server of {now.name}", before.server.get(f), now.server.get(f)) for f in SERVER_FACTS]
    for what, then, here in facts:
        if then != here:
            raise EvidenceError(
                f"{path} was measured with another {what} ({then}) than is here now ({here}): "
                "start a new study"
            )


def _measure(lab: Lab, first_block: int, spent_s: float) -> Ending:
    ending = Ending.FAILED
    try:
        ending = run_study(lab, first_block, spent_s)
    except KeyboardInterrupt:
        ending = Ending.INTERRUPTED
        raise
    finally:
        lab.writer.finish_study(ending, time.time())
    return ending


def study_record(study: Study, command: str, ready: Prepared) -> records.Study:
    """The study as the evidence keeps it; ``details`` hold all that a resume needs, without passwords."""
    arms = tuple(arm.without_password() for arm in study.arms)
    return records.Study(
        title=study.title,
        created_unix_s=time.time(),
        pgdyno_version=__version__,
        engine=build_info(),
        command=command,
        plan=records.Plan(
            schedule=Schedule(study.schedule),
            workload=study.workload.model_dump(),
            margin=study.margin,
            seed=study.seed,
            slice_s=study.slice_s if study.schedule == "slices" else None,
            slices_per_arm=study.slices_per_trial(),
            discard_s=study.discard_s,
            warm_up_s=study.warmup_s,
            window_s=study.rounds * study.slice_s,
            blocks_max=study.blocks_max,
            budget_s=study.budget_s,
            confidence=study.confidence,
            pacing=study.pacing,
            rate_per_s=study.rate.per_s if study.rate else None,
            details={"study": study.model_copy(update={"arms": arms}).model_dump(mode="json")},
        ),
        host=describe_host(ready.data_path),
    )
