"""Load generators on other nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pgdyno.feature import Feature

if TYPE_CHECKING:
    from pgdyno.measure.trial import OpenSession


def _session() -> Iterable[OpenSession]:
    from pgdyno.features.drivers import loss

    yield loss.open_session


FEATURE = Feature("drivers", session=_session)
