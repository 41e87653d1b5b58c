"""CPU profiles of the server, compared by function and stack."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pgdyno.feature import Feature

if TYPE_CHECKING:
    from pgdyno.measure.telemetry_collection import ProbeKind


def _probes() -> Iterable[ProbeKind]:
    from pgdyno.features.profiles import perf
    from pgdyno.measure.telemetry_collection import ProbeKind

    yield ProbeKind("profile", perf.start)


FEATURE = Feature("profiles", probes=_probes)
