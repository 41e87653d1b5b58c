"""Data of the user: databases, dumps, backups, and scripts that draw from their columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pgdyno.feature import Feature

if TYPE_CHECKING:
    from pgdyno.cli.options import StudyOptions, WorkloadGroup
    from pgdyno.measure.dataset_loading import DataKind
    from pgdyno.measure.prepare import Preparation
    from pgdyno.server.cache_directory import Leftovers
    from pgdyno.study.workload_parameters import WorkloadParameters
    from pgdyno.workloads.workload import TrialCheck


def _options() -> Iterable[type[StudyOptions]]:
    from pgdyno.features.own_data.options import OtherData

    yield OtherData


def _leftovers() -> Iterable[Leftovers]:
    from pgdyno.features.own_data import source
    from pgdyno.server.cache_directory import Leftovers

    yield Leftovers("data", source.unfinished, source.sweep)


def _data() -> Iterable[DataKind]:
    from pgdyno.features.own_data import loading
    from pgdyno.measure.dataset_loading import DataKind

    yield DataKind(loading.is_loaded_here, loading.key, loading.make)


def _prepare() -> Iterable[Preparation]:
    from pgdyno.features.own_data import preflight
    from pgdyno.measure.prepare import Preparation

    first, last = preflight.with_own_data, preflight.with_tested_data
    yield Preparation(first, last, preflight.own_data_caveats, preflight.redaction)


def _trial_checks() -> Iterable[TrialCheck]:
    from pgdyno.features.own_data import preflight

    yield preflight.check_after_trial


def _parameters() -> Iterable[type[WorkloadParameters]]:
    from pgdyno.features.own_data.plan import OwnDataParameters

    yield OwnDataParameters


def _workload_options() -> Iterable[type[WorkloadGroup]]:
    from pgdyno.features.own_data.options import OwnDataOptions

    yield OwnDataOptions


FEATURE = Feature(
    "own_data",
    options=_options,
    leftovers=_leftovers,
    data=_data,
    prepare=_prepare,
    trial_checks=_trial_checks,
    parameters=_parameters,
    workload_options=_workload_options,
)
