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
"""Of one trial's server log so much is kept, half from each end: a log without end must not fill the disk."""

UNPACKED_BYTES_MAX = 64 << 20
"""No value that we write unpacks to more; a file that claims so is not ours."""


def pairs_from(values: Iterable[tuple[int, int]]) -> Pairs:
    """The engine's ``[[value_ns, n], …]`` as an array. Raises ValueError unless values ascend."""
    pairs = np.array(list(values), dtype=np.uint64).reshape(-1, 2)
    if np.any(pairs[1:, 0] <= pairs[:-1, 0]):
        raise ValueError("a histogram's values must ascend")
    return pairs


def pack_pairs(pairs: Pairs) -> bytes:
    """The blob of ``histogram.pairs``."""
    return zlib.compress(np.ascontiguousarray(pairs, dtype="<u8").tobytes(), 6)


def unpack_pairs(blob: bytes, n: int) -> Pairs:
    """The reverse; ``n`` is what the counts must add up to."""
    data = _unpack(blob)
    if len(data) % 16:
        raise EvidenceError("a histogram in the evidence is damaged: restore the file from a copy")
    pairs = np.frombuffer(data, dtype="<u8").astype(np.uint64).reshape(-1, 2)
    if int(pairs[:, 1].sum()) != n:
        raise EvidenceError("a histogram in the evidence does not add up: restore the file from a copy")
    return pairs


def pack_text(text: str) -> bytes:
    """The blob of a log: masked, and its middle cut out where it is longer than LOG_BYTES_MAX."""
    data = mask_passwords(text).encode("utf-8", "replace")
    if len(data) > LOG_BYTES_MAX:
        half = LOG_BYTES_MAX // 2
        left_out = f"\n[pgdyno: {len(data) - LOG_BYTES_MAX} bytes left out here]\n".encode()
        data = data[:half] + left_out + data[-half:]
    return zlib.compress(data, 6)


def unpack_text(blob: bytes) -> str:
    """The reverse. Bytes that are not UTF-8 (a character cut in half) are replaced."""
    return _unpack(blob).decode("utf-8", "replace")


def pack_json(value: Any) -> bytes:
    """The blob of ``trial.tally`` and ``reading.found``."""
    return zlib.compress(json.dumps(value, allow_nan=False).encode(), 6)


def unpack_json(blob: bytes) -> Any:
    """The reverse."""
    try:
        return json.loads(_unpack(blob))
    except ValueError as error:
        raise EvidenceError(
            "a packed value in the evidence is damaged: restore the file from a copy"
        ) from error


def pack_points(points: Points) -> bytes:
    """The blob of ``series.points``."""
    return zlib.compress(np.ascontiguousarray(points, dtype="<f8").tobytes(), 6)


def unpack_points(blobs: Iterable[bytes], columns: int) -> Points:
    """The reverse, of several one behind the other: a row of so many columns a sample. Read-only."""
    chunks = [_unpack(blob) for blob in blobs]
    if columns < 1 or any(len(data) % (8 * columns) for data in chunks):
        raise EvidenceError("a series in the evidence is damaged: restore the file from a copy")
    return np.frombuffer(b"".join(chunks), dtype="<f8").astype(np.float64, copy=False).reshape(-1, columns)


def _unpack(blob: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(blob, UNPACKED_BYTES_MAX)
    except zlib.error as error:
        raise EvidenceError(
            "a packed value in the evidence is damaged: restore the file from a copy"
        ) from error
    if not stream.eof:
        raise EvidenceError(
            "a packed value in the evidence is damaged or too large: restore the file from a copy"
        )
    return data
