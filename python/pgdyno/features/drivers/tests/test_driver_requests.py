"""Load generators on other nodes: requests, what follows a loss, and the summary of nodes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import ValidationError
from report_forms import report_of, tables_of
from synthetic_study import Synthetic

from example_studies import make_file, make_study
from pgdyno.caveats import Caveat
from pgdyno.errors import StudyFileError, UsageError
from pgdyno.features.cluster.ray import NodeFacts, own_facts
from pgdyno.features.drivers.nodes import DriverNodes
from pgdyno.features.drivers.options import DriverOptions, parse_drivers
from pgdyno.features.drivers.section import driver_node_summaries
from pgdyno.features.drivers.session import node_caveats, session_of
from pgdyno.measure.trial import Lab
from pgdyno.report.json_format import to_json
from pgdyno.results.records import CpuTimeNs, DriverFacts, DriverNode, Trial, TrialStatus, WakeLateNs
from pgdyno.study.cases import cases_of
from pgdyno.study.defaults import SLICE_S
from pgdyno.study.plan import DriversPlan, Study
from pgdyno.units import ABSENT

NODE = DriverNode(
    "n1", 1, 4, CpuTimeNs(1, 1), WakeLateNs(1, 2_000_000, 3), 0.001, 100.0, ceiling_per_s=1000.0
)


def test_drivers_are_a_number_or_names_of_nodes() -> None:
    assert parse_drivers("3") == DriversPlan(n=3)
    assert parse_drivers("a, b") == DriversPlan(n=2, nodes=("a", "b"))
    assert parse_drivers("a") == DriversPlan(n=1, nodes=("a",))
    for text in ("0", "-1", "1001", "", "a,,b", "a,a"):
        with pytest.raises((UsageError, ValidationError)):
            parse_drivers(text)


def test_options_of_the_cluster_need_drivers_on_the_command_line_or_in_the_study() -> None:
    assert DriverOptions().plan() is None
    with pytest.raises(UsageError, match="--on-node-loss requires --drivers"):
        DriverOptions(on_node_loss="continue").plan()
    in_file = DriversPlan(n=2, address="a:1")
    assert DriverOptions(on_node_loss="continue").plan(in_file) == DriversPlan(
        n=2, address="a:1", on_node_loss="continue"
    )
    assert DriverOptions(drivers="3").plan(in_file) == DriversPlan(n=3)


def test_a_study_file_names_drivers() -> None:
    def study(drivers: object, clients: int = 8, **fleet: str) -> Study:
        run = {"window": "32s", "warmup": "1s", "repeats": 3}
        file = make_file(drive={"clients": clients}, run=run, fleet={"drivers": drivers, **fleet})
        return cases_of(file)[0].study

    named = study(["a", "b"], on_node_loss="continue")
    assert named.drivers == DriversPlan(n=2, nodes=("a", "b"), on_node_loss="continue")
    assert (study(3).drivers, study(3).slice_s) == (DriversPlan(n=3), SLICE_S)
    assert study(100, clients=100).slice_s == 16
    with pytest.raises(StudyFileError, match=r"fleet\.drivers"):
        study(0)


def drivers(boot_id: str) -> DriverNodes:
    """Return load generators on one node of a machine."""
    made = DriverNodes.__new__(DriverNodes)
    made._facts = {"n1": NodeFacts("3", "0", "e", boot_id, 2)}
    return made


@pytest.mark.parametrize(
    "dsn", [None, "dbname=a", "host=localhost", "host=/tmp", "host=::1", "postgresql://127.0.0.1/a"]
)
def test_a_server_on_this_machine_is_not_driven_from_another_one(dsn: str | None) -> None:
    with pytest.raises(UsageError, match="the load generator on n1 cannot reach 17"):
        drivers("another machine").require_reachable([("17", dsn)])
    drivers(own_facts().boot_id).require_reachable([("17", dsn)])
    for shared in ("host=db1 dbname=a", "hostaddr=10.0.0.2", "host=localhost.example.com"):
        drivers("another machine").require_reachable([("17", shared)])


@dataclass
class FakePool:
    """Three nodes, of which ``gone`` are lost."""

    plan: DriversPlan
    n_left: int
    gone: list[str]
    n: int = 2
    lost: list[str] = field(default_factory=list)

    def note_loss(self) -> list[str]:
        self.lost += self.gone
        return self.gone


@dataclass
class FakeCase:
    lab: Lab
    next_block: int = 3
    given_up: bool = False
    decided: bool = True


def case_with(
    plan: DriversPlan, n_left: int, gone: list[str], clients: int = 8
) -> tuple[FakeCase, list[str], list[Any]]:
    """Return a case, the warnings it shows, and what it writes."""
    shown: list[str] = []
    written: list[Any] = []
    writer = SimpleNamespace(
        repeat_with=lambda study, _: written.append(study),
        add_caveat=lambda caveat, _: written.append(caveat),
    )
    lab = Lab(
        make_study(drivers=plan, clients=clients),
        [],
        cast(Any, writer),
        lambda progress: shown.append(cast(Any, progress).text),
        cast(Any, SimpleNamespace(requested=False)),
        session=session_of(cast(Any, FakePool(plan, n_left, gone))),
    )
    return FakeCase(lab), shown, written


def repeats(case: FakeCase, cases: list[FakeCase]) -> bool:
    assert case.lab.session is not None
    return case.lab.session.repeats(case, cases, "block 4")


TOO_MANY = "lost n2; 1 node of 2 left, but --clients must be between 1 and 2000 (got 3000): "


@pytest.mark.parametrize(
    ("plan", "n_left", "clients", "repeated", "warnings"),
    [
        ({}, 2, 8, True, ["lost n2; block 4 is void and is repeated"]),
        ({}, 1, 8, False, ["lost n2; 1 node of 2 left", "resume the study"]),
        ({"on_node_loss": "continue"}, 1, 3000, False, [TOO_MANY, "use --drivers=2, or fewer clients"]),
    ],
    ids=["with another node", "with too few", "with too many clients"],
)
def test_a_void_block_is_repeated_if_enough_nodes_are_left(
    plan: dict[str, Any], n_left: int, clients: int, repeated: bool, warnings: list[str]
) -> None:
    case, shown, written = case_with(DriversPlan(n=2, **plan), n_left, ["n2"], clients)
    assert repeats(case, [case]) == repeated
    assert len(shown) == 1 and all(words in shown[0] for words in warnings)
    assert (case.next_block, written) == (3, [])


def test_if_asked_all_cases_start_again_with_the_nodes_that_are_left() -> None:
    plan = DriversPlan(n=2, on_node_loss="continue")
    case, _, written = case_with(plan, 1, ["n2"])
    other = replace(case, next_block=2)
    assert repeats(case, [case, other])
    for one in (case, other):
        assert (one.next_block, one.decided) == (0, False)
        assert one.lab.study.drivers is not None and one.lab.study.drivers.n == 1
    studies = [one for one in written if isinstance(one, Study)]
    assert [one.drivers and one.drivers.n for one in studies] == [1, 1]
    [caveat, _] = [one for one in written if isinstance(one, Caveat)]
    assert (caveat.code, caveat.parameters["nodes"]) == ("driver-node-lost", "n2")


def test_the_limits_of_clients_and_threads_are_those_of_one_load_generator() -> None:
    make_study(clients=2000, threads=256)
    make_study(drivers=DriversPlan(n=5), clients=10_000, threads=1280)
    for numbers, words in (
        ({"clients": 2001}, "--clients must be between 1 and 2000 .got 2001.: use --drivers=2"),
        ({"threads": 257, "clients": 300}, "--threads must be between 1 and 256 .got 257.: use --drivers=2"),
        ({"drivers": DriversPlan(n=5), "clients": 10_001}, "--clients .*got 10001 .*: use --drivers=6"),
    ):
        with pytest.raises(ValidationError, match=words):
            make_study(**numbers)


def test_without_a_node_a_signal_or_after_three_void_blocks_nothing_is_repeated() -> None:
    none_left, given_up, stopped = (
        case_with(DriversPlan(n=2, on_node_loss="continue"), n_left, gone)[0]
        for n_left, gone in ((0, ["n1", "n2"]), (2, []), (2, []))
    )
    given_up.given_up = stopped.lab.interruption.requested = True
    for case in (none_left, given_up, stopped):
        assert not repeats(case, [case])


def test_caveats_name_nodes_that_may_be_the_limit() -> None:
    def codes(**changes: Any) -> list[str]:
        driver = DriverFacts(nodes=(replace(NODE, **changes),))
        return [caveat.kind for caveat in node_caveats(1, "17", driver)]

    assert codes() == []
    assert codes(clock_spread_s=0.006) == ["driver-clocks"]
    assert codes(retransmitted_share=0.0011) == ["driver-network"]
    assert codes(retransmitted_share=0.0010) == []
    assert codes(driver_cpu_share=0.71) == ["driver-node-busy"]
    assert codes(executed_per_s=501.0) == ["driver-near-ceiling"]
    assert codes(ceiling_per_s=None) == ["driver-ceiling-unknown"]


def test_a_node_is_summarized_over_its_ok_trials() -> None:
    def trial(status: TrialStatus, *nodes: DriverNode) -> Trial:
        return cast(Trial, SimpleNamespace(status=status, driver=DriverFacts(nodes=nodes)))

    late = replace(NODE, executed_per_s=300.0, wake_late_ns=WakeLateNs(1, 5_000_000, 6), busy_share=0.5)
    other = replace(NODE, name="n0")
    trials = [
        trial(TrialStatus.OK, NODE, other),
        trial(TrialStatus.OK, late),
        trial(TrialStatus.FAILED, late),
    ]
    first, second = driver_node_summaries(trials)
    assert (first.name, first.trials, second.name, second.trials) == ("n0", 1, "n1", 2)
    assert (second.executed_per_s, second.ceiling_share_max, second.busy_share) == (200.0, 0.3, 0.5)
    assert (second.wake_late_p99_ms_max, second.received_bytes_per_s) == (5.0, None)
    assert driver_node_summaries([trial(TrialStatus.OK)]) == []


def test_the_report_has_a_row_per_node_in_every_format() -> None:
    nodes = [replace(NODE, name="n2"), replace(NODE, received_bytes_per_s=1500.0)]
    built = report_of(Synthetic(blocks=2, nodes=nodes))
    [table] = [one for one in tables_of(built) if one.title == "Load generators"]
    assert [row[0] for row in table.rows] == ["n1", "n2"]
    found = dict(zip(table.columns, table.rows[0], strict=True))
    assert (found["trials"], found["share of SELECT 1"], found["received, kB/s"]) == ("4", "10%", "1.50")
    assert found["CPU busy"] == ABSENT
    without = report_of(Synthetic(blocks=2))
    assert "Load generators" not in [one.title for one in tables_of(without)]
    exported = json.loads(to_json(built))["more"]["driver_nodes"][""]
    assert [node["name"] for node in exported] == ["n1", "n2"]
    assert exported[0]["clock_spread_ms_max"] == 1.0
