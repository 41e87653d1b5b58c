"""Text and JSON output of ``pgdyno study plan``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pgdyno.estimate import counted
from pgdyno.lab.study_forecast import StudyForecast
from pgdyno.study.cases import Case
from pgdyno.study.fitting.fit_study import Change
from pgdyno.study.study_file import StudyFile
from pgdyno.units import format_duration, format_size

CASES_SHOWN_MAX = 40
SCHEDULES = {
    "slices": "the arms take turns in slices",
    "duet": "the arms run simultaneously, each on half of the cores",
    "blocks": "the arms run one after the other, in random order",
    "sequential": "all blocks of one arm run before those of the next",
}


def size_of(cases: tuple[Case, ...]) -> str:
    """``16 cases of 2 arms``."""
    arms = sorted({len(case.arms) for case in cases})
    many = str(arms[0]) if len(arms) == 1 else f"{arms[0]} to {arms[-1]}"
    return f"{counted(len(cases), 'case')} of {many} arms"


def lines(file: StudyFile, found: StudyForecast, changes: Sequence[Change]) -> Iterator[str]:
    """Yield the lines of the plan, the title first and the cases last."""
    yield file.title
    if file.source:
        named = (file.source.author, str(file.source.year), file.source.title, file.source.where)
        yield ", ".join(part for part in named if part)
    yield ""
    yield from _part("arms", [_levels(file, name) for name in file.compare])
    yield from _part("cases", [_levels(file, name) for name in file.case_factors])
    yield from _part("excluded", [_exclusion(one) for one in file.exclude])
    drivings = [case.study.driving(n) for case in found.cases for n in range(len(case.arms))]
    yield from _part("workload", dict.fromkeys(one.workload.name for one in drivings))
    yield from _part("clients", [", ".join(dict.fromkeys(str(one.clients) for one in drivings))])
    yield from _part("trial", [_trial(found)])
    yield from _part(
        "blocks", [f"{found.blocks} of {size_of(found.cases)}: {counted(found.trials, 'trial')}"]
    )
    yield from _part("A/A", [_aa(found)])
    yield from _part("time", [_time(file, found)])
    yield from _part("disk", [_disk(found)])
    yield from _part("servers", [_server(spec, words) for spec, words in found.servers.items()])
    yield from _part("settings", found.settings)
    yield from _part("changed", [change.sentence for change in changes])
    yield from _part("lost", file.fit.notes if changes else ())
    names = [case.name for case in found.cases[:CASES_SHOWN_MAX]] if len(found.cases) > 1 else []
    more = len(found.cases) - CASES_SHOWN_MAX
    yield from _part("each case", [*names, *([f"and {more} more"] if names and more > 0 else [])])


def as_json(file: StudyFile, found: StudyForecast, changes: Sequence[Change]) -> dict[str, Any]:
    """Return the plan as JSON; sizes in bytes, times in seconds."""
    return {
        "title": file.title,
        "cases": [
            {
                "name": case.name,
                "levels": dict(case.levels),
                "arms": [arm.name for arm in case.study.arms],
                "workload": case.study.workload.name,
                "warmup_s": case.study.warmup_s,
                "warmup_min_s": case.study.warmup_min_s,
                "window_s": None if case.study.transactions else case.study.rounds * case.study.slice_s,
                "transactions": case.study.transactions,
            }
            for case in found.cases
        ],
        "search_s": found.search_s,
        "blocks": found.blocks,
        "trials": found.trials,
        "aa_blocks": found.aa_blocks,
        "aa_s": found.aa_s,
        "why_no_aa": found.why_no_aa,
        "total_s": found.total_s,
        "load_s": found.load_s,
        "disk_bytes": found.disk_bytes,
        "disk_free_bytes": found.disk_free_bytes,
        "servers": found.servers,
        "settings": list(found.settings),
        "changes": [change.sentence for change in changes],
    }


def _part(name: str, texts: Any) -> Iterator[str]:
    for n, text in enumerate(texts):
        yield f"{'' if n else name:<11}{text}"


def _levels(file: StudyFile, factor: str) -> str:
    return f"{factor}: {', '.join(level.name for level in file.factors[factor])}"


def _exclusion(one: Any) -> str:
    parts = [
        f"{factor} {', '.join(map(str, levels)) if isinstance(levels, tuple) else levels}"
        for factor, levels in one.items()
    ]
    return " with ".join(parts)


def _trial(found: StudyForecast) -> str:
    study, measured = found.cases[0].study, _range(found.window_s)
    if study.transactions is None:
        measured += " measurement"
    else:
        measured = f"{counted(study.transactions, 'transaction')} per client, about {measured}"
    warmups_s = sorted(case.study.warmup_s for case in found.cases)
    least = "" if study.warmup_min_s is None else "at most "
    warmup = f"{least}{_range((warmups_s[0], warmups_s[-1]))} warm-up, then " if warmups_s[-1] else ""
    search = (
        f"about {format_duration(round(found.search_s))} capacity search, then " if found.search_s else ""
    )
    return f"{search}{warmup}{measured}; {SCHEDULES[study.schedule]}"


def _range(ends_s: tuple[float, float]) -> str:
    first, last = map(format_duration, ends_s)
    return first if first == last else f"{first} to {last}"


def _aa(found: StudyForecast) -> str:
    """Describe the A/A blocks, in which an arm is compared with an identical arm."""
    if found.why_no_aa and not found.aa_s:
        return f"no A/A blocks: {found.why_no_aa}"
    if not found.aa_blocks:
        return "no A/A block: one follows every fifth block, and the study has fewer"
    return f"{counted(found.aa_blocks, 'A/A block')} of identical arms, about {format_duration(found.aa_s)}"


def _time(file: StudyFile, found: StudyForecast) -> str:
    by_budget = file.run.budget_s is not None and found.total_s == file.run.budget_s
    total = format_duration(found.total_s)
    total = f"{total}, the budget" if by_budget else f"about {total}"
    loading = f"about {format_duration(found.load_s)} for loading data once"
    return f"{total}, plus {loading} (estimate for a small machine)"


def _disk(found: StudyForecast) -> str:
    enough = "" if found.fits_the_disk else ", which is too little: use --fit to scale the study down"
    return (
        f"{format_size(found.disk_bytes)} at most for datasets and live copies; "
        f"{format_size(found.disk_free_bytes)} free{enough}"
    )


def _server(spec: str, words: str) -> str:
    return f"{spec}: {words}"
