"""Measurement noise of earlier studies on this machine, which later studies with the same load use."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(__name__, noise=("entries:NOISE_HISTORY",))
