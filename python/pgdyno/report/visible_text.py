"""Text of reports: hidden characters are shown, and JSON is written with one format.

- Escape invisible characters that control a terminal, browser or editor.
- JSON documents as text: of reports, and of the commands of the command line.
"""

from __future__ import annotations

import json
import math
import re
from numbers import Real
from typing import Any

# ----------------------------------------------------------------------
# Escape invisible characters that control a terminal, browser or editor.
#
# Names, scripts and error messages are untrusted. An escape sequence could clear a terminal or forge a
# verdict; a bidirectional override could reverse a sentence.
# ----------------------------------------------------------------------

_HIDDEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, C1: escape sequences, CSI
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional marks, overrides and isolates
    "\u200b\u2028\u2029\u2060-\u2065\ufeff"  # zero width, separators of lines and paragraphs
    "\ud800-\udfff"  # surrogates: bytes of file names that are not UTF-8
    "\U000e0000-\U000e007f"  # tags
    "]"
)


def visible(text: str) -> str:
    r"""Return the text with each such character as Python writes it: ``\x1b``, ``\u202e``. Idempotent."""
    return _HIDDEN.sub(_written, text)


def visible_json(document: str) -> str:
    r"""Return a JSON document with each such character as JSON escapes it (``\u009b``): the same value."""
    return _HIDDEN.sub(_escaped, document)


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _written(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# ----------------------------------------------------------------------
# JSON documents as text: of reports, and of the commands of the command line.
# ----------------------------------------------------------------------


def json_text(plain: object) -> str:
    """Return an indented document with readable characters. NaN and infinity become null.

    ``plain`` has dicts, sequences, texts, numbers (also numpy's), booleans and None. Raises TypeError for
    anything else.
    """
    try:
        text = _dumped(plain)
    except ValueError:
        text = _dumped(_finite(plain))
    return visible_json(text)


def _dumped(plain: object) -> str:
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False, default=_of_numpy)


def _of_numpy(value: Any) -> object:
    """Return the Python value of a scalar, recognized without the slow import of numpy."""
    if getattr(value, "shape", None) == ():
        return value.item()
    raise TypeError(f"a JSON document contains a {type(value).__name__}")


def _finite(plain: Any) -> Any:
    """Return the value with None for every number that is not finite."""
    match plain:
        case dict():
            return {key: _finite(value) for key, value in plain.items()}
        case list() | tuple():
            return [_finite(value) for value in plain]
        case Real() if not math.isfinite(plain):
            return None
    return plain
