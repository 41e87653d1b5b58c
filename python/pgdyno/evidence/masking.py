"""Passwords never reach an evidence file: what is written is masked here, whoever wrote it.

This is the last line, not the first: who holds a connection string masks it too.
"""

from __future__ import annotations

import json
import re
from typing import Any

MASK = "***"

# postgresql://user:secret@host: everything between the first colon and the last @ of the authority.
_URI_PASSWORD = re.compile(r"(\bpostgres(?:ql)?://[^\s:/?#@]*:)([^\s/?#]*)(@)", re.IGNORECASE)
# password=secret, password = 'se\'cret', passfile's contents are not ours; also as an URI's parameter.
_KEY_PASSWORD = re.compile(
    r"((?<![A-Za-z_])(?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&'\"]+)", re.IGNORECASE
)


def mask_passwords(text: str) -> str:
    """The text with every password of a connection string or URI in it replaced by ``***``."""
    return _KEY_PASSWORD.sub(rf"\g<1>{MASK}", _URI_PASSWORD.sub(rf"\g<1>{MASK}\g<3>", text))


def masked_json(value: Any) -> str:
    """One line of JSON, its texts masked. Raises TypeError for what JSON cannot hold, ValueError for NaN."""
    return json.dumps(_masked(value), allow_nan=False, ensure_ascii=False)


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return mask_passwords(value)
    if isinstance(value, dict):
        return {
            str(key): MASK if str(key).lower() in {"password", "sslpassword"} else _masked(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_masked(item) for item in value]
    return value
