"""History of data without a server: options of arms, keys of datasets, and the builds of pg_upgrade."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pgdyno.errors import DatasetError, FetchError, UsageError
from pgdyno.features.aged_data import upgrade as upgrading
from pgdyno.features.aged_data.upgrade import (
    NEW_PROGRAMS,
    OLD_PROGRAMS,
    UpgradeBuilds,
    _last_words,
    upgrade_builds,
)
from pgdyno.features.own_data.options import OwnDataOptions
from pgdyno.features.own_data.plan import OwnData, OwnDataParameters
from pgdyno.measure.dataset_loading import dataset_key
from pgdyno.server.builds import Build, Version, VersionSpec
from pgdyno.server.directories import Account
from pgdyno.server.processes import Cluster, InitOptions
from pgdyno.study.arm_spec import parse_arm
from pgdyno.workloads.pgbench.parameters import PgbenchParameters, Script
from pgdyno.workloads.tpcc.parameters import TpccParameters

OWN = (Script(name="own.sql", text="SELECT 1"),)


def build(folder: Path, version: str, programs: Sequence[str] = ("postgres", "initdb", "pg_ctl")) -> Build:
    bin_dir = folder / f"{version}-{len(programs)}" / "bin"
    bin_dir.mkdir(parents=True, exist_ok=True)
    for name in programs:
        (bin_dir / name).write_text(f"{name} {version}")
    major, minor = map(int, version.split("."))
    return Build("embedded", Version(major, minor), bin_dir, f"postgres (PostgreSQL) {version}", "test")


@dataclass
class Downloads:
    """A store whose downloads have all programs."""

    found: Build | None = None
    asked: list[VersionSpec] = field(default_factory=list)

    def with_programs(self, wanted: VersionSpec) -> Build:
        self.asked.append(wanted)
        if self.found is None:
            raise FetchError(f"no source has PostgreSQL {wanted} with all its programs")
        return self.found


def test_an_arm_has_data_of_its_own() -> None:
    arm = parse_arm("18,data=pg_upgrade:17,analyze=off,age=500,work_mem=8MB")
    assert arm.load == {"data": "pg_upgrade:17", "analyze": "off", "age": "500"}
    assert arm.settings == {"work_mem": "8MB"}
    options = OwnDataOptions(data=["shop.dump"], age=100).of_arm(arm.load)
    assert options.aging() == {"age": 500, "upgrade_from": "17", "upgrade_analyze": False}
    assert options.values()["data"] == {"source": "shop.dump", "analyze": False}
    every = OwnDataOptions(data=["pg_upgrade:17"])
    assert (every.source, every.aging()) == (None, {"upgrade_from": "17", "upgrade_analyze": True})


WRONG: Mapping[str, tuple[OwnDataOptions, dict[str, str]]] = {
    "more than one source": (OwnDataOptions(data=["a", "b"]), {}),
    "more than one server": (OwnDataOptions(data=["pg_upgrade:16", "pg_upgrade:17"]), {}),
    "names no server": (OwnDataOptions(data=["pg_upgrade:"]), {}),
    "can only be pg_upgrade:OLD": (OwnDataOptions(), {"data": "other.dump"}),
    "give a number of transactions": (OwnDataOptions(), {"age": "many"}),
    "use on or off": (OwnDataOptions(data=["a"]), {"analyze": "perhaps"}),
    "analyze=off requires data": (OwnDataOptions(), {"analyze": "off"}),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_options_are_refused(message: str) -> None:
    options, load = WRONG[message]
    with pytest.raises(UsageError, match=message):
        own = options.of_arm(load)
        own.values(), own.aging()


def test_parameters_of_freshly_loaded_data_are_stored_as_before() -> None:
    assert not {"age", "upgrade_from", "upgrade_analyze"} & TpccParameters(warehouses=1).model_dump().keys()
    aged = TpccParameters(warehouses=1, age=1, upgrade_from="17")
    assert TpccParameters.model_validate(aged.model_dump()) == aged
    assert aged.name == "tpcc, 1 warehouse, aged by 1 transaction, upgraded from 17"
    assert aged.before_aging() == TpccParameters(warehouses=1)
    with pytest.raises(ValidationError, match="age requires a workload that writes"):
        PgbenchParameters(scale=1, scripts=(Script(name="select-only"),), age=5)


def test_each_step_of_aging_has_a_key_of_its_own(tmp_path: Path) -> None:
    old, new = build(tmp_path, "17.1"), build(tmp_path, "18.1")
    fresh = TpccParameters(warehouses=1)
    init = InitOptions()

    def key(**changes: Any) -> str:
        parameters = fresh.model_copy(update=changes)
        return dataset_key(new, parameters, init, (old, new) if parameters.is_upgraded else ()).name

    names = [
        key(),
        key(age=10),
        key(age=20),
        key(age=10, mix="payment=1"),
        key(upgrade_from="17"),
        key(upgrade_from="17", upgrade_analyze=False),
        key(upgrade_from="17", age=10),
    ]
    assert len(set(names)) == len(names)
    assert names[4].startswith("tpcc-warehouses1-from17-embedded-18.1-")
    assert key(mix="payment=1") == key()
    assert key(age=10, calls="statements") == key(age=10)


def test_data_of_the_old_server_are_analyzed_and_a_backup_is_upgraded_from_its_version_only() -> None:
    data = OwnData(source="x", form="backup", major=17, digest="d", analyze=False)
    own = OwnDataParameters(scale=1, data=data, scripts=OWN)
    with pytest.raises(UsageError, match="data=pg_upgrade:17"):
        own.require_major(18, "18")
    upgraded = own.model_copy(update={"upgrade_from": "17", "upgrade_analyze": False})
    upgraded.require_major(18, "18")
    before = upgraded.before_upgrade()
    assert (before.data.analyze, before.is_upgraded) == (True, False)


def test_builds_with_all_programs_are_chosen_and_downloaded_if_none_is_there(tmp_path: Path) -> None:
    arm, full = build(tmp_path, "18.4"), build(tmp_path, "18.1", NEW_PROGRAMS)
    old = build(tmp_path, "17.2", OLD_PROGRAMS)
    downloads = Downloads(full)
    assert upgrade_builds("17", "a", arm, [arm, old, full], downloads) == UpgradeBuilds(old, full)  # type: ignore[arg-type]
    assert not downloads.asked
    assert upgrade_builds("17", "a", arm, [old], downloads).new == full  # type: ignore[arg-type]
    assert downloads.asked == [VersionSpec(18, None)]
    own = build(tmp_path, "18.2", NEW_PROGRAMS)
    assert upgrade_builds("17", "a", own, [old, full], downloads).new == own  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("origin", "arm", "why"),
    [
        *((origin, "18.4", "requires an arm of a newer version") for origin in ("18", "19", "18.1")),
        ("12", "13.4", r"pg_upgrade needs .* of PostgreSQL 13: no source .* install"),
        ("12.1", "13.4", "no choice of the minor version"),
    ],
)
def test_an_upgrade_without_an_older_version_or_its_programs_is_refused(
    origin: str, arm: str, why: str, tmp_path: Path
) -> None:
    old = build(tmp_path, "12.2", OLD_PROGRAMS)
    with pytest.raises(UsageError, match=why):
        upgrade_builds(origin, "a", build(tmp_path, arm), [old], Downloads())  # type: ignore[arg-type]


@pytest.mark.parametrize(("version", "has_option"), [("11.22", False), ("12.20", True)])
def test_pg_upgrade_without_an_option_for_its_socket_runs_in_the_directory_of_the_socket(
    version: str, has_option: bool, tmp_path: Path, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[Sequence[str]] = []

    def run(command: Sequence[str], *_: object, **__: object) -> subprocess.CompletedProcess[str]:
        """The second program fails."""
        commands.append(command)
        facts = "Data page checksum version: 1\nBytes per WAL segment: 16777216\n"
        return subprocess.CompletedProcess(command, len(commands) - 1, facts, "")

    monkeypatch.setattr(upgrading, "run_tool", run)
    monkeypatch.setattr(Cluster, "initdb", lambda *_: None)
    builds = UpgradeBuilds(build(tmp_path, "10.23", OLD_PROGRAMS), build(tmp_path, version, NEW_PROGRAMS))
    old_dir, data_dir = tmp_path / "old", tmp_path / "data"
    with pytest.raises(DatasetError, match="pg_upgrade from"):
        upgrading.upgrade(builds, upgrading.OldCluster(), old_dir, data_dir, account, lambda: None)
    _, (_, _, _, directory, *command) = commands
    assert ("--socketdir" in command, Path(directory) == tmp_path / "upgrade") == (has_option, has_option)


def test_a_failure_shows_the_errors_in_the_logs_of_pg_upgrade(tmp_path: Path) -> None:
    statement = "\n".join(f"\tSET line {n}" for n in range(100))
    log = f"x\npg_restore: error: could not execute query: ERROR:  unrecognized parameter\n{statement}\n"
    (tmp_path / "dump.log").write_text(log)
    (tmp_path / "loadable_libraries.txt").write_text(
        'could not load library "$libdir/missing": ERROR: none\n'
    )
    output = "Performing Consistency Checks\nChecking cluster versions   ok\n*failure*\nFailure, exiting\n"
    said = _last_words(output, (tmp_path,))
    assert said.startswith("*failure* / Failure, exiting / ")
    assert "unrecognized parameter" in said
    assert "$libdir/missing" in said
    assert "SET line" not in said
