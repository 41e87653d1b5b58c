"""Masking of passwords in everything that is written to a results file.

This is the last safeguard: code that handles a connection string masks it, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from pgdyno.study.arm_spec import SECRET_WORDS

MASK = "***"

# postgresql://user:secret@host: libpq ends the password at the first @ and accepts every character except a
# slash before it. In a word with several @ everything up to the last one is masked. A path has one slash.
# A number before a blank or a quote is a port, [ begins an address, and no password extends to another line.
_URI_PASSWORD = re.compile(
    r"(\bpostgres(?:ql)?://?[^\s:/@\[]*:)(?!\d{1,5}[\s\"'])[^/@\n]*(?:@[^\s/@]*)*(@)", re.IGNORECASE
)
# password=secret, password = 'se\'cret', password=se\ cret, PGPASSWORD=secret; also as a URI's parameter.
_KEY_PASSWORD = re.compile(
    rf"((?<![A-Za-z_])(?:PG)?(?:{'|'.join(SECRET_WORDS)})\s*=\s*)('(?:[^'\\]|\\.)*'|(?:[^\s&\\]|\\.)+)",
    re.IGNORECASE | re.DOTALL,
)
# The keywords of a URI may be percent-encoded, too.
_PARAMETER = re.compile(r"([?&])([^=&\s]*%[^=&\s]*)=([^&\s]*)")


def mask_passwords(text: str) -> str:
    """Return the text with ``***`` in place of every password in a connection string or URI."""
    # The expressions take 0.3 s for a MiB of a server log, and these tests next to nothing.
    folded = text.casefold()
    if ":/" in folded:
        text = _URI_PASSWORD.sub(rf"\g<1>{MASK}\g<2>", text)
    if any(word in folded for word in SECRET_WORDS):
        text = _KEY_PASSWORD.sub(rf"\g<1>{MASK}", text)
    return _PARAMETER.sub(_without_secret, text) if "%" in text else text


def _without_secret(parameter: re.Match[str]) -> str:
    before, word, value = parameter.groups()
    return f"{before}{word}={MASK if unquote(word).lower() in SECRET_WORDS else value}"


def masked_json(value: Any, as_is: Sequence[str] = ()) -> str:
    """Return one line of JSON with masked strings, except in the values of the keys ``as_is`` of an object.

    Raises TypeError for values that JSON cannot represent, and ValueError for NaN.
    """
    found = masked(value)
    for key in as_is:
        found[key] = value[key]
    return json.dumps(found, allow_nan=False, ensure_ascii=False)


def masked(value: Any) -> Any:
    """Return the value with masked strings at any depth."""
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, str):
        return mask_passwords(value)
    if isinstance(value, Mapping):
        return {
            str(key): MASK if str(key).lower() in SECRET_WORDS else masked(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [masked(item) for item in value]
    return value
