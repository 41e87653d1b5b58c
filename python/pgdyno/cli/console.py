"""The two streams: data on standard output, progress and messages on standard error."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """A message for people, on standard error; never interpreted as markup."""
    err.print(text, markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """JSON on standard output, one document."""
    out.print(json.dumps(value, indent=2), markup=False, soft_wrap=True)
