"""The ledger that the engine writes: which transactions were sent and acknowledged, and when.

Records of 24 bytes, little-endian: client, event (1 sent, 2 acknowledged), number of the transaction, and
nanoseconds of the monotonic clock. See docs/reference/engine-protocol.md.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

RECORD = np.dtype([("client", "<u4"), ("event", "<u4"), ("sequence", "<u8"), ("at_ns", "<u8")])
SENT = 1
ACKNOWLEDGED = 2

Records = npt.NDArray[np.void]


def read_ledger(path: Path) -> Records:
    """Return the records of a file; none if it does not exist. A last record that is incomplete is left out:
    the engine was killed while it wrote it.
    """
    content = path.read_bytes() if path.exists() else b""
    return records_in(content)


def records_in(content: bytes) -> Records:
    """Return the complete records of a ledger."""
    whole = len(content) // RECORD.itemsize
    return np.frombuffer(content, RECORD, whole)
