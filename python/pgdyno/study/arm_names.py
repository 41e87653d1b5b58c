"""What arms are called in tables and sentences: short enough to be read, and still told apart.

A directory goes by its last parts, as many as tell it from the other arms' (``…/15/bin``). Of a long list of
settings what all arms have is left out, then what is beyond NAME_MAX. ``…`` stands where something is
missing, and the report says what it stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

NAME_MAX = 32
"""Of characters: beside the figures of a table a longer name has no room on 80 columns."""

LEFT_OUT = "…"

PARTS_MIN = 2
"""Of a directory: ``bin`` alone says nothing."""


def short_tails(servers: Sequence[str]) -> dict[str, str]:
    """Of each server that is a directory: its last parts, as many as tell it from the others."""
    parts = {server: PurePath(server).parts for server in servers if "/" in server}
    distinct, kept = len(set(parts.values())), PARTS_MIN
    while len({of[-kept:] for of in parts.values()}) < distinct:
        kept += 1
    return {
        server: _cut_front(min(f"{LEFT_OUT}/{'/'.join(of[-kept:])}", server, key=len))
        for server, of in parts.items()
    }


def short_name(server: str, parts: Sequence[str], common: Sequence[str]) -> str:
    """``parts`` are the arm's profiles and settings, ``common`` those that every arm has."""
    whole = ",".join([server, *parts])
    if len(whole) <= NAME_MAX:
        return whole
    own = [part for part in parts if part not in common]
    name = ",".join([server, *own, LEFT_OUT][: None if len(own) < len(parts) else -1])
    if len(name) <= NAME_MAX:
        return name
    name = ",".join([server, *own])
    return f"{name[: NAME_MAX - len(LEFT_OUT)]}{LEFT_OUT}"


def _cut_front(tail: str) -> str:
    return tail if len(tail) <= NAME_MAX else f"{LEFT_OUT}{tail[len(LEFT_OUT) - NAME_MAX :]}"
