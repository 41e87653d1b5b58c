"""linkbench on a server: the loaded graph and a thousand operations against independent implementations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from math import ceil, exp, log
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
import scipy
from driven_database import drive, load, scalar

from pgdyno.cli.options import expanded
from pgdyno.errors import DatasetError
from pgdyno.features.linkbench.data import LinkBench
from pgdyno.features.linkbench.parameters import LINKS_OF_FIRST_NODE, LinkBenchParameters
from pgdyno.features.runs import command
from pgdyno.server.processes import Connection, Server
from pgdyno.workloads.workload import fit_distribution

check = expanded(command.check)
pytestmark = pytest.mark.server

DEGREES = Path(__file__).parents[5] / "crates" / "linkbench" / "src" / "degrees"
FIRST_TYPE = 123_456_789
MASK = 2**64 - 1
P_MIN = 1e-6
NODES = 10_000


def parameters(**given: Any) -> LinkBenchParameters:
    return LinkBenchParameters.model_validate(given)


# ----------------------------------------------------------------------
# The graph in Python: shuffle, inverse of the distribution of out-degrees, division between types.
# ----------------------------------------------------------------------


def derive_seed(seed: int, number: int) -> int:
    def mix(z: int) -> int:
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    first = mix((seed + 0x9E3779B97F4A7C15) & MASK)
    return mix((first + number * 0x9E3779B97F4A7C15) & MASK)


def id_of_rank(rank: int, nodes: int) -> int:
    group, place = rank % 1024, rank // 1024
    members = list(range(group, nodes, 1024))
    return members[(place + derive_seed(1, group) % (nodes // 1024)) % len(members)] + 1


def out_degree(edition: str, share: float) -> int:
    points = [line.split() for line in (DEGREES / f"{edition}.txt").read_text().splitlines()]
    before: tuple[int, float] | None = None
    for links, more in ((int(a), float(b)) for a, b in points):
        if more <= share:
            if before is None or links == before[0] + 1 or more == 0:
                return links
            along = log(before[1] / share) / log(before[1] / more)
            between = exp(log(before[0]) + log(links / before[0]) * along)
            return min(links, max(before[0] + 1, ceil(between - 1e-9)))
        before = links, more
    raise AssertionError(share)


def links_of_types(own: LinkBenchParameters, rank: int) -> tuple[int, int]:
    if own.distributions == "configured":
        total = out_degree(own.edition, (rank + 0.5) / own.nodes)
        return (total + 1) // 2, total // 2
    total = out_degree(own.edition, rank / own.nodes)
    if own.edition == "fork":
        return max(total, 2) // 2, max(total, 2) // 2
    rest = total - total // 2
    return total // 2 + (rest > 0), total // 2 + (rest > 1)


@pytest.mark.parametrize(
    ("edition", "distributions"), [("2011", "executed"), ("2011", "configured"), ("fork", "configured")]
)
def test_the_loaded_graph_is_that_of_an_independent_implementation(
    loading_server: Server, edition: str, distributions: str
) -> None:
    own = parameters(nodes=3000, edition=edition, distributions=distributions)
    name = f"graph_{edition}_{distributions}"
    load(loading_server, name, own)
    expected = {}
    for rank in range(own.nodes):
        id1 = id_of_rank(rank, own.nodes)
        for place, links in enumerate(links_of_types(own, rank)):
            if links:
                expected[id1, FIRST_TYPE + place] = (links, id1, id1 + links - 1, links)
    with closing(loading_server.connect(name)) as conn:
        rows = conn.execute(
            "SELECT id1, link_type, count(*), min(id2), max(id2), count(DISTINCT id2), max(time), "
            "min(visibility), max(visibility), min(version), max(version) FROM linktable GROUP BY 1, 2"
        ).fetchall()
        assert {row[:2]: row[2:6] for row in rows} == expected
        assert {row[7:] for row in rows} == {(1, 1, 0, 0)}
        if distributions == "executed":
            totals = Counter[int]()
            for (id1, _), (links, *_) in expected.items():
                totals[id1] += links
            assert max(totals.values()) in (LINKS_OF_FIRST_NODE[edition], LINKS_OF_FIRST_NODE[edition] + 1)
        counts = conn.execute("SELECT id, link_type, count, time, version FROM counttable").fetchall()
        assert {row[:2]: row[2:] for row in counts} == {row[:2]: (row[2], row[6], 0) for row in rows}
        ranges = "min(id), max(id), min(type), max(type), min(version), max(version)"
        nodes = f"SELECT count(*), {ranges} FROM nodetable"
        assert conn.execute(nodes.encode()).fetchone() == (3000, 1, 3000, 2048, 2048, 1, 1)
        assert scalar(conn, "SELECT nextval('nodetable_id_seq')") == 3001
        LinkBench(own).require(conn)
        known, read = (LinkBench(own).checks(8, restored=restored) for restored in (True, False))
        known.begin(conn)
        read.begin(conn)
        assert (known.links_before, known.nodes_before) == (read.links_before, read.nodes_before)


@pytest.fixture(scope="module")
def graph(loading_server: Server) -> Iterator[str]:
    load(loading_server, "linkbench", parameters(nodes=NODES, distributions="configured"))
    yield "linkbench"


def log_normal(median: float, longest: int) -> np.ndarray[Any, Any]:
    """Return the probabilities of rounded lengths from 0, of which longer ones are cut."""
    ends = scipy.stats.lognorm(1.0, scale=median).cdf(np.arange(longest) + 0.5)
    return np.diff(np.concatenate([[0.0], ends, [1.0]]))


def test_lengths_bytes_and_times_have_their_distributions(loading_server: Server, graph: str) -> None:
    with closing(loading_server.connect(graph)) as conn:
        for table, median, longest, (low, high) in (
            ("linktable", 23, 254, (32, 100)),
            ("nodetable", 168, 20_000, (50, 220)),
        ):
            rows = conn.execute(f"SELECT data FROM {table} LIMIT 20000".encode()).fetchall()
            lengths = np.bincount([len(data) for (data,) in rows], minlength=longest + 1)
            assert fit_distribution(lengths.tolist(), log_normal(median, longest)).p_value > P_MIN, table
            values = np.frombuffer(b"".join(data for (data,) in rows), np.uint8)
            assert (int(values.min()), int(values.max())) == (low, high)
        ago = np.array(conn.execute("SELECT max(time) OVER () - time FROM linktable").fetchall())[:, 0]
        bins = np.bincount((ago * 64 / 2**32).astype(int), minlength=64)
        assert fit_distribution(bins.tolist(), np.full(64, 1 / 64)).p_value > P_MIN


def test_keys_and_indexes_are_those_of_linkbench(loading_server: Server, graph: str) -> None:
    with closing(loading_server.connect(graph)) as conn:
        rows = conn.execute(
            "SELECT indexdef FROM pg_indexes WHERE tablename ~ '(link|count|node)table' ORDER BY 1"
        ).fetchall()
    found = [re.sub(r".*\((.*)\)", r"\1", row[0]) for row in rows]
    assert found == [
        'id1, link_type, visibility, "time", id2, version, data',
        "id, link_type",
        "link_type, id1, id2",
        "id",
    ]


# ----------------------------------------------------------------------
# Operations: their statements in the server log, applied to a copy by other statements.
# ----------------------------------------------------------------------

ENTRY = re.compile(r"(?:LOG:  (?:execute [^:]*|statement): |(ERROR):  )(.*)", re.DOTALL)


def statements(text: str) -> list[tuple[str, list[str], bool]]:
    """Return the statements in the log with their parameters, and whether each failed."""
    found: list[tuple[str, list[str], bool]] = []
    for entry in re.sub(r"\n\t", " ", text).splitlines():
        if detail := re.search(r"DETAIL:  parameters: (.*)", entry, re.IGNORECASE):
            values = re.findall(r"\$\d+ = '([^']*)'", detail[1])
            found[-1] = (found[-1][0], values, False)
        elif (of := ENTRY.search(entry)) and of[1]:
            found[-1] = (*found[-1][:2], True)
        elif of:
            found.append((" ".join(of[2].split()), [], False))
    return found


VISIBLE = "(SELECT count(*) FROM linktable AS l WHERE id1 = %s AND l.link_type = %s AND visibility = 1)"


class Replay:
    """Operations by other statements than those of the engine: counts are counted anew."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self.conn, self.listed, self.kinds = conn, 0, Counter[str]()

    def visibility(self, key: tuple[str, str, str]) -> int | None:
        found = "SELECT visibility FROM linktable WHERE (id1, id2, link_type) = (%s, %s, %s)"
        row = self.conn.execute(found.encode(), key).fetchone()
        return row[0] if row else None

    def recount(self, id1: str, link_type: str, time: str) -> None:
        self.conn.execute(
            f"INSERT INTO counttable (id, link_type, count, time, version) VALUES (%s, %s, {VISIBLE}, %s, 0) "
            "ON CONFLICT (id, link_type) DO UPDATE SET count = excluded.count, time = excluded.time, "
            "version = counttable.version + 1".encode(),
            (id1, link_type, id1, link_type, time),
        )

    def put(self, key: tuple[str, str, str], data: str, time: str) -> None:
        before = self.visibility(key)
        self.conn.execute(
            b"INSERT INTO linktable (id1, id2, link_type, visibility, data, version, time) "
            b"VALUES (%s, %s, %s, 1, %s, 0, %s) ON CONFLICT (link_type, id1, id2) DO UPDATE "
            b"SET visibility = 1, data = excluded.data, version = 0, time = excluded.time",
            (*key, data, time),
        )
        if before != 1:
            self.recount(key[0], key[2], time)

    def hide(self, key: tuple[str, str, str], time: str) -> None:
        assert self.visibility(key) == 1, "only a visible link is hidden"
        hidden = "UPDATE linktable SET visibility = 0 WHERE (id1, id2, link_type) = (%s, %s, %s)"
        self.conn.execute(hidden.encode(), key)
        self.recount(key[0], key[2], time)

    def apply(self, sent: list[tuple[str, list[str], bool]]) -> None:
        locked: tuple[str, str, str] | None = None
        for place, (text, values, has_failed) in enumerate(sent):
            if text.startswith("INSERT INTO linktable"):
                key = (values[0], values[1], values[2])
                assert has_failed == (self.visibility(key) is not None)
                if not has_failed:
                    self.put(key, values[4], values[6])
            elif "FOR UPDATE" in text:
                locked = (values[0], values[1], values[2])
            elif text == "ROLLBACK" and locked is not None:
                assert self.visibility(locked) != 1, "a visible link is updated or hidden"
                locked = None
            elif text.startswith("UPDATE linktable SET visibility = $1"):
                assert tuple(values[4:7]) == locked and self.visibility(locked) is not None
                self.put(locked, values[1], values[3])
                locked = None
            elif text.startswith("UPDATE linktable SET visibility = 0"):
                assert tuple(values) == locked
                self.hide(locked, sent[place + 1][1][1])
                locked = None
            else:
                self.apply_other(text, values)

    def apply_other(self, text: str, values: list[str]) -> None:
        execute = self.conn.execute
        if "FROM linktable" in text and "ORDER BY time DESC" in text:
            self.kinds["get_links_list"] += 1
            id1, link_type, _, _, limit, offset = values
            ((count,),) = execute(f"SELECT {VISIBLE}".encode(), (id1, link_type)).fetchall()
            self.listed += min(count - int(offset), int(limit))
        elif "id2 IN (" in text:
            self.kinds["multiget_link"] += 1
        elif text.startswith("SELECT count FROM counttable"):
            self.kinds["count_link"] += 1
        elif text.startswith("SELECT id, type"):
            self.kinds["get_node"] += 1
        elif text.startswith("INSERT INTO nodetable"):
            self.kinds["add_node"] += 1
            node, version, time, data = values
            add = "INSERT INTO nodetable VALUES (DEFAULT, %s, %s, %s, %s)"
            execute(add.encode(), (node, version, time, data))
        elif text.startswith("UPDATE nodetable"):
            self.kinds["update_node"] += 1
            version, time, data, node, _ = values
            change = (
                "UPDATE nodetable SET (version, time, data) = (%s::bigint, %s::int, %s::bytea) WHERE id = %s"
            )
            execute(change.encode(), (version, time, data, node))
        elif text.startswith("DELETE FROM nodetable"):
            self.kinds["delete_node"] += 1
            execute(b"DELETE FROM nodetable WHERE id = %s", (values[0],))


