"""Published tables of several hosts: changes are pooled as in the report, and each host has its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_forms import plain
from several_hosts import LARGER, SMALL, pooled_of, written
from synthetic_study import Synthetic

from pgdyno.cli.main import run_command
from pgdyno.errors import UsageError
from pgdyno.features.hosts.findings import HostsFindings, OverHosts
from pgdyno.features.hosts.sections import build_hosts
from pgdyno.features.published.tables import mean_level
from pgdyno.report.html_format import to_html
from pgdyno.units import ABSENT, NO_BREAK, Better, Estimate

OF_17, OF_18 = {"server": "17"}, {"server": "18"}
ARMS = (OF_17, OF_18)


def published(*columns: Mapping[str, Any], cells: list[object]) -> dict[str, object]:
    table = {"title": "New orders", "metric": "nopm", "columns": list(columns), "rows": [{"cells": cells}]}
    return {"notes": [], "tables": [table]}


WITH_CHANGE = published(
    {"title": "users"},
    {"title": "18", "levels": OF_18},
    {"title": "change", "show": "change", "levels": OF_18},
    cells=["8", 1000, 50],
)
VALUES = published(
    {"title": "users"},
    {"title": "17", "levels": OF_17},
    {"title": "18", "levels": OF_18},
    cells=["8", 900, 1000],
)


def measured(source: dict[str, object], study: Synthetic) -> Synthetic:
    return replace(study, published=source, arms=ARMS)


def pooled(source: dict[str, object], **more: Synthetic) -> HostsFindings:
    studies = {"small": SMALL, "large": LARGER, **more}
    return pooled_of(**{name: measured(source, study) for name, study in studies.items()})


def assert_alike(ours: OverHosts, usual: OverHosts) -> None:
    assert [of.host for of in ours.pooled.hosts] == [of.host for of in usual.pooled.hosts]
    assert ours.pooled.tau == pytest.approx(usual.pooled.tau)
    for name in ("mean", "low", "high", "confidence"):
        assert getattr(ours.pooled.over_hosts, name) == pytest.approx(getattr(usual.pooled.over_hosts, name))


def test_a_change_is_pooled_as_the_report_pools_it_and_a_level_is_not() -> None:
    found = pooled(WITH_CHANGE)
    (table,) = found.published
    users, level, change = table.rows[0]
    assert table.of_changes and users.over is None and level.over is None and change.over is not None
    assert_alike(change.over, found.primary[0])
    built = build_hosts(found)
    assert plain(to_html(built)).index("change, pooled") < plain(to_html(built)).index("change, %, here")
    (shown,) = built.tables("published")
    assert list(shown.columns) == ["users", "18", "18, here", "change", "change, pooled"]
    assert [shown.rows[0][n] for n in (0, 1, 3)] == ["8", "1,000", "50%"]
    assert shown.rows[0][4].startswith("+1")


def test_changes_of_values_are_pooled_for_a_table_without_changes() -> None:
    found = pooled(VALUES)
    _, of_17, of_18 = found.published[0].rows[0]
    assert of_17.over is None and of_18.over is not None
    assert_alike(of_18.over, found.primary[0])
    (shown,) = build_hosts(found).tables("published")
    columns = [f"{arm}{further}" for arm in ("17", "18") for further in ("", ", here", ", pooled change, %")]
    assert list(shown.columns) == ["users", *columns]
    assert shown.rows[0][3] == ABSENT


def test_a_rate_is_that_of_each_host_and_another_level_has_the_mean_of_the_hosts() -> None:
    rows = [
        {"metric": "nopm", "unit": "NOPM", "cells": ["rate", 900]},
        {"metric": "server_cpu", "cells": ["CPU", 50]},
    ]
    columns = [{"title": "figure"}, {"title": "18", "levels": OF_18}]
    source: dict[str, object] = {"tables": [{"title": "Figures", "columns": columns, "rows": rows}]}
    again = replace(SMALL, seed=11, created_unix_s=1.0)
    found = pooled(source, again=again)
    (_, rate), (_, cpu) = found.published[0].rows
    assert rate.is_speed and not cpu.is_speed
    own = [study.first.arms[1].levels for study in found.studies.values()]  # small, again, large
    rates, cpus = ([level.value for of in own if (level := of[key])] for key in ("nopm", "server_cpu"))
    assert [level.value for level in rate.levels.values()] == [
        pytest.approx((rates[0] + rates[1]) / 2),
        pytest.approx(rates[2]),
    ]
    assert cpu.mean is not None
    assert cpu.mean.value == pytest.approx(((cpus[0] + cpus[1]) / 2 + cpus[2]) / 2)
    (shown,) = build_hosts(found).tables("published")
    place = list(shown.columns).index("18, here")
    first, second = (row[place] for row in shown.rows)
    assert first.endswith(f"{NO_BREAK}NOPM")
    hosts = [text.removesuffix(f"{NO_BREAK}NOPM").rpartition(" ")[0] for text in first.split("; ")]
    assert hosts == list(rate.levels) == ["small and again", "large"]
    assert second.startswith(f"{cpu.mean.value:.0f}")
    assert "arithmetic mean" in shown.note and "those of each host" in shown.note
    assert shown.narrow is not None
    assert shown.narrow.rows[1][:3] == ["  18", f"900{NO_BREAK}NOPM", first]


def test_sizes_of_hosts_are_averaged_whatever_their_units() -> None:
    sizes = [Estimate(1.5, "GB", 3, Better.NEITHER), Estimate(512.0, "MB", 3, Better.NEITHER)]
    assert mean_level(sizes, "GB") == Estimate(1.0, "GB", 2, Better.NEITHER)
    assert mean_level(sizes[1:], "GB").unit == "MB"
    times = [Estimate(value, "ms", 3, Better.LESS) for value in (2.0, 4.0)]
    assert mean_level(times, "ms") == Estimate(3.0, "ms", 2, Better.LESS)


def test_two_files_of_a_machine_are_one_host_in_the_tables_too() -> None:
    found = pooled(WITH_CHANGE, again=replace(SMALL, seed=11, blocks=5, created_unix_s=1.0))
    assert [len(host.studies) for host in found.hosts] == [2, 1]
    over = found.published[0].rows[0][2].over
    assert over is not None and [of.summary.n for of in over.pooled.hosts] == [11, 6]
    assert_alike(over, found.primary[0])


def test_one_host_alone_has_nothing_to_pool() -> None:
    studies = {"a": SMALL, "b": replace(SMALL, seed=11, created_unix_s=1.0)}
    found = pooled_of(**{name: measured(WITH_CHANGE, study) for name, study in studies.items()})
    assert len(found.hosts) == 1 and found.published == []


def test_the_command_lists_them_and_reports_an_empty_list(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    small, large = (replace(study, blocks=2) for study in (SMALL, LARGER))
    given = {"small": measured(WITH_CHANGE, small), "large": measured(WITH_CHANGE, large)}
    paths = [str(path) for path in written(tmp_path, **given)]
    for form in ([], ["--md"]):
        assert run_command(["report", *paths, "--as", "published", *form]) == 0
        said = plain(capfdbinary.readouterr().out.decode())
        pooled = said.index("change, pooled")
        assert pooled < said.index("small", pooled) < said.index("change, %, here")
        assert said.count("change, %, here") == 2
    plainly = [str(path) for path in written(tmp_path, c=small, d=large)]
    assert run_command(["report", *plainly, "--as", "published"]) == UsageError.exit_status
    assert "has no published tables" in capfdbinary.readouterr().err.decode()
