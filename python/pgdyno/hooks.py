"""Registries of hooks: what features add to a loop of the core, which does not know them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, Generic, TypeVar

from pgdyno.errors import UsageError

Hook = TypeVar("Hook")

_features: list[Callable[[], Sequence[Any]]] = []


def use_features(features: Callable[[], Sequence[Any]]) -> None:
    """Set what returns the features. It is called when the first registry is asked."""
    _features[:] = [features]


class Hooks(Generic[Hook]):
    """The hooks of one kind. ``field``: that of ``Feature`` with their names."""

    def __init__(self, field: str) -> None:
        self._field = field

    def __iter__(self) -> Iterator[Hook]:
        """Iterate over the hooks of all features. Raises RuntimeError in a process without features."""
        if not _features:
            raise RuntimeError("call pgdyno.cli.features.features() at the start of the process")
        for feature in _features[0]():
            for place in getattr(feature, self._field):
                module, _, name = place.partition(":")
                if name:
                    yield getattr(import_module(f"{feature.package}.{module}"), name)
                else:
                    from importlib.resources import files  # noqa: PLC0415

                    yield files(feature.package) / place

    def require(self, purpose: str) -> Hook:
        """Return the hook of the first feature. Raises UsageError without one."""
        for hook in self:
            return hook
        raise UsageError(f"{purpose} requires a feature that this pgdyno lacks")
