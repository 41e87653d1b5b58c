"""A calibration read from its evidence: of each schedule and slice length the units, block by block."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pgdyno.analysis.comparison.calibration import Calibration, Measured, calibration_of
from pgdyno.analysis.comparison.comparison import ok_by_block
from pgdyno.analysis.statistics.effect import paired
from pgdyno.evidence.reader import Evidence
from pgdyno.evidence.records import BlockStatus, Slice, Trial


def find_calibration(evidence: Evidence) -> Calibration:
    """Of a file that ``pgdyno doctor --calibrate`` wrote."""
    return calibration_of([_measured(evidence, case) for case in evidence.cases()])


def _measured(evidence: Evidence, case: int) -> Measured:
    """Of lengths that have no block yet there is nothing but the name."""
    plan = evidence.study(case).plan
    durations = {
        block.block: block.ended_unix_s - block.started_unix_s
        for block in evidence.blocks(case)
        if block.status is BlockStatus.DONE and block.ended_unix_s is not None
    }
    pairs = {
        block: (of[0], of[1])
        for block, of in ok_by_block(evidence.trials(case)).items()
        if {0, 1} <= of.keys() and block in durations
    }
    found = {block: of for block, (a, b) in pairs.items() if (of := units(a, b))}
    if not found:
        return Measured(str(plan.schedule), float(plan.turn_s or 0.0), [], 0.0, 0.0, 0.0)
    spans = [_span_s(*pairs[block]) / len(of) for block, of in found.items()]
    # The first block of all copies the data whole: the later ones tell what a block takes.
    later = [durations[block] for block in sorted(found)[1:]] or list(durations.values())
    return Measured(
        schedule=str(plan.schedule),
        slice_s=float(plan.turn_s or 0.0),
        units=[found[block] for block in sorted(found)],
        unit_s=sum(spans) / len(spans),
        block_s=sum(later) / len(later),
        lost_share=_lost_share([pairs[block] for block in found]),
    )


def units(a: Trial, b: Trial) -> list[float]:
    """Log ratios of pairs of rounds; a pair in which an arm did nothing is left out."""
    mine, others = paired(a, b)
    found = []
    for first in range(0, len(mine) - 1, 2):
        rates = [_rate(of[first : first + 2]) for of in (mine, others)]
        if all(rates):
            found.append(math.log(rates[1] / rates[0]))
    return found


def _rate(slices: Sequence[Slice]) -> float:
    counted_s = sum(piece.counted_s for piece in slices)
    n = sum(counts.executed for piece in slices for counts in piece.kinds.values())
    return n / counted_s if counted_s > 0 else 0.0


def _span_s(a: Trial, b: Trial) -> float:
    """From the first measured slice's start to the last one's end."""
    every = [*a.measured, *b.measured]
    return max(piece.drained_s for piece in every) - min(piece.opened_s for piece in every)


def _lost_share(pairs: Sequence[tuple[Trial, Trial]]) -> float:
    """Of slices' time: discarded at their starts, and while what was under way came to its end."""
    every = [piece for pair in pairs for trial in pair for piece in trial.measured]
    whole_s = sum(piece.drained_s - piece.opened_s for piece in every)
    return 1 - sum(piece.counted_s for piece in every) / whole_s if whole_s > 0 else 0.0
