"""Escape invisible characters that control a terminal, browser or editor.

Names, scripts and error messages are untrusted. An escape sequence could clear a terminal or forge a verdict;
a bidirectional override could reverse a sentence.
"""

from __future__ import annotations

import re

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
