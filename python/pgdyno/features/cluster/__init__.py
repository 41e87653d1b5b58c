"""Connection to a Ray cluster, which load generators and fleets share."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(__name__)
