"""Result of one check of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pgdyno.caveats import Caveat, Code, Parameter


@dataclass(frozen=True)
class Checked:
    """Result of a check. ``about``: its subject. ``text``: the value if it is fine, the reason if it is
    unknown. ``caveat``: that of a finding.
    """

    about: str
    found: Literal["fine", "unknown", "disturbs"]
    text: str = ""
    caveat: Caveat | None = None


def fine(about: str, text: str) -> Checked:
    """Return the result without a finding."""
    return Checked(about, "fine", text)


def not_reported(about: str, text: str = "not reported by this machine") -> Checked:
    """Return the result for an unknown property, which is neither fine nor a finding."""
    return Checked(about, "unknown", text)


def disturbs(about: str, code: Code, **parameters: Parameter) -> Checked:
    """Return a finding."""
    caveat = Caveat(code, parameters)
    return Checked(about, "disturbs", caveat.text, caveat)
