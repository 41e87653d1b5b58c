"""Sites of crashes: a disk whose power can be cut, a real machine, a standby."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    requires=("crash", "running_server"),
    disks=("mounts:release_disks",),
)
