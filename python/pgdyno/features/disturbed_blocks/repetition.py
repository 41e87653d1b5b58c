"""The decision to repeat a block, from covariates of the machine and never from rates.

Arms of the schedules slices and duet are measured in the same seconds. So a block is disturbed for all of its
arms or for none. What a server did itself is no covariate: its processes, what they start, and the kernel.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pgdyno.caveats import Caveat, Parameter
from pgdyno.features.disturbed_blocks.programs import PROBE_NAME
from pgdyno.measure.progress import Warned
from pgdyno.measure.server_probes import Row
from pgdyno.measure.study_runner import Budget
from pgdyno.measure.trial import STEAL_SHARE_MAX, Lab
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Moment, Trial, TrialStatus
from pgdyno.units import format_size, given_percent, percent_text

CPU_SHARE_MAX = 0.05
"""Maximum CPU time of other programs as a share of all cores. An idle desktop takes less, and studies look
for effects of 5%."""

IO_BYTES_PER_S_MAX = 10 * 2**20
"""Maximum I/O of other programs: a tenth of what a small volume in a cloud transfers."""

OBSERVED_S_MIN = 9.0
"""Minimum measured part of a block: a little less than by default. In a short one, a program of half a second
exceeds the limit."""

REPEATED_SHARE_MAX = 0.2
"""Maximum number of repetitions as a share of the blocks, rounded up."""

DISTURBED_SHARE_MAX = 0.5
"""Maximum share of disturbed blocks. Beyond it the disturbance is permanent, and repetitions only take
time."""

REPEATS_MAX = 2
"""Maximum number of repetitions of one block."""


REPEATED, DISTURBED = "blocks-repeated", "blocks-disturbed"
"""Codes of caveats about disturbed blocks."""


class Excess(NamedTuple):
    """A covariate above its limit: its name, its value and its limit as texts."""

    what: str
    value: str
    limit: str


def covariates(evidence: Evidence, trials: Iterable[Trial]) -> list[Row]:
    """Return what the probe stored of these trials."""
    return [
        row
        for trial in trials
        for reading in evidence.readings(trial.trial)
        if (reading.probe, reading.moment) == (PROBE_NAME, Moment.END)
        for row in reading.rows or ()
    ]


def excesses(rows: Sequence[Row]) -> Iterator[Excess]:
    """Yield the covariates of a block that exceed their limits; ``rows``: one per trial."""

    def largest(column: str) -> float:
        return max(float(row[column] or 0.0) for row in rows)

    if min(float(row["elapsed_s"] or 0.0) for row in rows) < OBSERVED_S_MIN:
        return
    if (share := largest("cpu_share")) > CPU_SHARE_MAX:
        limit = f"{given_percent(CPU_SHARE_MAX)} of all cores"
        program = max(rows, key=lambda row: float(row["cpu_share"] or 0.0))["largest"]
        yield Excess("the CPU time of other programs", f"{percent_text(share, 1)}, mostly {program}", limit)
    if (per_s := largest("io_bytes_per_s")) > IO_BYTES_PER_S_MAX:
        limit = f"{format_size(IO_BYTES_PER_S_MAX)}/s"
        yield Excess("the I/O of other programs", f"{format_size(round(per_s))}/s", limit)
    if (share := largest("steal_share")) > STEAL_SHARE_MAX:
        limit = f"{given_percent(STEAL_SHARE_MAX)} of the requested CPU time"
        yield Excess("steal", percent_text(share, 1), limit)


def may_repeat(runs: Mapping[int, int], block: int, disturbed: int) -> bool:
    """Return whether the limits allow another run of a disturbed block.

    ``runs``: complete ones by block. ``disturbed``: number of blocks that were disturbed, including this one.
    """
    repetitions = sum(runs.values()) - len(runs)
    return (
        runs[block] <= REPEATS_MAX
        and repetitions < math.ceil(REPEATED_SHARE_MAX * len(runs))
        and disturbed <= max(1.0, DISTURBED_SHARE_MAX * len(runs))
    )


def complete_runs(trials: Sequence[Trial], arms: int) -> Counter[int]:
    """Return the number of runs by block in which the trials of all arms count; ``trials``: all attempts."""
    ok = Counter((trial.block, trial.attempt) for trial in trials if trial.status is TrialStatus.OK)
    return Counter(block for (block, _), n in ok.items() if n == arms)


def repeats(lab: Lab, block: int, budget: Budget) -> bool:
    """Return whether a block is to be repeated, and store the reason as a caveat.

    A block with a trial that failed, or that a check excludes, is a result and never repeated. The processes
    of running servers and of load generators on nodes are not known, so their blocks are not repeated either.
    """
    study = lab.study
    if not study.is_together or PROBE_NAME not in study.probes or lab.session is not None:
        return False
    if any(arm.is_dsn for arm in study.arms):
        return False
    with Evidence(lab.writer.path, verify=False) as evidence:
        last = [trial for trial in evidence.trials(lab.case) if trial.block == block]
        runs = complete_runs(evidence.trials(lab.case, all_attempts=True), len(study.arms))
        rows = covariates(evidence, last)
        raised = [of for of in evidence.caveats(lab.case) if of.code in (REPEATED, DISTURBED)]
    if not rows or any(trial.status is not TrialStatus.OK for trial in last):
        return False
    found = list(excesses(rows))
    is_time = budget.allows_another(lab.case) and not lab.interruption.requested
    again = (
        bool(found)
        and is_time
        and may_repeat(runs, block, len({of.parameters["block"] for of in raised} | {block + 1}))
    )
    for excess in found:
        parameters: dict[str, Parameter] = {"block": block + 1, "what": excess.what, "limit": excess.limit}
        lab.writer.add_caveat(Caveat(REPEATED if again else DISTURBED, parameters), lab.case)
    if again:
        why = "; ".join(f"{of.what} was {of.value} (limit {of.limit})" for of in found)
        lab.watch(Warned(f"block {block + 1} is repeated: {why}"))
    return again
