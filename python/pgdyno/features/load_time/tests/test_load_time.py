"""Workload load in Python: parameters, the keys that a study file must have, and what cannot be loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from example_studies import make_file, make_study
from pgdyno.analysis.telemetry.metrics import TrialLatencies, of_plan
from pgdyno.errors import StudyFileError, UsageError
from pgdyno.features.load_time.data import PREPARATION
from pgdyno.features.load_time.parameters import LoadParameters, errors_of
from pgdyno.study.arm_spec import parse_arms
from pgdyno.study.cases import cases_of
from pgdyno.study.workload_parameters import workload_from

TPCC = {"kind": "tpcc", "warehouses": 3}
SOURCE = {"author": "a", "year": 2018, "machine": {"cores": 56, "memory": "256GB"}}
OWN = {
    **{"kind": "pgbench", "scale": 1, "data": {"source": "shop"}},
    "scripts": [{"name": "f.sql", "text": "SELECT 1;"}],
}
RUN = {"schedule": "blocks", "transactions": 1, "warmup": "0s", "repeats": 5}


def parameters(**given: Any) -> LoadParameters:
    return LoadParameters.model_validate({"dataset": TPCC, **given})


def test_the_parameters_name_the_data_and_survive_storage() -> None:
    own = parameters(vacuum_jobs=8)
    assert own.data_name == "load of tpcc, 3 warehouses"
    assert (own.units, own.unit_bytes) == (3, own.loaded.unit_bytes)
    assert workload_from(own.model_dump(mode="json")) == own
    shapes = {str(one.shape()) for one in (own, parameters(dataset={**TPCC, "warehouses": 4}))}
    assert len(shapes) == 2 and own.shape() == parameters().shape()


@pytest.mark.parametrize(
    "wrong",
    [
        {"dataset": {"kind": "load", "dataset": TPCC}},
        {"dataset": {"kind": "tpcc"}},
        {"dataset": {**TPCC, "age": 100}},
        {"dataset": {"kind": "insert", "phase": "qr100"}},
        {"age": 100},
        {"vacuum_jobs": 0},
    ],
)
def test_parameters_that_cannot_be_loaded_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        parameters(**wrong)


def test_the_verdict_of_a_study_file_is_about_the_load_time() -> None:
    file = make_file(workload={"kind": "load", "dataset": TPCC}, run=RUN)
    assert not list(errors_of(file))
    (case,) = cases_of(file)
    first, *others = of_plan(case.study, TrialLatencies())
    assert (first.key, first.unit, first.better) == ("load_s", "s", "less")
    assert [one.key for one in others] == ["load_rows", "load_bytes", "server_cpu", "driver_cpu"]


@pytest.mark.parametrize(
    ("tables", "place"),
    [
        ({"run": {**RUN, "transactions": 2}}, ("run", "transactions")),
        ({"run": {**RUN, "warmup": "1s"}}, ("run", "warmup")),
        ({"run": {**RUN, "capacity": "p99<20ms"}}, ("run", "capacity")),
        ({"drive": {"clients": 2, "rate": 5.0}}, ("drive", "rate")),
        ({"fleet": {"drivers": 2}}, ("fleet", "drivers")),
        ({"source": SOURCE}, ("source", "machine")),
    ],
)
def test_keys_that_do_not_fit_a_load_are_errors_at_their_place(
    tables: dict[str, Any], place: tuple[str, ...]
) -> None:
    file = make_file(**{"workload": {"kind": "load", "dataset": TPCC}, "run": RUN, **tables})
    assert [error.path for error in errors_of(file)] == [place]


def test_loads_take_turns() -> None:
    with pytest.raises(StudyFileError, match="schedule"):
        cases_of(make_file(workload={"kind": "load", "dataset": TPCC}, run={**RUN, "schedule": "slices"}))


@pytest.mark.parametrize(
    ("arms", "dataset", "words"),
    [(["17", "host=h dbname=d"], TPCC, "running server"), (["17", "18"], OWN, "cannot load")],
)
def test_running_servers_and_data_of_the_user_are_refused(
    arms: list[str], dataset: dict[str, Any], words: str
) -> None:
    study = make_study(arms=parse_arms(arms), workload=parameters(dataset=dataset))
    nothing: Any = None
    with pytest.raises(UsageError, match=words):
        PREPARATION.study(study, nothing, nothing, nothing)


def test_only_a_study_file_can_name_a_load(refusal: Callable[..., str]) -> None:
    assert "'load' is not one of" in refusal("compare 17 18 --workload load")
