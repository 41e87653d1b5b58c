"""Load generators on other nodes."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    requires=("cluster",),
    options=("options:DriverOptions",),
    session=("session:open_session",),
    results=("section:RESULT",),
    case_sections=("section:sections",),
    caveats=("caveats.toml",),
)
