"""CPU profiles of the server, compared by function and stack."""

from __future__ import annotations

from pgdyno.feature import Feature


def feature() -> Feature:
    """Return the hooks."""
    from pgdyno.features.profiles import perf
    from pgdyno.measure.telemetry_collection import ProbeKind

    return Feature("profiles", probes=(ProbeKind("profile", perf.start),))
