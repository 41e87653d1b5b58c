"""Evidence that somebody edits with care: the checksums fit what it holds afterwards."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pgdyno.results import checksums


@contextmanager
def edited(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection whose changes are committed and sealed at its end."""
    with closing(sqlite3.connect(path)) as connection, connection:
        yield connection
        checksums.store_all(connection)
