"""Messages of pydantic in the wording of pgdyno."""

from __future__ import annotations

import re


def plain_words(message: str) -> str:
    """Convert ``Input should be a valid integer`` to ``must be an integer``; name options as keys."""
    text = message.removeprefix("Value error, ")
    for theirs, ours in (
        ("Input should be", "must be"),
        ("a valid integer", "an integer"),
        ("a valid boolean", "true or false"),
        ("a valid string", "a string in quotes"),
        ("a valid number", "a number"),
        ("a valid tuple", "a list"),
        ("a valid array", "a list"),
        ("an object", "a table"),
        ("a valid dictionary", "a table"),
        ("Field required", "is missing"),
    ):
        text = text.replace(theirs, ours)
    return re.sub(r"--([a-z][a-z-]*)", lambda option: option[1].replace("-", "_"), text)