@pytest.mark.parametrize("edition", ["2011", "fork"])
def test_a_thousand_operations_leave_what_an_independent_implementation_leaves(
    loading_server: Server, edition: str
) -> None:
    own, name = parameters(nodes=150, edition=edition, distributions="configured"), f"operations_{edition}"
    load(loading_server, name, own)
    copy = f"{name}_copy"
    with closing(loading_server.connect()) as conn:
        conn.execute(f"CREATE DATABASE {copy} TEMPLATE {name}".encode())
        conn.execute(f"ALTER DATABASE {name} SET log_statement = 'all'".encode())
    start = len(loading_server.log())
    result = drive(loading_server, name, own, clients=1, transactions=1000)
    sent = statements(loading_server.log()[start:])
    with closing(loading_server.connect(copy)) as conn:
        replay = Replay(conn)
        replay.apply(sent)
        drawn = result.tally["drawn"]
        assert sum(drawn.values()) == 1000
        # Link writes are recognized by their effects, others by their only statement.
        assert replay.kinds == {kind: n for kind, n in drawn.items() if n and kind not in WRITES}
        assert result.counters["links_listed"] == replay.listed > 0
        found = [conn.execute(query.encode()).fetchall() for query in TABLES]
    with closing(loading_server.connect(name)) as conn:
        assert [conn.execute(query.encode()).fetchall() for query in TABLES] == found
    changed = ("links_added", "links_shown", "links_hidden", "nodes_added", "nodes_deleted")
    assert {kind: result.counters[kind] > 0 for kind in changed} == dict.fromkeys(changed, True)


