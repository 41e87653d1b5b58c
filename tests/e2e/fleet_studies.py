"""Studies of the tests of fleets, and the command that runs them on all nodes of a cluster."""

from __future__ import annotations

from bench.ray_nodes import LocalCluster

from pgdyno.features.hosts.fleet_record import FleetRecord, HostState

PASSWORD = "b5e1secret9d"
STUDY = """
title = "A fleet"
compare = ["settings"]
server = "system"
[workload]
kind = "pgbench"
scale = 1
[factors.settings.on]
synchronous_commit = "on"
[factors.settings.off]
synchronous_commit = "off"
{factors}
[run]
schedule = "slices"
slice = "0.2s"
warmup = "0.2s"
rounds = 2
repeats = {repeats}
stop = "budget"
aa = false
"""
ALONE = "[drive]\nclients = 1"
GRID = "[factors]\nclients = [1, 2]"


def run(cluster: LocalCluster, *arguments: str, snapshot_s: float = 0.0) -> list[str]:
    """Return the arguments of a run on all nodes, which share this machine."""
    cluster.program.environ = {
        **cluster.program.environ,
        **cluster.environment(),
        "PGPASSWORD": PASSWORD,
        "PGDYNO_FLEET_SNAPSHOT_S": str(snapshot_s),
    }
    return ["run", *arguments, f"--fleet={cluster.address}", "--share-machines"]


def states(record: FleetRecord) -> dict[str, HostState]:
    return {work.file: work.state for work in record.works}
