"""Hidden A/A blocks of a real study, the smallest there is: they run, are kept, and nothing shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from pgdyno.analysis.study import find_study
from pgdyno.evidence.reader import Evidence
from pgdyno.evidence.records import Ending
from pgdyno.interruption import Interruption
from pgdyno.lab.progress import BlockBegan, Progress, Watch
from pgdyno.lab.study import Request, resume_study, start_study
from pgdyno.report import as_csv, as_json, html, markdown
from pgdyno.report.study import build_study
from pgdyno.server.build import Build
from pgdyno.study.aa import doubled_after
from pgdyno.study.arm import parse_arms
from pgdyno.study.cases import only_case
from pgdyno.study.pgbench import PgbenchParameters
from pgdyno.study.plan import Study

pytestmark = pytest.mark.server


def the_smallest(server: str, blocks: int) -> Study:
    """With an A/A block of the second arm beside its second block."""
    fields = {
        "title": "t",
        "arms": parse_arms([server, f"{server},work_mem=8MB"]),
        "workload": PgbenchParameters(scale=1),
        "clients": 2,
        "slice_s": 0.2,
        "discard_s": 0.02,
        "warmup_s": 0.2,
        "rounds": 2,
        "blocks_max": blocks,
        "budget_s": 600.0,
        "probes": (),
    }
    studies = (Study.model_validate({**fields, "seed": seed}) for seed in range(200))
    return next(study for study in studies if doubled_after(study, 1) == 1)


def test_an_aa_block_runs_beside_the_arms_and_is_shown_nowhere(build: Build, tmp_path: Path) -> None:
    began: list[str] = []

    @contextmanager
    def watching(_names: Sequence[str]) -> Iterator[Watch]:
        def watch(progress: Progress) -> None:
            if isinstance(progress, BlockBegan):
                began.append(progress.case)

        yield watch

    path, study = tmp_path / "e.sqlite", the_smallest(str(build.bin_dir), 2)
    with Interruption() as interruption:
        start_study(path, Request("t", [only_case(study)], "pgdyno compare"), watching, interruption)
        assert began == ["", "", f"A/A of {study.arms[1].name}"]
        # Its time is up: what goes on does not repeat what was done.
        assert resume_study(path, None, watching, interruption) is Ending.BLOCKS
    with Evidence(path) as evidence:
        assert evidence.cases() == [0]
        numbers = [number for number in evidence.aa_cases() if evidence.blocks(number)]
        assert len(numbers) == 1
        twins = evidence.trials(numbers[0])
        assert [(trial.block, trial.arm, trial.status) for trial in twins] == [(1, 0, "ok"), (1, 1, "ok")]
        assert all(trial.settings["work_mem"] == "8MB" for trial in twins)
        assert twins[0].start_s is not None
        assert {(trial.block, trial.arm) for trial in evidence.trials()} == {(0, 0), (0, 1), (1, 0), (1, 1)}
        found = find_study(evidence)
    assert len(found.first.noise.log_ratios) == 1
    assert [of.trials_ok for of in found.first.arms] == [2, 2]
    report = build_study(found)
    for text in (html.to_html(report), markdown.to_markdown(report), as_csv.to_csv(report)):
        assert "twin)" not in text
    assert '"aa_blocks": 1' in as_json.to_json(report)
