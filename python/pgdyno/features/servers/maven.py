"""Builds of Maven: exact versions that npm lacks, such as 11.5 and 12.0. Only downloaded if asked for.

``mvn`` verifies the checksum of the repository. There is no list of versions.
"""

from __future__ import annotations

import hashlib
import json
import platform
import tempfile
import time
import zipfile
from dataclasses import replace
from pathlib import Path

from pgdyno.errors import FetchError
from pgdyno.server.build_store import Store
from pgdyno.server.builds import Build, VersionSpec
from pgdyno.server.package_sources import DOWNLOAD_TIMEOUT_S, Download, PackageSource, run_client, unpack

PLATFORMS = {"x86_64": "linux-amd64", "aarch64": "linux-arm64v8"}


def install(store: Store, wanted: VersionSpec) -> Build:
    """Return a build of exactly this version; download it unless it is cached. Raises FetchError."""
    if wanted.major is None or wanted.minor is None:
        raise FetchError(f"Maven has exact versions only (got {wanted}): name one, for example 11.5")
    source = PackageSource("maven", lambda _: {}, _download)
    listed = {"listed_at_unix_s": time.time(), "versions": {str(wanted): f"{wanted}.0"}}
    with tempfile.TemporaryDirectory() as lists:
        Path(lists, f"{source.name}.json").write_text(json.dumps(listed))
        return replace(store, lists_dir=Path(lists), sources=(source,)).install(wanted, source.name)


def _download(package_version: str, work_dir: Path) -> Download:
    if (system := PLATFORMS.get(platform.machine())) is None:
        raise FetchError(f"no builds are available for this machine ({platform.machine()})")
    package = f"io.zonky.test.postgres:embedded-postgres-binaries-{system}:{package_version}"
    wanted = [f"-Dartifact={package}", f"-DoutputDirectory={work_dir}"]
    client = ["mvn", "--batch-mode", "--quiet", "--strict-checksums", "dependency:copy"]
    run_client([*client, *wanted], work_dir, DOWNLOAD_TIMEOUT_S)
    jars, tree = list(work_dir.glob("*.jar")), work_dir / "tree"
    if len(jars) != 1:
        raise FetchError(f"mvn downloaded {len(jars)} archives instead of one")
    try:
        with zipfile.ZipFile(jars[0]) as jar:
            (name,) = (name for name in jar.namelist() if name.endswith(".txz"))
            unpack(Path(jar.extract(name, work_dir)), tree)
    except (zipfile.BadZipFile, ValueError) as error:
        raise FetchError(f"{jars[0].name} cannot be unpacked: {error}") from error
    return Download(package, tree, f"sha256-{hashlib.sha256(jars[0].read_bytes()).hexdigest()}")
