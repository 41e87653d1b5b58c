"""The look after a block: what the evidence says so far, told to whoever watches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pgdyno.analysis.comparison.interim_analysis import interim_result
from pgdyno.analysis.comparison.paired_comparison import Comparison
from pgdyno.evidence.reader import Evidence
from pgdyno.lab.progress import Looked, Standing
from pgdyno.lab.trial import Lab

Look = Callable[[Lab, float | None], bool]
"""Whether every comparison of this lab's case is decided; given how long a block of it takes, in seconds."""


def looks_into(path: Path) -> Look:
    """Of the evidence that is being written."""

    def look(lab: Lab, block_s: float | None) -> bool:
        # Not verified: this process has written it, and it grows from block to block.
        with Evidence(path, verify=False) as evidence:
            found = interim_result(evidence, lab.case)
        lab.watch(Looked(tuple(map(_standing, found.comparisons)), block_s))
        return found.is_decided

    return look


def _standing(comparison: Comparison) -> Standing:
    decision, primary = comparison.decision, comparison.primary
    return Standing(
        arm=comparison.arm.name,
        baseline=comparison.baseline.name,
        verdict=comparison.verdict,
        change=primary.percent if primary else None,
        blocks_needed=decision.blocks_needed if decision else None,
    )
