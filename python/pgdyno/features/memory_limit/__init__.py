"""Memory of each server with its page cache, limited by a control group: ``run.memory_limit``."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    disks=("groups:release",),
    prepare=("groups:PREPARATION",),
    arm_requests=("groups:require_room",),
    case_sections=("groups:sections",),
)
