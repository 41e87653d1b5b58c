"""Results files of one study from several hosts, written for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from report_forms import report_of
from synthetic_study import HOST, Synthetic, write_study

from pgdyno.analysis.study_findings import StudyFindings
from pgdyno.features.hosts.findings import HostsFindings, find_hosts

LARGE = {**HOST, "processor": "Intel Xeon Gold 6338", "cores": 64, "memory_bytes": 270_000_000_000}


SMALL = Synthetic(effects=(1.0, 1.10), blocks=6, slices=4)
"""Study on the machine HOST."""


LARGER = replace(SMALL, host=LARGE, seed=7, effects=(1.0, 1.12))


def written(folder: Path, **studies: Synthetic | Sequence[Synthetic]) -> list[Path]:
    paths = []
    for name, study in studies.items():
        paths.append(folder / f"{name}.sqlite")
        write_study(paths[-1], *([study] if isinstance(study, Synthetic) else study))
    return paths


def findings_of(**studies: Synthetic | Sequence[Synthetic]) -> dict[str, StudyFindings]:
    return {
        name: report_of(*([study] if isinstance(study, Synthetic) else study)).findings
        for name, study in studies.items()
    }


def pooled_of(**studies: Synthetic | Sequence[Synthetic]) -> HostsFindings:
    return find_hosts(findings_of(**studies))
