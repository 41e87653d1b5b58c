"""Fixture for tests of performance: ``assert pgdyno_compare("old/bin", "new/bin").not_slower(5)``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pgdyno.features.python_api.outcome import Result


@pytest.fixture
def pgdyno_compare(tmp_path: Path) -> Callable[..., Result]:
    """``pgdyno.compare`` whose results file is in the directory of the test, unless ``results`` names one."""
    import pgdyno  # noqa: PLC0415  # the plugin is imported in every run of pytest

    def compare(*arms: Any, **options: Any) -> Result:
        path = options.pop("results", None) or tmp_path / f"{len([*tmp_path.glob('*.sqlite')])}.sqlite"
        return pgdyno.compare(*arms, results=path, **options)

    return compare
