"""Edited results files with valid checksums."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pgdyno.results import results_file


@contextmanager
def edited(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection. At its end, changes are committed and checksums updated."""
    with closing(sqlite3.connect(path)) as connection, connection:
        yield connection
        results_file.store_all(connection)
