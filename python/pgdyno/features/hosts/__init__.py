"""One study from several hosts: identity, pooled effects, reports."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    requires=("crash", "published"),
    reports=("sections:read_files",),
    documents=("sections:HostsDocument",),
    caveats=("caveats.toml",),
)
