"""Hooks of a feature: a function for each kind, which imports and returns the hooks.

The core never imports this module. A registry (``hooks.Hooks``) in the package that loops over a kind of hook
has the name of the field here. A field is a function, so that a command imports only the hooks that it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgdyno.analysis.case_findings import Findings
    from pgdyno.analysis.study_findings import StudyFindings
    from pgdyno.cli.options import SearchTime, StudyOptions, WorkloadGroup
    from pgdyno.measure.dataset_loading import DataKind
    from pgdyno.measure.drive import BeforeDrive
    from pgdyno.measure.prepare import Preparation
    from pgdyno.measure.study_runner import Examine
    from pgdyno.measure.telemetry_collection import ProbeKind
    from pgdyno.measure.trial import OpenSession
    from pgdyno.report.document import FileReport, Section
    from pgdyno.report.json_format import Result
    from pgdyno.results.reader import Evidence
    from pgdyno.server.build_store import OpenSource
    from pgdyno.server.cache_directory import Leftovers
    from pgdyno.server.processes import ReleaseDisks
    from pgdyno.study.study_file import FilePart
    from pgdyno.study.workload_parameters import WorkloadParameters
    from pgdyno.workloads.registry import WorkloadKind
    from pgdyno.workloads.workload import TrialCheck


@dataclass(frozen=True)
class Feature:
    """A feature. The order of features has no effect.

    ``requires``: the other features that it imports. A program without them must not have it either.
    """

    name: str
    requires: Sequence[str] = ()
    file_parts: Callable[[], Iterable[FilePart]] = tuple
    parameters: Callable[[], Iterable[type[WorkloadParameters]]] = tuple
    workloads: Callable[[], Iterable[WorkloadKind]] = tuple
    workload_options: Callable[[], Iterable[type[WorkloadGroup]]] = tuple
    servers: Callable[[], Iterable[OpenSource]] = tuple
    leftovers: Callable[[], Iterable[Leftovers]] = tuple
    disks: Callable[[], Iterable[ReleaseDisks]] = tuple
    data: Callable[[], Iterable[DataKind]] = tuple
    prepare: Callable[[], Iterable[Preparation]] = tuple
    examinations: Callable[[], Iterable[Examine]] = tuple
    session: Callable[[], Iterable[OpenSession]] = tuple
    before_drive: Callable[[], Iterable[BeforeDrive]] = tuple
    search_time: Callable[[], Iterable[SearchTime]] = tuple
    options: Callable[[], Iterable[type[StudyOptions]]] = tuple
    probes: Callable[[], Iterable[ProbeKind]] = tuple
    trial_checks: Callable[[], Iterable[TrialCheck]] = tuple
    findings: Callable[[], Iterable[Callable[[Evidence], Any]]] = tuple
    results: Callable[[], Iterable[Result]] = tuple
    sections: Callable[[], Iterable[Callable[[StudyFindings], Iterable[Section]]]] = tuple
    case_sections: Callable[[], Iterable[Callable[[Findings], Iterable[Section]]]] = tuple
    reports: Callable[[], Iterable[Callable[[Sequence[Path]], FileReport | None]]] = tuple
    documents: Callable[[], Iterable[type]] = tuple
