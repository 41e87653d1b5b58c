"""Builds that are not installed."""

from __future__ import annotations

from pathlib import Path

from pgdyno.server.builds import Build, Provider, Version


def build(text: str, provider: Provider) -> Build:
    version = Version(*(int(part) for part in text.split(".")))
    return Build(provider, version, Path(f"/{provider}/{text}/bin"), f"postgres (PostgreSQL) {text}", "test")
