"""pgbench parameters: those that determine its data, those for the engine, and rejected ones."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from pgdyno.errors import UsageError
from pgdyno.features.own_data.plan import OwnDataParameters
from pgdyno.study.plan import Driving
from pgdyno.study.workload_parameters import WorkloadParameters, workload_from
from pgdyno.workloads.pgbench.parameters import PgbenchParameters, Script, variants


def parameters(**given: Any) -> Any:
    return workload_from({"kind": "pgbench", "scale": 3, **given})


SHAPES_DATA: list[dict[str, Any]] = [
    {"scale": 4},
    {"partitions": 2},
    {"partitions": 2, "partition_method": "hash"},
    {"fillfactor": 90},
    {"unlogged": True},
    {"foreign_keys": True},
    {"indexes": ("pgbench_accounts (bid)",)},
    {"indexes": ("pgbench_accounts (bid, abalance)",)},
    {"accounts_copy": True},
    {"data": "shop.dump", "scale": 1, "scripts": (Script(name="s", text="SELECT 1"),)},
]
SHAPES_NO_DATA: list[dict[str, Any]] = [
    {"protocol": "prepared"},
    {"scripts": (Script(name="select-only"),)},
    {"define": {"x": "1"}},
    {"checks": [{"name": "c", "text": "SELECT 1"}]},
]


def test_exactly_the_parameters_of_the_data_determine_the_dataset() -> None:
    shapes = [str(parameters(**given).shape()) for given in [{}, *SHAPES_DATA]]
    assert len(set(shapes)) == len(shapes)
    assert {str(parameters(**given).shape()) for given in SHAPES_NO_DATA} == {shapes[0]}
    named = {key for given in [*SHAPES_DATA, *SHAPES_NO_DATA] for key in given}
    assert named == set(OwnDataParameters.model_fields) - {"kind", *WorkloadParameters.OF_HISTORY}


def test_equal_data_has_one_key_for_every_notation() -> None:
    pairs = [
        ({"partitions": 2}, {"partitions": 2, "partition_method": "range"}),
        (
            {"indexes": ["PGBENCH_accounts(bid,abalance)"]},
            {"indexes": [" pgbench_accounts ( bid , abalance )"]},
        ),
        (
            {"indexes": ["pgbench_history (tid)", "pgbench_history (aid)"]},
            {"indexes": ["pgbench_history (aid)", "pgbench_history (tid)"]},
        ),
    ]
    for one, other in pairs:
        assert parameters(**one).shape() == parameters(**other).shape()


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"partition_method": "hash"}, "--partition-method requires --partitions"),
        ({"indexes": ["pgbench_accounts"]}, "does not have the form TABLE"),
        ({"indexes": ["orders (id)"]}, "unknown table 'orders'"),
        ({"indexes": ["pgbench_tellers (aid)"]}, "pgbench_tellers has no column 'aid'"),
        ({"indexes": ["pgbench_tellers (tid); drop table x"]}, "does not have the form TABLE"),
        ({"indexes": ["pgbench_tellers (bid, bid)"]}, "names a column twice"),
        ({"indexes": ["pgbench_tellers (bid)", "pgbench_tellers(bid)"]}, "an index is given twice"),
        ({"indexes": ["pgbench_accounts_copy (bid)"]}, "requires --accounts-copy"),
        ({"scripts": [{"name": "tpcb-like"}, {"name": "tpcb-like"}]}, "tpcb-like is given twice"),
        ({"scripts": [{"name": "tpcb-like", "weight": 0}]}, "every script has the weight 0"),
        ({"scripts": [{"name": "tpcc"}]}, "unknown pgbench script 'tpcc'"),
        ({"scripts": []}, "at least 1 item"),
    ],
)
def test_conflicting_values_are_rejected_with_the_reason(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        parameters(**given)


def test_the_scale_is_that_of_the_data_also_for_custom_scripts() -> None:
    own = parameters(scale=7, scripts=[{"name": "f.sql", "text": "SELECT :scale", "weight": 2}])
    assert own.to_drive()["scale"] == 7
    assert own.to_drive()["scripts"] == [{"name": "f.sql", "text": "SELECT :scale", "weight": 2}]
    assert own.effects == {"unknown"}


def test_the_effect_of_a_builtin_script_cannot_be_overridden() -> None:
    said = Script.model_validate({"name": "tpcb-like", "effect": "none"})
    assert said.effect == "all"
    assert parameters(scripts=[said, {"name": "x", "text": "SELECT 1", "weight": 0}]).effects == {"all"}


@pytest.mark.parametrize(
    ("given", "major"),
    [
        ({}, 10),
        ({"foreign_keys": True}, 10),
        ({"partitions": 2}, 11),
        ({"partitions": 2, "foreign_keys": True}, 12),
    ],
)
def test_a_server_too_old_for_the_data_is_rejected(given: dict[str, Any], major: int) -> None:
    parameters(**given).require_major(major, "a")
    with pytest.raises(UsageError, match=f"require PostgreSQL {major} or newer: a has version {major - 1}"):
        parameters(**given).require_major(major - 1, "a")


@pytest.mark.parametrize("workload", ["pgbench", {"scale": 1}, {"kind": "tpcb"}, {"kind": ["pgbench"]}])
def test_a_plan_without_a_known_workload_is_refused(workload: object) -> None:
    with pytest.raises(ValidationError, match="workload"):
        Driving.model_validate({"workload": workload, "clients": 1})


def test_every_variant_is_complete_and_an_unknown_one_lists_all() -> None:
    made = {name: parameters(**given) for name, (_, given) in variants().items()}
    assert made["default"] == parameters()
    assert len(made["extra-indexes"].indexes) == 4
    assert made["select-only"].effects == {"none"}
    assert made["analytical"].accounts_copy
    assert len(made["analytical"].scripts) == 4
    assert made["skip-some-updates"].protocol == "prepared"
    with pytest.raises(UsageError, match=r"variant 'nonsense'; available: default: .*; analytical: "):
        PgbenchParameters.variant("nonsense")


def test_the_work_of_a_transaction_is_that_of_its_scripts_and_not_of_its_data() -> None:
    def work(**fields: Any) -> str:
        return str(parameters(**{"scale": 1} | fields).work())

    mixed = [{"name": "select-only", "weight": 9}, {"name": "tpcb-like"}]
    assert work() == work(scale=9, protocol="prepared", indexes=["pgbench_accounts (bid)"], define={"n": "1"})
    assert work(scripts=mixed) == work(
        scripts=[{"name": "tpcb-like", "weight": 2}, {**mixed[0], "weight": 18}]
    )
    own = [{"name": "mine", "text": "SELECT :n"}]
    different = [
        work(),
        work(scripts=mixed),
        work(scripts=own),
        work(scripts=own, define={"n": "1"}),
        work(scripts=[{"name": "select-only"}]),
    ]
    assert len(set(different)) == len(different)
