"""WAL of an arm on a disk of its own: ``wal_dir=DIRECTORY``."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    disks=("directories:release",),
    arm_requests=("directories:require_usable",),
    prepare=("directories:PREPARATION",),
    caveats=("caveats.toml",),
)
