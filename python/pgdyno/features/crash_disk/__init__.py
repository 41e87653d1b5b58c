"""Sites of crashes: a disk whose power can be cut, a real machine, a standby."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pgdyno.feature import Feature

if TYPE_CHECKING:
    from pgdyno.server.processes import ReleaseDisks


def _disks() -> Iterable[ReleaseDisks]:
    from pgdyno.features.crash_disk.mounts import release_disks

    yield release_disks


FEATURE = Feature("crash_disk", requires=("crash",), disks=_disks)
