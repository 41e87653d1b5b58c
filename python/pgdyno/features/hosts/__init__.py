"""One study from several hosts: identity, pooled effects, reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pgdyno.feature import Feature

if TYPE_CHECKING:
    from pgdyno.report.document import FileReport


def _reports() -> Iterable[Callable[[Sequence[Path]], FileReport | None]]:
    from pgdyno.features.hosts.sections import read_files

    yield read_files


def _documents() -> Iterable[type]:
    from pgdyno.features.hosts.sections import HostsDocument

    yield HostsDocument


FEATURE = Feature("hosts", requires=("crash", "fleet", "published"), reports=_reports, documents=_documents)
