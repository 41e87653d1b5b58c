"""Every study of the package runs in its smallest size on the installed server.

It is fitted to a small machine first, because of its settings, if it can be. Then a case of each kind of
workload runs once.
"""

import re
from pathlib import Path

import pytest
from small_study import SMALL, run_request

from example_studies import read_study
from pgdyno.errors import UsageError
from pgdyno.features.fitting.fit import FitMachine, fit_study
from pgdyno.features.fitting.options import ANYWAY, FitOptions
from pgdyno.features.load_time.parameters import LoadParameters
from pgdyno.results.reader import Evidence
from pgdyno.results.records import StudyEnd
from pgdyno.server.builds import Build
from pgdyno.study.cases import Case, Request, cases_of
from pgdyno.study.study_file import StudyFile

pytestmark = [pytest.mark.server, pytest.mark.long]

STUDIES = Path(__file__).parents[5] / "studies"
FILES = sorted(STUDIES.rglob("*.toml"))
MACHINE = FitMachine(2, 4 * 2**30, 40 * 2**30)


def here(text: str, server: str) -> str:
    """Return the study with that server instead of every other. Levels keep their names."""

    def named(found: re.Match[str]) -> str:
        versions = re.findall(r'"[^"]+"', found[1])
        return "server = {" + ", ".join(f'{version} = "{server}"' for version in versions) + "}"

    text = re.sub(r"^server = \[(.*)\]", named, text, flags=re.MULTILINE)
    return re.sub(r'^server = ".*?"', f'server = "{server}"', text, flags=re.MULTILINE)


def smallest(case: Case) -> Case:
    """Return a block with slices or windows of fractions of a second, with one warehouse or one branch."""
    study = case.study
    size: dict[str, object] = {"warehouses": 1} if study.workload.kind == "tpcc" else {"scale": 1}
    if isinstance(study.workload, LoadParameters):
        size = {"dataset": {**study.workload.dataset, "warehouses": 1, "table_sets": 1}}
    warmup = study.warmup_workload and study.warmup_workload.model_copy(update=size)
    changes = {
        "workload": study.workload.model_copy(update=size),
        "warmup_workload": warmup,
        "clients": min(3, study.clients),
        "transactions": study.transactions and min(20, study.transactions),
        "warmup_min_s": None,
        "blocks_max": 1,
        **SMALL,
    }
    return Case(case.name, case.levels, case.arms, study.model_copy(update=changes))


def fitted(file: StudyFile) -> StudyFile:
    """Return the fitted study; itself if ``--fit`` refuses it on any machine."""
    try:
        FitOptions(fit=ANYWAY).require_fittable(file, 10)
    except UsageError:
        return file
    return fit_study(file, MACHINE, 10).file


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_study_runs_in_miniature(build: Build, tmp_path: Path, path: Path) -> None:
    file = fitted(read_study(here(path.read_text(), str(build.bin_dir)), path.name))
    by_workload = {case.study.workload.name.partition(",")[0]: case for case in cases_of(file)}
    cases = [smallest(case) for case in by_workload.values()]
    evidence = tmp_path / "e.sqlite"
    request = Request(title=file.title, cases=cases, command="", published=file.published)
    assert run_request(evidence, request) is not StudyEnd.FAILED
    with Evidence(evidence) as opened:
        by_case = [opened.trials(number) for number in opened.cases()]
    for case, trials in zip(cases, by_case, strict=True):
        assert [trial.status for trial in trials] == ["ok"] * len(case.arms), [t.reason for t in trials]
        assert all(check.passed for trial in trials for check in trial.checks)
        assert all(trial.settings["shared_buffers"] for trial in trials)
