"""Study files of the package: complete, of the size counted by hand, faithful to their sources."""

import math
import re
from functools import cache
from pathlib import Path

import pytest
from pydantic import ValidationError

from example_studies import make_file, read_study
from pgdyno.features.published.plan import Cell, Published, errors_of
from pgdyno.server.safety import safety
from pgdyno.server.settings import PROFILES, RESERVED
from pgdyno.study.cases import cases_of
from pgdyno.study.study_file import StudyFile

STUDIES = Path(__file__).parents[5] / "studies"
FILES = sorted(STUDIES.rglob("*.toml"))

# Counted by hand: cases, arms of each.
SIZES = {
    # 8 numbers of clients × 2 settings; 2 versions
    "edb-2020-tproc-c-12-vs-13": (16, 2),
    # select-only 3 scales × 4 clients, default and extra-indexes 2 × 4 each, analytical 2 × 1; 2 versions
    "moppel-2019-pgbench-11-vs-12": (30, 2),
    "percona-2018-crash-safety": (1, 4),
    "percona-2018-sysbench-tpcc": (1, 3),
    "moppel-2022-a-billion-transactions": (1, 2),
    "postgres-versions": (22, 5),
    "upgrade": (1, 3),
    "settings": (1, 3),
    "clients-sweep": (7, 2),
    "capacity": (6, 2),
    "memory-sizes": (2, 3),
    "checkpoint-settings": (1, 3),
    "wal-compression": (1, 2),
    "load-time": (1, 2),
}


@cache
def study(path: Path) -> StudyFile:
    return read_study(path.read_text(), path.name)


PUBLISHED = [path for path in sorted(STUDIES.glob("*.toml")) if study(path).published]


