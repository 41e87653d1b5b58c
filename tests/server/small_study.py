"""Studies of real servers in blocks of one to two seconds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from example_studies import make_study
from pgdyno.interruption import Interruption
from pgdyno.measure.progress import Progress, Watch
from pgdyno.measure.study_runner import resume_study, start_study
from pgdyno.results.records import StudyEnd
from pgdyno.study.arm_spec import parse_arms
from pgdyno.study.cases import Request, only_case
from pgdyno.study.plan import Study
from pgdyno.workloads.pgbench.parameters import PgbenchParameters

SMALL = {"slice_s": 0.2, "discard_s": 0.02, "warmup_s": 0.2, "rounds": 2, "budget_s": 600.0}
COUNTED = {"schedule": "blocks", "warmup_s": 0.1, "transactions": 100}
"""Windows of transactions instead of a time, for studies of which only the blocks matter."""


def small_study(arms: Sequence[str], **changes: object) -> Study:
    """Return a study of pgbench without probes."""
    usual = {"workload": PgbenchParameters(scale=1), "clients": 2, "probes": (), **SMALL}
    return make_study(arms=parse_arms(arms), **{**usual, **changes})


def nobody_watches(_: Progress) -> None:
    pass


def run_request(path: Path, request: Request, watch: Watch = nobody_watches) -> StudyEnd:
    with Interruption() as interruption:
        return start_study(path, request, lambda _: nullcontext(watch), interruption)


def run_small(path: Path, study: Study, watch: Watch = nobody_watches) -> StudyEnd:
    """Run a study of one case."""
    return run_request(path, Request(study.title, [only_case(study)], ""), watch)


def resume_small(path: Path, watch: Watch = nobody_watches) -> StudyEnd:
    with Interruption() as interruption:
        return resume_study(path, None, lambda _: nullcontext(watch), interruption)
