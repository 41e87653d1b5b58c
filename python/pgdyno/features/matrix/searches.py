"""Commands that search the commit behind a cell of the page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from pgdyno.study.plan import Study
from pgdyno.study.workload_parameters import WorkloadParameters

OPTIONS = {"scripts": "--builtin", "options": "--opt"}
"""Options whose field has another name."""

_VERSION = re.compile(r"(\d+)(\.\d+)?")


def bisect_command(study: Study, arm: int) -> str:
    """Return ``pgdyno bisect REL_17_BETA1 REL_18_BETA1 …`` for an arm against the baseline.

    Empty unless both are versions, with default settings, a closed loop and no script of the study's own,
    which a bisection would not have. The first beta of a version is a commit of the main branch, so the older
    one is an ancestor of the newer one.
    """
    found = [_VERSION.fullmatch(study.arms[index].server) for index in (0, arm)]
    majors = [int(one[1]) for one in found if one]
    if len(majors) < 2 or majors[0] == majors[1]:
        return ""
    driving, specs = study.driving(arm), (study.arms[0], study.arms[arm])
    has_own_text = any(one.get("text") for one in _named_scripts(driving.workload))
    has_settings = any(of.settings or of.profiles for of in specs)
    if has_own_text or has_settings or driving.rate or driving.pacing != "none":
        return ""
    good, bad = (f"REL_{major}_BETA1" for major in sorted(majors))
    words = ["pgdyno", "bisect", good, bad, "--repository", "CLONE", "--clients", str(driving.clients)]
    return shlex.join([*words, *options_of(driving.workload)])


def options_of(workload: WorkloadParameters) -> Iterator[str]:
    """Yield the options that make this workload, without those that have their default."""
    yield from ("--workload", workload.kind)
    for name, value in workload.model_dump(exclude_defaults=True, exclude={"kind"}).items():
        option = OPTIONS.get(name, f"--{name.replace('_', '-')}")
        if value is True:
            yield option
        elif isinstance(value, Mapping) and "name" not in value:
            yield from (word for key, text in value.items() for word in (option, f"{key}={text}"))
        elif isinstance(value, tuple | list):
            yield from (word for one in value for word in _script(option, one))
        else:
            yield from _script(option, value)


def _named_scripts(workload: WorkloadParameters) -> Iterator[Mapping[str, Any]]:
    written = workload.model_dump()
    for value in (written.get("script"), *(written.get("scripts") or ())):
        if isinstance(value, Mapping):
            yield value


def _script(option: str, value: Any) -> tuple[str, str]:
    """Return an option with its value, or with the name and weight of a script."""
    if not isinstance(value, Mapping):
        return option, str(value)
    weight = value.get("weight", 1)
    return option, value["name"] if weight == 1 else f"{value['name']}@{weight}"
