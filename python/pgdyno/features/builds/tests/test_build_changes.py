"""Changes of the source code between two arms, in a small clone."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import Mock

import pytest
from report_forms import checked_json, on_terminal
from synthetic_study import Synthetic, arms_of, write_study

from edited_evidence import edited
from example_studies import make_study
from fake_sources import git
from pgdyno.cli.report import read_report
from pgdyno.features.builds.changes import with_changes
from pgdyno.features.builds.source import CLONE_VARIABLE
from pgdyno.interruption import Interruption
from pgdyno.measure.arms import BuildArm, Prepared
from pgdyno.server.builds import Build, Provider, parse_version_spec, reported_version
from pgdyno.study.arm_spec import parse_arms


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone: REL_11_5, two commits with 1,100 new lines in one file and 3 fewer in another, REL_12_0."""
    path = tmp_path / "postgres"
    path.mkdir()
    git(path, "init", "--quiet", "--initial-branch", "master")

    def commit(name: str, lines: int) -> None:
        (path / name).write_text("".join(f"line {n}\n" for n in range(lines)))
        git(path, "add", "--all")
        git(path, "commit", "--quiet", "--message", name)

    commit("old.c", 10)
    git(path, "tag", "REL_11_5")
    commit("new.c", 1100)
    commit("old.c", 7)
    git(path, "tag", "REL_12_0")
    return path


def changes(*arms: tuple[str, str, str], provider: Provider = "system") -> list[object]:
    """Return the facts of each arm. ``arms``: specification, version, and origin of the build."""
    specs = parse_arms([spec for spec, _, _ in arms])
    builds = []
    for _, text, origin in arms:
        version = reported_version(f"(PostgreSQL) {text}")
        assert version is not None and parse_version_spec(text).matches(version)
        builds.append(Build(provider, version, Path("/bin"), text, origin))
    made = [Mock(spec=BuildArm, index=n, build=build) for n, build in enumerate(builds)]
    records = arms_of(Synthetic(names=[text for _, text, _ in arms], effects=[1.0] * len(arms)))
    prepared = Prepared(make_study(arms=specs), made, records, [], Path())
    (found,) = with_changes([prepared], lambda _: None, Interruption())
    return [record.server.get("changes") for record in found.records]


def test_versions_are_compared_by_their_tags_in_the_clone(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = ("11.5", "11.5", "installed"), ("12.0", "12.0", "installed")
    assert changes(*arms) == [None, None]  # without a clone
    monkeypatch.setenv(CLONE_VARIABLE, str(clone))
    expected = {"since": "REL_11_5", "until": "REL_12_0"}
    expected |= {"commits": 2, "files": 2, "insertions": 1100, "deletions": 3}
    assert changes(*arms) == [None, expected]
    assert changes(arms[0], ("12.1", "12.1", "installed"), arms[0]) == [None, None, None]  # no such tag


def test_commits_are_those_that_were_built_also_if_the_branch_has_moved(clone: Path) -> None:
    def arm(name: str, ref: str) -> tuple[str, str, str]:
        commit = git(clone, "rev-parse", ref)[:12]
        return f"git:{clone}@{name}", "12.0", f"commit {commit} of {clone}; configure --without-readline; gcc"

    arms = arm("REL_11_5", "REL_11_5"), arm("master", "master~1"), arm("a" * 40, "master")
    _, moved, named = changes(*arms, provider="source")
    assert moved == {
        **{"since": "REL_11_5", "until": "master"},
        **{"commits": 1, "files": 1, "insertions": 1100, "deletions": 0},
    }
    assert isinstance(named, dict) and named["until"] == git(clone, "rev-parse", "master")[:12]


def test_a_report_has_one_line_and_json_the_numbers(tmp_path: Path) -> None:
    write_study(tmp_path / "e", Synthetic(names=("11.5", "12.0")))
    known = {"since": "REL_11_5", "until": "REL_12_0", "commits": 2429, "files": 3154}
    known |= {"insertions": 317813, "deletions": 295396}
    with edited(tmp_path / "e") as connection:
        (server,) = connection.execute("SELECT server FROM arm WHERE arm = 1").fetchone()
        facts = json.dumps({**json.loads(server), "changes": known})
        connection.execute("UPDATE arm SET server = ? WHERE arm = 1", (facts,))
    built = read_report(tmp_path / "e")
    line = "REL_11_5..REL_12_0: 2,429 commits, 3,154 files, +317,813 −295,396 lines."
    assert on_terminal(built).count(line) == 1
    assert (
        json.loads(checked_json(built))["study"]["cases"][0]["arms"][1]["arm"]["server"]["changes"] == known
    )
