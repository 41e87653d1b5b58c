"""Load generators in network namespaces, whose links go down, delay frames, or lose them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import network_nodes
from bench.network_nodes import ForwardedLink, NetworkCluster
from program import Ended, Program, measuring

from pgdyno.results.reader import Evidence
from pgdyno.results.records import Trial, TrialStatus
from pgdyno.server.builds import Build

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

LOAD = (
    *("--workload", "pgbench", "--builtin", "select-only", "--scale", "1", "--clients", "4", "--seed", "7"),
    *("--schedule", "slices", "--slice", "1s", "--warmup", "1s", "--window", "8s", "--minutes", "20"),
    *("--stop", "budget", "--rate", "100"),
)
HEAD, HERE = "head", "here"
"""pgdyno runs beside the node HERE, and not beside the head, whose link is taken down, too."""

SHORT_S = 3.0
"""A short outage: longer than the maximum delay of an answer, and shorter than that of a lost node."""


@pytest.fixture(scope="module")
def nodes(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetworkCluster]:
    pytest.importorskip("ray", reason="NO RAY: pip install '.[fleet]'")
    if reason := network_nodes.unavailable():
        pytest.skip(reason)
    folder = Path("/tmp") / f"pgdyno-net-{os.getpid()}"
    folder.mkdir()
    found = NetworkCluster(Program(cache, tmp_path_factory.mktemp("nodes")), folder)
    try:
        found.start(HEAD, HERE, "n1", "n2")
        yield found
    finally:
        found.end()
        subprocess.run(["rm", "-rf", str(folder)], check=False)


@pytest.fixture(scope="module")
def dsn(nodes: NetworkCluster, build: Build, session_dir: Path) -> Iterator[str]:
    # The tests concern the network, not durability: syncs would only make them slower.
    with nodes.server(build, session_dir / "network", fsync="off") as found:
        yield found


@pytest.fixture
def cluster(nodes: NetworkCluster, program: Program) -> Iterator[NetworkCluster]:
    """The nodes, with pgdyno beside one of them. Afterwards all links are as new."""
    program.environ = {**program.environ, **nodes.environment()}
    program.prefix = nodes.prefix(HERE)
    yield nodes
    for link in nodes.links.values():
        assert isinstance(link, ForwardedLink)
        link.delay_s = link.loss = 0.0
        link.bring_up()


def compare(cluster: NetworkCluster, dsn: str, *arguments: str | Path) -> list[str | Path]:
    return ["compare", *LOAD, dsn, dsn, f"--cluster={cluster.address}", *arguments]


def trials_of(evidence: Path) -> list[Trial]:
    """Return all trials of a results file, whose checksums are verified."""
    with Evidence(evidence) as opened:
        return opened.trials(all_attempts=True)


def require_repeated(evidence: Path, ended: Ended, reason: str) -> None:
    """Check that the first block was void for this reason, and that all blocks were measured."""
    assert ended.status == 0, ended.err
    assert "block 1 is void and is repeated" in ended.err
    trials = trials_of(evidence)
    void = [trial for trial in trials if trial.block == 0 and trial.attempt == 1]
    assert [trial.status for trial in void] == [TrialStatus.INTERRUPTED] * 2
    assert all(reason in trial.reason for trial in void), void
    assert {trial.block for trial in trials if trial.status is TrialStatus.OK} == {0, 1}


def drivers_of(trials: list[Trial]) -> set[str]:
    return {node.name for trial in trials for node in trial.driver.nodes or ()}


def test_a_block_whose_node_loses_its_link_is_repeated_with_the_others(
    cluster: NetworkCluster, program: Program, dsn: str, tmp_path: Path
) -> None:
    evidence = tmp_path / "e.sqlite"
    running = program.start(*compare(cluster, dsn, "--drivers=2", "--blocks=2", "--evidence", evidence))
    running.until(lambda: measuring(evidence))
    lost = next(name for name in ("n1", "n2") if cluster.drives(name))
    cluster.links[lost].take_down()
    ended = running.ended()
    cluster.stop(lost)
    cluster.start(lost)
    require_repeated(evidence, ended, f"load generator {lost}")
    assert f"lost {lost}; block 1 is void" in ended.err
    valid = [trial for trial in trials_of(evidence) if trial.status is TrialStatus.OK]
    assert lost not in drivers_of(valid)


def test_a_short_outage_voids_its_block(
    cluster: NetworkCluster, program: Program, dsn: str, tmp_path: Path
) -> None:
    evidence = tmp_path / "e.sqlite"
    arguments = compare(cluster, dsn, "--drivers=head,n1", "--blocks=2", "--evidence", evidence)
    running = program.start(*arguments)
    running.until(lambda: measuring(evidence))
    cluster.links["n1"].take_down()
    time.sleep(SHORT_S)
    cluster.links["n1"].bring_up()
    require_repeated(evidence, running.ended(), "load generator n1: its network delayed an answer")


def test_a_delay_is_a_caveat_and_a_long_one_is_refused(
    cluster: NetworkCluster, program: Program, dsn: str, tmp_path: Path
) -> None:
    link = cluster.links["n1"]
    assert isinstance(link, ForwardedLink)
    link.delay_s = 0.010
    arguments = compare(cluster, dsn, "--drivers=head,n1", "--blocks=1", "--json", "--evidence")
    ended = program.run_process(*arguments, tmp_path / "some.sqlite")
    assert ended.status == 0, ended.err
    found = [one["sentence"] for one in ended.json()["caveats"] if one["code"] == "node-network"]
    assert any("node n1" in sentence and "clocks" in sentence for sentence in found)
    link.delay_s = 0.120
    ended = program.run_process(*arguments, tmp_path / "long.sqlite")
    assert ended.status == 1
    assert "load generator n1: the error of its clock is" in ended.complaints[0]
    assert "use nodes in one network" in ended.complaints[0]


def test_lost_packets_are_a_caveat(
    cluster: NetworkCluster, program: Program, dsn: str, tmp_path: Path
) -> None:
    link = cluster.links["n1"]
    assert isinstance(link, ForwardedLink)
    link.loss = 0.03
    evidence = tmp_path / "e.sqlite"
    ended = program.run_process(
        *compare(cluster, dsn, "--drivers=head,n1", "--blocks=1", "--json", "--evidence", evidence)
    )
    valid = [trial for trial in trials_of(evidence) if trial.status is TrialStatus.OK]
    if not valid:  # an answer was delayed by more than a second, each time
        assert (ended.status, len(trials_of(evidence))) == (1, 6)
        return
    assert ended.status == 0, ended.err
    found = [one["sentence"] for one in ended.json()["caveats"] if one["code"] == "node-network"]
    assert any("lost packets" in sentence for sentence in found)


def test_without_the_link_of_the_head_a_study_ends_at_the_next_fault_and_can_be_resumed(
    cluster: NetworkCluster, program: Program, dsn: str, tmp_path: Path
) -> None:
    evidence = tmp_path / "e.sqlite"
    running = program.start(*compare(cluster, dsn, "--drivers=n1,n2", "--blocks=2", "--evidence", evidence))
    running.until(lambda: measuring(evidence))
    cluster.links[HEAD].take_down()
    cluster.process("n1", "pgdyno-engine").kill()
    ended = running.ended()
    assert ended.status == 1, ended.err
    assert "start the cluster again and resume the study" in ended.err
    assert {trial.status for trial in trials_of(evidence)} == {TrialStatus.INTERRUPTED}
    cluster.restart()
    program.prefix = cluster.prefix(HERE)
    ended = program.run_process("compare", "--resume", evidence)
    assert ended.status == 0, ended.err
    assert {trial.block for trial in trials_of(evidence) if trial.status is TrialStatus.OK} == {0, 1}
