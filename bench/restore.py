"""Restoring a data directory against ``cp -a`` of it, into nothing and over a copy that was used."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

from bench.drivers import run_engine
from bench.figure import Figure, compared
from bench.measure import run
from bench.setting import Place, Sizes
from bench.tpcc import load_specification
from pgdyno.server.cluster import Cluster, InitOptions
from pgdyno.server.disk import sync_file_system
from pgdyno.server.restore import restore
from pgdyno.server.snapshot import take


def figures(place: Place, sizes: Sizes) -> Iterator[Figure]:
    """Both write their copy to disk before the clock stops; runs alternate."""
    origin = Cluster(place.cluster.build, place.directory / "origin", place.account)
    origin.initdb(InitOptions(sync=False))
    with origin.start(sizes.settings) as server:
        run_engine("load", load_specification(server.conninfo(), sizes.warehouses))
    snapshot = take(origin.data_dir)
    ours, theirs = place.directory / "ours", place.directory / "theirs"
    fresh, used = [], []
    for _ in range(sizes.pairs):
        sync_file_system(place.directory)
        begun_s = time.monotonic()
        run(["cp", "-a", str(origin.data_dir), str(theirs)])
        sync_file_system(place.directory)
        copied_s = time.monotonic() - begun_s
        fresh.append((restore(snapshot, ours, place.account).duration_s, copied_s))
        used_cluster = Cluster(place.cluster.build, ours, place.account)
        with used_cluster.start(sizes.settings) as server, server.connect() as connection:
            connection.execute("UPDATE stock SET s_ytd = s_ytd + 1 WHERE s_i_id <= 1000")
        sync_file_system(place.directory)
        used.append((restore(snapshot, ours, place.account).duration_s, copied_s))
        for directory in (ours, theirs):
            shutil.rmtree(directory)
    at = f"restore of {sizes.warehouses} warehouses ({snapshot.size_bytes / 1e6:,.0f} MB)"
    yield compared(f"{at}: into nothing", "s", fresh, "cp -a", wanted=1.0)
    yield compared(f"{at}: over a used copy", "s", used, "cp -a", wanted=1.0)
