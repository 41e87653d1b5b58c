"""Packing of large values in a results file: zlib streams of plain layouts, readable from any language."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from pgdyno.errors import EvidenceError
from pgdyno.results.masking import mask_passwords
from pgdyno.results.records import Pairs, Points

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


def pack_text(text: str) -> bytes:
    """Return the blob of a log: masked, without its middle if it is longer than LOG_BYTES_MAX."""
    data = mask_passwords(text).encode("utf-8", "replace")
    if len(data) > LOG_BYTES_MAX:
        half = LOG_BYTES_MAX // 2
        left_out = f"\n[pgdyno: {len(data) - LOG_BYTES_MAX} bytes omitted here]\n".encode()
        data = data[:half] + left_out + data[-half:]
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
