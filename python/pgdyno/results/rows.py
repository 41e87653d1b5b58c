"""Conversion of records to rows of ``schema.sql``, packed and masked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from pgdyno.results.masking import mask_passwords, masked_json
from pgdyno.results.packing import pack_json, pack_pairs, pack_points
from pgdyno.results.records import (
    Arm,
    Counts,
    Failure,
    Guarantee,
    Histogram,
    Interval,
    SampleSeries,
    Slice,
    StoredReading,
    StudyRecord,
    TrialOutcome,
)
from pgdyno.workload.interface import Check

Row = tuple[object, ...]


def of_study(study: StudyRecord) -> Row:
    """Return the row of ``study``, without its key."""
    return (
        mask_passwords(study.title),
        study.created_unix_s,
        study.ended_unix_s,
        study.ended_because,
        study.pgdyno_version,
        masked_json(study.engine),
        mask_passwords(study.command),
        masked_json(study.host),
        mask_passwords(study.file),
        masked_json(study.changes),
        masked_json(study.published),
    )


def of_case(case: int, study: StudyRecord) -> Row:
    """Return the row of ``study_case``."""
    return (
        case,
        study.case,
        masked_json(study.levels),
        masked_json(study.plan.model_dump(mode="json")),
        masked_json(study.arm_levels),
        mask_passwords(study.why_no_aa),
        study.aa_of,
        study.aa_arm,
        masked_json(study.aa_before),
    )


def arm_row(case: int, arm: Arm) -> Row:
    """Return the row of ``arm``."""
    return (
        case,
        arm.arm,
        mask_passwords(arm.name),
        mask_passwords(arm.spec),
        masked_json(arm.server),
        masked_json(arm.settings_requested),
        of_safety(arm.safety),
        masked_json(arm.workload),
        arm.clients,
        masked_json(arm.dataset),
    )


def of_safety(safety: Sequence[Guarantee]) -> str:
    """Return the column ``safety`` of ``arm``."""
    return masked_json([asdict(badge) for badge in safety])


def of_slice(piece: Slice) -> Row:
    """Return the row of ``slice``, without the trial."""
    return (
        piece.position,
        piece.role,
        piece.opened_s,
        piece.counted_from_s,
        piece.closed_s,
        piece.drained_s,
        piece.driver_cpu_user_s,
        piece.driver_cpu_system_s,
    )


def of_interval(interval: Interval) -> Row:
    """Return the row of ``interval``, without the trial."""
    return (
        interval.position,
        interval.role,
        interval.from_s,
        interval.to_s,
        sum(counts.executed for counts in interval.kinds.values()),
        interval.latency_p50_ns,
        interval.latency_p95_ns,
        interval.latency_p99_ns,
        interval.latency_max_ns,
    )


def of_counts(trial: int, owner: float, kinds: Mapping[str, Counts]) -> list[Row]:
    """Return rows of ``slice_count`` or ``interval_count``.

    ``owner`` is the position of the slice or ``from_s`` of the interval.
    """
    return [
        (trial, owner, kind, c.ok, c.rolled_back, c.failed, c.skipped, c.retried) for kind, c in kinds.items()
    ]


def of_failure(failure: Failure) -> Row:
    """Return the row of ``failure``, without the trial."""
    return (failure.kind, failure.sqlstate, failure.n, mask_passwords(failure.sample))


def of_histogram(histogram: Histogram) -> Row:
    """Return the row of ``histogram``, without the trial."""
    return (histogram.kind, histogram.measure, histogram.n, pack_pairs(histogram.pairs))


def of_check(check: Check) -> Row:
    """Return the row of ``check_result``, without the trial."""
    passed = None if check.skipped else int(check.passed)
    return (check.name, passed, check.statistic, check.p_value, mask_passwords(check.detail))


def of_outcome(outcome: TrialOutcome) -> Row:
    """Return the columns of ``trial`` that are known at its end, in the order of ``Writer._update_trial``."""
    return (
        outcome.status,
        mask_passwords(outcome.reason),
        mask_passwords(outcome.log_error),
        outcome.ended_unix_s,
        outcome.epoch_unix_s,
        outcome.restore_s,
        outcome.start_s,
        outcome.server_cpu_s,
        outcome.transactions,
        masked_json(outcome.counters),
        outcome.driver_memory_bytes,
        masked_json(outcome.driver.as_json()),
        masked_json(outcome.settings),
        None if outcome.tally is None else pack_json(outcome.tally),
        outcome.recovery_s,
        outcome.restart_s,
        outcome.probe_cpu_s,
    )


def of_reading(reading: StoredReading) -> Row:
    """Return the row of ``reading``, without the trial."""
    found = None if reading.rows is None else pack_json(json.loads(masked_json(reading.rows)))
    return (
        reading.probe,
        reading.moment,
        reading.at_s,
        reading.took_s,
        mask_passwords(reading.reason),
        reading.absence,
        found,
    )


def of_series(series: SampleSeries) -> Row:
    """Return the row of ``series``, without the trial. Requires at least one sample."""
    return (
        series.probe,
        float(series.points[0, 0]),
        json.dumps(list(series.columns)),
        pack_points(series.points),
    )
