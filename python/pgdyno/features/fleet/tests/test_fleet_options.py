"""Options of fleets: refusals before anything is measured, and no Ray without --fleet."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pgdyno.cli import console
from pgdyno.cli.options import RunCall
from pgdyno.cli.run import requested_study
from pgdyno.errors import UsageError
from pgdyno.features.cluster import ray
from pgdyno.features.cluster.ray import NodeFacts, RayNode
from pgdyno.features.fleet import view as fleet_view
from pgdyno.features.fleet.command import require_own_servers
from pgdyno.features.fleet.coordinator import file_part, hosts_of, new_works, paths_of
from pgdyno.features.fleet.host import HostStatus
from pgdyno.features.fleet.options import FleetOptions
from pgdyno.features.fleet.view import FleetView
from pgdyno.features.hosts.fleet_record import HostState, HostWork

STUDY = """
title = "t"
compare = ["server"]
workload = {{kind = "pgbench", scale = 1}}
drive = {{clients = 1}}
factors = {{server = {servers}}}
run = {{rounds = 2, repeats = 2}}
"""


@pytest.fixture(autouse=True)
def _study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text(STUDY.format(servers='["17", "18"]'))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("run s.toml --spread cases", "--spread requires --fleet"),
        ("run s.toml --share-machines", "--share-machines requires --fleet"),
        ("run s.toml --fleet --spread cases", "requires a study of several cases"),
        ("run s.toml --fleet --spread cases --fit --minutes 5", "cannot be combined with --fit"),
        ("run s.toml --fleet --fit", "--fit requires --minutes"),
        ("run s.toml --fleet=ray://host:10001", "Ray client"),
        ("run --fleet --resume s.fleet.json --cuts 5", "--cuts requires --durability"),
        ("run s.toml --fleet --web", "--web cannot be combined with --fleet"),
        ("run --fleet --resume s.fleet.json --spread cases", "--spread cannot be combined with --resume"),
        ("run --fleet --resume s.fleet.json --no-aa", "cannot be combined with --resume"),
        ("run s.toml --fleet --data postgresql://u:secret@h/d", "must not contain a password"),
    ],
)
def test_wrong_options_are_refused_before_a_connection(
    words: str, reason: str, refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "_import_ray", lambda: pytest.fail("it connected"))
    written = refusal(words)
    assert reason in written and "secret" not in written


@pytest.mark.parametrize(
    ("server", "shared"),
    [
        *[("host=db1", "db1"), ("hostaddr=10.0.0.2", "10.0.0.2"), ("host=127.org", "127.org")],
        *[("host=/run", ""), ("host=@pg", ""), ("host=localhost", ""), ("host=127.0.0.2", ""), ("", "")],
        ("host=localhost,127.0.0.1", ""),
    ],
)
def test_a_server_that_all_hosts_would_share_is_refused(tmp_path: Path, server: str, shared: str) -> None:
    servers = f'{{a = "{server} dbname=a", b = "{server} dbname=b"}}'
    (tmp_path / "d.toml").write_text(STUDY.format(servers=servers))
    cases = requested_study(RunCall(tmp_path / "d.toml")).request.cases
    if shared:
        with pytest.raises(UsageError, match=f"is on {shared}:"):
            require_own_servers(cases)
    else:
        require_own_servers(cases)


def test_an_address_without_a_cluster_is_an_error_at_once(refusal: Callable[..., str]) -> None:
    pytest.importorskip("ray", reason="NO RAY: build the wheel, and install it with its extra fleet")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        assert f"at {address}: Connection refused" in refusal(f"run s.toml --fleet={address}", 1)


@pytest.mark.parametrize(
    ("given", "spelled"),
    [
        ("--fleet", "--fleet=auto"),
        ("--fleet s.toml", "--fleet=auto s.toml"),
        ("s.toml --fleet 10.0.0.1:6379", "s.toml --fleet 10.0.0.1:6379"),
        ("--fleet auto", "--fleet auto"),
    ],
)
def test_an_address_is_optional(given: str, spelled: str) -> None:
    assert FleetOptions.spelled(given.split(), "compare") == spelled.split()


def test_without_ray_the_error_has_a_remedy(
    monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "`make wheel`" in refusal("run s.toml --fleet")


def node(name: str) -> RayNode:
    return RayNode(id=name, name=name, address="10.0.0.1")


def facts(boot_id: str) -> NodeFacts:
    return NodeFacts(python="3", pgdyno="1", engine="1", boot_id=boot_id, cores=2)


def test_one_node_of_a_machine_measures() -> None:
    nodes = [node("a"), node("b"), node("c")]
    known = {"a": facts("x"), "b": facts("x"), "c": facts("y")}
    found = hosts_of(nodes, known, share_machines=False)
    assert list(found.nodes) == ["a", "c"]
    assert found.unused == ["node b is not used: it is on the same machine as a"]
    assert list(hosts_of(nodes, known, share_machines=True).nodes) == ["a", "b", "c"]


@given(
    st.lists(st.sampled_from("vwxyz"), min_size=1, max_size=8),
    st.lists(st.text(st.sampled_from("abc"), min_size=1), unique=True, min_size=1, max_size=12),
)
def test_each_case_is_measured_on_one_machine_and_each_machine_measures_one_case_at_a_time(
    machines: list[str], cases: list[str]
) -> None:
    """A work runs its cases block by block in one process. So no machine may have two works."""
    known = {f"n{i}": facts(machine) for i, machine in enumerate(machines)}
    found = hosts_of([node(name) for name in known], known, share_machines=False)
    works = new_works(list(found.nodes), "s", cases)
    assert sorted(case for one in works for case in one.cases) == sorted(cases)
    used = [known[one.host].boot_id for one in works]
    assert len(used) == len(set(used)) == min(len(set(machines)), len(cases))


def test_names_of_files_come_from_nodes() -> None:
    assert file_part("db1#4f/..") == "db1-4f"
    assert file_part("../") == "host"
    assert paths_of(Path("x/s.sqlite")) == (Path("x/s.fleet.json"), "s")
    assert paths_of(Path("s.fleet.json")) == (Path("s.fleet.json"), "s")
    known = {"a b": facts("x"), "a-b": facts("y")}
    with pytest.raises(UsageError, match="'a b' and 'a-b' would have results files of the same name"):
        hosts_of([node(name) for name in known], known, share_machines=False)


def work(state: HostState = HostState.MEASURING, reason: str = "", host: str = "a") -> HostWork:
    return HostWork(host=host, file=f"s-{host}.sqlite", state=state, reason=reason)


def test_a_log_has_a_line_per_change_of_state(capsys: pytest.CaptureFixture[str]) -> None:
    with FleetView("t: 1 host") as view:
        view.show(work(), HostStatus())
        for block in range(3):
            view.show(work(), HostStatus(step="measuring 17", block=block, blocks=block))
        view.show(work(HostState.LOST, "its node has left the cluster"), HostStatus(blocks=2))
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "t: 1 host",
        "a: starting",
        "a: block 1, measuring 17",
        "a: lost, 2 blocks: its node has left the cluster",
        "1 host: 1 lost; 2 blocks",
    ]


def test_a_terminal_has_a_line_per_host_and_counts_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    terminal = Console(file=written, width=100, height=8, force_terminal=True, color_system=None)
    monkeypatch.setattr(fleet_view, "err", terminal)
    with FleetView("t") as view:
        for n in range(9):
            state = HostState.DONE if n < 5 else HostState.MEASURING
            standings = {"": ["18 vs. 17: +4.2%"]}
            status = HostStatus(step="measuring 18", block=2, rate=1234.0, total_s=60.0, standings=standings)
            view.show(work(state, host=f"h{n}"), status)
    last = written.getvalue()[written.getvalue().rindex("9 hosts") :]
    assert "h8  block 3, measuring 18  1,234 tx/s  at most 1 min left  18 vs. 17: +4.2%" in last
    assert "h0" not in last
    assert "and 5 more hosts" in last


def test_a_step_that_lasts_shows_its_duration_until_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, terminal = 100.0, Console(file=io.StringIO(), width=100, height=8)
    monkeypatch.setattr(fleet_view, "err", terminal)
    view = FleetView("t", quiet=True, now_s=lambda: now_s)

    def line(status: HostStatus, state: HostState = HostState.MEASURING) -> str:
        terminal.file = io.StringIO()
        view.show(work(state), status)
        terminal.print(view._draw())
        return terminal.file.getvalue().splitlines()[1].rstrip()

    assert line(HostStatus()) == "a  starting"
    now_s += 8
    assert line(HostStatus()) == "a  starting, 8 s"
    assert line(HostStatus(step="loading tpcc: copy 10%")) == "a  loading tpcc: copy 10%"
    now_s += 7
    assert line(HostStatus(step="loading tpcc: copy 30%")) == "a  loading tpcc: copy 30%, 7 s"
    assert line(HostStatus(step="measuring 18", block=0, rate=90.0)) == "a  block 1, measuring 18  90 tx/s"
    now_s += 9
    assert line(HostStatus(step="measuring 18", block=0, rate=90.0)) == "a  block 1, measuring 18  90 tx/s"
    assert line(HostStatus(blocks=1), HostState.DONE) == "a  done, 1 block"


@pytest.mark.parametrize(("is_terminal", "lines"), [(True, ["! a: some long", "words here"]), (False, None)])
def test_warnings_break_between_words_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, lines: list[str] | None
) -> None:
    written = io.StringIO()
    stream = Console(file=written, width=16, force_terminal=is_terminal, color_system=None)
    monkeypatch.setattr(console, "err", stream)
    FleetView("t", quiet=True).warn("a: some long words here")
    found = [line.rstrip() for line in written.getvalue().splitlines()]
    assert found == (lines or ["! a: some long words here"])


def test_a_process_has_no_dsn_in_the_command_line_that_ray_records_and_no_limits_of_its_workers() -> None:
    program = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from pgdyno.features.cluster.ray import hide_command_line, undo_limits_of_ray\n"
        "os.nice(5)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
        "left = undo_limits_of_ray()\n"
        "assert left == os.getpriority(os.PRIO_PROCESS, 0) == (0 if os.geteuid() == 0 else 5)\n"
        "assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])\n"
        "hide_command_line()\n"
        "print(Path('/proc/self/cmdline').read_bytes())\n"
    )
    command = [sys.executable, "-c", program, "host=db password=secret"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "b'pgdyno\\x00'\n"
