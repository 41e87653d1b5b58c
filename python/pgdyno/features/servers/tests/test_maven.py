"""Builds of Maven, from a program ``mvn`` that writes an archive."""

from __future__ import annotations

import io
import json
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from pgdyno.errors import FetchError
from pgdyno.features.servers.maven import install
from pgdyno.server.build_store import Store
from pgdyno.server.builds import parse_version_spec

MVN = """#!{python}
import shutil, sys
named = dict(one.split("=", 1) for one in sys.argv if one.startswith("-D"))
group, artifact, version = named["-Dartifact"].split(":")
if version != "11.5.0":
    sys.exit("could not find " + version)
shutil.copy({jar!r}, named["-DoutputDirectory"])
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Return an empty store. The only version of ``mvn`` is 11.5."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as tar:
        for name in ("postgres", "initdb"):
            text = b"#!/bin/sh\necho 'postgres (PostgreSQL) 11.5'\n"
            member = tarfile.TarInfo(f"bin/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    jar, programs = tmp_path / "build.jar", tmp_path / "programs"
    with zipfile.ZipFile(jar, "w") as content:
        content.writestr("postgres-linux-x86_64.txz", packed.getvalue())
    programs.mkdir()
    (programs / "mvn").write_text(MVN.format(python=sys.executable, jar=str(jar)))
    (programs / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    return Store(tmp_path / "builds", tmp_path / "lists", sources=())


def test_a_build_of_maven_serves_the_arms_that_name_its_version(store: Store) -> None:
    wanted = parse_version_spec("11.5")
    with pytest.raises(FetchError):
        store.obtain(wanted)
    built = install(store, wanted)
    assert store.obtain(wanted) == built
    assert built.origin.startswith("maven io.zonky.test.postgres:") and built.origin.endswith(":11.5.0")
    (mark,) = store.builds_dir.glob("*/build.json")
    assert json.loads(mark.read_text())["checksum"].startswith("sha256-")


@pytest.mark.parametrize(
    ("version", "why"), [("11.6", "could not find 11.6.0"), ("11", "exact versions only")]
)
def test_a_version_that_maven_lacks_is_refused_with_the_reason(store: Store, version: str, why: str) -> None:
    with pytest.raises(FetchError, match=why):
        install(store, parse_version_spec(version))
