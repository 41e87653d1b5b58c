"""Restore of a data directory compared with ``cp -a`` of it.

The destination is missing, or a copy used by a server, or a copy with changed blocks in every file.
``--warehouses 100`` makes it 10 GB.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.drivers import run_engine
from bench.environment import Environment, Sizes
from bench.figure import Figure, compared
from bench.measure import run
from bench.tpcc import load_specification
from pgdyno.server.directories import sync_file_system
from pgdyno.server.processes import Cluster, InitOptions
from pgdyno.server.snapshots import Snapshot, restore, take

BLOCK_BYTES = 8192
CHANGED_SHARE = 0.05
_WITH_BLOCKS = re.compile(r"(global|base/\d+)/\d+(_fsm|_vm)?(\.\d+)?")


def figures(environment: Environment, sizes: Sizes) -> Iterator[Figure]:
    """Alternate restores and copies, each synced to disk before the clock stops.

    The order alternates, because a copy affects the next one (blocks to free, an idle disk). No other copy
    exists at the start.
    """
    origin = Cluster(environment.cluster.build, environment.directory / "origin", environment.account)
    origin.initdb(InitOptions(sync=False))
    with origin.start(sizes.settings) as server:
        run_engine("load", load_specification(server.conninfo(), sizes.warehouses))
    snapshot = take(origin.data_dir)
    ours, theirs = environment.directory / "ours", environment.directory / "theirs"
    fresh, used, changed = [], [], []
    rng = np.random.default_rng(1)
    for turn in range(sizes.pairs):
        if turn % 2:
            mine = _restore_s(snapshot, ours, environment)
            copied_s = _copy_s(origin.data_dir, theirs)
        else:
            copied_s = _copy_s(origin.data_dir, theirs)
            mine = _restore_s(snapshot, ours, environment)
        fresh.append((mine, copied_s))
        used_cluster = Cluster(environment.cluster.build, ours, environment.account)
        with used_cluster.start(sizes.settings) as server, server.connect() as connection:
            connection.execute("UPDATE stock SET s_ytd = s_ytd + 1 WHERE s_i_id <= 1000")
        used.append((_restore_s(snapshot, ours, environment), copied_s))
        _change_blocks(snapshot, ours, rng)
        changed.append((_restore_s(snapshot, ours, environment), copied_s))
        shutil.rmtree(ours)
    at = f"restore of {sizes.warehouses} warehouses ({snapshot.size_bytes / 1e6:,.0f} MB)"
    yield compared(f"{at}: into nothing", "s", fresh, "cp -a", bound=1.0)
    yield compared(f"{at}: over a used copy", "s", used, "cp -a", bound=1.0)
    name = f"{at}: {CHANGED_SHARE:.0%} of the blocks changed in every file"
    yield compared(name, "s", changed, "cp -a", bound=0.1)


def _change_blocks(snapshot: Snapshot, data_dir: Path, rng: np.random.Generator) -> None:
    """Change random blocks as a server does: new LSN, checksum and content."""
    for path in filter(_WITH_BLOCKS.fullmatch, snapshot.entries):
        blocks = snapshot.entries[path].size_bytes // BLOCK_BYTES
        if blocks == 0:
            continue
        descriptor = os.open(data_dir / path, os.O_RDWR)
        chosen = rng.choice(blocks, max(1, round(CHANGED_SHARE * blocks)), replace=False)
        for offset in (np.sort(chosen) * BLOCK_BYTES).tolist():
            block = bytearray(os.pread(descriptor, BLOCK_BYTES, offset))
            block[:10] = rng.bytes(10)
            block[-100:] = rng.bytes(100)
            os.pwrite(descriptor, block, offset)
        os.close(descriptor)


def _restore_s(snapshot: Snapshot, into: Path, environment: Environment) -> float:
    sync_file_system(into.parent)
    return restore(snapshot, into, environment.account).duration_s


def _copy_s(data_dir: Path, into: Path) -> float:
    sync_file_system(into.parent)
    begun_s = time.monotonic()
    run(["cp", "-a", str(data_dir), str(into)])
    sync_file_system(into.parent)
    copied_s = time.monotonic() - begun_s
    shutil.rmtree(into)
    return copied_s
