"""Fleet studies on hosts in network namespaces, whose links go down."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import network_nodes
from bench.network_nodes import NetworkCluster
from fleet_studies import ALONE, STUDY, run, states
from program import END_S, Program, command_line

from pgdyno.features.fleet.coordinator import SNAPSHOT_S
from pgdyno.features.hosts.fleet_record import HostState, read_fleet
from pgdyno.results.reader import Evidence

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

OUTAGE_S = 5.0
"""Ray counts a node as lost after about 25 s."""

COLLECTED_S = SNAPSHOT_S + END_S
"""Limit of the wait for the next snapshot of a host."""


@pytest.fixture
def cluster(program: Program) -> Iterator[NetworkCluster]:
    """Hosts with links. pgdyno runs beside the head."""
    pytest.importorskip("ray", reason="NO RAY: pip install '.[fleet]'")
    if reason := network_nodes.unavailable():
        pytest.skip(reason)
    folder = Path("/tmp") / f"pgdyno-net-{os.getpid()}"
    folder.mkdir()
    found = NetworkCluster(program, folder)
    try:
        found.start("n1", "n2")
        program.prefix = found.prefix("n1")
        yield found
    finally:
        found.end()
        subprocess.run(["rm", "-rf", str(folder)], check=False)


def test_a_short_outage_is_survived_and_a_long_one_loses_the_host(
    cluster: NetworkCluster, program: Program
) -> None:
    folder = program.folder
    # The directory of the namespaces is another one.
    study, base = folder / "network.toml", folder / "network.sqlite"
    study.write_text(STUDY.format(factors=ALONE, repeats=400))
    running = program.start(*run(cluster, str(study), "--evidence", str(base)))
    running.until(lambda: all((folder / f"network-{name}.sqlite").exists() for name in cluster.nodes))
    cluster.links["n2"].take_down()
    time.sleep(OUTAGE_S)
    cluster.links["n2"].bring_up()
    kept = folder / "network-n2.sqlite"
    before = trials(kept)
    running.until(lambda: trials(kept) > before, COLLECTED_S)
    assert "n2 lost" not in running.err.read_text()

    cluster.links["n2"].take_down()
    running.until(lambda: "n2 lost" in running.err.read_text())
    mine = folder / "network-n1.sqlite"
    before = trials(mine)
    running.until(lambda: trials(mine) > before, COLLECTED_S)
    # It hides its options. Other processes may end meanwhile.
    [command] = [one for one in cluster.members("n1") if command_line(one) == "pgdyno"]
    command.send_signal(signal.SIGINT)
    ended = running.ended()
    assert ended.status == 130, ended.err
    assert states(read_fleet(folder / "network.fleet.json")) == {
        "network-n1.sqlite": HostState.INTERRUPTED,
        "network-n2.sqlite": HostState.LOST,
    }
    assert trials(kept) > 0
    assert program.run_process("report", folder / "network.fleet.json").status == 0


def trials(path: Path) -> int:
    """Return the number of trials of a collected results file, whose checksums are verified."""
    with Evidence(path) as evidence:
        return len(evidence.trials())
