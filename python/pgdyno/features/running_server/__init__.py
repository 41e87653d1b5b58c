"""Arms on running servers, given as connection strings, and pgdyno's databases there."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(__name__, running_servers=("arms:RUNNING_SERVERS",), caveats=("caveats.toml",))
