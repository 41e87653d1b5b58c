"""Directories follow the data flow: imports have one direction, and names are descriptive."""

import ast
import functools
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "pgdyno"
ORDER = ["study", "server", "workload", "drive", "probe", "results", "analysis", "report"]
ORDER_OF_ANALYSIS = ["statistics", "telemetry", "steady_state", "comparison", "causes", "findings"]
EVERYONE_MAY = {"units", "errors", "caveats", "estimate", "engine", "interruption", "__init__"}
SEE_EVERYTHING = {"lab", "fleet", "cli", "__main__"}
VAGUE = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@functools.cache
def imported_names(path: Path) -> frozenset[str]:
    """Return the names of all modules that a module imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return frozenset(names)


def imported_parts(path: Path) -> set[str]:
    """Return the first package below ``pgdyno`` of everything that a module imports."""
    return {name.split(".")[1] for name in imported_names(path) if name.startswith("pgdyno.")}


def test_a_package_imports_only_from_packages_to_its_left() -> None:
    for path in modules():
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if own not in SEE_EVERYTHING:
            left = set(ORDER[: ORDER.index(own) + 1]) if own in ORDER else set()
            assert imported_parts(path) <= left | EVERYONE_MAY, path


@pytest.mark.parametrize("part", ORDER_OF_ANALYSIS)
def test_a_part_of_the_analysis_imports_only_from_parts_to_its_left(part: str) -> None:
    paths = sorted((PACKAGE / "analysis" / part).glob("*.py"))
    assert paths
    left = set(ORDER_OF_ANALYSIS[: ORDER_OF_ANALYSIS.index(part) + 1])
    for path in paths:
        assert set(re.findall(r"pgdyno\.analysis\.(\w+)", path.read_text())) <= left, path


def test_analysis_and_report_never_see_a_server() -> None:
    for path in modules():
        if path.relative_to(PACKAGE).parts[0] in ("analysis", "report"):
            assert not {"server", "workload", "drive", "probe"} & imported_parts(path), path


def test_a_report_does_not_import_slow_modules() -> None:
    for path in [*(PACKAGE / "analysis").rglob("*.py"), *(PACKAGE / "report").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "scipy"
            ):
                assert node.attr not in {"stats", "optimize"}, (path, node.lineno)


@pytest.mark.parametrize("suffix", ["py", "rs"])
def test_files_have_descriptive_names(suffix: str) -> None:
    found = [*ROOT.glob(f"crates/**/*.{suffix}"), *ROOT.glob(f"python/**/*.{suffix}")]
    assert found
    assert not [path for path in found if path.stem in VAGUE]


def test_no_file_names_the_host_of_a_registry() -> None:
    hosts = ["pypi" + ".org", "pythonhosted" + ".org", "registry." + "npmjs", "deb." + "debian.org"]
    hosts += ["repo1." + "maven", "repo." + "maven", "proxy." + "golang.org", "static." + "crates.io"]
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        made = parts[0] in (".git", ".venv", "target", "demo", ".hypothesis") or "__pycache__" in parts
        if made or parts[0] == "Cargo.lock" or not path.is_file():
            continue
        text = path.read_bytes()
        assert not [host for host in hosts if host.encode() in text], path


def test_imported_packages_are_declared_as_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = names_of(project["dependencies"])
    fleet = declared | names_of(project["optional-dependencies"]["fleet"])
    for path in modules():
        tops = {name.split(".")[0] for name in imported_names(path)} - sys.stdlib_module_names - {"pgdyno"}
        allowed = fleet if path == PACKAGE / "fleet" / "ray_cluster.py" else declared
        assert {top.lower() for top in tops} <= allowed, path


def names_of(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[><=~! ]", name)[0].lower() for name in requirements}


def test_only_commands_that_need_a_cluster_import_ray() -> None:
    tree = ast.parse((PACKAGE / "fleet" / "ray_cluster.py").read_text())
    for node in tree.body:
        assert not (isinstance(node, ast.Import | ast.ImportFrom) and "ray" in ast.unparse(node).split()[1:2])


def test_no_test_module_imports_another_one() -> None:
    for path in (ROOT / "tests").rglob("*.py"):
        assert not re.search(r"^\s*(?:from|import) test_", path.read_text(), re.MULTILINE), path
