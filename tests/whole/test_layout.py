"""Directories follow the data flow: imports have one direction, and names are descriptive."""

import ast
import functools
import graphlib
import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path

from pgdyno.cli.features import FEATURES

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "pgdyno"
ORDER = ["study", "results", "analysis", "report", "server", "workloads", "measure", "cli"]
EVERYONE_MAY = {"units", "errors", "caveats", "interruption", "hooks", "__init__"}
ASSEMBLY = {"cli.features", "feature", "__init__"}
VAGUE = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "tests" not in path.parts)


@functools.cache
def imported_names(path: Path) -> frozenset[str]:
    """Return the names of all modules that a module imports, anywhere in it; also of names in a package."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def imports() -> dict[str, set[str]]:
    """Return the modules that each module imports, without the prefix ``pgdyno``."""
    known = {name_of(path) for path in modules()}
    return {
        name_of(path): {name.removeprefix("pgdyno.") for name in imported_names(path)}
        & (known - {name_of(path)})
        for path in modules()
    }


def is_allowed(module: str, imported: str) -> bool:
    """Return whether the rule lets one module import another: only packages to its left, and no feature."""
    own, other = module.partition(".")[0], imported.partition(".")[0]
    if own == "features" or module in ASSEMBLY or other in EVERYONE_MAY:
        return True
    return own in ORDER and other in ORDER and ORDER.index(other) <= ORDER.index(own)


def test_the_core_imports_only_packages_to_its_left_and_no_feature() -> None:
    assert not [(name, one) for name, all_ in imports().items() for one in all_ if not is_allowed(name, one)]


def test_a_feature_imports_only_the_features_that_it_requires() -> None:
    found: dict[str, set[str]] = {name: set() for name in FEATURES}
    for module, all_ in imports().items():
        package, _, own = module.partition(".")
        if package == "features" and own:
            others = {one.split(".")[1] for one in all_ if one.startswith("features.")}
            found[own.partition(".")[0]] |= others - {own.partition(".")[0]}
    required = {name: set(import_module(f"pgdyno.features.{name}").FEATURE.requires) for name in FEATURES}
    assert required == found


def test_modules_have_no_circle() -> None:
    graphlib.TopologicalSorter(imports()).prepare()


def test_analysis_and_report_never_see_a_server() -> None:
    for name, imported in imports().items():
        if name.startswith(("analysis", "report")):
            assert not {one for one in imported if one.startswith(("server", "measure"))}, name


def test_a_report_does_not_import_slow_modules() -> None:
    for path in [*(PACKAGE / "analysis").rglob("*.py"), *(PACKAGE / "report").rglob("*.py")]:
        text = path.read_text()
        for node in ast.walk(ast.parse(text if "scipy" in text else "")):
            match node:
                case ast.Attribute(ast.Name("scipy"), attribute):
                    assert attribute not in {"stats", "optimize"}, (path, node.lineno)


def test_files_have_descriptive_names() -> None:
    found = [path for top in ("crates", "python") for path in (ROOT / top).rglob("*.*")]
    assert {".py", ".rs"} <= {path.suffix for path in found}
    assert not [path for path in found if path.suffix in {".py", ".rs"} and path.stem in VAGUE]


def test_no_file_names_the_host_of_a_registry() -> None:
    hosts = ["pypi" + ".org", "pythonhosted" + ".org", "registry." + "npmjs", "deb." + "debian.org"]
    hosts += ["repo1." + "maven", "repo." + "maven", "proxy." + "golang.org", "static." + "crates.io"]
    made = {".git", ".venv", "target", "demo", ".hypothesis", "Cargo.lock"}
    for top in ROOT.iterdir():
        for path in [top, *top.rglob("*")] if top.name not in made else []:
            if "__pycache__" not in path.parts and path.is_file():
                text = path.read_bytes()
                assert not [host for host in hosts if host.encode() in text], path


def test_imported_packages_are_declared_as_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = names_of(project["dependencies"])
    more = {
        PACKAGE / "features" / "cluster" / "ray.py": names_of(project["optional-dependencies"]["fleet"]),
        PACKAGE / "features" / "python_api" / "pytest_plugin.py": {"pytest"},  # only pytest imports it
    }
    for path in modules():
        tops = {name.split(".")[0] for name in imported_names(path)} - sys.stdlib_module_names - {"pgdyno"}
        assert {PACKAGES.get(top, top.lower()) for top in tops} <= declared | more.get(path, set()), path


PACKAGES = {"markdown_it": "markdown-it-py", "sse_starlette": "sse-starlette"}
"""Packages that have another name than their module."""


def names_of(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[><=~! ]", name)[0].lower() for name in requirements}


def test_only_commands_that_need_a_cluster_import_ray() -> None:
    tree = ast.parse((PACKAGE / "features" / "cluster" / "ray.py").read_text())
    for node in tree.body:
        assert not (isinstance(node, ast.Import | ast.ImportFrom) and "ray" in ast.unparse(node).split()[1:2])


def test_no_test_module_imports_another_one() -> None:
    for path in [*(ROOT / "tests").rglob("*.py"), *PACKAGE.rglob("tests/*.py")]:
        assert not re.search(r"^\s*(?:from|import) test_", path.read_text(), re.MULTILINE), path
