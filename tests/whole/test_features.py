"""Hooks of features: registries ask for them late, in any order, and only in a process that has features."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import pytest
from example_builds import build
from pydantic import ValidationError

from example_studies import make_file
from pgdyno import hooks
from pgdyno.caveats import wordings
from pgdyno.cli.features import FEATURES, WORKLOADS, all_features, commands, features
from pgdyno.feature import Feature
from pgdyno.features.fleet import host_process
from pgdyno.features.own_data.plan import OwnData, OwnDataParameters
from pgdyno.features.planning.command import schema
from pgdyno.features.sysbench.parameters import SysbenchParameters
from pgdyno.hooks import use_features
from pgdyno.measure.dataset_loading import dataset_key
from pgdyno.measure.prepare import PREPARATIONS
from pgdyno.measure.telemetry_collection import PROBE_KINDS
from pgdyno.server.build_store import SERVER_SOURCES
from pgdyno.server.cache_directory import Cache, items
from pgdyno.server.directories import server_account
from pgdyno.server.processes import InitOptions
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.workloads.pgbench.parameters import PgbenchParameters, Script
from pgdyno.workloads.tpcc.parameters import TpccParameters
from pgdyno.workloads.workload import workload_of

OWN = OwnDataParameters(
    data=OwnData(source="shop.dump"), scripts=(Script(name="s", text="SELECT 1"),), scale=1
)
EVERY: tuple[WorkloadParameters, ...] = (
    TpccParameters(warehouses=1),
    PgbenchParameters(scale=1),
    SysbenchParameters(),
    OWN,
    OWN.model_copy(update={"age": 10}),
    SysbenchParameters(upgrade_from="16"),
)


KINDS = sorted({*Feature._fields} - {"package", "requires", "commands", "public"})


@pytest.fixture
def in_reverse() -> Iterator[None]:
    use_features(lambda: list(reversed(all_features())))
    yield
    features()


def answers(folder: Path) -> list[object]:
    """Return what the core gets from features: workloads, keys of data, probes, leftovers in the cache."""
    new, old = (replace(build(version, "system"), bin_dir=folder) for version in ("18.1", "16.2"))
    (folder / "postgres").touch()
    cache = Cache.at(folder / "cache", server_account())
    for part in (cache.builds / ".18.1-npm.part", cache.data / ".shop.part"):
        part.mkdir(exist_ok=True)
    return [
        [type(workload_of(parameters)) for parameters in EVERY],
        [
            dataset_key(new, parameters, InitOptions(), (old, new) if parameters.is_upgraded else ())
            for parameters in EVERY
        ],
        [[*filter(None, (of.redaction(parameters) for of in PREPARATIONS))] for parameters in EVERY],
        sorted(kind.name for kind in PROBE_KINDS),
        [type(source(cache.builds, print)) for source in SERVER_SOURCES],
        [item.name for item in items(cache)],
    ]


def test_every_feature_has_its_own_package_and_every_name_in_it_exists() -> None:
    places = ["cli", *(f"workloads.{name}" for name in WORKLOADS), *(f"features.{name}" for name in FEATURES)]
    assert [feature.package for feature in all_features()] == [f"pgdyno.{place}" for place in places]
    for kind in KINDS:
        list(hooks.Hooks[object](kind))
    assert all(find_spec(module) for module, _ in commands().values())


def test_the_order_of_features_has_no_effect(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    before = answers(tmp_path)
    request.getfixturevalue("in_reverse")
    assert answers(tmp_path) == before


@pytest.fixture
def without_published() -> Iterator[None]:
    use_features(lambda: [one for one in all_features() if one.package != "pgdyno.features.published"])
    yield
    features()


@pytest.mark.usefixtures("without_published")
def test_without_published_tables_study_files_have_a_schema_and_no_such_table() -> None:
    whole = schema()
    assert whole["properties"]["published"]["type"] == "null"
    assert "Row" not in whole["$defs"]
    with pytest.raises(ValidationError, match="no feature has this table"):
        make_file(published={"tables": []})


def test_a_registry_raises_in_a_process_without_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "_features", [])
    with pytest.raises(RuntimeError, match=r"features\(\)"):
        list(PROBE_KINDS)


def test_every_registry_has_the_name_of_a_kind_of_hook() -> None:
    sources = [path.read_text("utf-8") for path in Path(hooks.__file__).parent.rglob("*.py")]
    found = [re.findall(r'Hooks(?:\[.*\])?\(\s*"(\w+)"', text) for text in sources]
    assert sorted(chain.from_iterable(found)) == KINDS


def test_a_registry_imports_only_its_own_hooks() -> None:
    program = (
        "import sys\n"
        "def found(start): return [name for name in sys.modules if name.startswith(start)]\n"
        "from pgdyno.server.build_store import SERVER_SOURCES\n"
        "from pgdyno.server.cache_directory import LEFTOVERS\n"
        "from pgdyno.cli.features import features\n"
        "assert not found('pgdyno.features')\n"
        "features()\n"
        "assert list(SERVER_SOURCES) and not found('pgdyno.workloads'), found('pgdyno.workloads')\n"
        "assert list(LEFTOVERS) and not found('pgdyno.measure'), found('pgdyno.measure')"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_host_of_a_fleet_has_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "_features", [])
    monkeypatch.setattr("sys.stdin", io.StringIO("no task"))
    with pytest.raises(ValidationError):
        host_process.main()
    assert list(PROBE_KINDS)


CAVEATS = {name: wording for code, wording in wordings().items() for name in wording.kinds or (code,)}
"""By name."""


def test_every_caveat_is_raised_with_the_parameters_of_its_texts() -> None:
    paths = [path for path in Path(hooks.__file__).parent.rglob("*.py") if "tests" not in path.parts]
    sources = [path.read_text("utf-8") for path in paths]
    for node in chain.from_iterable(ast.walk(ast.parse(text)) for text in sources if "Caveat.of(" in text):
        match node:
            case ast.Call(ast.Attribute(ast.Name("Caveat"), "of"), [ast.Constant(str(name)), *_], given):
                needed = CAVEATS[name].parameters(name) - {"kind"}
                keywords = {one.arg for one in given if one.arg is not None}
                assert keywords == needed or (keywords < needed and len(keywords) < len(given)), name
    assert not [name for name in CAVEATS if not any(f'"{name}"' in text for text in sources)]
