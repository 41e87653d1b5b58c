"""JSON documents as text: of reports, and of the commands of the command line."""

from __future__ import annotations

import json
import math
from numbers import Real
from typing import Any

from pgdyno.report.hidden_characters import visible_json


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
