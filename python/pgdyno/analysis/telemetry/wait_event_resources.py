"""Attribution of wait events to resources. ``wait_event_resources.toml`` has the table."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from pgdyno.analysis.telemetry.samples import RUNNING

RESOURCES: Mapping[str, Sequence[str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
"""Resource → patterns of its wait events."""

CLIENT, OTHER = "client", "other"


@cache
def resource_of(event: str) -> str:
    """Return the resource of a wait event ``TYPE/NAME``, or RUNNING."""
    if event == RUNNING:
        return RUNNING
    of_type, _, name = event.partition("/")
    matching = [
        (len(pattern), resource)
        for resource, patterns in RESOURCES.items()
        for pattern in patterns
        if fnmatchcase(f"{of_type}/{name}".lower(), pattern.lower())
    ]
    return max(matching)[1] if matching else OTHER
