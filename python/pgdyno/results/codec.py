"""Conversion of records to rows: masking, packing, and the columns of ``schema.sql``.

- Masking of passwords in everything that is written to a results file.
- Packing of large values in a results file: zlib streams of plain layouts, readable from any language.
- Conversion of records to rows of ``schema.sql``, packed and masked.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import unquote

import numpy as np

from pgdyno.errors import EvidenceError
from pgdyno.results.records import (
    Arm,
    Check,
    Counts,
    Failure,
    Guarantee,
    Histogram,
    Interval,
    Pairs,
    Points,
    SampleSeries,
    Slice,
    StoredReading,
    StudyRecord,
    TrialOutcome,
)
from pgdyno.study.arm_spec import SECRET_WORDS

# ----------------------------------------------------------------------
# Masking of passwords in everything that is written to a results file.
#
# This is the last safeguard: code that handles a connection string masks it, too.
# ----------------------------------------------------------------------

MASK = "***"

# postgresql://user:secret@host: libpq ends the password at the first @ and accepts every character except a
# slash before it. In a word with several @ everything up to the last one is masked.
_URI_PASSWORD = re.compile(r"(\bpostgres(?:ql)?://[^\s:/@]*:)[^/@]*(?:@[^\s/@]*)*(@)", re.IGNORECASE)
# password=secret, password = 'se\'cret', password=se\ cret, PGPASSWORD=secret; also as a URI's parameter.
_KEY_PASSWORD = re.compile(
    rf"((?<![A-Za-z_])(?:PG)?(?:{'|'.join(SECRET_WORDS)})\s*=\s*)('(?:[^'\\]|\\.)*'|(?:[^\s&\\]|\\.)+)",
    re.IGNORECASE | re.DOTALL,
)
# The keywords of a URI may be percent-encoded, too.
_PARAMETER = re.compile(r"([?&])([^=&\s]*%[^=&\s]*)=([^&\s]*)")


def mask_passwords(text: str) -> str:
    """Return the text with ``***`` in place of every password in a connection string or URI."""
    text = _URI_PASSWORD.sub(rf"\g<1>{MASK}\g<2>", text)
    return _PARAMETER.sub(_without_secret, _KEY_PASSWORD.sub(rf"\g<1>{MASK}", text))


def _without_secret(parameter: re.Match[str]) -> str:
    before, word, value = parameter.groups()
    return f"{before}{word}={MASK if unquote(word).lower() in SECRET_WORDS else value}"


def masked_json(value: Any) -> str:
    """Return one line of JSON with masked strings.

    Raises TypeError for values that JSON cannot represent, and ValueError for NaN.
    """
    return json.dumps(_masked(value), allow_nan=False, ensure_ascii=False)


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return mask_passwords(value)
    if isinstance(value, dict):
        return {
            str(key): MASK if str(key).lower() in SECRET_WORDS else _masked(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_masked(item) for item in value]
    return value


# ----------------------------------------------------------------------
# Packing of large values in a results file: zlib streams of plain layouts, readable from any language.
# ----------------------------------------------------------------------

LOG_BYTES_MAX = 1 << 20
"""Maximum size of a trial's server log, half from each end, so that a huge log does not fill the disk."""

UNPACKED_BYTES_MAX = 64 << 20
"""Limit for every unpacked value. pgdyno writes no larger one, so a file with a larger one is not valid."""


def pairs_from(values: Iterable[tuple[int, int]]) -> Pairs:
    """Return the engine's ``[[value_ns, n], …]`` as an array. Raises ValueError unless values ascend."""
    pairs = np.array(list(values), dtype=np.uint64).reshape(-1, 2)
    if np.any(pairs[1:, 0] <= pairs[:-1, 0]):
        raise ValueError("a histogram's values must ascend")
    return pairs


def pack_pairs(pairs: Pairs) -> bytes:
    """Return the blob of ``histogram.pairs``."""
    return zlib.compress(np.ascontiguousarray(pairs, dtype="<u8").tobytes(), 6)


