"""A cluster without data, to ask a server what it knows and what it takes. Nothing of it is kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from pgdyno.server.build import Build
from pgdyno.server.cache import Cache
from pgdyno.server.cluster import Cluster, InitOptions


@contextlib.contextmanager
def empty_cluster(
    build: Build, cache: Cache, name: str, init: InitOptions | None = None
) -> Iterator[Cluster]:
    """A live directory called ``name`` as initdb left it, for as long as the block lasts; not written through
    to the disk. Raises StartError.
    """
    with cache.run_room().open(name) as run:
        cluster = Cluster(build, run.data_dir, cache.account, run.log_path)
        cluster.initdb(replace(init or InitOptions(), sync=False))
        yield cluster
