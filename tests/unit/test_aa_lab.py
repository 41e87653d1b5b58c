"""A/A blocks in the lab: shared labs, and blocks of cases with the same load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from synthetic_study import QuickWriter, Synthetic, arms_of, study_of, write_block

from example_studies import make_study
from pgdyno.analysis.measurement_noise import read_noise
from pgdyno.measure.aa_blocks import with_aa
from pgdyno.measure.arms import Prepared
from pgdyno.measure.trial import Lab
from pgdyno.results.reader import Evidence
from pgdyno.study.schedule import aa_study
from pgdyno.workloads.tpcc.parameters import TpccParameters

NOWHERE = Path("/nowhere")


def test_twins_have_separate_warm_up_histories() -> None:
    """The rates of a twin do not affect the warm-up of the study's second arm."""
    study, nothing = make_study(), cast("Any", None)
    twins = aa_study(study, 0)
    doubled = Prepared(twins, [], [], [], NOWHERE)
    lab = Lab(study, [], nothing, nothing, nothing)
    (found,) = with_aa([lab], [Prepared(study, [], [], [], NOWHERE, {0: doubled})], {(0, 0): 1})
    found.aa[0].rates.setdefault(1, []).append([1.0])
    assert found.rates == {}
    assert (found.aa[0].case, found.aa[0].study) == (1, twins)


@pytest.mark.parametrize(
    ("workload", "asked", "pooled"),
    [
        ({"kind": "tpcc", "warehouses": 3}, {"clients": 2}, 2),
        ({"kind": "tpcc", "warehouses": 30}, {"clients": 2}, 1),
        ({"kind": "tpcc", "warehouses": 3}, {"clients": 20}, 1),
    ],
)
def test_only_cases_with_the_same_load_have_their_aa_blocks_in_common(
    tmp_path: Path, workload: dict[str, Any], asked: dict[str, Any], pooled: int
) -> None:
    first = Synthetic(blocks=2, slices=4, noise=0.0)
    loads = [({"kind": "tpcc", "warehouses": 3}, {"clients": 2}), (workload, asked)]
    cases = []
    for case, (load, study) in enumerate(loads):
        one = study_of(replace(first, case=case))
        plan = one.plan.model_copy(update={"workload": TpccParameters(**load), **study})
        cases.append((replace(one, case=f"case {case}", plan=plan, why_no_aa=""), arms_of(first)))
    hidden = [
        (replace(one, case=f"A/A {case}", aa_of=case), arms_of(first)) for case, (one, _) in enumerate(cases)
    ]
    path = tmp_path / "e.sqlite"
    with QuickWriter.create(path, *cases[0], cases[1], *hidden) as writer, writer._transaction():
        for case in (2, 3):
            write_block(writer, replace(first, case=case), 0, np.random.default_rng(case))
    with Evidence(path) as evidence:
        assert [noise.n for noise in read_noise(evidence).values()] == [pooled, pooled]