def unpack_pairs(blob: bytes, n: int) -> Pairs:
    """Reverse ``pack_pairs``. Raises EvidenceError unless the counts add up to ``n``."""
    data = _unpack(blob)
    if len(data) % 16:
        raise EvidenceError("a histogram in the results file is damaged: restore the file from a copy")
    pairs = np.frombuffer(data, dtype="<u8").astype(np.uint64).reshape(-1, 2)
    if int(pairs[:, 1].sum()) != n:
        raise EvidenceError("the counts of a histogram do not add up: restore the file from a copy")
    return pairs


_NEXT_ENTRY = re.compile(r"\n(?!\t)")  # PostgreSQL begins the further lines of an entry with a tab


def pack_text(text: str) -> bytes:
    """Return the blob of a log: masked, without its middle if it is longer than LOG_BYTES_MAX."""
    half = LOG_BYTES_MAX // 2
    head_end = _NEXT_ENTRY.search(text, half)
    tail_start = _NEXT_ENTRY.search(text, max(half, len(text) - LOG_BYTES_MAX))
    parts = [text]
    if head_end and tail_start and head_end.end() < tail_start.end():
        # Masking is slow (60 MB: 10 s), and a cut between entries divides no password.
        parts = [text[: head_end.end()], text[tail_start.end() :]]
    masked = [mask_passwords(part).encode("utf-8", "replace") for part in parts]
    data = masked[0]
    if len(parts) > 1 or len(data) > LOG_BYTES_MAX:
        head, tail = masked[0][:half], masked[-1][-half:]
        omitted = len(text.encode("utf-8", "replace")) - len(head) - len(tail)
        data = head + f"\n[pgdyno: {omitted} bytes omitted here]\n".encode() + tail
    return zlib.compress(data, 6)


def unpack_text(blob: bytes) -> str:
    """Reverse ``pack_text``. Bytes that are not UTF-8 (a character cut in half) are replaced."""
    return _unpack(blob).decode("utf-8", "replace")


def pack_json(value: Any) -> bytes:
    """Return the blob of ``trial.tally`` and ``reading.found``."""
    return zlib.compress(json.dumps(value, allow_nan=False).encode(), 6)


def unpack_json(blob: bytes) -> Any:
    """Reverse ``pack_json``. Raises EvidenceError if the blob is damaged."""
    try:
        return json.loads(_unpack(blob))
    except ValueError as error:
        raise EvidenceError(
            "a packed value in the results file is damaged: restore the file from a copy"
        ) from error


def pack_points(points: Points) -> bytes:
    """Return the blob of ``series.points``."""
    return zlib.compress(np.ascontiguousarray(points, dtype="<f8").tobytes(), 6)


def unpack_points(blobs: Iterable[bytes], columns: int) -> Points:
    """Reverse ``pack_points`` for consecutive blobs: a read-only array with one row per sample.

    Raises EvidenceError if the blobs are damaged or do not have this number of columns.
    """
    chunks = [_unpack(blob) for blob in blobs]
    if columns < 1 or any(len(data) % (8 * columns) for data in chunks):
        raise EvidenceError("a series in the results file is damaged: restore the file from a copy")
    return np.frombuffer(b"".join(chunks), dtype="<f8").astype(np.float64, copy=False).reshape(-1, columns)


def _unpack(blob: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(blob, UNPACKED_BYTES_MAX)
    except zlib.error as error:
        raise EvidenceError(
            "a packed value in the results file is damaged: restore the file from a copy"
        ) from error
    if not stream.eof:
        raise EvidenceError(
            "a packed value in the results file is damaged or too large: restore the file from a copy"
        )
    return data


# ----------------------------------------------------------------------
# Conversion of records to rows of ``schema.sql``, packed and masked.
# ----------------------------------------------------------------------

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
