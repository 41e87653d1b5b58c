"""Rules that mask columns while a database is read: ``[SCHEMA.]TABLE.COLUMN=ACTION``, with wildcards."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from pgdyno.errors import UsageError

Action = Literal["keep", "hash", "shuffle", "null", "replace"]
"""hash: a value of the same type, equal for equal values. shuffle: the value of another row. replace: other
text for what matches a regular expression."""

_WORDS: tuple[Action, ...] = ("keep", "hash", "shuffle", "null")
_REPLACE = re.compile(r"s(?P<mark>[/|#,])(?P<find>(?:\\.|(?!(?P=mark))[^\\])+)(?P=mark)(?P<to>.*)(?P=mark)")


@dataclass(frozen=True)
class MaskRule:
    """A rule. ``find`` and ``to``: regular expression and replacement of the action ``replace``."""

    pattern: str
    action: Action
    find: str = ""
    to: str = ""

    def matches(self, schema: str, table: str, column: str) -> bool:
        """Return whether the rule is about that column."""
        parts = (table, column) if self.pattern.count(".") == 1 else (schema, table, column)
        return fnmatchcase(".".join(parts), self.pattern)

    def __str__(self) -> str:
        return f"{self.pattern}={self.action}"


def mask_rules(texts: Iterable[str]) -> tuple[MaskRule, ...]:
    """Parse rules and the names of TOML files with rules. Later rules override earlier ones.

    Raises UsageError.
    """
    return tuple(rule for text in texts for rule in _rules(text))


def _rules(text: str) -> Iterator[MaskRule]:
    if "=" not in text and text.endswith(".toml"):
        for pattern, action in _table(Path(text)).items():
            if not isinstance(action, str):
                raise UsageError(f"--mask {text}: {pattern} must be an action in quotes (got {action!r})")
            yield _rule(pattern, action, f"{text}: {pattern}")
        return
    pattern, equals, action = text.partition("=")
    if not equals:
        raise UsageError(
            f"--mask must have the form TABLE.COLUMN=ACTION, or name a file .toml (got {text!r}); for "
            "example: --mask 'customer.email=hash'"
        )
    yield _rule(pattern.strip(), action.strip(), text)


def _table(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise UsageError(f"--mask: cannot read {path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"--mask: {path} is no TOML: {error}") from None


def _rule(pattern: str, action: str, given: str) -> MaskRule:
    if pattern.count(".") not in (1, 2) or not all(pattern.split(".")):
        raise UsageError(f"--mask {given!r}: name a column as TABLE.COLUMN or SCHEMA.TABLE.COLUMN")
    for word in _WORDS:
        if action == word:
            return MaskRule(pattern, word)
    found = _REPLACE.fullmatch(action)
    if found is None:
        raise UsageError(
            f"--mask {given!r}: unknown action {action!r}: use keep, hash, shuffle, null, or s/REGEX/TEXT/"
        )
    try:
        re.compile(found["find"]).sub(found["to"], "")
    except (re.error, IndexError) as error:
        raise UsageError(f"--mask {given!r}: the regular expression is malformed: {error}") from None
    return MaskRule(pattern, "replace", found["find"], found["to"])
