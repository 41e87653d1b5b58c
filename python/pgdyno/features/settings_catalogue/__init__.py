"""The command ``settings``: profiles of settings, and what a setting of a server means and costs."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__, commands={"settings": ("command", "Show settings profiles and explain settings.")}
)
