"""Embedded builds as Maven artifacts: a jar that holds one ``.txz``."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import zipfile
from pathlib import Path
from xml.etree import ElementTree

from pgdyno.errors import FetchError
from pgdyno.server.client import DOWNLOAD_TIMEOUT_S, LIST_TIMEOUT_S, Download, machine, run_client, unpack
from pgdyno.server.version import Version

GROUP = "io.zonky.test.postgres"
PLATFORMS = {"amd64": "linux-amd64", "arm64": "linux-arm64v8"}

# A version range makes Maven ask for the list of versions; the type keeps it from fetching a jar as well.
_LISTING_POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>pgdyno</groupId> <artifactId>listing</artifactId> <version>1</version> <packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>{group}</groupId> <artifactId>{artifact}</artifactId> <version>[10.23.0,10.24)</version>
    <type>pom</type>
  </dependency></dependencies>
</project>
"""

# 10.5.0-1: PostgreSQL 10.5; the third number and the suffix count repackagings.
_PACKAGE_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-(\d+))?")


class Maven:
    """The mvn client, with its strict checksum policy and the user's own local repository."""

    name = "Maven"
    unlisted: frozenset[int] = frozenset()

    @property
    def artifact(self) -> str:
        """The artifact's name on this machine's kind."""
        return f"embedded-postgres-binaries-{PLATFORMS[machine()]}"

    @property
    def package(self) -> str:
        """Group and artifact."""
        return f"{GROUP}:{self.artifact}"

    def versions(self, work_dir: Path) -> dict[Version, str]:
        """See ``client.Source``."""
        (work_dir / "pom.xml").write_text(_LISTING_POM.format(group=GROUP, artifact=self.artifact))
        self._run(["dependency:resolve"], work_dir, LIST_TIMEOUT_S)
        texts: list[str] = []
        for listing in self._stored().glob("maven-metadata-*.xml"):
            texts += [item.text or "" for item in ElementTree.parse(listing).iter("version")]
        return newest_packages(texts)

    def download(self, package_version: str, work_dir: Path) -> Download:
        """See ``client.Source``. Verified by the SHA-1 that the repository publishes."""
        named = f"{self.package}:{package_version}"
        self._run(
            ["dependency:get", f"-Dartifact={named}", "-Dtransitive=false"], work_dir, DOWNLOAD_TIMEOUT_S
        )
        jar = self._stored() / package_version / f"{self.artifact}-{package_version}.jar"
        checksum = check_sha1(jar)
        try:
            with zipfile.ZipFile(jar) as archive:
                inner = [name for name in archive.namelist() if name.endswith(".txz")]
                if len(inner) != 1:
                    raise FetchError(f"{jar.name} contains {len(inner)} archives instead of one")
                archive.extract(inner[0], work_dir)
        except zipfile.BadZipFile as error:
            raise FetchError(f"{jar.name} cannot be unpacked: {error}") from error
        tree = work_dir / "tree"
        tree.mkdir()
        unpack(work_dir / inner[0], tree)
        return Download(tree, f"sha1-{checksum}")

    def _run(self, goal: list[str], work_dir: Path, timeout_s: float) -> None:
        command = ["mvn", "--quiet", "--batch-mode", "--strict-checksums"]
        run_client([*command, f"-Dmaven.repo.local={_repository()}", *goal], work_dir, timeout_s)

    def _stored(self) -> Path:
        return _repository().joinpath(*GROUP.split("."), self.artifact)


def _repository() -> Path:
    # Java takes the home directory from the user database, not from HOME.
    return Path(pwd.getpwuid(os.getuid()).pw_dir, ".m2", "repository")


def newest_packages(package_versions: list[str]) -> dict[Version, str]:
    """Of each PostgreSQL version the newest package; what does not look like one (9.6) is left out."""
    best: dict[Version, tuple[tuple[int, int], str]] = {}
    for text in package_versions:
        match = _PACKAGE_VERSION.fullmatch(text)
        if match is None or int(match[1]) < 10:
            continue
        version = Version(int(match[1]), int(match[2]))
        rank = (int(match[3]), int(match[4] or 0))
        best[version] = max(best.get(version, (rank, text)), (rank, text))
    return {version: text for version, (_, text) in best.items()}


def check_sha1(jar: Path) -> str:
    """The artifact's SHA-1. Raises FetchError unless it is the one beside it."""
    try:
        announced = jar.with_name(f"{jar.name}.sha1").read_text().split()[0]
        with jar.open("rb") as content:
            found = hashlib.file_digest(content, "sha1").hexdigest()
    except (OSError, IndexError) as error:
        raise FetchError(f"Maven left no verified {jar.name} in its local repository: {error}") from error
    if found != announced.lower():
        raise FetchError(f"{jar} is damaged (SHA-1 mismatch): delete it and try again")
    return found
