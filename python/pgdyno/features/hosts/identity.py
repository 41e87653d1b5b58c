"""Identity of studies and machines in several results files.

Files are of the same study if they have the same text of a study file. Without a study file, they must have
the same arms, workload, settings and schedule as requested. Number of blocks, duration and seed may differ. A
study file may be fitted to each machine differently, and a profile's settings depend on the machine: this is
allowed and reported (``unlike``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.study_findings import StudyFindings
from pgdyno.errors import EvidenceError
from pgdyno.features.hosts.fleet_record import SUFFIX
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Arm, Json, StudyRecord
from pgdyno.study.arm_spec import is_settings_file

MAY_DIFFER = {
    "title",
    "seed",
    "budget_s",
    "blocks_max",
    "on_failure",
    "aa",
    "aa_refused_by",
    "slice_from",
    "resumed_for_more",
}
"""Fields of a study that may differ between hosts. Seeds should differ."""

MEMORY_TOLERANCE = 0.02
"""The kernel reserves some memory, and the amount differs between kernels."""

MISSING = "nothing"


def require_same(studies: Mapping[str, StudyFindings]) -> None:
    """Raise EvidenceError for the first difference from the first file's study, or if a file occurs twice."""
    names = list(studies)
    for i, name in enumerate(names):
        for before in names[:i]:
            if is_copy(studies[before].first.study, studies[name].first.study):
                raise EvidenceError(f"{before} and {name} are copies of one file: give each host's file once")
        difference = difference_of(studies[names[0]], studies[name])
        if difference is not None:
            what, here, there = difference
            raise EvidenceError(
                f"{names[0]} and {name} are not of the same study: {what} differs ({here} vs. {there}). "
                "Pool files of one study only, run with the same options or from the same study file"
            )


def is_copy(a: StudyRecord, b: StudyRecord) -> bool:
    """Return whether one is a copy of the other."""
    # A copy made during the study lacks later entries.
    hosts = [{name: fact for name, fact in of.host.items() if name != "states"} for of in (a, b)]
    return (a.created_unix_s, a.command, hosts[0]) == (b.created_unix_s, b.command, hosts[1])


def difference_of(one: StudyFindings, other: StudyFindings) -> tuple[str, str, str] | None:
    """Return the first difference with both values; None if the studies are the same."""
    a, b = one.first.study, other.first.study
    if a.file or b.file:
        if a.file != b.file:
            return "the study file", f"{a.title!r}, {_lines(a.file)}", f"{b.title!r}, {_lines(b.file)}"
        return _unequal(
            {"the number of arms": len(one.first.arms)}, {"the number of arms": len(other.first.arms)}
        )
    for x, y in zip(one.cases, other.cases, strict=False):
        grown = _have_grown_slices(x, y)
        found = _unequal(_requested_options(x, grown), _requested_options(y, grown)) or _unequal(
            _settings(x, y), _settings(y, x)
        )
        if found:
            return found
    return _unequal({"the number of cases": len(one.cases)}, {"the number of cases": len(other.cases)})


def difference_of_plans(one: StudyFindings, other: StudyFindings) -> tuple[str, str, str] | None:
    """Return the first difference of fitted values, cases, load and windows, like ``difference_of``."""
    found = _unequal(_fitted(one), _fitted(other))
    for x, y in zip(one.cases, other.cases, strict=False):
        grown = _have_grown_slices(x, y)
        found = found or _unequal(_planned(x, grown), _planned(y, grown))
    return found


LENGTHS = frozenset({"slice_s", "slices_per_arm", "rounds", "discard_s", "window_s"})
"""Lengths that depend on the transactions of the first block if the slices may grow."""


def _have_grown_slices(*cases: Findings) -> bool:
    return any(case.study.plan.has_grown_slices for case in cases)


def _compared(values: Mapping[str, Any], grown: bool) -> dict[str, Any]:
    return {name: value for name, value in values.items() if not (grown and name in LENGTHS)}


def _fitted(study: StudyFindings) -> dict[str, str]:
    changes = {f"what {c['key']} was fitted to": str(c["after"]) for c in study.first.study.changes}
    cases = "; ".join(case.study.case for case in study.cases)
    return {key: after for key, after in changes.items() if key not in CHANGES_MAY_DIFFER} | {"cases": cases}


CHANGES_MAY_DIFFER = frozenset({"what run.repeats was fitted to"})
"""Fitted values that may differ: the number of blocks."""


def _planned(findings: Findings, grown: bool) -> dict[str, Any]:
    plan = findings.study.plan
    place = f" in {findings.study.case}" if findings.study.case else ""
    arms = [of.arm for of in findings.arms]
    values = {
        **dict(flat(plan.workload.model_dump(), "workload")),
        **{f"clients of arm {arm.name}": arm.clients for arm in arms},
        "schedule": str(plan.schedule),
        "slice_s": plan.turn_s,
        "slices_per_arm": plan.slices_per_trial(),
        "window_s": plan.window_s,
        "warm_up_s": plan.warmup_s,
        **{name: getattr(plan, name) for name in ("discard_s", "pacing", "rate_per_s")},
    }
    return {f"{what}{place}": value for what, value in _compared(values, grown).items()}


