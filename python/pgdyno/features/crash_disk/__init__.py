"""Servers that crash, on a disk whose power can be cut or on a real machine, and the audit of their rows."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(__name__, requires=("running_server",), disks=("disk:release_disks",))