WRITES = ("add_link", "update_link", "delete_link")

TABLES = (
    "SELECT * FROM linktable ORDER BY link_type, id1, id2",
    "SELECT * FROM counttable ORDER BY id, link_type",
    "SELECT * FROM nodetable ORDER BY id",
)


# ----------------------------------------------------------------------
# Checks
# ----------------------------------------------------------------------


def test_checks_pass_after_concurrent_writes_and_find_each_damage(
    loading_server: Server, graph: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own = parameters(nodes=NODES, distributions="configured")
    dsn = loading_server.conninfo(graph)

    def connect() -> Connection:
        return loading_server.connect(graph)

    checks = LinkBench(own).checks(8, restored=False)
    with closing(connect()) as conn:
        checks.begin(conn)
    start = len(loading_server.log())
    result = drive(loading_server, graph, own, clients=8, transactions=250)
    ended = checks.end(connect, result, loading_server.log()[start:])
    assert [one.name for one in ended if not one.passed] == []
    assert check(dsn, workload="linkbench") == 0
    count = "UPDATE counttable SET count = count {} 1 WHERE id = 7"
    for damage, repair in (
        (count.format("+"), count.format("-")),
        ("INSERT INTO counttable VALUES (9999999, 1, 2, 0, 0)", "DELETE FROM counttable WHERE id = 9999999"),
        (
            "INSERT INTO linktable VALUES (9999999, 1, 1, 1, '', 0, 0)",
            "DELETE FROM linktable WHERE id1 = 9999999",
        ),
    ):
        with closing(connect()) as conn:
            conn.execute(damage.encode())
        assert check(dsn, workload="linkbench") == 1, damage
        assert "counts of links" in capsys.readouterr().out
        with closing(connect()) as conn:
            conn.execute(repair.encode())
    with closing(connect()) as conn:
        conn.execute(b"DELETE FROM nodetable WHERE id = (SELECT min(id) FROM nodetable)")
    ended = checks.end(connect, result, "")
    assert [one.name for one in ended if not one.passed] == ["nodes conserved"]


def test_data_of_other_parameters_are_refused_with_the_remedy(loading_server: Server, graph: str) -> None:
    with closing(loading_server.connect(graph)) as conn:
        with pytest.raises(DatasetError, match=f"have nodes {NODES}, not 100: use nodes {NODES}"):
            LinkBench(parameters(nodes=100, distributions="configured")).require(conn)
        with pytest.raises(DatasetError, match="have edition fork, not 2011"):
            LinkBench(parameters(nodes=NODES, edition="2011", distributions="configured")).require(conn)
    with (
        closing(loading_server.connect()) as conn,
        pytest.raises(DatasetError, match="no complete linkbench data"),
    ):
        LinkBench(parameters()).require(conn)


def test_a_load_replaces_its_own_tables_but_none_of_the_user(loading_server: Server) -> None:
    own = parameters(nodes=500, distributions="configured")
    load(loading_server, "replaced", own)
    load(loading_server, "replaced", own, into_existing=True)
    with closing(loading_server.connect("replaced")) as conn:
        conn.execute(b"DROP TABLE counttable")
        conn.execute(b"CREATE TABLE counttable (a int)")
    with pytest.raises(DatasetError, match="counttable, which pgdyno did not load"):
        load(loading_server, "replaced", own, into_existing=True)