def _lines(text: str) -> str:
    return f"{len(text.splitlines())} lines" if text else "no study file"


def _unequal(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, str, str] | None:
    for what in dict.fromkeys([*one, *other]):
        here, there = one.get(what, MISSING), other.get(what, MISSING)
        if here != there:
            return what, str(here), str(there)
    return None


def _requested_options(findings: Findings, grown: bool) -> dict[str, Any]:
    """Return the requested properties, the most informative first."""
    arms = [of.arm for of in findings.arms]
    plan = findings.study.plan
    hidden = MAY_DIFFER | {"drivings"}  # workload and clients of each arm are named
    values = {
        "the list of arms": ", ".join(arm.name for arm in arms),
        **{f"the specification of arm {arm.name}": arm.spec for arm in arms},
        **dict(flat(plan.workload.model_dump(), "workload")),
        **{f"clients of arm {arm.name}": arm.clients for arm in arms},
        "schedule": str(plan.schedule),
        **dict(flat(plan.model_dump(mode="json", exclude=hidden if grown else MAY_DIFFER), "")),
        "slice_s": plan.turn_s,
        "window_s": plan.window_s,
        "rate_per_s": plan.rate_per_s,
    }
    return _compared(values, grown)


def flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield each value in nested mappings, with its path in words: ``workload scripts 1 text``.

    A list without mappings is one value.
    """
    if isinstance(value, list | tuple) and any(isinstance(part, Mapping) for part in value):
        value = dict(enumerate(value, 1))
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from flat(part, f"{path} {key}".strip())
    elif isinstance(value, list | tuple):
        yield path, ", ".join(map(str, value))
    else:
        yield path, value


def _settings(findings: Findings, other: Findings) -> dict[str, str]:
    """Return the requested settings of arms without a profile. Profile settings depend on the machine."""
    return {
        f"{name} of arm {arm.name}": arm.settings_requested.get(name, MISSING)
        for arm, theirs in _arms(findings, other)
        if not has_profile(arm)
        for name in sorted({*arm.settings_requested, *theirs.settings_requested})
    }


def _arms(findings: Findings, other: Findings) -> Iterator[tuple[Arm, Arm]]:
    return ((a.arm, b.arm) for a, b in zip(findings.arms, other.arms, strict=False))


def has_profile(arm: Arm) -> bool:
    """Return whether some of its settings depend on the machine."""
    _, *parts = map(str.strip, arm.spec.split(","))
    return any(part.startswith("@") and not is_settings_file(part[1:]) for part in parts)


def fitted_differences(one: StudyFindings, other: StudyFindings) -> list[str]:
    """Return the keys of the study file or settings with different values on the machines of a study."""
    here, there = ({str(c["key"]): c for c in of.first.study.changes} for of in (one, other))
    keys = [key for key in dict.fromkeys([*here, *there]) if here.get(key) != there.get(key)]
    for x, y in zip(one.cases, other.cases, strict=False):
        for a, b in _arms(x, y):
            names = sorted({*a.settings_requested, *b.settings_requested})
            keys += [n for n in names if a.settings_requested.get(n) != b.settings_requested.get(n)]
        if x.study.plan.schedule is not y.study.plan.schedule:
            keys.append("schedule")
    return list(dict.fromkeys(keys))


def is_same_machine(a: Json, b: Json) -> bool:
    """Return whether two hosts are the same machine, by their recorded facts.

    Without a machine ID, two identical machines count as one. So do clones that have the same ID.
    """
    marks = a.get("machine"), b.get("machine")
    if None not in marks and marks[0] != marks[1]:
        return False
    is_equal = all(a.get(fact) == b.get(fact) for fact in ("processor", "cores", "architecture"))
    sizes = sorted([float(a.get("memory_bytes") or 0), float(b.get("memory_bytes") or 0)])
    return is_equal and sizes[0] >= sizes[1] * (1 - MEMORY_TOLERANCE)


def are_shown_apart(paths: Sequence[Path], as_: str) -> bool:
    """Return whether a report shows several files side by side instead of pooling them.

    ``as_``: the value of --as. By default, files of one machine are not pooled. Raises EvidenceError.
    """
    if as_ != "whole" or len(paths) < 2 or any(path.name.endswith(SUFFIX) for path in paths):
        return as_ == "side-by-side"
    hosts = []
    for path in paths:
        with Evidence(path, verify=False) as evidence:
            hosts.append(evidence.study().host)
    return all(is_same_machine(hosts[0], host) for host in hosts)


def files_by_machine(studies: Mapping[str, StudyFindings]) -> list[Sequence[str]]:
    """Return the files of each machine, in the given order."""
    found: list[list[str]] = []
    for name, study in studies.items():
        for names in found:
            if is_same_machine(studies[names[0]].first.study.host, study.first.study.host):
                names.append(name)
                break
        else:
            found.append([name])
    return [tuple(names) for names in found]
