"""Newest names of wait events, so that servers of different versions are compared.

``wait_event_names.toml`` has the table.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

RENAMED: Mapping[str, Mapping[str, Sequence[str]]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text("utf-8")
)
"""Type → newest name → its names in other versions."""

TYPES = {*RENAMED, "BufferPin"}

NEWEST: Mapping[str, str] = {
    old if old.partition("/")[0] in TYPES else f"{of_type}/{old}": f"{of_type}/{name}"
    for of_type, names in RENAMED.items()
    for name, others in names.items()
    for old in others
}


def newest_name(event: str) -> str:
    """Return the name of a wait event ``TYPE/NAME`` in the newest version that has it."""
    if event in NEWEST:
        return NEWEST[event]
    # Before PostgreSQL 13, the names of single LWLocks had this suffix.
    return event.removesuffix("Lock") if event.startswith("LWLock/") else event
