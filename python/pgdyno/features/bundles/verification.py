"""Verification of a bundle: its checksums, and every member recomputed from the results files."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pgdyno.errors import INCONCLUSIVE, EvidenceError, PgdynoError
from pgdyno.features.bundles.archive import MANIFEST, TEXTS, DamagedError, Opened, made, maker, opened

ROUNDING = 1e-9
"""Relative difference up to which figures differ by rounding: another machine may add in another order."""

SHOWN_CHARS_MAX, BEFORE_CHARS = 120, 40
"""Length of an excerpt of a text, and its part before the first difference."""

SHA_256 = "SHA-256"
"""Place of a difference of checksums."""

ORDER = ("report.json", MANIFEST, *(name for name in TEXTS if name != "report.json"))


class Outcome(StrEnum):
    """Outcome of a verification."""

    VERIFIED = "verified"
    DIFFERENT = "different"
    OTHER_VERSION = "other-version"


EXIT_STATUSES = {
    Outcome.VERIFIED: 0,
    Outcome.DIFFERENT: PgdynoError.exit_status,
    Outcome.OTHER_VERSION: INCONCLUSIVE,
}


@dataclass(frozen=True)
class Difference:
    """A place of a member whose content is not the recomputed one. None: absent."""

    member: str
    place: str
    stated: str | None
    recomputed: str | None


@dataclass(frozen=True)
class Member:
    """A member. ``figures`` and ``texts``: numbers and other values of a JSON document that were compared.

    ``is_recomputed``: the results files determine its content.
    """

    name: str
    is_intact: bool
    is_recomputed: bool
    figures: int = 0
    texts: int = 0


@dataclass(frozen=True)
class Verification:
    """Result. ``rounded``: figures that differ by rounding. ``outcome`` considers who made the bundle."""

    bundle: str
    outcome: Outcome
    made_by: str
    verified_by: str
    rounded: int
    members: list[Member]
    differences: list[Difference]


def verify_bundle(path: Path) -> Verification:
    """Verify a bundle. Raises EvidenceError: no bundle, or one that is not safe to read."""
    with opened(path) as bundle, tempfile.TemporaryDirectory(prefix="pgdyno-verify-") as folder:
        return _verified(path, bundle, Path(folder))


def _verified(path: Path, bundle: Opened, folder: Path) -> Verification:
    manifest = bundle.manifest
    digests, stated, found = dict[str, str](), dict[str, str](), list[Difference]()
    for name in bundle.members:
        try:
            if name in manifest.results:
                digests[name] = bundle.extract(name, folder)
            else:
                stated[name] = bundle.text(name)
                digests[name] = hashlib.sha256(stated[name].encode()).hexdigest()
        except DamagedError as error:
            found.append(Difference(name, "", None, str(error)))
    del digests[MANIFEST]
    every = sorted({*digests, *manifest.sha256, *bundle.members} - {MANIFEST})
    wrong = [name for name in every if digests.get(name, "") != manifest.sha256.get(name)]
    found += [
        Difference(name, SHA_256, manifest.sha256.get(name), digests.get(name))
        for name in wrong
        if name in digests or name not in bundle.members
    ]
    recomputed: dict[str, str] = {}
    if all(name in digests for name in manifest.results):
        try:
            recomputed = made(folder, manifest.results, {name: digests[name] for name in manifest.results})
        except EvidenceError as error:
            found.append(Difference(manifest.results[0], "", None, str(error).replace(f"{folder}/", "")))
    members, rounded = [Member(name, name not in wrong, False) for name in manifest.results], 0
    for name in ORDER:
        if name not in recomputed or name not in stated:
            if recomputed and name in {**recomputed, **stated}:
                text = "is missing" if name in recomputed else "does not follow from the results"
                found.append(Difference(name, "", None, text))
            continue
        compared = Compared(name, stated[name], recomputed[name], is_exact=name in wrong)
        found += compared.differences
        rounded += compared.rounded
        members.append(Member(name, name not in wrong, True, compared.figures, compared.texts))
    is_other = manifest.made_by.partition(";")[0] != maker().partition(";")[0]
    outcome = Outcome.VERIFIED
    if found:  # results files of another schema cannot be recomputed
        outcome = Outcome.OTHER_VERSION if is_other and not wrong else Outcome.DIFFERENT
    return Verification(str(path), outcome, manifest.made_by, maker(), rounded, members, found)


class Compared:
    """The comparison of a member with its recomputed text."""

    def __init__(self, name: str, stated: str, recomputed: str, *, is_exact: bool) -> None:
        self.figures = self.texts = self.rounded = 0
        self._name, self._is_exact = name, is_exact
        compare = self._documents if name.endswith(".json") else self._lines
        self.differences = list(compare(stated, recomputed))

    def _documents(self, stated: str, recomputed: str) -> Iterator[Difference]:
        expected = leaves(json.loads(recomputed))
        try:
            given = leaves(json.loads(stated))
        except (ValueError, RecursionError) as error:
            yield Difference(self._name, "", f"no JSON ({error})", "")
            return
        own = {".made_by"} if self._name == MANIFEST else set()
        places = [place for place in {**expected, **given} if place not in own]
        for place in places:
            if self._name == MANIFEST and place.startswith(".sha256"):
                continue  # compared with the members
            a, b = given.get(place, ABSENT), expected.get(place, ABSENT)
            is_figure = isinstance(b, int | float) and not isinstance(b, bool)
            self.figures, self.texts = self.figures + is_figure, self.texts + (not is_figure)
            if type(a) is type(b) and a == b:
                continue
            if is_figure and not self._is_exact and is_rounding(a, b):
                self.rounded += 1
            else:
                yield Difference(self._name, place, *_shown(a, b))

    def _lines(self, stated: str, recomputed: str) -> Iterator[Difference]:
        if stated == recomputed:
            return
        given, expected = stated.split("\n"), recomputed.split("\n")
        pairs = [(n, a, b) for n, (a, b) in enumerate(zip(given, expected, strict=False), 1) if a != b]
        if len(given) == len(expected):
            yield from (Difference(self._name, f"line {n}", *_excerpts(a, b)) for n, a, b in pairs)
            return
        n, a, b = pairs[0] if pairs else (min(len(given), len(expected)) + 1, "", "")
        yield Difference(self._name, f"line {n}", *_excerpts(a, b))
        yield Difference(self._name, "number of lines", f"{len(given):,}", f"{len(expected):,}")


ABSENT = object()
"""Stands for the value of a place that a document does not have."""


def is_rounding(a: object, b: object) -> bool:
    """Return whether two numbers differ by rounding only."""
    numbers = [one for one in (a, b) if isinstance(one, int | float) and not isinstance(one, bool)]
    return len(numbers) == 2 and math.isclose(*numbers, rel_tol=ROUNDING)


def leaves(document: Any) -> dict[str, Any]:
    """Return the values of a document by path, as jq writes it; also its empty objects and arrays."""
    found: dict[str, Any] = {}
    pending: list[tuple[str, Any]] = [("", document)]
    while pending:
        path, value = pending.pop()
        if value and isinstance(value, dict):
            parts = [(path + _key(key), one) for key, one in value.items()]
        elif value and isinstance(value, list):
            parts = [(f"{path}[{n}]", one) for n, one in enumerate(value)]
        else:
            found[path or "."] = value
            continue
        pending += reversed(parts)
    return found


def _key(key: str) -> str:
    return f".{key}" if key.isidentifier() else f"[{json.dumps(key, ensure_ascii=False)}]"


def _shown(a: object, b: object) -> tuple[str | None, str | None]:
    if isinstance(a, str) and isinstance(b, str):
        return _excerpts(a, b)
    first, second = (None if one is ABSENT else json.dumps(one)[:SHOWN_CHARS_MAX] for one in (a, b))
    return first, second


def _excerpts(a: str, b: str) -> tuple[str, str]:
    """Return the texts, if they are long around their first difference."""
    same = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    at = max(0, same - BEFORE_CHARS)
    first, second = (
        one if len(one) <= SHOWN_CHARS_MAX else f"{'…' * (at > 0)}{one[at : at + SHOWN_CHARS_MAX]}…"
        for one in (a, b)
    )
    return first, second
