"""The two streams: data on standard output, progress and messages on standard error."""

from __future__ import annotations

import codecs
import json
from typing import Any

from rich.console import Console

PLAIN = "pgdyno-plain"
"""How what a locale cannot write is written: ``errors=PLAIN`` of a stream."""

_INSTEAD = str.maketrans(
    {"−": "-", "–": "-", "\u00a0": " ", "…": "..", "×": "x", "µ": "u", "’": "'", "▶": ">"}
    | dict(zip("▁▂▃▄▅▆▇█→", "__--==##>", strict=True))
)


def _in_plain_letters(error: UnicodeError) -> tuple[str, int]:
    """A minus must stay a minus; what has no likeness becomes a question mark."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end].translate(_INSTEAD)
    return text.encode("ascii", "replace").decode(), error.end


codecs.register_error(PLAIN, _in_plain_letters)

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """A message for people, on standard error; never interpreted as markup."""
    err.print(text, markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """JSON on standard output, one document."""
    out.print(json.dumps(value, indent=2), markup=False, soft_wrap=True)
