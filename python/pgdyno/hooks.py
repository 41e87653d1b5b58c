"""Registries of hooks: what features add to a loop of the core, which does not know them.

``cli/features.py`` installs the hooks of all features when the first registry is asked, so that commands that
need none import no feature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

Hook = TypeVar("Hook")

_install: list[Callable[[], None]] = []


def install_on_demand(install: Callable[[], None]) -> None:
    """Set what installs the hooks of all features. Each process needs it once, at its start."""
    _install[:] = [install]


class Hooks(Generic[Hook]):
    """Hooks of one kind. ``name``: the field of Feature with them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._installed: tuple[Hook, ...] | None = None

    def install(self, hooks: Iterable[Hook]) -> None:
        """Set the hooks, in place of those before."""
        self._installed = tuple(hooks)

    def __iter__(self) -> Iterator[Hook]:
        """Iterate over the hooks. Raises RuntimeError in a process without ``install_on_demand``."""
        if self._installed is None:
            for install in _install:
                install()
        if self._installed is None:
            raise RuntimeError(f"the hooks {self._name!r} are not installed in this process")
        return iter(self._installed)
