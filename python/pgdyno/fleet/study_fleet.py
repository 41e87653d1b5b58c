"""A fleet study: hosts from the nodes of a cluster, their works, and the run by the coordinator."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pgdyno.errors import EvidenceExistsError, UsageError
from pgdyno.fleet.host_actors import ActorLinks
from pgdyno.fleet.host_messages import HostTask
from pgdyno.fleet.ray_cluster import NodeFacts, RayCluster, RayNode
from pgdyno.fleet.study_coordinator import SNAPSHOT_S, Coordinator, FleetWatch
from pgdyno.interruption import Interruption
from pgdyno.results.fleet_file import SUFFIX, FleetRecord, HostState, HostWork

SNAPSHOT_VARIABLE = "PGDYNO_FLEET_SNAPSHOT_S"
"""Environment variable with another time between snapshots, for tests."""


@dataclass(frozen=True)
class Hosts:
    """The nodes that measure, by name of the host. ``unused``: sentences about the other nodes."""

    nodes: Mapping[str, RayNode]
    unused: Sequence[str]


def hosts_of(nodes: Sequence[RayNode], facts: Mapping[str, NodeFacts], *, share_machines: bool) -> Hosts:
    """Return the hosts: one node of each machine, or all of them with ``share_machines``.

    Raises UsageError if the results files of two hosts would have the same name.
    """
    found: dict[str, RayNode] = {}
    first_of: dict[str, str] = {}
    unused = []
    for node in nodes:
        machine = facts[node.name].boot_id
        if machine in first_of and not share_machines:
            unused.append(f"node {node.name} is not used: it is on the same machine as {first_of[machine]}")
            continue
        first_of.setdefault(machine, node.name)
        name = file_part(node.name)
        if name in found:
            raise UsageError(
                f"the nodes {found[name].name!r} and {node.name!r} would have results files of the same "
                "name: start one of them with another --node-name"
            )
        found[name] = node
    return Hosts(found, unused)


def file_part(name: str) -> str:
    """Return the name of a node as a part of a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "host"


def paths_of(base: Path) -> tuple[Path, str]:
    """Return the path of the record, and the stem of the results files, of ``--evidence base``."""
    stem = base.name.removesuffix(SUFFIX).removesuffix(".sqlite")
    return base.with_name(stem + SUFFIX), stem


def new_works(hosts: Sequence[str], stem: str, spread: Sequence[str] = ()) -> tuple[HostWork, ...]:
    """Return the work of each host: all cases, or an equal share of the cases ``spread`` in turn.

    Hosts without a case have no work.
    """
    if not spread:
        return tuple(HostWork(host=host, file=f"{stem}-{host}.sqlite") for host in hosts)
    shares = {host: tuple(spread[place :: len(hosts)]) for place, host in enumerate(hosts)}
    return tuple(
        HostWork(host=host, file=f"{stem}-{host}.sqlite", cases=cases)
        for host, cases in shares.items()
        if cases
    )


def require_new(path: Path, works: Sequence[HostWork]) -> None:
    """Raise EvidenceExistsError if a file of the study exists."""
    for file in (path, *(path.with_name(work.file) for work in works)):
        if file.exists():
            raise EvidenceExistsError(file)


def resumed(record: FleetRecord, hosts: Sequence[str], more_minutes: float | None) -> FleetRecord:
    """Return the record in which works continue: unfinished ones, or with ``more_minutes`` all of them.

    Raises UsageError for a host that the cluster does not have.
    """
    works = []
    for work in record.works:
        goes_on = not work.is_moved and (work.state is not HostState.DONE or more_minutes is not None)
        if goes_on and work.host not in hosts:
            raise UsageError(
                f"the cluster has no node {work.host!r}, which measured {work.file}: start Ray there with "
                f"--node-name {work.host}, or report the files with pgdyno report"
            )
        update = {"state": HostState.MEASURING, "reason": ""} if goes_on else {}
        works.append(work.model_copy(update=update))
    busy = [work.host for work in works if work.state is HostState.MEASURING]
    if repeated := {host for host in busy if busy.count(host) > 1}:
        raise UsageError(
            f"{', '.join(sorted(repeated))} has several unfinished files: resume without --minutes"
        )
    return record.model_copy(update={"works": tuple(works)})


def task_of(work: HostWork, record: FleetRecord, *, is_resumed: bool, more_minutes: float | None) -> HostTask:
    """Return the task of a work. The password is that of this process."""
    return HostTask(
        name=work.file.removesuffix(".sqlite"),
        study=record.study,
        text=record.text,
        choices=record.choices,
        command=record.command,
        cases=work.cases,
        is_resumed=is_resumed,
        more_minutes=more_minutes,
        password=os.environ.get("PGPASSWORD"),
        snapshot_s=float(os.environ.get(SNAPSHOT_VARIABLE, SNAPSHOT_S)),
    )


def run_fleet(
    cluster: RayCluster,
    hosts: Hosts,
    path: Path,
    record: FleetRecord,
    watch: FleetWatch,
    interruption: Interruption,
    *,
    is_resumed: bool = False,
    more_minutes: float | None = None,
) -> FleetRecord:
    """Run the unfinished works of a record on their hosts. Return the final record."""
    task = partial(task_of, record=record, is_resumed=is_resumed, more_minutes=more_minutes)
    return Coordinator(ActorLinks(cluster, hosts.nodes), path, record, task, watch, interruption).run()
