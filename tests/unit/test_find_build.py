"""Resolution of a server specification to a build, with a fake store and no server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from example_builds import build

from pgdyno.errors import FetchError, UsageError
from pgdyno.measure.trial import untested_version
from pgdyno.server.build_store import (
    ServerSource,
    Store,
    nearest_version,
    resolve_all,
    resolve_build,
    system_builds,
)
from pgdyno.server.builds import (
    Build,
    Version,
    VersionSpec,
    is_version,
    parse_version_spec,
    read_build,
    reported_version,
)


class FakeStore(Store):
    """A store with given versions that counts requests."""

    made: Sequence[ServerSource] = ()

    def __init__(self, versions: Sequence[str], *, reachable: bool = True) -> None:
        self.versions, self.reachable, self.builds_dir = versions, reachable, Path("/builds")
        self.obtained: list[str] = []

    def cached(self) -> list[Build]:
        return []

    def available(self) -> list[Version]:
        if not self.reachable:
            raise FetchError("no network")
        return [build(text, "embedded").version for text in self.versions]

    def common_source(self, wanted: Sequence[VersionSpec]) -> str | None:  # noqa: ARG002
        return None

    def obtain(self, wanted: VersionSpec, source_name: str | None = None) -> Build:
        assert source_name is None
        self.obtained.append(str(wanted))
        found = [
            one for one in (build(text, "embedded") for text in self.versions) if wanted.matches(one.version)
        ]
        if not found or not self.reachable:
            raise FetchError(f"cannot fetch {wanted}")
        return max(found, key=lambda one: one.version)


SYSTEM = [build("17.6", "system"), build("15.18", "system")]
EMBEDDED = ["18.4", "18.3", "17.5", "15.1", "12.0"]


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        (["15", "17"], ["15.18 (system)", "17.6 (system)"]),
        (["17", "18"], ["17.5 (embedded)", "18.4 (embedded)"]),
        (["18.3"], ["18.3 (embedded)"]),
        (["system"], ["17.6 (system)"]),
        (["15", "15", "system"], ["15.18 (system)", "15.18 (system)", "17.6 (system)"]),
        (["17.6", "18"], ["17.6 (system)", "18.4 (embedded)"]),
    ],
)
def test_versions_come_from_one_provider_if_possible(specs: list[str], expected: list[str]) -> None:
    store = FakeStore(EMBEDDED)
    found = resolve_all(specs, store=store, installed=SYSTEM)
    assert [one.label for one in found.builds] == expected
    assert bool(found.differences) == (len({label.split()[1] for label in expected}) > 1)
    assert bool(store.obtained) == any("embedded" in label for label in expected)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("9.6", "use 10 or newer"),
        ("17.99", r"nearest version is 17\.6.*--nearest"),
        ("13", r"nearest version is 12\.0"),
        ("eighteen", "is not a server"),
        ("./nonexistent/bin", "contains no PostgreSQL server: the directory does not exist"),
    ],
)
def test_an_unavailable_version_is_a_usage_error_with_the_nearest_one(
    spec: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=words):
        resolve_all([spec], store=FakeStore(EMBEDDED), installed=SYSTEM)


def test_the_nearest_version_is_used_on_request_and_reported() -> None:
    found = resolve_all(["13"], store=FakeStore(EMBEDDED), installed=SYSTEM, nearest=True)
    assert found.builds[0].label == "12.0 (embedded)"
    assert len(found.substitutions) == 1


def test_without_a_network_the_error_of_the_client_is_shown() -> None:
    with pytest.raises(FetchError, match="cannot fetch 18"):
        resolve_build("18", store=FakeStore(EMBEDDED, reachable=False))


def test_a_version_that_exists_but_cannot_be_fetched_is_not_replaced() -> None:
    store = FakeStore([])
    store.available = lambda: [Version(18, 4)]  # type: ignore[method-assign]
    with pytest.raises(FetchError, match="cannot fetch 18"):
        resolve_all(["18"], store=store, installed=[], nearest=True)


@pytest.mark.parametrize(
    ("wanted", "nearest"),
    [("13", "12.0"), ("16", "17.6"), ("17.4", "17.5"), ("11.2", "12.0"), ("18.9", "18.4")],
)
def test_the_nearest_is_the_closest_minor_then_the_closest_major(wanted: str, nearest: str) -> None:
    versions = [build(text, "system").version for text in ("12.0", "15.18", "17.5", "17.6", "18.3", "18.4")]
    assert str(nearest_version(parse_version_spec(wanted), versions)) == nearest


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("postgres (PostgreSQL) 18.4", Version(18, 4)),
        ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", Version(15, 18)),
        ("postgres (PostgreSQL) 19devel", Version(19, 0, "devel")),
        ("postgres (PostgreSQL) 19beta1 (Debian 19~beta1-1)", Version(19, 0, "beta1")),
        ("psql 18", None),
    ],
)
def test_the_version_is_read_from_postgres_output(text: str, version: Version | None) -> None:
    found = reported_version(text)
    assert (found, str(found)) == (version, str(version))


@pytest.mark.parametrize(
    ("number", "reported", "version", "untested"),
    [
        (180004, "18.4", "18.4", False),
        (180000, "18beta1", "18beta1", False),
        (190000, "19devel", "19devel", True),
        (190000, None, "19.0", True),
    ],
)
def test_a_running_server_newer_than_all_that_is_tested_has_a_caveat(
    number: int, reported: str | None, version: str, untested: bool
) -> None:
    found = Version.of_server(number, reported)
    assert (str(found), found.number, found.is_untested) == (version, number, untested)
    codes = [caveat.kind for caveat in untested_version("b", found)]
    assert codes == (["untested-version"] if untested else [])


@pytest.mark.parametrize("spec", ["19", "19.1", "19devel", "19beta1", "20", "devel"])
def test_a_version_newer_than_tested_is_downloaded_or_an_error_that_says_how_to_build_it(spec: str) -> None:
    with pytest.raises(UsageError, match=rf"PostgreSQL {spec} .*servers build {spec} --source"):
        resolve_build(spec, store=FakeStore(EMBEDDED))
    assert resolve_build("19", store=FakeStore([*EMBEDDED, "19.0"])).label == "19.0 (embedded)"


def test_pre_releases_come_before_the_release_in_their_order() -> None:
    texts = ["18.4", "19devel", "19alpha1", "19beta1", "19beta2", "19beta10", "19rc1", "19.0", "20devel"]
    versions = [reported_version(f"postgres (PostgreSQL) {text}") for text in texts]
    found = [one for one in versions if one is not None]
    assert [str(one) for one in sorted(found, reverse=True)] == texts[::-1]
    assert len(set(found)) == len(texts)


@pytest.mark.parametrize(
    ("spec", "matching"),
    [
        ("19", ["19devel", "19beta1", "19.0", "19.1"]),
        ("19.0", ["19.0"]),
        ("19beta1", ["19beta1"]),
        ("devel", ["19devel", "20devel"]),
    ],
)
def test_a_specification_matches_pre_releases_only_by_name_or_major(spec: str, matching: list[str]) -> None:
    wanted = parse_version_spec(spec)
    texts = ["18.0", "19devel", "19beta1", "19.0", "19.1", "20devel"]
    found = [reported_version(f"postgres (PostgreSQL) {text}") for text in texts]
    assert [str(one) for one in found if one is not None and wanted.matches(one)] == matching
    assert (str(wanted), is_version(spec)) == (spec, True)


@pytest.mark.parametrize("spec", ["19", "19devel", "devel"])
def test_an_installed_version_newer_than_tested_is_accepted(spec: str) -> None:
    devel = replace(SYSTEM[0], version=Version(19, 0, "devel"))
    found = resolve_all([spec, "17"], store=FakeStore(EMBEDDED), installed=[devel, *SYSTEM])
    assert [one.label for one in found.builds] == ["19devel (system)", "17.6 (system)"]


def make_installation(root: Path, where: str, version: str, status: int = 0) -> Path:
    directory = root / where
    directory.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        program = directory / name
        program.write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\nexit {status}\n")
        program.chmod(0o755)
    return directory


def test_installed_servers_are_found_newest_first_and_pre_releases_last_without_broken_and_old_ones(
    tmp_path: Path,
) -> None:
    make_installation(tmp_path, "usr/lib/postgresql/14/bin", "14.2")
    make_installation(tmp_path, "usr/pgsql-17/bin", "17.1")
    make_installation(tmp_path, "usr/lib/postgresql/9.6/bin", "9.6.24")
    make_installation(tmp_path, "usr/lib/postgresql/13/bin", "13.1", status=127)
    make_installation(tmp_path, "usr/local/pgsql/bin", "19devel")
    make_installation(tmp_path, "opt/pgsql/bin", "20.1")
    on_path = make_installation(tmp_path, "home/me/pg", "18.0")
    found = system_builds(tmp_path, path=str(on_path))
    assert [str(one.version) for one in found] == ["20.1", "18.0", "17.1", "14.2", "19devel"]


def test_a_directory_may_be_named_with_or_without_bin(tmp_path: Path) -> None:
    directory = make_installation(tmp_path, "pg/bin", "16.3")
    for spec in (directory, directory.parent):
        found = resolve_build(str(spec), store=FakeStore([]))
        assert found.bin_dir == directory
        assert found.label == "16.3 (directory)"


def test_the_directory_of_an_installed_server_is_that_server(tmp_path: Path) -> None:
    installed = read_build(make_installation(tmp_path, "pg/bin", "16.3"), "system", "found")
    found = resolve_all([str(tmp_path / "pg")], store=FakeStore([]), installed=[installed])
    assert [one.label for one in found.builds] == ["16.3 (system)"]


def test_the_identity_of_a_build_changes_with_its_binary(tmp_path: Path) -> None:
    one, same, other = (
        resolve_build(str(make_installation(tmp_path, name, version)), store=FakeStore([])).build_id
        for name, version in (("a", "16.3"), ("b", "16.3"), ("c", "16.4"))
    )
    assert one == same != other
