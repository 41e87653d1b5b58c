"""Hidden A/A blocks of a study: their records in the results file, and their execution.

They are separate cases, numbered after the cases of the study, one for each arm with a second server.
``study/schedule.py`` determines which of them follows which block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pgdyno.analysis.measurement_noise import InterimResult
from pgdyno.hooks import Hooks
from pgdyno.measure.arms import Prepared
from pgdyno.measure.progress import Watch
from pgdyno.measure.trial import Lab
from pgdyno.measure.warm_up import Rates
from pgdyno.results import records
from pgdyno.results.reader import Evidence
from pgdyno.study.plan import Study

Described = Sequence[tuple[records.StudyRecord, Sequence[records.Arm]]]
"""Records of cases and their arms for the results file."""


@dataclass(frozen=True)
class NoiseHistory:
    """Results of A/A blocks of earlier studies on this machine, which a feature keeps.

    ``add``: adds them to the records of a new study, and removes the A/A blocks of cases that need none.
    ``store``: stores those of a results file. ``notes``: lines on the noise of the blocks of a case so far,
    given their interim result, the number of further blocks and the duration of one.
    """

    add: Callable[[Described, Sequence[Prepared], Watch], tuple[Described, Sequence[Prepared]]]
    store: Callable[[Path, Watch], None]
    notes: Callable[[Evidence, int, InterimResult, int, float], Iterable[str]]


NOISE_HISTORIES: Hooks[NoiseHistory] = Hooks("noise")

Numbers = Mapping[tuple[int, int], int]
"""(case, arm with a second server) → number of the case that contains its A/A blocks."""


def new_numbers(ready: Sequence[Prepared]) -> Numbers:
    """Return the numbers for a new study, after its cases."""
    doubled = [(case, arm) for case, prepared in enumerate(ready) for arm in prepared.aa]
    return {place: len(ready) + i for i, place in enumerate(doubled)}


def numbers_of(evidence: Evidence) -> Numbers:
    """Return the numbers of a resumed study."""
    found = {}
    for number, case in evidence.aa_cases().items():
        arm = evidence.study(number).aa_arm
        assert arm is not None  # a case of A/A blocks
        found[case, arm] = number
    return found


def spent_s(evidence: Evidence) -> float:
    """Return the time spent on the A/A blocks so far."""
    blocks = [block for case in evidence.aa_cases() for block in evidence.blocks(case)]
    return sum((block.ended_unix_s or block.started_unix_s) - block.started_unix_s for block in blocks)


def aa_records(
    described: Sequence[records.StudyRecord], ready: Sequence[Prepared]
) -> Iterator[tuple[records.StudyRecord, Sequence[records.Arm]]]:
    """Yield the records for the results file, in the order of ``new_numbers``. ``described``: the cases."""
    for case, prepared in enumerate(ready):
        for arm, doubled in prepared.aa.items():
            yield _record(described[case], case, arm, doubled.study), doubled.records


def _record(whole: records.StudyRecord, case: int, arm: int, study: Study) -> records.StudyRecord:
    name = f"A/A of {study.arms[0].name}"
    return replace(
        whole,
        case=f"{whole.case}: {name}" if whole.case else name,
        levels={},
        plan=study.without_passwords(),
        arm_levels=[{}, {}],
        aa_of=case,
        aa_arm=arm,
        aa_before=(),
    )


def with_aa(
    labs: Sequence[Lab],
    ready: Sequence[Prepared],
    numbers: Numbers,
    rates: Mapping[int, dict[int, list[Rates]]] | None = None,
) -> list[Lab]:
    """Return the labs of the cases, each with the labs of its A/A blocks that the results file contains.

    ``rates``: warm-up rates by number, for a resumed study.
    """
    return [
        replace(
            lab,
            aa={
                arm: replace(
                    lab,
                    study=doubled.study,
                    arms=doubled.arms,
                    case=numbers[case, arm],
                    name=f"{lab.name}: {doubled.study.title}" if lab.name else doubled.study.title,
                    kept={},
                    # Separate rates: A/A warm-ups are not those of arms 0 and 1.
                    rates=(rates or {}).get(numbers[case, arm], {}),
                )
                for arm, doubled in prepared.aa.items()
                if (case, arm) in numbers
            },
        )
        for case, (lab, prepared) in enumerate(zip(labs, ready, strict=True))
    ]
