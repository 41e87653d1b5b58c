"""Caveats: the closed list of reservations about a trial or a study.

A caveat is stored as a code with parameters. ``caveats.toml`` has the texts of those of the
core, and the file of that name in the folder of a feature has its own. Caveats with the same remedy
are kinds of one code. A new code, kind or text does not change the schema version; renaming a kind or
a parameter does.
"""

from __future__ import annotations

import functools
import string
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from pgdyno.hooks import Hooks

Parameter = str | int | float

_OF_FEATURES = Hooks[Traversable]("caveats")


class Rank(StrEnum):
    """Meaning of a caveat for a reader's conclusions, the most serious first."""

    CHANGES_ANSWER = "changes_answer"  # the verdict or its meaning
    GOOD_TO_KNOW = "good_to_know"  # the size of an effect or of a level
    ROUTINE = "routine"  # conditions of the measurement; the comparison stays sound

    @property
    def words(self) -> str:
        """The rank in reports, after a number of caveats."""
        return "can change the answer" if self is Rank.CHANGES_ANSWER else self.replace("_", " ")


@dataclass(frozen=True)
class Wording:
    """Texts of a caveat, with {parameters} in braces.

    ``kinds``: parts of the texts, of which the parameter ``kind`` names one. ``condition``: a routine caveat
    in a few words. ``link``: a page of the documentation, as a path in the repository with an anchor; or
    empty. ``merged_over``: a parameter, for example ``arm``; reports merge caveats that differ in nothing
    else into one.
    """

    text: str
    rank: Rank
    remedy: str = ""
    condition: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)
    link: str = ""
    merged_over: str = ""

    def parameters(self, kind: str) -> frozenset[str]:
        """Return the names of the parameters in all texts."""
        texts = (self.text, self.remedy, self.condition, self.kinds.get(kind, ""))
        return frozenset(name for text in texts for _, name, _, _ in string.Formatter().parse(text) if name)


@functools.cache
def wordings() -> Mapping[str, Wording]:
    """Return the texts of every caveat by code, the core's first. Features may add kinds to a code."""
    found: dict[str, dict[str, Any]] = {}
    for of in (files(__package__) / "caveats.toml", *_OF_FEATURES):
        for code, entry in tomllib.loads(of.read_text("utf-8")).items():
            known = found.setdefault(code, {})
            known |= {**entry, "kinds": {**known.get("kinds", {}), **entry.get("kinds", {})}}
    return {code: Wording(**{**entry, "rank": Rank(entry["rank"])}) for code, entry in found.items()}


@dataclass(frozen=True)
class Caveat:
    """One reservation with its parameters. ``trial`` is the ID of the affected trial; None for the study.

    Raises ValueError for an unknown code or kind, and unless the parameters are exactly those of the texts.
    """

    code: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    trial: int | None = None

    def __post_init__(self) -> None:
        """Compare the parameters with those of the texts, so that a stored caveat can always be shown."""
        wording = wordings().get(self.code)
        if wording is None or (wording.kinds and self.kind not in wording.kinds):
            raise ValueError(f"unknown caveat {self.kind}")
        needed, given = wording.parameters(self.kind), frozenset(self.parameters)
        if needed != given:
            raise ValueError(f"caveat {self.kind} requires {sorted(needed)} (got {sorted(given)})")

    @classmethod
    def of(cls, name: str, trial: int | None = None, /, **parameters: Parameter) -> Caveat:
        """Return the caveat with this kind, or with this code if it has no kinds or ``kind`` is given.

        Names of kinds are unique. In earlier results files they are stored as codes.
        """
        for code, wording in wordings().items():
            if name in wording.kinds:
                return cls(code, {"kind": name, **parameters}, trial)
        return cls(name, parameters, trial)

    @property
    def kind(self) -> str:
        """Its name among all caveats: the kind, or the code of a caveat without kinds."""
        return str(self.parameters.get("kind", self.code))

    @property
    def wording(self) -> Wording:
        """The texts with their parameters in braces."""
        return wordings()[self.code]

    @property
    def text(self) -> str:
        """The reservation in full sentences."""
        return self._filled(self.wording.text)

    @property
    def remedy(self) -> str:
        """The recommended action; empty if there is none."""
        return self._filled(self.wording.remedy)

    @property
    def condition(self) -> str:
        """A routine caveat in a few words; empty for other ranks."""
        return self._filled(self.wording.condition)

    def _filled(self, text: str) -> str:
        kind = self.wording.kinds.get(self.kind, "").format(**self.parameters)
        return text.format(**{**self.parameters, "kind": kind})
