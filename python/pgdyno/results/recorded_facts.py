"""Facts about servers, machine and engine that the analysis compares, from JSON in the results file.

The JSON has further facts, which reports only show. A missing fact is None or empty.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

Facts = TypeVar("Facts")


@dataclass(frozen=True)
class ServerFacts:
    """Facts about the server of an arm. ``compiled`` are values of pg_config, for example CFLAGS.
    ``extensions`` were built for this arm.
    """

    provider: str | None = None
    version: str | None = None
    version_text: str | None = None
    label: str | None = None
    build_id: str | None = None
    compiled: Mapping[str, str] | None = None
    extensions: Sequence[Mapping[str, Any]] = ()

    @property
    def shown(self) -> str:
        """The label, or else the version."""
        return self.label or self.version or self.version_text or ""

    @property
    def extensions_shown(self) -> str:
        """Name, version and source of each extension that was built for this arm; empty without one."""
        return "; ".join(
            f"{one['name']} {one['version']} ({one['source']})".strip() for one in self.extensions
        )

    def compiled_with(self, name: str) -> str:
        """Return a value of pg_config; empty if it is unknown."""
        return (self.compiled or {}).get(name, "")

    @property
    def optimization(self) -> str:
        """Level of optimization of the build, for example -O2; empty if it is unknown."""
        flags = self.compiled_with("CFLAGS")
        words = re.findall(r"(?<!\S)-O\S*", flags)
        return words[-1] if words else "-O0" if flags else ""


@dataclass(frozen=True)
class RecordedCheck:
    """Result of one check of the machine: ``found`` is fine, or a kind of problem."""

    about: str
    found: str
    text: str


@dataclass(frozen=True)
class RecordedState:
    """State of the machine before or after the study."""

    when: str
    checks: Sequence[RecordedCheck]


@dataclass(frozen=True)
class HostFacts:
    """Facts about the machine."""

    processor: str | None = None
    cores: int | None = None
    states: Sequence[RecordedState] = ()


@dataclass(frozen=True)
class EngineFacts:
    """Facts about the engine. ``profile`` is release or debug."""

    version: str | None = None
    profile: str | None = None


def facts_from(kind: type[Facts], stored: Mapping[str, Any]) -> Facts:
    """Return these facts of a stored object. Raises ValueError (pydantic) for one of a wrong type."""
    of: Any = kind
    found: Facts = _codec(of).validate_python(dict(stored))
    return found


@cache
def _codec(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
