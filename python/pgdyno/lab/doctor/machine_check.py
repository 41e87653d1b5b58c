"""Result of one check of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pgdyno.caveats import Caveat, Code, Parameter


@dataclass(frozen=True)
class Checked:
    """``about``: what was looked at. ``text``: what is there, where it is fine; what is not told, where it is
    unknown. A finding has its caveat.
    """

    about: str
    found: Literal["fine", "unknown", "disturbs"]
    text: str = ""
    caveat: Caveat | None = None


def fine(about: str, text: str) -> Checked:
    """Nothing to say against it."""
    return Checked(about, "fine", text)


def unknown(about: str, text: str = "this machine does not tell") -> Checked:
    """Which is not fine, and no finding either."""
    return Checked(about, "unknown", text)


def disturbs(about: str, code: Code, **parameters: Parameter) -> Checked:
    """A finding."""
    caveat = Caveat(code, parameters)
    return Checked(about, "disturbs", caveat.text, caveat)


def percent(share: float) -> str:
    """``4.2 %`` as the caveats write shares."""
    return f"{share:.1%}"
