"""Coverage of intervals of tail percentiles with rare stalls, by simulation."""

import math
from pathlib import Path

import pytest
from bench.tails import KINDS, PATHS, rule_coverage, rule_row, truth

STUDIES = 200


def bound(share: float) -> float:
    """Return the share that so many studies exceed with a probability of about 0.1%."""
    return share + 3.1 * math.sqrt(share * (1 - share) / STUDIES)


@pytest.mark.parametrize("blocks", [5, 8])
@pytest.mark.parametrize("name", ["none", "none, B +10%"])
def test_intervals_without_stalls_are_shown_and_cover(name: str, blocks: int) -> None:
    of = rule_coverage(KINDS[name], blocks, STUDIES)
    assert of.shown == 1
    assert 1 - of.covers <= bound(0.05)


@pytest.mark.parametrize("blocks", [5, 8])
def test_intervals_under_rare_stalls_are_false_only_if_no_block_has_a_stall(blocks: int) -> None:
    """Only blocks of B, at a rate of 0.3. Without the rule, the interval covers in half of the studies."""
    tails = KINDS["0 and 0.3"]
    of = rule_coverage(tails, blocks, STUDIES)
    assert truth(tails) > math.log(10)
    assert of.student <= 0.7
    assert of.false <= bound(0.7**blocks)


@pytest.mark.long
def test_a_row_of_the_page_on_tails_equals_the_simulation() -> None:
    page = Path(__file__).parents[2] / "docs" / "explanation" / "tails.md"
    name = "0 and 0.3"
    shown, false = (rule_row(name, KINDS[name], 8, PATHS)[i] for i in (3, 5))
    rows = [line for line in page.read_text("utf-8").splitlines() if line.startswith(f"| {name} | 8 |")]
    assert [row.endswith(f"| {shown} | {false} |") for row in rows] == [True], "see `python -m bench tails`"
