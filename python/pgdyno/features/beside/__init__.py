"""A program beside the clients, such as pg_dump: ``run.beside`` of study files."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    prepare=("program:PREPARATION",),
    probes=("program:PROBE",),
    case_sections=("section:sections",),
    trial_values=("section:VALUES",),
)
