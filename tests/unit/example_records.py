"""Records of a results file for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from synthetic_study import Synthetic, arms_of, study_of

from pgdyno.results.records import Block, Counts, Interval, Moment, SampleSeries, Slice, StoredReading
from pgdyno.results.writer import Writer
from pgdyno.study.schedule import Role

SMALL = Synthetic(blocks=2, slices=2)


KINDS = {"new_order": Counts(ok=90, rolled_back=1, failed=2, skipped=0, retried=3), "payment": Counts(ok=88)}


SLICE = Slice(4, Role.MEASURE, 1.0, 1.05, 1.99, 2.01, 0.02, 0.03, KINDS)


INTERVAL = Interval(4, Role.MEASURE, 1.0, 2.0, KINDS, 1_000_000, 2_000_000, 3_000_000, 9_000_000)


READ = StoredReading("wal", Moment.END, 9.0, 0.01, [{"lsn": 10, "fpi": None, "name": "a"}])


SERIES = [
    SampleSeries("wal", ["at_s", "late_s", "lsn"], np.array([[0, 0.0, 10], [1, 0.2, 30]])),
    SampleSeries("wal", ["at_s", "late_s", "fpi", "lsn"], np.array([[2, 0.0, 4, 60.0]])),
]


def begun(path: Path) -> tuple[Writer, int]:
    writer = Writer.create(path, study_of(SMALL), arms_of(SMALL))
    writer.begin_block(Block(0, 11, (1, 0), 5.0))
    return writer, writer.begin_trial(0, 1, 5.5)
