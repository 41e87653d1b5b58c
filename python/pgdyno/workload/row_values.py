"""Removal of the values of rows from errors and logs of servers on data of the user."""

from __future__ import annotations

import re

HIDDEN = "…"

_QUOTED = re.compile(r'"[^"\n]*"')
_OF_NAMES = re.compile(
    r"\b(relation|table|view|index|column|constraint|database|schema|sequence|trigger|function|type|role|"
    r"extension|parameter|partition|statement|portal|policy|of)\s*$"
)
_ERROR = re.compile(r"^(?P<start>.*?\b(?:ERROR|FATAL|PANIC|WARNING|NOTICE|INFO):  )(?P<text>.*)$")
_MORE = re.compile(r"^(?P<start>.*? (?:DETAIL|HINT|CONTEXT|STATEMENT|QUERY):  ).*$")
_SAFE = ("08", "0A", "25", "3D", "40", "42", "53", "55", "57", "58")
"""Classes of SQLSTATEs whose messages have no values of rows."""


def message_without_values(message: str, sqlstate: str) -> str:
    """Return an error message with names of objects, but without values, and without its detail.

    A message of RAISE can contain anything, so nothing of it is left.
    """
    if sqlstate.startswith("P0"):
        return f"a message of RAISE{HIDDEN}"
    return message if sqlstate.startswith(_SAFE) else _without_quotes(message.split("; ", 1)[0])


def log_without_values(log: str) -> str:
    """Return a server log without values in errors, and without details and statements. Lines stay lines."""
    return "\n".join(map(_line, log.split("\n")))


def _line(line: str) -> str:
    if line.startswith("\t"):
        return f"\t{HIDDEN}"
    if found := _MORE.match(line):
        return f"{found['start']}{HIDDEN}"
    if found := _ERROR.match(line):
        return f"{found['start']}{_without_quotes(found['text'])}"
    return line


def _without_quotes(text: str) -> str:
    """Return the text without quoted words, except names of objects."""

    def shown(quoted: re.Match[str]) -> str:
        return quoted[0] if _OF_NAMES.search(text[: quoted.start()]) else f'"{HIDDEN}"'

    return _QUOTED.sub(shown, text)
