"""The wheel: built from this checkout, installed in a bare environment, and run without cargo or checkout.

The packages that pgdyno needs are copied from the environment of the tests, so that nothing is fetched.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from program import SLICES, SMALLEST

from pgdyno import __version__
from required_tag import required_tag

ROOT = Path(__file__).parents[2]
PROGRAMS = ("pgdyno-engine", "pgdyno-pgbench", "pgdyno-sysbench")

BUILD_S = 550.0
"""Time limit of cargo with an empty target directory."""

RUN_S = 300.0
"""Time limit of an installed program; longer is a failure."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        shutil.which("cargo") is None, reason="NO CARGO: the wheel cannot be built, its tests did not run"
    ),
]


def run(*command: str | Path, timeout_s: float = RUN_S, **options: object) -> str:
    """Return the standard output of a command that must succeed."""
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=timeout_s, check=False, **options
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build as ``pip wheel .`` does, with the installed hatchling. Cargo reuses what is built already."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(
        *(*pip, "wheel", "--no-index", "--no-deps", "--no-build-isolation", "-w", folder, ROOT),
        timeout_s=BUILD_S,
    )
    (found,) = folder.iterdir()
    return found


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel with the packages that it asks for and no others; return where its programs are."""
    place = tmp_path_factory.mktemp("bare") / "environment"
    venv.create(place, with_pip=False, symlinks=True)
    bin_dir = place / "bin"
    packages = run(bin_dir / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    for name in needed_by(metadata.requires("pgdyno") or []):
        copy_package(name, Path(packages))
    # pip checks the dependencies of the wheel: the copies satisfy them, and nothing may be fetched.
    run(sys.executable, "-m", "pip", "--python", bin_dir / "python", "install", "--no-index", wheel)
    return bin_dir


def needed_by(requirements: list[str], extras: frozenset[str] = frozenset()) -> set[str]:
    """Return the names of all packages that these requirements ask for, directly or not."""
    names: set[str] = set()
    for requirement in map(Requirement, requirements):
        asked = extras or {""}
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in asked):
            continue
        names.add(requirement.name)
        names |= needed_by(metadata.requires(requirement.name) or [], frozenset(requirement.extras))
    return names


def copy_package(name: str, packages: Path) -> None:
    for file in metadata.files(name) or ():
        if ".." not in file.parts and file.suffix != ".pyc":
            (packages / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(str(file.locate()), packages / file)


def outside(folder: Path, **more: str) -> dict[str, object]:
    """Return options of `run` under which an installed program sees no cargo and no checkout."""
    path = folder / "path"
    path.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name in ("HOME", "LANG", "TMPDIR")}
    own = {f"XDG_{kind}_HOME": str(folder) for kind in ("CACHE", "CONFIG", "STATE")}
    environment = {**kept, "PATH": str(path), **own}
    return {"env": {**environment, **more}, "cwd": folder}


def test_the_wheel_is_for_this_platform_and_contains_every_program(wheel: Path, tmp_path: Path) -> None:
    tag = wheel.stem.removeprefix(f"pgdyno-{__version__}-")
    assert tag.endswith(platform.machine())
    with zipfile.ZipFile(wheel) as archive:
        info = f"pgdyno-{__version__}"
        described = archive.read(f"{info}.dist-info/WHEEL").decode()
        assert "Root-Is-Purelib: false" in described
        assert f"Tag: {tag}" in described
        scripts = {name for name in archive.namelist() if name.startswith(f"{info}.data/scripts/")}
        assert scripts == {f"{info}.data/scripts/{name}" for name in PROGRAMS}
        for name in scripts:
            assert archive.read(name)[:4] == b"\x7fELF"
            assert archive.getinfo(name).external_attr >> 16 & 0o111
        archive.extractall(tmp_path, scripts)
        assert tag == required_tag([tmp_path / name for name in scripts])
        assert archive.read("pgdyno/commit").decode() in run(
            "git", "describe", "--always", "--dirty", cwd=ROOT
        )
        pages = {Path(name).name for name in archive.namelist() if ".data/data/share/man/man1/" in name}
        assert {"pgdyno.1", "pgdyno-compare.1"} <= pages
        studies = {path.name for path in (ROOT / "studies").glob("*.toml")}
        assert studies <= {Path(name).name for name in archive.namelist() if "/studies/" in name}


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["pgdyno", "--version"], __version__),
        (["pgdyno", "drive", "--help"], "--clients"),
        (["pgdyno-pgbench", "--version"], "pgdyno"),
        (["pgdyno-sysbench", "--version"], "sysbench 1.0.20"),
        (["pgdyno", "pgbench", "--version"], "pgdyno"),
        (["pgdyno", "study", "list"], "moppel-2019-pgbench-11-vs-12"),
        (["pgdyno", "docs", "noise"], "# Noise"),
        (["pgdyno", "docs", "features/crash"], "# "),
    ],
    ids=" ".join,
)
def test_an_installed_wheel_runs(bare: Path, tmp_path: Path, command: list[str], says: str) -> None:
    assert says in run(bare / command[0], *command[1:], **outside(tmp_path))


def test_the_installed_engine_is_a_release_build_of_this_version(bare: Path, tmp_path: Path) -> None:
    engine = json.loads(run(bare / "pgdyno-engine", "version", **outside(tmp_path)))
    assert (engine["version"], engine["profile"]) == (__version__, "release")


def test_a_script_catches_errors_in_the_sysbench_of_a_wheel(bare: Path, tmp_path: Path) -> None:
    """Its profile is another one than that of the tests in Rust."""
    event = "function event() assert(not pcall(sysbench.rand.uniform, 'x', 1)) end"
    (tmp_path / "caught.lua").write_text(event)
    command = (bare / "pgdyno-sysbench", "caught.lua", "--events=1", "run")
    assert "Threads fairness:" in run(*command, **outside(tmp_path))


def test_the_engine_of_a_wheel_is_found_outside_the_directory_of_python(bare: Path, tmp_path: Path) -> None:
    # As with `pip install --user`: Python is elsewhere and uses the same packages.
    packages = run(bare / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    python = Path(sys.executable).resolve()
    there = outside(tmp_path, PYTHONPATH=packages)
    found = run(python, "-c", "import pgdyno.server.engine as e; print(e.find_engine(), e.__file__)", **there)
    assert found.split() == [str(bare / "pgdyno-engine"), f"{packages}/pgdyno/server/engine.py"]


def test_an_installed_wheel_compares_two_servers_to_a_verdict(
    bare: Path, tmp_path: Path, server_dir: Path, server: str
) -> None:
    # Each commit of this arm waits 20 ms: with two clients it is much slower, and five blocks are enough.
    slow = f"{server},commit_delay=20000,commit_siblings=0"
    there = outside(tmp_path, PGDYNO_CACHE=str(server_dir))
    comparison = ("compare", *SMALLEST, *SLICES, "--blocks", "30", "--json", server, slow)
    (found,) = json.loads(run(bare / "pgdyno", *comparison, **there))["verdicts"]
    assert found["verdict"] == "slower"


def test_the_source_distribution_contains_the_sources_of_the_wheel(tmp_path: Path) -> None:
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path, cwd=ROOT)
    (archive,) = tmp_path.iterdir()
    with tarfile.open(archive) as packed:
        names = {name.split("/", 1)[1] for name in packed.getnames() if "/" in name}
    needed = ["Cargo.toml", "Cargo.lock", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE"]
    for folder in ("crates", "docs", "python", "studies"):
        files = [path for path in (ROOT / folder).rglob("*") if path.is_file()]
        needed += [str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts]
    assert len(needed) > 100
    assert set(needed) <= names
    assert not [name for name in names if name.split("/")[0] in ("target", "tests", ".venv", "demo")]
