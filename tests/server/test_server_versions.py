"""The oldest, a middle and the newest version: fetched once into the cache, initialized, configured, started,
restored.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from server_of_major import OLDEST_MIDDLE_NEWEST, build_of

from pgdyno.errors import StartError
from pgdyno.measure.server_probes import autovacuum_runs
from pgdyno.server.builds import NEWEST_MAJOR, OLDEST_MAJOR, Build
from pgdyno.server.cache_directory import Cache
from pgdyno.server.processes import Cluster, InitOptions
from pgdyno.server.settings import MachineResources, ProfileInput, request, safety
from pgdyno.server.settings_catalogue import catalogue, compiled_differences
from pgdyno.server.snapshots import restore, take

pytestmark = pytest.mark.server

SMALL = MachineResources(memory_bytes=2**29, cores=4, disk="ssd")


@pytest.fixture(scope="module")
def cache() -> Cache:
    return Cache.open()


@pytest.mark.parametrize("major", OLDEST_MIDDLE_NEWEST)
def test_a_version_runs_with_the_starter_profile_and_restores(
    cache: Cache, cluster_of: Callable[[Build], Cluster], server_dir: Path, major: int
) -> None:
    build = build_of(cache, major)
    known = catalogue(build, cache)
    assert "compiled by" in known.version_text
    assert "CC" in known.compiled
    asked = request(
        ["starter"], {"synchronous_commit": "off"}, ProfileInput(SMALL, build.version, known.definitions)
    )
    cluster = cluster_of(build)
    with cluster.start(asked.settings, optional=asked.optional) as server:
        assert set(server.dropped) <= asked.optional
        assert server.effective["shared_buffers"] == "128MB"
        assert server.effective["data_checksums"] == "on"
        assert server.effective["lc_collate" if major < 16 else "lc_messages"] == "C"
        assert safety(server.effective).kept("power-loss") == "partly"
        with server.connect() as connection:
            assert connection.info.server_version == build.version.number
            connection.execute("create table t as select 1 as n")
            assert autovacuum_runs(connection) == 0
    assert "database system is shut down" in server.log()
    snapshot = take(cluster.data_dir)
    restore(snapshot, server_dir / "live", cache.account, sync=False)
    with Cluster(build, server_dir / "live", cache.account).start() as server, server.connect() as connection:
        assert connection.execute("select n from t").fetchone() == (1,)
        assert "interrupted" not in server.log()


def test_a_setting_newer_than_the_server_is_an_error_unless_optional(
    cache: Cache, cluster_of: Callable[[Build], Cluster]
) -> None:
    cluster = cluster_of(build_of(cache, OLDEST_MAJOR))
    with pytest.raises(StartError, match="jit"):
        cluster.start({"jit": "off"})
    with cluster.start({"jit": "off"}, optional={"jit"}) as server:
        assert list(server.dropped) == ["jit"]


def test_checksums_and_segment_size_are_the_same_whatever_the_versions_default(
    cache: Cache, server_dir: Path
) -> None:
    cluster = Cluster(build_of(cache, NEWEST_MAJOR), server_dir / "data", cache.account)
    cluster.initdb(InitOptions(checksums=False, wal_segment_mb=4, sync=False))
    with cluster.start() as server:
        assert server.effective["data_checksums"] == "off"
        assert server.effective["wal_segment_size"] == "4MB"


def test_builds_of_different_compilers_are_distinguished(cache: Cache) -> None:
    builds = [build_of(cache, major) for major in (OLDEST_MAJOR, NEWEST_MAJOR)]
    known = {build.label: catalogue(build, cache) for build in builds}
    told = " ".join(compiled_differences(known))
    compilers = {one.version_text.split("compiled by ")[1] for one in known.values()}
    assert ("the compilers differ" in told) == (len(compilers) > 1)
    assert compiled_differences(dict([*known.items()][:1])) == []
