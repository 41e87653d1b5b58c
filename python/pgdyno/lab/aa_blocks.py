"""Hidden A/A blocks of a study: their records in the evidence, and their execution.

They are cases of their own, numbered after the study's cases, one for each arm that is doubled; which of them
runs beside which block is for ``study/aa_plan.py`` to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pgdyno.analysis.comparison.measurement_noise import aa_log_ratios
from pgdyno.lab.noise_history import History, machine_of
from pgdyno.lab.prepare import Prepared
from pgdyno.lab.progress import Warned, Watch
from pgdyno.lab.trial import Lab
from pgdyno.lab.warm_up import Rates, rates_so_far
from pgdyno.results import records
from pgdyno.results.reader import Evidence
from pgdyno.study.plan import Study

Numbers = Mapping[tuple[int, int], int]
"""(case, arm of it that is doubled) → number of the case that holds its A/A blocks."""


def new_numbers(ready: Sequence[Prepared]) -> Numbers:
    """Of a study that begins: after its cases."""
    doubled = [(case, arm) for case, prepared in enumerate(ready) for arm in prepared.aa]
    return {place: len(ready) + i for i, place in enumerate(doubled)}


def numbers_of(evidence: Evidence) -> Numbers:
    """Of a study that goes on."""
    found = {}
    for number, case in evidence.aa_cases().items():
        arm = evidence.study(number).aa_arm
        assert arm is not None  # of A/A blocks
        found[case, arm] = number
    return found


def spent_s(evidence: Evidence) -> float:
    """On the A/A blocks so far."""
    blocks = [block for case in evidence.aa_cases() for block in evidence.blocks(case)]
    return sum((block.ended_unix_s or block.started_unix_s) - block.started_unix_s for block in blocks)


def aa_records(
    described: Sequence[records.StudyRecord], ready: Sequence[Prepared]
) -> Iterator[tuple[records.StudyRecord, Sequence[records.Arm]]]:
    """As the evidence keeps them, in the order of ``new_numbers``. ``described``: the study's cases."""
    for case, prepared in enumerate(ready):
        for arm, doubled in prepared.aa.items():
            yield _record(described[case], case, arm, doubled.study), doubled.records


def load_of(study: Study) -> dict[str, Any]:
    """Of a comparison of an arm with its twin: what must be the same for its noise to be that of another
    study's. The server may be another one: a release more does not change what a machine does.
    """
    fields = (
        "workload",
        "clients",
        "threads",
        "pacing",
        "rate",
        "capacity",
        "schedule",
        "slice_s",
        "rounds",
        "warmup_s",
        "warmup_min_s",
        "warmup_workload",
        "cache_state",
        "probes",
        "checkpoints",
    )
    dumped, arm = study.model_dump(mode="json"), study.arms[0]
    further = {"transactions": study.transactions, "settings": arm.settings, "profiles": list(arm.profiles)}
    return {**{name: dumped[name] for name in fields}, **further}


def with_before(
    described: Sequence[tuple[records.StudyRecord, Sequence[records.Arm]]],
    ready: Sequence[Prepared],
    history: History,
) -> list[tuple[records.StudyRecord, Sequence[records.Arm]]]:
    """With A/A blocks of earlier studies in each case's plan, the latest of each of its loads: a report is
    made from the evidence alone. Loads differ where arms' settings or drivings do.
    """
    found = []
    for (study, arms), prepared in zip(described, ready, strict=True):
        loads: list[dict[str, Any]] = []
        for doubled in prepared.aa.values():
            if (load := load_of(doubled.study)) not in loads:
                loads.append(load)
        before = [d for load in loads for d in history.aa_before(study.host, load)]
        found.append((replace(study, aa_before=before), arms))
    return found


def remember(path: Path, history: History, watch: Watch) -> None:
    """What this study's A/A blocks have shown, for later ones; of one that goes on the last word counts."""
    with Evidence(path, verify=False) as evidence:  # this process has written it
        entries = [_entry(evidence, number) for number in evidence.aa_cases() if evidence.blocks(number)]
    try:
        for entry in entries:
            if entry["log_ratios"]:
                history.append(entry)
    except OSError as error:
        watch(Warned(f"cannot store the measurement noise in {history.path}: {error.strerror}"))


def _entry(evidence: Evidence, number: int) -> dict[str, Any]:
    study = evidence.study(number)
    return {
        "kind": "aa",
        "id": f"aa {study.created_unix_s} {number}",
        "at_unix_s": study.created_unix_s,
        "machine": machine_of(study.host),
        "load": load_of(study.plan),
        "log_ratios": aa_log_ratios(evidence, number),
    }


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


def rates_so_far_of(evidence: Evidence, number: int) -> dict[int, list[Rates]]:
    """What the warm-ups of such blocks have shown."""
    return rates_so_far(evidence, number, evidence.study(number).plan)


def with_aa(
    labs: Sequence[Lab],
    ready: Sequence[Prepared],
    numbers: Numbers,
    rates: Mapping[int, dict[int, list[Rates]]] | None = None,
) -> list[Lab]:
    """The labs of the cases, each with those of its A/A blocks that the evidence has a place for. ``rates``:
    by number, what their warm-ups have shown, of a study that goes on.
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
                    # Of its own: twins' warm-ups tell nothing of arms 0 and 1.
                    rates=(rates or {}).get(numbers[case, arm], {}),
                )
                for arm, doubled in prepared.aa.items()
                if (case, arm) in numbers
            },
        )
        for case, (lab, prepared) in enumerate(zip(labs, ready, strict=True))
    ]
