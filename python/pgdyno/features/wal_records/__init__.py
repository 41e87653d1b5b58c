"""WAL by resource manager and type of record, and full-page images, in each arm."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    before_drive=("reading:add_walinspect",),
    probes=("reading:PROBE",),
    results=("section:RESULT",),
    case_sections=("section:sections",),
)
