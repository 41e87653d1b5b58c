"""Builds of certain major versions: fetched once into the cache, or the installed ones."""

from __future__ import annotations

import warnings

import pytest

from pgdyno.errors import FetchError
from pgdyno.server.build_store import resolve_all, system_builds
from pgdyno.server.builds import NEWEST_MAJOR, OLDEST_MAJOR, Build
from pgdyno.server.cache_directory import Cache

OLDEST_MIDDLE_NEWEST = (OLDEST_MAJOR, pytest.param(14, marks=pytest.mark.long), NEWEST_MAJOR)
"""Versions of tests whose code does not distinguish those between the oldest and the newest."""


def build_of(cache: Cache, major: int) -> Build:
    try:
        return resolve_all([str(major)], store=cache.store(), installed=[]).builds[0]
    except FetchError as error:
        installed = [build for build in system_builds() if build.version.major == major]
        if not installed:
            pytest.skip(f"NOT TESTED: PostgreSQL {major} is not installed and cannot be fetched: {error}")
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.warn(f"PostgreSQL {major} is the installed one: {error}", stacklevel=2)
        return installed[0]
