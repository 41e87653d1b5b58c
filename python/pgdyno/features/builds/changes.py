"""Commits and changed lines between the sources of the baseline and of an arm, where a clone has both.

A server that was built from a commit has its clone. Others have the tag of their version in PGDYNO_CLONE.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pgdyno.analysis.study_findings import StudyFindings
from pgdyno.errors import BuildError, UsageError
from pgdyno.features.builds.source import CLONE_VARIABLE, git_commit, parse_git_server, run_git
from pgdyno.interruption import Interruption
from pgdyno.measure.arms import BuildArm, Prepared
from pgdyno.measure.prepare import Preparation
from pgdyno.measure.progress import Watch
from pgdyno.report.document import Place, Section
from pgdyno.units import counted, signed

BUILT_FROM = re.compile(r"commit (\w+) of (.+?);")
DIGITS = 40  # of a whole commit, whose beginning is shown
CHANGED = ("files", "insertions", "deletions")
LOCAL_ONLY = {"GIT_NO_LAZY_FETCH": "1"}
"""A partial clone lacks contents, which git would download."""


def _source(prepared: Prepared, index: int) -> tuple[str, str, str]:
    """Return the name of an arm's commit, the commit and the clone; empty without one."""
    arm, spec = prepared.arms[index], prepared.study.arms[index]
    if not isinstance(arm, BuildArm):
        return "", "", ""
    if found := BUILT_FROM.match(arm.build.origin):
        ref = parse_git_server(spec.server).ref if spec.is_git else found[1]
        return (ref if len(ref) < DIGITS else found[1]), found[1], found[2]
    version = arm.build.version
    tag = f"REL_{version.major}_{(version.stage or str(version.minor)).upper()}"
    return tag, tag, os.environ.get(CLONE_VARIABLE, "")


@functools.cache
def changes_between(clone: Path, since: str, until: str) -> Mapping[str, int]:
    """Return the numbers of commits, files, insertions and deletions; empty if the clone lacks a commit."""
    with suppress(BuildError, UsageError):
        a, b = (git_commit(clone, ref).commit for ref in (since, until))
        commits = run_git(clone, ["rev-list", "--count", f"{a}..{b}"])
        diff = run_git(clone, ["diff", "--shortstat", a, b], LOCAL_ONLY)
        found = {name: re.search(rf"(\d+) {name[:-1]}", diff) for name in CHANGED}
        return {"commits": int(commits), **{name: int(n[1]) if n else 0 for name, n in found.items()}}
    return {}


def _with_changes(prepared: Prepared) -> Prepared:
    base, since, base_clone = _source(prepared, 0)
    described = []
    for record in prepared.records:
        name, until, own_clone = _source(prepared, record.arm)
        clone = own_clone or base_clone
        is_known = clone and since and until and until != since
        found = changes_between(Path(clone).expanduser(), since, until) if is_known else {}
        facts = {"changes": {"since": base, "until": name, **found}} if found else {}
        described.append(replace(record, server={**record.server, **facts}))
    return replace(prepared, records=described)


def with_changes(ready: list[Prepared], _: Watch, __: Interruption) -> list[Prepared]:
    """Return the cases with the changes in the facts about the servers."""
    return [_with_changes(prepared) for prepared in ready]


def sections(findings: StudyFindings) -> Iterator[Section]:
    """Yield a sentence for each pair of sources, as sources of published experiments print them."""
    servers = [of.arm.server for case in findings.cases for of in case.arms]
    lines = [
        f"{of['since']}..{of['until']}: {counted(of['commits'], 'commit')}, {counted(of['files'], 'file')}, "
        f"{signed(of['insertions'], 0, '')} {signed(-of['deletions'], 0, '')} lines."
        for server in servers
        if (of := server.get("changes"))
    ]
    if lines:
        is_source = findings.first.study.published is not None
        title, said = "Changes of the source code", list(dict.fromkeys(lines))
        yield Section("commits", title, said, place=Place.TOP, order=20, is_source=is_source)


PREPARATION = Preparation(arms=with_changes)
