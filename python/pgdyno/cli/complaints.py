"""Conversion of library errors to PgdynoError. Imported on the first error, as the libraries load slowly."""

from __future__ import annotations

import psycopg
from pydantic import ValidationError

from pgdyno.errors import PgdynoError, UsageError
from pgdyno.server.limited_connection import NoAnswer

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
"""Fields of the study whose name differs from their option."""


def complaint(error: Exception) -> PgdynoError | None:
    """Return the error as PgdynoError; None for an unexpected one, which needs its traceback."""
    if isinstance(error, ValidationError):
        return UsageError(_first_complaint(error))
    if isinstance(error, psycopg.Error):
        # Reached only if no caller handled the error: the server's message, without the statement.
        if isinstance(error, NoAnswer):
            return PgdynoError(str(error))
        words = error.diag.message_primary or str(error).strip().partition("\n")[0]
        return PgdynoError(f"server error: {words}")
    return None


def _first_complaint(error: ValidationError) -> str:
    first = error.errors()[0]
    text = _plain_words(first["msg"])
    names = [place for place in first["loc"] if isinstance(place, str)]  # the others are list indexes
    if not names:
        return text
    field = names[-1]
    return f"{OPTION_OF_FIELD.get(field, f'--{field}'.replace('_', '-'))}: {text}"


def _plain_words(message: str) -> str:
    """Return the message of pydantic in the wording of pgdyno."""
    return message.removeprefix("Value error, ").replace("Input should be", "must be")
