"""A section of a study report about all its cases: sentences, tables and charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgdyno.report.plot import Panel
from pgdyno.report.result_tables import Table


@dataclass(frozen=True)
class Section:
    """One section. ``panels`` are shown in HTML only, ``drawn`` on the terminal only; sentences and tables
    have the same information. ``brief``: its sentences in the summary on the terminal.
    """

    title: str
    sentences: Sequence[str]
    tables: Sequence[Table]
    panels: Sequence[Panel] = ()
    drawn: Table | None = None
    brief: Sequence[str] = ()
