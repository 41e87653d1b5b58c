"""Crash tests: servers are crashed on purpose, and the acknowledged commits that are gone are counted."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    requires=("crash_disk", "running_server"),
    commands={
        "crash": ("command", "Crash servers on purpose and count the acknowledged commits that are gone.")
    },
    options=("options:DurabilityOptions",),
    findings=("findings:crash_test_of_study",),
    results=("sections:RESULT",),
    sections=("sections:durability_sections",),
    reports=("sections:read_files",),
    documents=("sections:CrashDocument",),
)
