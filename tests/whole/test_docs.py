"""Documentation agrees with the program: generated pages are up to date, links are valid, and ``pgdyno docs``
prints every page and section to which a caveat refers.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import functools
import importlib.util
import io
import json
import re
import shlex
import sqlite3
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from pydantic import BaseModel
from report_forms import the_schema
from synthetic_study import Synthetic, write_study

from example_studies import read_study
from pgdyno.caveats import Caveat, Rank, wordings
from pgdyno.cli.features import commands
from pgdyno.cli.main import app, run_command
from pgdyno.cli.report import read_report
from pgdyno.report.csv_format import COLUMNS
from pgdyno.report.document import ShownCaveat
from pgdyno.report.documentation import anchor_of, passage
from pgdyno.results.records import TrialStatus
from pgdyno.study.arm_spec import parse_arm
from pgdyno.study.cases import cases_of
from pgdyno.study.study_file import STUDY_TABLES, StudyFile
from pgdyno.study.values import Level
from pgdyno.study.workload_parameters import parameters_by_kind

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OF_FEATURES = sorted((ROOT / "python").rglob("README.md"))
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *OF_FEATURES])
JSON_PAGE = (DOCS / "reference" / "json-and-csv.md").read_text()
QUERY_PAGE = (DOCS / "how-to" / "query-the-results.md").read_text()
QUERIES = dict(re.findall(r"```sql\n-- name: (\w+)\n(.*?)```", QUERY_PAGE, re.DOTALL))
OF_A_COPY = QUERIES.pop("p99")
"""A query of a copy by ``pgdyno unpack``, which the test of that feature executes."""
WANTED = Synthetic(
    effects=(1.0, 1.1),
    blocks=3,
    failed_per_slice=1,
    statuses={(1, 1): TrialStatus.EXCLUDED},
    caveats=(Caveat.of("shared-machine", cores=2),),
)


def skips(path: Path) -> Iterator[str]:
    """Yield the file if all of it can be skipped, and its functions and marks that can skip."""

    def can_skip(node: ast.AST) -> bool:
        return any(
            isinstance(of, ast.Attribute) and of.attr in ("skip", "skipif", "importorskip")
            for of in ast.walk(node)
        )

    for node in ast.parse(path.read_text("utf-8")).body:
        match node:
            case ast.FunctionDef(name=name) if can_skip(node):
                yield f"{path.name}::{name}"
            case ast.Assign(targets=[ast.Name(id=name)]) if can_skip(node):
                yield path.name if name == "pytestmark" else f"{path.name}::{name}"
            case ast.AnnAssign() if can_skip(node):
                yield path.name
            case _:
                pass


def test_every_test_that_may_be_skipped_is_listed_with_its_reason() -> None:
    requirements = tomllib.loads((ROOT / "tests" / "whole" / "skipped_tests.toml").read_text("utf-8"))
    listed = [entry for entries in requirements.values() for entry in entries]
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "python").rglob("tests/*.py"), ROOT / "conftest.py"]
    skipping = [path for path in files if "skip" in path.read_text("utf-8")]
    found = {entry for path in skipping for entry in skips(path)}
    assert sorted(listed) == sorted(found)


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", DOCS / "generate.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = generator()


@pytest.mark.parametrize("name", GENERATOR.PAGES)
def test_a_page_made_from_the_code_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text() == GENERATOR.PAGES[name](), (
        f"docs/{name} is out of date: renew it with `python docs/generate.py` and look at the difference"
    )


def test_every_key_has_its_description_in_the_schema_and_every_reference_leads_somewhere() -> None:
    whole = json.loads((ROOT / "studies" / "study.schema.json").read_text())
    pending, described = [whole], 0
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            for key, field in part.get("properties", {}).items():
                assert field.get("description") or "$ref" in field, key
                described += 1
            if "$ref" in part:
                assert part["$ref"].removeprefix("#/$defs/") in whole["$defs"]
        pending += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    assert described > 100


def keys_of(model: type[BaseModel]) -> set[str]:
    """Return the keys of a table of a study file, and of all nested tables."""
    keys, pending = set(), [model]
    while pending:
        one: Any = pending.pop()
        if isinstance(one, type) and issubclass(one, BaseModel) and one is not Level:
            keys |= {field.alias or name for name, field in one.model_fields.items()}
            pending += [field.annotation for field in one.model_fields.values()]
        pending += getattr(one, "__args__", ())
    return keys


def test_every_key_of_a_study_file_is_explained() -> None:
    page = (DOCS / "reference" / "study-file.md").read_text()
    models = [StudyFile, *(table.model for table in STUDY_TABLES)]
    keys = set().union(*map(keys_of, models)) - {"values"}  # the settings themselves
    parameters = {name for of in parameters_by_kind().values() for name in of.model_fields}
    assert len(keys) > 60
    assert not {key for key in keys | parameters if f"`{key}`" not in page and f"`[{key}]`" not in page}


@pytest.mark.parametrize(
    ("file", "build"),
    [
        ("speed-gate.yml", "git:/home/me/fork@"),
        ("extension-gate.yml", "16,extension=git:/home/me/extension@"),
    ],
)
def test_a_workflow_uses_arms_and_options_that_exist(file: str, build: str) -> None:
    workflow = (DOCS / "tutorial" / file).read_text()
    (command,) = re.findall(r"pgdyno compare\s(.*?)\n      - uses", workflow, re.DOTALL)
    words = shlex.split(command.replace("$PWD", "/home/me").replace("$MAJOR", "16"))
    arms, options = words[:2], {word for word in words if word.startswith("--")}
    assert [parse_arm(arm).build for arm in arms] == [f"{build}HEAD^1", f"{build}HEAD"]
    program: Any = typer.main.get_command(app)
    of_compare = {name for one in program.commands["compare"].params for name in one.opts}
    assert len(options) == 7 and options <= of_compare


def test_the_study_in_the_page_is_one() -> None:
    page = DOCS / "how-to" / "write-a-study.md"
    (first, *_) = re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(cases_of(read_study(first, page.name))) == 4


@functools.cache
def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {anchor_of(heading) for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{target} in {page.name}"
        if anchor:
            assert anchor in anchors(there), f"{target} in {page.name}"


def test_every_page_of_the_guide_is_reached_from_its_contents() -> None:
    contents = (DOCS / "README.md").read_text()
    links = [(DOCS / path).resolve() for path in re.findall(r"\]\(([^)\s]+(?:\.md|/))\)", contents)]
    named = {page for link in links for page in (link.glob("*.md") if link.is_dir() else [link])}
    assert {*DOCS.rglob("*.md"), *OF_FEATURES} - {DOCS / "README.md"} <= named


def test_every_file_that_is_named_exists() -> None:
    names = r"`((?:python|crates|tests|bench|docs)/[\w./-]+|[\w/]+/[\w/]+\.(?:py|rs|sql|j2|css))`"
    roots = (ROOT, ROOT / "python" / "pgdyno")
    for page in {*PAGES} - {ROOT / "README.md", ROOT / "CHANGELOG.md"}:
        for name in re.findall(names, page.read_text()):
            assert any((root / name).exists() for root in roots), f"{name} in {page.name}"


@pytest.mark.parametrize("name", QUERIES)
def test_every_documented_query_answers(tmp_path: Path, name: str) -> None:
    write_study(tmp_path / "e", WANTED)
    with contextlib.closing(sqlite3.connect(tmp_path / "e")) as connection:
        rows = connection.execute(QUERIES[name]).fetchall()
    assert rows and not any(cell is None for cell in rows[0][:2])
    if name == "checks":
        assert [row[:3] for row in rows] == [(1, "18", "condition 1")]


def test_the_documented_queries_agree_with_the_report(tmp_path: Path) -> None:
    write_study(tmp_path / "e", WANTED)
    reported = list(csv.DictReader(io.StringIO(read_report(tmp_path / "e").csv())))

    def of(metric: str, *, ok_only: bool) -> list[float]:
        chosen = [row for row in reported if row["metric"] == metric]
        return [float(row["value"]) for row in chosen if row["status"] == "ok" or not ok_only]

    with contextlib.closing(sqlite3.connect(tmp_path / "e")) as connection:
        nopm = [row[-1] for row in connection.execute(QUERIES["nopm"])]
        cpu = connection.execute(QUERIES["cpu"]).fetchall()
    assert nopm == pytest.approx(of("nopm", ok_only=False)) and len(nopm) == 6
    assert [row[2] for row in cpu] == pytest.approx(of("server_cpu", ok_only=True))
    assert [row[3] for row in cpu] == pytest.approx(of("driver_cpu", ok_only=True))


def test_every_column_of_the_csv_is_documented() -> None:
    assert not {key for key in ("host", "file", *COLUMNS) if f"`{key}`" not in JSON_PAGE}


def test_the_page_names_every_document_and_every_command_without_a_schema() -> None:
    documents = {part["$ref"].removeprefix("#/$defs/") for part in the_schema()["anyOf"]}
    assert len(documents) == 5
    assert not {name for name in documents if f"`{name}`" not in JSON_PAGE}
    files = {
        name: ROOT / "python" / f"{module.replace('.', '/')}.py" for name, (module, _) in commands().items()
    }
    printing = {name for name, path in files.items() if "print_json(" in path.read_text()}
    printing -= {"load", "pgbench", "bundle"}  # which share a file with check, drive and verify
    assert not {command for command in printing if f"`{command}`" not in JSON_PAGE}


def test_the_readme_names_commands_that_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"demo", "test"} <= set(re.findall(r"\bmake ([a-z-]+)", readme)) <= set(targets)
    commands = set(re.findall(r"## pgdyno (\w+)\n", (DOCS / "reference" / "cli.md").read_text()))
    assert {"compare"} <= set(re.findall(r"(?:\$ |bin/)pgdyno ([a-z]+)", readme)) <= commands


def test_a_recipe_that_compiles_without_output_says_so_first() -> None:
    recipes = re.findall(r"^\S[^:\n]*:[^=].*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    silent = [text for text in recipes if re.search(r"(cargo build|pip wheel).*--quiet", text)]
    assert len(silent) == 2
    for text in silent:
        before, _, _ = text.partition("--quiet")
        assert re.search(r'@echo "Compiling the engine.*: this takes ', before)


LINKS = sorted({of.link for of in wordings().values() if of.link})
PROGRAM = [path for suffix in ("py", "toml") for path in (ROOT / "python").rglob(f"*.{suffix}")]


def test_every_page_that_a_text_names_is_printed() -> None:
    for path in [*(path for path in PROGRAM if path.parent.name != "tests"), *PAGES]:
        text = re.sub(r'"\n +f?"', "", path.read_text("utf-8"))  # a sentence of several lines
        for page in re.findall(r"pgdyno docs ([a-z][\w/-]+(?:#[\w-]+)?)", text):
            assert passage(page).startswith("#"), f"{page} in {path.name}"  # an unknown page is an error


def test_every_link_of_a_caveat_is_printed_as_a_report_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    for link in LINKS:
        shown = ShownCaveat("code", Rank.ROUTINE, "Text.", link=link)
        assert run_command(shown.more.split()[1:]) == 0
        text = capsys.readouterr().out
        assert text.startswith("#") and len(text.splitlines()) > 1, link


@pytest.mark.parametrize("page", ["noise", "explanation/noise", "docs/explanation/noise.md"])
def test_a_page_has_several_names(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["docs", page]) == 0
    assert capsys.readouterr().out.startswith("# ")


def test_without_a_page_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["docs"]) == 0
    assert "features/gates: " in capsys.readouterr().out


@pytest.mark.parametrize("page", ["nothing", "noise#nothing", ""])
def test_an_unknown_page_or_section_is_an_error(page: str, refusal: Callable[..., str]) -> None:
    assert refusal(["docs", page]).startswith(f"pgdyno: {page}: ")
