"""Execution and resumption of a study: servers, datasets, results file, blocks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pgdyno import __version__
from pgdyno.caveats import Code
from pgdyno.engine import build_info
from pgdyno.errors import EvidenceError, EvidenceExistsError
from pgdyno.fleet.driver_pool import open_pool
from pgdyno.interruption import Interruption
from pgdyno.lab import aa_blocks
from pgdyno.lab.block import rate_of_trial
from pgdyno.lab.doctor.examination import StudyExamination, servers_of
from pgdyno.lab.noise_history import NoiseHistory, history_path
from pgdyno.lab.prepare import Prepared, prepare_arms
from pgdyno.lab.progress import Watch
from pgdyno.lab.study_blocks import InterimAnalysis, interim_analysis_of, run_study
from pgdyno.lab.trial import Lab
from pgdyno.lab.warm_up import Rates, rates_so_far
from pgdyno.probe.machine_facts import describe_host
from pgdyno.results import records
from pgdyno.results.reader import Evidence
from pgdyno.results.records import BlockStatus, StudyEnd, TrialStatus
from pgdyno.results.writer import Writer
from pgdyno.study.cases import Case, Request
from pgdyno.study.plan import Study

if TYPE_CHECKING:
    from pgdyno.study.published_experiment import Published

WatchFor = Callable[[Sequence[str]], AbstractContextManager[Watch]]
"""Creates the receiver of progress events, given the names of the arms of the first case."""

AnalysisOf = Callable[[Path], InterimAnalysis]
"""Creates the interim analysis of a results file, which decides when the study stops."""


def start_study(
    path: Path,
    request: Request,
    watch_for: WatchFor,
    interruption: Interruption,
    analysis_of: AnalysisOf = interim_analysis_of,
) -> StudyEnd:
    """Run a new study with a new results file. Errors in the request are raised before it is created."""
    if path.exists():
        raise EvidenceExistsError(path)
    studies = [case.study for case in request.cases]
    names = [arm.name for arm in studies[0].arms]
    with (
        open_pool(studies[0]) as pool,
        watch_for(names) as watch,
        prepare_arms(studies, watch, interruption) as ready,
    ):
        described = [
            (study_record(request, case, prepared), prepared.records)
            for case, prepared in zip(request.cases, ready, strict=True)
        ]
        described, cases = aa_blocks.with_earlier_noise(described, ready, NoiseHistory(history_path()))
        described += aa_blocks.aa_records([study for study, _ in described], cases)
        with Writer.create(path, *described[0], *described[1:]) as writer:
            for case, prepared in enumerate(cases):
                for caveat in prepared.caveats:
                    writer.add_caveat(caveat, case)
            labs = [
                Lab(
                    prepared.study,
                    prepared.arms,
                    writer,
                    watch,
                    interruption,
                    number,
                    request.name_of(case),
                    drivers=pool,
                )
                for number, (case, prepared) in enumerate(zip(request.cases, cases, strict=True))
            ]
            labs = aa_blocks.with_aa(labs, cases, aa_blocks.new_numbers(cases))
            ending = _measure(path, writer, labs, cases, analysis_of(path))
        aa_blocks.store_noise(path, NoiseHistory(history_path()), watch)
        return ending


def resume_study(
    path: Path,
    more_minutes: float | None,
    watch_for: WatchFor,
    interruption: Interruption,
    analysis_of: AnalysisOf = interim_analysis_of,
) -> StudyEnd:
    """Continue with the first unfinished blocks. ``more_minutes`` are added to the time spent."""
    done = _read_progress(path)
    studies = [case.study for case in done]
    with Evidence(path, verify=False) as evidence:  # just verified
        spent_s = sum(case.spent_s for case in done) + aa_blocks.spent_s(evidence)
        numbers = aa_blocks.numbers_of(evidence)
        of_twins = {number: aa_blocks.rates_so_far_of(evidence, number) for number in numbers.values()}
    if more_minutes is not None:
        budget_s = (spent_s + 60 * more_minutes) / len(studies)
        studies = [study.model_copy(update={"budget_s": budget_s}) for study in studies]
    names = [arm.name for arm in studies[0].arms]
    with (
        open_pool(studies[0]) as pool,
        watch_for(names) as watch,
        prepare_arms(studies, watch, interruption) as ready,
    ):
        require_comparable(path, ready)
        with Writer.resume(path) as writer:
            if more_minutes is not None and any(case.may_go_on for case in done):
                writer.note_more_time()
            labs = [
                Lab(
                    prepared.study,
                    prepared.arms,
                    writer,
                    watch,
                    interruption,
                    number,
                    case.name,
                    case.kept,
                    rates=case.rates,
                    warm_up_times=case.warm_up_times,
                    drivers=pool,
                )
                for number, (case, prepared) in enumerate(zip(done, ready, strict=True))
            ]
            labs = aa_blocks.with_aa(labs, ready, numbers, of_twins)
            firsts = [case.next_block for case in done]
            ending = _measure(path, writer, labs, ready, analysis_of(path), firsts, spent_s)
        aa_blocks.store_noise(path, NoiseHistory(history_path()), watch)
        return ending


@dataclass(frozen=True)
class _Progress:
    """Progress of a case. ``kept``: (block, arm) of the finished trials, with the rates of those that count.
    ``rates``: rates of its warm-ups.
    """

    name: str
    study: Study
    next_block: int
    spent_s: float
    kept: Mapping[tuple[int, int], float | None]
    rates: dict[int, list[Rates]]
    warm_up_times: int

    @property
    def may_go_on(self) -> bool:
        """Return whether further blocks can follow an interim analysis; false for a single analysis."""
        most = self.study.blocks_max
        return self.study.can_have_interim_analyses and (most is None or self.next_block < most)


def _read_progress(path: Path) -> list[_Progress]:
    with Evidence(path) as evidence:
        return [_progress_of(evidence, case) for case in evidence.cases()]


def _progress_of(evidence: Evidence, case: int) -> _Progress:
    recorded = evidence.study(case)
    study = recorded.plan
    blocks = [b for b in evidence.blocks(case) if b.status in (BlockStatus.DONE, BlockStatus.FAILED)]
    trials = [
        t for t in evidence.trials(case) if t.status not in (TrialStatus.RUNNING, TrialStatus.INTERRUPTED)
    ]
    warm_ups = [one for t in trials if t.status is TrialStatus.OK and (one := t.driver.warm_up) is not None]
    spent = [(b.started_unix_s, b.ended_unix_s) for b in blocks]
    if study.schedule == "sequential":
        # Blocks overlap in time; trials do not.
        spent = [(t.started_unix_s, t.ended_unix_s) for t in trials]
    return _Progress(
        name=recorded.case,
        study=study,
        next_block=max((b.block + 1 for b in blocks), default=0),
        spent_s=sum((ended or begun) - begun for begun, ended in spent),
        kept={(t.block, t.arm): _rate(study, t) for t in trials},
        rates=rates_so_far(evidence, case, study),
        warm_up_times=max((one.times for one in warm_ups), default=1),
    )


def _rate(study: Study, trial: records.Trial) -> float | None:
    counted_s = sum(piece.counted_s for piece in trial.measured)
    if trial.status is not TrialStatus.OK or counted_s <= 0:
        return None
    ok = Counter[str]()
    for piece in trial.measured:
        ok.update({kind: counts.ok for kind, counts in piece.kinds.items()})
    return rate_of_trial(study, trial.arm, ok, counted_s, trial.driver)


HOST_FACTS = ("processor", "cores", "memory_bytes", "kernel", "architecture")
SERVER_FACTS = ("build_id", "version_text")
"""Facts that must be equal to resume a study."""


def require_comparable(path: Path, ready: Sequence[Prepared]) -> None:
    """Blocks of different servers, machines or schedules must not be pooled. Raises EvidenceError."""
    facts: list[tuple[str, object, object]] = []
    with Evidence(path, verify=False) as evidence:
        for case, prepared in enumerate(ready):
            arms, study = evidence.arms(case), evidence.study(case)
            host = describe_host(prepared.data_path)
            facts.append(("schedule", study.plan.schedule, prepared.study.schedule))
            facts += [(name, study.host.get(name), host[name]) for name in HOST_FACTS]
            for before, now in zip(arms, prepared.records, strict=True):
                place = f"server of {now.name}"
                facts += [(place, before.server.get(f), now.server.get(f)) for f in SERVER_FACTS]
    for what, then, here in facts:
        if then != here:
            raise EvidenceError(
                f"{path} was measured with another {what} ({then}; now {here}): start a new study"
            )


def _measure(
    path: Path,
    writer: Writer,
    labs: Sequence[Lab],
    ready: Sequence[Prepared],
    analyze: InterimAnalysis,
    first_blocks: Sequence[int] | None = None,
    spent_s: float = 0.0,
) -> StudyEnd:
    ending = StudyEnd.FAILED
    try:
        studies = [lab.study for lab in labs]
        known = None if first_blocks is None else _codes(path)
        servers = [together for prepared in ready for together in servers_of(prepared)]
        doctor = StudyExamination.begin(writer, studies, ready[0].data_path, labs[0].watch, known, servers)
        ending = run_study(labs, analyze, first_blocks, spent_s)
        doctor.end(promptly=ending is StudyEnd.INTERRUPTED)
    except KeyboardInterrupt:
        ending = StudyEnd.INTERRUPTED
        raise
    finally:
        writer.finish_study(ending, time.time())
    return ending


def _codes(path: Path) -> frozenset[Code]:
    """Return the codes of the caveats of a study to be resumed."""
    with Evidence(path, verify=False) as evidence:
        return frozenset(caveat.code for caveat in evidence.caveats(0))


def study_record(request: Request, case: Case, ready: Prepared) -> records.StudyRecord:
    """Return the record of a case for the results file. The plan has no passwords and is sufficient for a
    resume."""
    return records.StudyRecord(
        title=request.title,
        created_unix_s=time.time(),
        pgdyno_version=__version__,
        engine=build_info(),
        command=request.command,
        plan=ready.study.without_passwords(),
        host=describe_host(ready.data_path),
        case=request.name_of(case),
        levels=dict(case.levels),
        file=request.file,
        changes=request.changes,
        published=_as_read(request.published),
        arm_levels=[dict(levels) for levels in case.arms],
        why_no_aa=ready.why_no_aa,
    )


def _as_read(published: Published | None) -> records.Json | None:
    """Return the table as in the study file, without defaults."""
    if published is None:
        return None
    return published.model_dump(mode="json", by_alias=True, exclude_defaults=True)
