"""What a calibration says: how noisy an arm against itself is, by schedule and slice length.

A unit is a round and its mirror image (ABBA; of a duet two slices with the cores swapped): d = ln(B/A) of the
work done in it. Within a block units vary about the block's mean with standard deviation s_u; a block's own
mean d̄ varies about 0, its true value, with variance σ_b² + s_u²/k, for k units a block: σ_b is what restores
and restarts do, whatever the slices, so it is estimated from all lengths together by equating moments (the
method of variance components in a one-way layout), and is at least 0.

The figure of merit is the standard deviation of a block times the root of its minutes: it does not depend on
how many blocks there are, and holds the time for restores, restarts, warm-up, draining and discarded starts.
n minutes leave merit / √n, so an effect of δ is found with a chance of POWER after
((z_{α/2} + z_β) · merit / ln(1 + δ))² minutes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # its parts load when first used: stats alone takes a second

from pgdyno.analysis.comparison import ok_by_block
from pgdyno.analysis.effect import paired, student
from pgdyno.analysis.noise import Alarms
from pgdyno.analysis.verdict import BLOCKS_MIN, POWER
from pgdyno.evidence.reader import Evidence
from pgdyno.evidence.records import BlockStatus, Slice, Trial

CONFIDENCE = 0.95
EFFECTS = (0.05, 0.02)
"""True differences of which it is told how long they take to be found."""


@dataclass(frozen=True)
class Measured:
    """Of one schedule and slice length: ``units`` block by block, in log ratios.

    ``unit_s`` is a unit's time with its draining, ``block_s`` a block's with everything; ``lost_share`` is
    what of the slices' time did not count.
    """

    schedule: str
    slice_s: float
    units: Sequence[Sequence[float]]
    unit_s: float
    block_s: float
    lost_share: float

    @property
    def blocks(self) -> int:
        """How many."""
        return len(self.units)

    @property
    def per_block(self) -> float:
        """Units of a block, on the mean."""
        return sum(map(len, self.units)) / len(self.units)

    @property
    def sd_unit(self) -> float | None:
        """s_u, about each block's mean; None where no block has two."""
        free = sum(len(of) - 1 for of in self.units)
        if free < 1:
            return None
        square = sum(float(np.var(of)) * len(of) for of in self.units)
        return math.sqrt(square / free)

    @property
    def of_blocks(self) -> list[float]:
        """Their mean log ratios."""
        return [float(np.mean(of)) for of in self.units]

    def within(self) -> float | None:
        """Of a unit, times the root of its minutes: as if there were no restarts."""
        return None if self.sd_unit is None else self.sd_unit * math.sqrt(self.unit_s / 60)

    def merit(self, sd_restart: float) -> float | None:
        """Of a block, times the root of its minutes."""
        if self.sd_unit is None:
            return None
        variance = sd_restart**2 + self.sd_unit**2 / self.per_block
        return math.sqrt(variance * self.block_s / 60)


@dataclass(frozen=True)
class Calibration:
    """All lengths. ``sd_restart`` is σ_b."""

    measured: Sequence[Measured]
    sd_restart: float
    alarms: Alarms | None

    def merit(self, one: Measured) -> float | None:
        """The figure of merit: small is good."""
        return one.merit(self.sd_restart)

    def best(self, schedule: str | None = None) -> Measured | None:
        """With the least merit, of one schedule or of all."""
        known = [(merit, one) for one in self.measured if (merit := self.merit(one)) is not None]
        mine = [(merit, one) for merit, one in known if schedule in (None, one.schedule)]
        return min(mine, key=lambda pair: pair[0])[1] if mine else None


def minutes_for(merit: float, effect: float) -> float:
    """Until a true effect of that size is found with a chance of POWER."""
    z = float(scipy.stats.norm.ppf((1 + CONFIDENCE) / 2) + scipy.stats.norm.ppf(POWER))
    return (z * merit / math.log1p(effect)) ** 2


def find_calibration(evidence: Evidence) -> Calibration:
    """Of a file that ``pgdyno doctor --calibrate`` wrote."""
    found = [one for case in evidence.cases() if (one := _measured(evidence, case)) is not None]
    return calibration_of(found)


def calibration_of(measured: Sequence[Measured]) -> Calibration:
    """What follows from all lengths together."""
    return Calibration(measured, _sd_restart(measured), _alarms(measured))


def _sd_restart(measured: Sequence[Measured]) -> float:
    excess, n = 0.0, 0
    for one in measured:
        if one.sd_unit is not None:
            excess += sum(d * d for d in one.of_blocks) - one.blocks * one.sd_unit**2 / one.per_block
            n += one.blocks
    return math.sqrt(max(0.0, excess / n)) if n else 0.0


def _alarms(measured: Sequence[Measured]) -> Alarms | None:
    """Series of BLOCKS_MIN blocks, one unit of each: judged by whether Student's interval leaves 0 out."""
    series = [
        [of[place] for of in one.units[first : first + BLOCKS_MIN]]
        for one in measured
        for first in range(0, one.blocks - BLOCKS_MIN + 1, BLOCKS_MIN)
        for place in range(min(map(len, one.units[first : first + BLOCKS_MIN])))
    ]
    if not series:
        return None
    p_values = [student(one, CONFIDENCE).p_value for one in series]
    return Alarms(sum(p is not None and p < 1 - CONFIDENCE for p in p_values), len(series), CONFIDENCE)


def _measured(evidence: Evidence, case: int) -> Measured | None:
    """None without a block."""
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
        return None
    spans = [_span_s(*pairs[block]) / len(of) for block, of in found.items()]
    # The first block of all copies the data whole: the later ones tell what a block takes.
    later = [durations[block] for block in sorted(found)[1:]] or list(durations.values())
    return Measured(
        schedule=str(plan.schedule),
        slice_s=float(plan.slice_s or 0.0),
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


def as_values(calibration: Calibration) -> list[Mapping[str, object]]:
    """For JSON and the history: a row a schedule and length, logs as they are."""
    rows: list[Mapping[str, object]] = []
    for one in calibration.measured:
        merit = calibration.merit(one)
        rows.append(
            {
                "schedule": one.schedule,
                "slice_s": one.slice_s,
                "blocks": one.blocks,
                "units": sum(map(len, one.units)),
                "block_s": one.block_s,
                "unit_s": one.unit_s,
                "lost_share": one.lost_share,
                "sd_within_root_min": one.within(),
                "sd_root_min": merit,
                "minutes": {
                    f"{effect:g}": None if merit is None else minutes_for(merit, effect) for effect in EFFECTS
                },
            }
        )
    return rows
