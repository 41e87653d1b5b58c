"""Errors of the libraries beneath us as ours. Loaded when there is one: the libraries take their time."""

from __future__ import annotations

import psycopg
from pydantic import ValidationError

from pgdyno.errors import PgdynoError, UsageError
from pgdyno.server.bounded import NoAnswer

OPTION_OF_FIELD = {
    "budget_s": "--minutes",
    "blocks_max": "--blocks",
    "retries_max": "--retries",
    "per_s": "--rate",
    "slice_s": "--slice",
    "warmup_s": "--warmup",
    "warmup_min_s": "--warmup",
    "rounds": "--window",
    "indexes": "--index",
}
"""Where a field of the plan is not named as the option that gives it."""


def complaint(error: Exception) -> PgdynoError | None:
    """The same as an error of ours; None of what nobody expected, whose traceback is worth more."""
    if isinstance(error, ValidationError):
        return UsageError(_first_complaint(error))
    if isinstance(error, psycopg.Error):
        # Where no one closer knew what to say of it: what the server said, without the statement.
        if isinstance(error, NoAnswer):
            return PgdynoError(str(error))
        words = error.diag.message_primary or str(error).strip().partition("\n")[0]
        return PgdynoError(f"the server refused, or was lost: {words}")
    return None


def _first_complaint(error: ValidationError) -> str:
    first = error.errors()[0]
    text = _plain_words(first["msg"])
    names = [place for place in first["loc"] if isinstance(place, str)]  # the others are places in a list
    if not names:
        return text
    field = names[-1]
    return f"{OPTION_OF_FIELD.get(field, f'--{field}'.replace('_', '-'))}: {text}"


def _plain_words(message: str) -> str:
    """pydantic's words as ours."""
    return message.removeprefix("Value error, ").replace("Input should be", "must be")
