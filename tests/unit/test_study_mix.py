"""Mix of tpcc's transactions, from the option to the engine, the check and the metrics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from example_studies import make_file, make_study
from pgdyno.analysis.telemetry import metrics
from pgdyno.study.cases import cases_of
from pgdyno.study.plan import Driving, Study
from pgdyno.workloads.tpcc.data import Tpcc
from pgdyno.workloads.tpcc.parameters import (
    DECK,
    KINDS,
    TpccParameters,
    canonical_mix,
    has_new_orders,
    is_tpcc_mix,
    weights_of,
)

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
        ("orders=1", "unknown transaction 'orders': use new-order, payment"),
        ("deck,payment=1", "unknown transaction 'deck'"),
        ("payment", "weight .* for payment"),
        ("payment=", "weight .* for payment"),
        ("payment=-1", r"\(got '-1'\)"),
        ("payment=nan", r"\(got 'nan'\)"),
        ("payment=1e9", r"\(got '1e9'\)"),
        ("payment=1000000000", r"\(got '1000000000'\)"),
        ("payment=1,payment=2", "names payment twice"),
        ("payment=0,new-order=0", "at least one weight greater than 0"),
        ("payment=1,", "unknown transaction ''"),
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
