"""Settings and scripts of arms are tried on empty clusters, each once, without leaving anything.

The tests share a cache and empty clusters, so that initdb runs once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from example_studies import make_study
from pgdyno.errors import StartError, WorkloadError
from pgdyno.features.sysbench.parameters import SysbenchParameters
from pgdyno.interruption import Interruption
from pgdyno.measure import preflight
from pgdyno.measure.dataset_loading import load_new_database
from pgdyno.measure.preflight import EmptyClusters, empty_clusters, require_starts, require_working_scripts
from pgdyno.measure.progress import PreparationStep
from pgdyno.server.builds import Build
from pgdyno.server.cache_directory import Cache
from pgdyno.server.directories import server_account
from pgdyno.server.processes import Cluster, InitOptions
from pgdyno.server.settings_catalogue import empty_cluster
from pgdyno.study.workload_parameters import Workload
from pgdyno.workloads.pgbench.parameters import PgbenchParameters, Script
from pgdyno.workloads.tpcc.parameters import TpccParameters

pytestmark = pytest.mark.server

SOUND = {"work_mem": "8MB"}


TPCC = TpccParameters(warehouses=1)


def with_settings(build: Build, settings: Sequence[Mapping[str, str]]) -> Any:
    """Return the requested arms: arm n has the name n."""
    return {
        index: SimpleNamespace(
            spec=SimpleNamespace(name=str(index)),
            build=build,
            catalogue=SimpleNamespace(initial={}),
            requested=SimpleNamespace(settings=one, optional=frozenset()),
            data_builds=(),
            certain=(),
        )
        for index, one in enumerate(settings)
    }


@pytest.fixture(scope="module")
def clusters(module_dir: Path) -> Iterator[EmptyClusters]:
    with empty_clusters(Cache.at(module_dir, server_account())) as clusters:
        yield clusters
    assert not list(module_dir.glob("runs/run-*"))


def tried(
    build: Build,
    clusters: EmptyClusters,
    *settings: Mapping[str, str],
    workload: Workload = TPCC,
    scripts: bool = False,
) -> list[str]:
    """Try the settings of arms, or their scripts. Returns the progress."""
    told: list[str] = []
    requests = [(make_study(workload=workload, clients=1), with_settings(build, settings))] * 2

    def watch(event: object) -> None:
        if isinstance(event, PreparationStep):
            told.append(event.text)

    with Interruption() as interruption:
        (require_working_scripts if scripts else require_starts)(requests, clusters, watch, interruption)
    return told


def test_each_set_of_settings_is_tried_once_and_none_without_settings(
    build: Build, clusters: EmptyClusters
) -> None:
    assert tried(build, clusters, {}, SOUND, SOUND, {"work_mem": "9MB"}) == [
        "testing the settings of 1",
        "testing the settings of 3",
    ]


def test_initdb_runs_once_for_a_build_and_its_options(
    build: Build, server_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, made, initdb = Cache.at(server_dir, server_account()), list[Path](), Cluster.initdb

    def counted(cluster: Cluster, options: InitOptions) -> None:
        made.append(cluster.data_dir)
        initdb(cluster, options)

    monkeypatch.setattr(Cluster, "initdb", counted)
    for checksums in (True, True, False, True):
        with (
            empty_cluster(build, cache, "try", InitOptions(checksums=checksums)) as cluster,
            cluster.start() as server,
            server.connect() as connection,
        ):
            assert cluster.data_dir not in made
            assert connection.execute("show data_checksums").fetchone() == ("on" if checksums else "off",)
    assert len(made) == len(cache.templates().names()) == 2
    for name in cache.templates().names():  # a damaged template is made again
        (cache.templates().directory / name / "data" / "postgresql.conf").write_text("")
    with empty_cluster(build, cache, "try") as cluster, cluster.start():
        assert len(made) == 3


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"wal_level": "minimal"}, "FATAL: .*max_wal_senders"),
        ({"shared_preload_libraries": "nothere"}, "FATAL: .*nothere"),
        ({"max_connections": "20", "superuser_reserved_connections": "20"}, "superuser_reserved_connections"),
        ({"nothing.known": "1", "work_mem": "8MB", "min_wal_size": "17MB"}, "min_wal_size"),
    ],
)
def test_a_server_that_does_not_start_is_reported_with_its_arm_and_its_message(
    settings: Mapping[str, str], words: str, build: Build, clusters: EmptyClusters
) -> None:
    with pytest.raises(StartError, match=f"^1: .* did not start: .*{words}"):
        tried(build, clusters, SOUND, settings)


def pgbench(**texts: str) -> PgbenchParameters:
    """Return custom scripts on data that would take minutes to load."""
    scripts = tuple(Script(name=name, text=text) for name, text in texts.items())
    return PgbenchParameters(scale=5000, scripts=scripts)


def test_scripts_run_once_with_each_set_of_settings(build: Build, clusters: EmptyClusters) -> None:
    sound = pgbench(
        read="\\set aid random(1, 100000 * :scale)\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid;"
    )
    assert tried(build, clusters, {}, {}, SOUND, workload=sound, scripts=True) == [
        "testing the scripts on 0",
        "testing the scripts on 2",
    ]


@pytest.mark.parametrize(
    ("text", "settings", "words"),
    [
        ("SELECT nothing FROM pgbench_accounts;", {}, r'"nothing" does not exist .SQLSTATE 42703'),
        ("SELECT abalance FROM pgbench_acounts;", {}, r"SQLSTATE 42P01"),
        (
            "UPDATE pgbench_accounts SET abalance = 0 WHERE aid = 1;",
            {"default_transaction_read_only": "on"},
            r"read-only transaction .SQLSTATE 25006",
        ),
    ],
)
def test_a_script_that_fails_on_any_data_is_an_error_before_the_load(
    text: str, settings: Mapping[str, str], words: str, build: Build, clusters: EmptyClusters
) -> None:
    # An unknown table may be one that another script creates.
    mixed = pgbench(broken=text) if "acounts" in text else pgbench(works="SELECT 1;", broken=text)
    with pytest.raises(WorkloadError, match=f"^broken fails on 0: .*{words}.*Nothing was loaded$"):
        tried(build, clusters, settings, workload=mixed, scripts=True)


def test_failures_that_depend_on_the_data_or_on_other_scripts_do_not_count(
    build: Build, clusters: EmptyClusters
) -> None:
    dependent = pgbench(
        counts="UPDATE hits SET n = n + 1;",
        creates="CREATE TABLE IF NOT EXISTS hits (n int);",
        needs_a_row="SELECT abalance FROM pgbench_accounts WHERE aid = 400000000 \\gset",
        divides="SELECT 1 / count(*) FROM pgbench_accounts WHERE aid = 400000000;",
    )
    assert tried(build, clusters, {}, workload=dependent, scripts=True)


def test_each_arm_tries_the_scripts_on_new_data_that_are_loaded_once(
    build: Build, clusters: EmptyClusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[str] = []

    def counted(server: Any, workload: Any, *others: Any) -> None:
        loads.append(workload.kind)
        load_new_database(server, workload, *others)

    monkeypatch.setattr(preflight, "load_new_database", counted)
    creates = pgbench(creates="CREATE TABLE hits (n int);")  # fails if an earlier arm created it
    assert tried(build, clusters, {}, SOUND, {"work_mem": "9MB"}, workload=creates, scripts=True)
    assert loads == ["pgbench"]


def test_a_script_of_sysbench_runs_on_its_tables(build: Build, clusters: EmptyClusters) -> None:
    text = "function event() db_query('SELECT c FROM sbtest2 WHERE id = 1') {} end"
    for statement, fails in (("", False), ("db_query('SELECT d FROM sbtest1')", True)):
        workload = SysbenchParameters.model_validate(
            {"script": {"name": "own.lua", "text": text.format(statement)}, "tables": 2, "table_size": 10**8}
        )
        if fails:
            with pytest.raises(WorkloadError, match="SQLSTATE 42703"):
                tried(build, clusters, {}, workload=workload, scripts=True)
        else:
            assert tried(build, clusters, {}, workload=workload, scripts=True)


def test_builtin_scripts_are_not_tried(build: Build, clusters: EmptyClusters) -> None:
    assert tried(build, clusters, {}, workload=PgbenchParameters(scale=1), scripts=True) == []
