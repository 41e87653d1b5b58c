"""A/A blocks in the lab: what their labs share, and which earlier blocks are like a study's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from test_study import make_study

from pgdyno.lab.aa import with_aa
from pgdyno.lab.prepare import Prepared
from pgdyno.lab.trial import Lab
from pgdyno.study.aa import aa_study

NOWHERE = Path("/nowhere")


def test_twins_remember_warm_ups_of_their_own() -> None:
    """What a twin's rates were is no hint for the warm-up of the study's second arm."""
    study, nothing = make_study(), cast("Any", None)
    twins = aa_study(study, 0)
    doubled = Prepared(twins, [], [], [], NOWHERE)
    lab = Lab(study, [], nothing, nothing, nothing)
    (found,) = with_aa([lab], [Prepared(study, [], [], [], NOWHERE, {0: doubled})], {(0, 0): 1})
    found.aa[0].rates.setdefault(1, []).append([1.0])
    assert found.rates == {}
    assert (found.aa[0].case, found.aa[0].study) == (1, twins)
