"""History of data on real servers: aged by transactions, and upgraded by pg_upgrade."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from driven_database import scalar

from pgdyno.errors import FetchError, Interrupted, WorkloadError
from pgdyno.features.aged_data.upgrade import UpgradeBuilds
from pgdyno.features.own_data.plan import OwnData, OwnDataParameters
from pgdyno.features.own_data.source import examined
from pgdyno.interruption import Interruption
from pgdyno.measure.dataset_loading import Maker
from pgdyno.measure.progress import LoadProgress
from pgdyno.server.builds import Build, VersionSpec
from pgdyno.server.cache_directory import Cache
from pgdyno.server.directories import Account
from pgdyno.server.processes import Cluster, InitOptions
from pgdyno.server.snapshots import Dataset, restore
from pgdyno.workloads.pgbench.parameters import Script

pytestmark = pytest.mark.server

SHOP = Path(__file__).parents[5] / "tests" / "data" / "shop"
BUY = Script(name="buy.sql", text=(SHOP / "buy.sql").read_text())


class Histories:
    """Datasets in a directory of these tests. ``phases``: those reported."""

    def __init__(self, folder: Path, account: Account) -> None:
        self.account = account
        self.phases: list[str] = []
        init = InitOptions(sync=False)
        self.maker = Maker(Cache.at(folder / "cache", account), 0, self.watch, Interruption(), init)

    def watch(self, event: object) -> None:
        if isinstance(event, LoadProgress):
            self.phases.append(event.phase)

    def count(self, dataset: Dataset, build: Build, folder: Path, statement: str) -> int:
        """Return the number that a statement returns on a copy of the dataset."""
        restore(dataset.snapshot, folder, self.account)
        with (
            Cluster(build, folder, self.account).start() as server,
            closing(server.connect(dataset.details["database"])) as connection,
        ):
            return int(scalar(connection, statement))


@pytest.fixture(scope="module")
def histories(module_dir: Path, account: Account) -> Histories:
    return Histories(module_dir, account)


@pytest.fixture(scope="module")
def shop() -> OwnDataParameters:
    data = examined(OwnData(source=str(SHOP / "load")))
    return OwnDataParameters(data=data, scripts=(BUY,), scale=1)


def test_data_are_aged_by_the_given_number_of_transactions_and_cached(
    histories: Histories, build: Build, server_dir: Path, shop: OwnDataParameters
) -> None:
    drawing = BUY.text.replace("\\set customer random(1, 200)", "\\sample customer FROM customer.id")
    assert drawing != BUY.text
    script = Script(name="buy.sql", text=drawing)
    aged = shop.model_copy(update={"age": 80, "scripts": (script,)})
    histories.phases.clear()
    with histories.maker.hold(build, aged) as dataset:
        assert dataset.details["aged"]["ok"] == 80
        # One more by the test of the script.
        count = "SELECT count(*) FROM purchase"
        assert histories.count(dataset, build, server_dir / "copy", count) == 2000 + 80 + 1
    phases = [*histories.phases]
    assert "aging" in phases
    with histories.maker.hold(build, aged), histories.maker.hold(build, shop):
        assert histories.phases == phases


def test_transactions_that_failed_are_counted_among_those_that_ran(
    histories: Histories, build: Build, shop: OwnDataParameters
) -> None:
    """Each of eight clients runs two, and those of every other client fail."""
    failing = Script(name="buy.sql", text=f"{BUY.text}\nSELECT 1 / ((:client_id + 1) % 2);\n")
    with histories.maker.hold(build, shop.model_copy(update={"age": 9, "scripts": (failing,)})) as dataset:
        assert dataset.details["changes"] == ["8 of the 16 transactions that aged them failed"]


def test_a_wrong_script_or_an_interrupt_leaves_no_aged_data(
    histories: Histories, build: Build, shop: OwnDataParameters
) -> None:
    cached, interruption = histories.maker.cache.cached_datasets(), Interruption()
    with histories.maker.hold(build, shop):
        names = cached.names()
    wrong = (Script(name="wrong.sql", text="SELECT nothing FROM purchase"),)
    with (
        pytest.raises(WorkloadError, match=r"wrong\.sql fails .*nothing"),
        histories.maker.hold(build, shop.model_copy(update={"age": 8, "scripts": wrong})),
    ):
        pass
    assert cached.names() == names

    def watch(event: object) -> None:
        if isinstance(event, LoadProgress) and event.phase == "aging":
            interruption.requested = True

    maker = replace(histories.maker, watch=watch, interruption=interruption)
    with pytest.raises(Interrupted), maker.hold(build, shop.model_copy(update={"age": 10**9})):
        pass
    assert cached.names() == names
    assert not cached.incomplete()


@pytest.mark.parametrize("analyze", [pytest.param(True, marks=pytest.mark.long), False])
def test_data_upgraded_by_pg_upgrade_keep_their_rows_and_statistics_as_the_version_does(
    histories: Histories, server_dir: Path, shop: OwnDataParameters, analyze: bool
) -> None:
    store = Cache.open().store()
    try:
        builds = UpgradeBuilds(
            store.with_programs(VersionSpec(16, None)), store.with_programs(VersionSpec(18, None))
        )
    except FetchError as error:
        pytest.skip(f"NOT TESTED: no PostgreSQL 16 and 18 with pg_upgrade: {error}")
    upgraded = shop.model_copy(update={"upgrade_from": "16", "upgrade_analyze": analyze})
    with histories.maker.hold(builds.new, upgraded, (builds.old, builds.new)) as dataset:
        details = dataset.details
        assert details["upgraded_from"] == builds.old.label
        assert details["without_statistics"] == 0
        rows = "SELECT count(*) FROM purchase"
        assert histories.count(dataset, builds.new, server_dir / "copy", rows) == 2000
    assert not list(histories.maker.cache.cached_datasets().directory.glob("*.part"))
