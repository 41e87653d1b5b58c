"""Studies for tests: short ones, or from the text of a study file."""

from __future__ import annotations

from pgdyno.errors import UsageError
from pgdyno.study.arm_spec import parse_arms
from pgdyno.study.plan import Study
from pgdyno.study.study_file import StudyFile
from pgdyno.study.study_file_reader import examine_text
from pgdyno.study.tpcc_parameters import TpccParameters


def read_study(text: str, name: str) -> StudyFile:
    """Return the study in the text of a file of that name. Raises UsageError with its first error."""
    file, problems = examine_text(text, name)
    if problems or file is None:
        raise UsageError(problems[0])
    return file


def make_study(**changes: object) -> Study:
    fields: dict[str, object] = {
        "title": "t",
        "arms": tuple(parse_arms(["17", "18"])),
        "workload": TpccParameters(warehouses=2),
        "clients": 4,
        "warmup_s": 2.0,
        "rounds": 4,
        "budget_s": 60.0,
        "seed": 7,
    }
    return Study.model_validate(fields | changes)
