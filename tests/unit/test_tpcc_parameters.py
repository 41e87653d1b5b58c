"""Parameters of tpcc: mix, dialects and deviations, from option, arm and study file to engine and checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from workload_tallies import nurand_bins, simulate, uniform

from example_studies import make_file, make_study, read_study
from pgdyno.analysis.telemetry import metrics
from pgdyno.errors import UsageError
from pgdyno.results.records import Check
from pgdyno.study.arm_spec import parse_arm, parse_arms
from pgdyno.study.cases import cases_of
from pgdyno.study.plan import Driving, Study
from pgdyno.workloads.tpcc.checks import C_ID, C_LAST, ITEM, check_conformance, skipped
from pgdyno.workloads.tpcc.data import Tpcc
from pgdyno.workloads.tpcc.dialects import DEVIATIONS, DIALECTS, EXCLUSIVE
from pgdyno.workloads.tpcc.parameters import (
    DECK,
    KINDS,
    TpccParameters,
    canonical_mix,
    has_new_orders,
    is_tpcc_mix,
    weights_of,
)


def parameters(**given: Any) -> TpccParameters:
    return TpccParameters.model_validate({"warehouses": 4, **given})


def test_each_deviation_has_a_clause_and_one_sentence() -> None:
    for one in DEVIATIONS.values():
        assert one.clause[0].isdigit()
        assert one.about.endswith(".") and ". " not in one.about
        assert set(one.broken) <= set(range(1, 13))
        assert one.calls in ("", "procedures", "statements")
        assert set(one.requires) <= set(DEVIATIONS)


def test_dialects_consist_of_known_deviations_that_exist_together() -> None:
    for name, dialect in DIALECTS.items():
        assert [one.name for one in parameters(dialect=name).deviations] == [
            one for one in DEVIATIONS if one in dialect.deviations
        ]


def test_without_deviations_nothing_differs_from_before_there_were_any() -> None:
    plain = parameters()
    assert plain.to_load() == {"kind": "tpcc", "warehouses": 4}
    assert plain.shape() == {"warehouses": 4}
    assert "deviations" not in plain.to_drive()
    assert set(plain.model_dump()) == {"kind", "warehouses", "calls", "pipeline", "isolation"}
    assert plain.name == "tpcc, 4 warehouses"
    assert parameters(dialect="spec") == plain


def test_deviations_of_the_data_are_part_of_its_identity_and_others_are_not() -> None:
    of_both = parameters(deviate="no-rollback,half-bad-credit")
    assert of_both.to_load() == {"kind": "tpcc", "warehouses": 4, "deviations": ["half-bad-credit"]}
    assert of_both.shape() == {"warehouses": 4, "deviations": "half-bad-credit"}
    assert of_both.to_drive()["deviations"] == ["no-rollback", "half-bad-credit"]
    assert parameters(deviate="no-rollback").shape() == parameters().shape()


def test_table_sets_belong_to_the_dialect_sysbench_and_to_the_identity_of_its_data() -> None:
    of_ten = parameters(dialect="sysbench", warehouses=20, table_sets=10)
    assert of_ten.to_load()["table_sets"] == of_ten.to_drive()["table_sets"] == 10
    assert of_ten.shape() != parameters(dialect="sysbench", warehouses=20).shape()
    assert of_ten.name.endswith("dialect sysbench, 10 table sets")
    # At most one per warehouse: a fit to a small machine leaves fewer warehouses.
    few = of_ten.model_copy(update={"warehouses": 4})
    assert few.sets == few.suffixed_sets == few.to_load()["table_sets"] == 4
    assert parameters(dialect="sysbench").suffixed_sets == 1
    assert parameters().suffixed_sets == 0
    with pytest.raises(ValidationError, match="--table-sets=2 requires --dialect=sysbench"):
        parameters(table_sets=2)
    with pytest.raises(ValidationError, match="warehouses = 40000 is too many for 1 table set"):
        parameters(dialect="sysbench", warehouses=40_000)
    parameters(dialect="sysbench", warehouses=40_000, table_sets=2)


def test_the_versions_of_hammerdb_have_the_deviations_of_newer_ones_and_further_ones() -> None:
    newer, *older = (
        {one.name for one in parameters(dialect=name).deviations}
        for name in ("hammerdb", "hammerdb-5", "hammerdb-4")
    )
    assert [version - newer for version in older] == [
        {"amounts-added"},
        {"amounts-added", "order-number-skipped"},
    ]
    assert all(version > newer for version in older)
    assert parameters(dialect="hammerdb-4").shape() == parameters(dialect="hammerdb").shape()
    assert parameters(dialect="hammerdb-4").drawn_mix == parameters(dialect="hammerdb").drawn_mix != DECK


def test_a_dialect_sets_defaults_that_can_be_overridden() -> None:
    of_sysbench = parameters(dialect="sysbench")
    assert (of_sysbench.calls, of_sysbench.isolation) == ("statements", "repeatable read")
    assert parameters(dialect="sysbench", isolation="read committed").isolation == "read committed"
    assert of_sysbench.to_drive()["mix"]["new_order"] == 10
    assert parameters(dialect="sysbench", mix="payment=1").to_drive()["mix"]["new_order"] == 0
    assert of_sysbench.work() == parameters().work()
    assert parameters(**of_sysbench.model_dump(exclude={"kind", "warehouses"})) == of_sysbench


def test_a_minus_removes_a_deviation_of_the_dialect() -> None:
    whole, without = (
        parameters(dialect="sysbench", deviate=names)
        for names in ("", "no-rollback,-foreign-keys,-second-to-last-item")
    )
    assert {one.name for one in whole.deviations} ^ {one.name for one in without.deviations} == {
        "foreign-keys",
        "no-rollback",
        "second-to-last-item",
    }
    assert without.deviate == "no-rollback,-second-to-last-item,-foreign-keys"
    assert "foreign-keys" not in without.to_load()["deviations"]
    arm = parse_arm("18,dialect=sysbench,deviate=-foreign-keys,no-rollback")
    assert arm.load == {"dialect": "sysbench", "deviate": "-foreign-keys,no-rollback"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"deviate": "-foreign-keys"},
            "the dialect spec has no deviation foreign-keys: remove -foreign-keys",
        ),
        ({"dialect": "sysbench", "deviate": "-unsorted-lines"}, "sysbench-sql requires unsorted-lines"),
        (
            {"deviate": "subtransactions", "calls": "statements"},
            "subtransactions requires calls = procedures",
        ),
        (
            {"deviate": "sysbench-sql", "calls": "statements"},
            "sysbench-sql requires no-remote-warehouse, .*dialect = sysbench",
        ),
        ({"deviate": "text-protocol"}, "text-protocol requires calls = statements"),
        ({"deviate": "text-protocol", "calls": "statements", "pipeline": True}, "remove pipeline"),
        ({"dialect": "hammerdb", "calls": "statements"}, "requires calls = procedures"),
        *(({"deviate": ",".join(pair)}, "exclude each other") for pair in EXCLUSIVE),
    ],
)
def test_deviations_that_do_not_exist_together_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        parameters(**given)


def test_an_arm_has_its_dialect_in_the_place_of_a_setting() -> None:
    arm = parse_arm("18,work_mem=4MB,deviate=no-rollback,uniform-items,dialect=spec")
    assert arm.settings == {"work_mem": "4MB"}
    assert arm.load == {"deviate": "no-rollback,uniform-items", "dialect": "spec"}
    assert "load" not in parse_arm("18").model_dump()
    names = [arm.name for arm in parse_arms(["18,dialect=spec", "18,dialect=hammerdb"])]
    assert names == ["dialect=spec", "dialect=hammerdb"]


def test_a_dialect_is_no_setting_of_a_study_file() -> None:
    with pytest.raises(UsageError, match="dialect cannot be given with the server"):
        cases_of(read_study(STUDY.replace('server = "18"', 'server = "18,dialect=hammerdb"'), "study.toml"))


STUDY = """
title = "Dialects"
server = "18"
compare = ["dialect"]
[factors]
dialect = ["spec", "hammerdb"]
[workload]
kind = "tpcc"
warehouses = 4
[drive]
clients = 8
[run]
budget = "10min"
"""


def test_the_dialect_and_deviations_are_factors_of_a_study_file() -> None:
    (case,) = cases_of(read_study(STUDY, "study.toml"))
    workloads = [case.study.driving(arm).workload for arm in range(2)]
    assert [workload.deviations == [] for workload in workloads] == [True, False]
    text = STUDY.replace('"dialect"', '"deviate"').replace(
        'dialect = ["spec", "hammerdb"]', 'deviate = { none = "", both = "uniform-items,no-rollback" }'
    )
    (case,) = cases_of(read_study(text, "study.toml"))
    assert [len(case.study.driving(arm).workload.deviations) for arm in range(2)] == [0, 2]


def failed(tally: dict[str, Any], *names: str, **given: Any) -> set[str]:
    chosen = [DEVIATIONS[name] for name in names]
    checks = check_conformance(tally, warehouses=4, clients=8, deviations=chosen, **given)
    return {check.name for check in checks if not check.passed}


def redrawn(seed: int) -> dict[str, Any]:
    """A tally whose values have a constant of their own each."""
    tally, rng = simulate(seed), np.random.default_rng(seed)
    for name, field, width in (("c_last", C_LAST, 1), ("c_id", C_ID, 3), ("item", ITEM, 100)):
        n = sum(tally[name])
        c = rng.integers(0, field.a, n, endpoint=True)
        tally[name] = nurand_bins(rng, field, c, n, width).tolist()
    return tally


NAMES, CUSTOMERS, ITEMS = "NURand of last names", "NURand of customers", "NURand of items"


def test_a_driver_with_a_deviation_passes_only_the_tests_of_that_deviation() -> None:
    plain = simulate(5)
    uniform_items = plain | {"item": uniform(5, 1000, sum(plain["item"]))}
    uniform_ids = plain | {"c_id": uniform(5, 1000, sum(plain["c_id"]))}
    local = simulate(5, remote_line=0.0, remote_payment=0.0)
    for name, tally, wrong in (
        ("uniform-items", uniform_items, {ITEMS}),
        ("uniform-customers", uniform_ids, {CUSTOMERS}),
        ("no-rollback", simulate(5, rollback=0.0), {"rollback share"}),
        ("no-remote-warehouse", local, {"remote order lines", "remote payments"}),
        ("supply-from-all", simulate(5, remote_line=0.0075), {"remote order lines"}),
        ("c-redrawn", redrawn(5), {NAMES, CUSTOMERS, ITEMS}),
    ):
        assert failed(tally, name) == set(), name
        assert failed(tally) == wrong, name
        assert failed(plain, name) == wrong, name


def test_the_probabilities_with_a_drawn_constant_are_the_mean_over_all_constants() -> None:
    mean = np.mean([C_LAST.probability(c) for c in range(256)], axis=0)
    assert np.allclose(C_LAST.probability_with_drawn_c(), mean, atol=1e-12)
    assert abs(C_LAST.probability_with_drawn_c().sum() - 1) < 1e-9


def test_a_skipped_check_names_its_deviation_and_does_not_exclude_the_trial() -> None:
    check = skipped("condition 10", DEVIATIONS["reversed-amounts"])
    assert check.skipped and check.passed
    assert "reversed-amounts" in check.detail and "4.3.3.1" in check.detail
    assert not Check("condition 1", True).skipped


EVERY = "new-order=45,payment=43,order-status=4,delivery=4,stock-level=4"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("deck", DECK),
        (EVERY, EVERY),
        ("payment=43, new_order = 45", "new-order=45,payment=43"),
        ("stock-level=0.5,delivery=0", "stock-level=0.5"),
    ],
)
def test_a_mix_has_one_spelling(text: str, canonical: str) -> None:
    assert TpccParameters(warehouses=1, mix=text).mix == canonical
    assert canonical_mix(canonical) == canonical


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "unknown transaction ''"),
        ("payment=", "weight .* for payment"),
        ("payment=-1", r"\(got '-1'\)"),
        ("payment=nan", r"\(got 'nan'\)"),
        ("payment=1000000000", r"\(got '1000000000'\)"),
        ("payment=1,payment=2", "names payment twice"),
        ("payment=0,new-order=0", "at least one weight greater than 0"),
    ],
)
def test_an_invalid_mix_is_rejected_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        TpccParameters(warehouses=1, mix=text)


@given(st.dictionaries(st.sampled_from(KINDS), st.integers(0, 999_999_999), min_size=1))
def test_the_engine_gets_the_requested_weights(weights: dict[str, int]) -> None:
    text = ",".join(f"{kind}={weight}" for kind, weight in weights.items())
    if not any(weights.values()):
        with pytest.raises(ValueError, match="at least one weight greater"):
            canonical_mix(text)
        return
    sent = TpccParameters(warehouses=1, mix=text).to_drive()["mix"]
    assert sent == {kind.replace("-", "_"): weights.get(kind, 0) for kind in KINDS}


@pytest.mark.parametrize(
    ("mix", "standard", "new_orders"),
    [
        (DECK, True, True),
        (EVERY, True, True),
        ("new-order=44,payment=44,order-status=4,delivery=4,stock-level=4", True, True),
        ("new-order=46,payment=42,order-status=4,delivery=4,stock-level=4", False, True),
        ("new-order=48,payment=44,order-status=4,delivery=4", False, True),
        ("payment=1", False, False),
    ],
)
def test_a_mix_is_tpccs_if_it_keeps_the_minima(mix: str, standard: bool, new_orders: bool) -> None:
    assert (is_tpcc_mix(mix), has_new_orders(mix)) == (standard, new_orders)


def test_the_deck_is_not_written_and_another_mix_is() -> None:
    # Results of a pgdyno version that only had the deck belong to the same study.
    assert "mix" not in TpccParameters(warehouses=1).model_dump()
    own = TpccParameters(warehouses=1, mix="payment=1")
    assert TpccParameters.model_validate_json(own.model_dump_json()) == own


def test_a_mix_is_in_the_name_but_does_not_determine_the_data() -> None:
    usual, own = TpccParameters(warehouses=2), TpccParameters(warehouses=2, mix="payment=1")
    assert (usual.shape(), usual.to_load(), usual.data_name) == (own.shape(), own.to_load(), own.data_name)
    assert (usual.name, own.name) == ("tpcc, 2 warehouses", "tpcc, 2 warehouses, mix payment=1")


def plan(*mixes: str) -> Study:
    workloads = [TpccParameters(warehouses=1, mix=mix) for mix in mixes or (DECK,)]
    drivings = [Driving(workload=one, clients=4) for one in workloads] if len(mixes) > 1 else None
    return make_study(workload=workloads[0], drivings=drivings)


@pytest.mark.parametrize(
    ("mixes", "primary"),
    [
        ((), "nopm"),
        (("new-order=1,payment=1",), "nopm"),
        (("payment=1",), "tpm"),
        ((DECK, "payment=1"), "tpm"),
        ((DECK, "new-order=1"), "nopm"),
    ],
)
def test_the_rate_is_tpm_where_an_arm_has_no_new_orders(mixes: tuple[str, ...], primary: str) -> None:
    found = metrics.of_plan(plan(*mixes), metrics.TrialLatencies())
    assert found[0].key == primary
    assert ("nopm" in [metric.key for metric in found]) == (primary == "nopm")


def test_the_live_rate_of_a_mix_without_new_orders_counts_every_transaction() -> None:
    counts = {"payment": 30, "delivery": 10}
    own = TpccParameters(warehouses=1, mix="payment=3,delivery=1").pace
    assert (own.unit, own.of(counts, 60.0)) == ("TPM", 40.0)
    assert TpccParameters(warehouses=1).pace.unit == "NOPM"


def test_a_study_file_may_have_a_mix_and_vary_it() -> None:
    file = make_file(
        compare=["mix"],
        server="17",
        workload={"kind": "tpcc", "warehouses": 1},
        factors={"mix": ["deck", "payment=1"]},
    )
    (case,) = cases_of(file)
    found = [case.study.driving(index).workload for index in range(2)]
    assert found == [TpccParameters(warehouses=1), TpccParameters(warehouses=1, mix="payment=1")]
    assert Study.model_validate_json(case.study.model_dump_json()) == case.study


@pytest.mark.parametrize("mix", [DECK, "payment=3,delivery=1"])
def test_a_trial_is_checked_against_the_requested_mix(mix: str) -> None:
    checks = Tpcc(TpccParameters(warehouses=1, mix=mix)).checks(4, restored=True)
    assert checks.mix == (weights_of(mix) or DECK)