def test_all_but_the_study_of_versions_are_published() -> None:
    assert {path.stem for path in STUDIES.glob("*.toml")} - {"postgres-versions"} == {
        path.stem for path in PUBLISHED
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_has_the_counted_cases_and_valid_settings_and_names_its_schema(path: Path) -> None:
    cases = cases_of(study(path))
    assert (len(cases), {len(case.arms) for case in cases}) == (SIZES[path.stem][0], {SIZES[path.stem][1]})
    for arm in (arm for case in cases for arm in case.study.arms):
        assert not arm.settings.keys() & RESERVED.keys()
        assert set(arm.profiles) <= PROFILES.keys()
    found = re.match(r"#:schema (\S+)\n", path.read_text())
    assert found and (path.parent / found[1]).resolve() == STUDIES / "study.schema.json"


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_a_published_experiment_has_its_source_and_its_tables(path: Path) -> None:
    file = study(path)
    assert file.source and file.source.machine and file.published
    assert file.run.nearest, "not every version that was published can be had"
    figures = [cell for table in file.published.tables for row in table.figures() for cell in row]
    assert any(cell.metric and cell.value is not None for cell in figures)
    assert Published.model_validate_json(file.published.model_dump_json()) == file.published
    # Figures and settings without a counterpart are explained.
    assert file.published.not_repeated and all(": " in one for one in file.published.not_repeated)


def key(cell: Cell, levels: dict[str, object]) -> tuple[object, ...]:
    return cell.metric, cell.relation, cell.statements, frozenset(levels.items())


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_published_changes_follow_from_the_published_values_or_are_corrected(path: Path) -> None:
    file = study(path)
    assert file.published
    first = {factor: file.factors[factor][0].name for factor in file.compare}
    for table in file.published.tables:
        cells = [cell for row in table.figures() for cell in row if cell.value is not None and cell.metric]
        values = {key(cell, dict(cell.levels)): cell.value for cell in cells if cell.show != "change"}
        for cell in cells:
            base = values.get(key(cell, {**cell.levels, **first, **cell.against}))
            value = values.get(key(cell, dict(cell.levels)))
            if cell.show == "change" and base and value and cell.value is not None:
                change = 100 * (value - base) / base
                told = cell.value if cell.corrected is None else cell.corrected
                assert told == pytest.approx(change, abs=0.35), (path.stem, cell)
                if cell.corrected is not None:
                    assert cell.value != pytest.approx(change, abs=0.35)


def test_a_reference_arm_has_levels_of_compared_factors() -> None:
    row = {"against": {"settings": "a"}, "cells": [1]}
    table = {"title": "t", "columns": [{"title": "change"}], "rows": [row]}
    levels = {"a": {"jit": "on"}, "b": {"jit": "off"}}
    given = {"factors": {"server": ["17", "18"], "settings": levels}, "published": {"tables": [table]}}
    (error,) = errors_of(make_file(**given))
    assert str(error) == "published.tables[0].rows[0].against.settings: makes cases: name a factor of compare"
    assert list(errors_of(make_file(**given, compare=["server", "settings"]))) == []


@pytest.mark.parametrize("name", ["percona-2018-crash-safety", "percona-2018-sysbench-tpcc"])
def test_a_crash_safe_arm_gives_no_guarantee_up(name: str) -> None:
    """Rules 1 to 6 of the source."""
    (case,) = cases_of(study(STUDIES / f"{name}.toml"))
    (arm,) = [arm for arm in case.study.arms if arm.name == "crash-safe"]
    found = safety({"track_counts": "on", **arm.settings}).badges
    badges = {key: badge.kept for key, badge in found.items()}
    del badges["checksums"]  # no rule of the source
    assert set(badges.values()) == {"yes"}, badges


def test_a_version_goes_without_a_setting_that_it_lacks_as_in_the_source() -> None:
    (case,) = cases_of(study(STUDIES / "moppel-2022-a-billion-transactions.toml"))
    assert {arm.optional for arm in case.study.arms} == {("max_parallel_maintenance_workers",)}
    assert case.study.transactions == 125_000_000 and case.study.clients == 8
    assert case.study.workload.to_drive()["protocol"] == "prepared"
    assert case.study.warmup_workload and case.study.warmup_s == 600


def test_a_case_of_2019_equals_the_published_one() -> None:
    cases = {case.name: case for case in cases_of(study(STUDIES / "moppel-2019-pgbench-11-vs-12.toml"))}
    case = cases["analytical, scale 1000, clients 1"]
    assert "analytical, scale 1000, clients 2" not in cases and "default, scale 5000, clients 1" not in cases
    assert [arm.server for arm in case.study.arms] == ["11.5", "12.0"]
    assert case.study.rounds * case.study.slice_s == 7200 and case.study.warmup_s == 0
    assert case.study.arms[0].settings["autovacuum_vacuum_cost_delay"] == "20ms"
    assert "statements" in case.study.probes


@pytest.mark.parametrize(
    ("metric", "error"),
    [
        ("tps", ""),
        ("latency.new_order.p99.9", ""),
        ("rate.cv", ""),
        ("dips.lost:Timeout/VacuumDelay", ""),
        ("checkpoints.per_timeout", ""),
        ("wal.byte", "unknown metric: did you mean wal.bytes?"),
        ("latency.all.p98", "unknown metric: did you mean latency.all.p9"),
        ("relation.bytes:accounts", "unknown metric: did you mean relation.bytes?"),
        ("fairness", "unknown metric: see pgdyno docs metrics"),
    ],
)
def test_a_metric_that_no_trial_has_is_found_before_the_study_runs(metric: str, error: str) -> None:
    table = {"title": "t", "columns": [{"title": "c"}], "rows": [{"metric": metric, "cells": [1]}]}
    noted = {"title": "t", "columns": [{"title": "c"}], "rows": [{"cells": [1]}]}
    noted["notes"] = [{"text": "n", "metric": metric}]
    found = list(errors_of(make_file(published={"tables": [table, noted]})))
    places = ["published.tables[0].rows[0].metric: ", "published.tables[1].notes[0].metric: "]
    assert len(found) == (2 if error else 0)
    for place, one in zip(places, map(str, found), strict=False):
        assert one.startswith(f"{place}{error}")


@pytest.mark.parametrize("cell", [math.nan, {"value": 1, "corrected": math.inf}])
def test_a_figure_that_no_results_file_can_store_is_refused(cell: object) -> None:
    table = {"title": "t", "columns": [{"title": "c"}], "rows": [{"cells": [cell]}]}
    with pytest.raises(ValidationError, match="finite number"):
        make_file(published={"tables": [table]})
