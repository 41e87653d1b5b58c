"""Options that texts name exist: in examples, remedies of caveats, and pages; ``compare`` has few of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer

from pgdyno.caveats import wordings
from pgdyno.cli.compare import OURS, with_our_spellings
from pgdyno.cli.features import features
from pgdyno.cli.main import app, run_command
from pgdyno.errors import UsageError
from pgdyno.study.study_file import TABLES
from pgdyno.study.workload_parameters import parameters_by_kind

features()
COMPARE: Any = typer.main.get_group(app).commands["compare"]
ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("python/**/README.md"))
    if "adr" not in path.parts and path.name != "cli.md"
)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z](?![\w-])")
OF_OTHER_PROGRAMS = {"--cpunodebind", "--membind", "--cpuset-cpus"}
COUNT_MAX = 45


def spellings(command: Any, path: str = "pgdyno") -> Iterator[tuple[str, set[str]]]:
    """Yield the options of a command and of all commands below it."""
    yield path, {name for one in command.params for name in one.opts} | {"--help", "--help-all"}
    for name, one in getattr(command, "commands", {}).items():
        yield from spellings(one, f"{path} {name}")


OPTIONS: Mapping[str, set[str]] = dict(spellings(typer.main.get_group(app)))


def command_of(words: str) -> str:
    """Return the longest known command with which a text begins."""
    return max((path for path in OPTIONS if f"{words} ".startswith(f"{path} ")), key=len)


def unknown_in_examples(text: str) -> list[str]:
    """Return the options in examples ``pgdyno COMMAND …`` that the command does not have."""
    found = []
    for example in re.findall(r"(?<![\w/.-])pgdyno [a-z][^`\n]*", text):
        own = re.split(r" -- |  # | \| |'[^']*'|\"[^\"]*\"", example)[0]
        path = command_of(example)
        found += [f"{path} {name}" for name in OPTION.findall(own) if name not in OPTIONS[path]]
    return found


def test_an_example_with_an_unknown_option_is_found() -> None:
    assert unknown_in_examples("    pgdyno compare 17 18 --mix a=1 --json -- --x=1") == [
        "pgdyno compare --mix"
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_options_of_the_commands_beside_them(page: Path) -> None:
    assert not unknown_in_examples(page.read_text())
    having = {path.split()[1] for path, names in OPTIONS.items() if names & COMPARE.moved.keys()}
    of_bisect = page.parent.name in ("bisect", "sysbench", "fitting")
    for line in page.read_text().splitlines():
        rare = {name for name in OPTION.findall(line) if name in COMPARE.moved}
        assert not rare or of_bisect or any(re.search(rf"\b{command}\b", line) for command in having), line


def test_the_texts_of_a_caveat_name_options_of_compare_or_of_their_command() -> None:
    for code, wording in wordings().items():
        text = str(wording)
        given = set(OPTION.findall(text)) - OF_OTHER_PROGRAMS
        named = set().union(*(OPTIONS[command_of(one)] for one in re.findall(r"pgdyno [a-z][^`.]*", text)))
        assert given <= OPTIONS["pgdyno compare"] | named | {"--fleet"}, code


def test_compare_has_few_options_and_its_help_fits_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    options = [one for one in COMPARE.params if one.opts[0].startswith("-") and one.name != "help"]
    assert len(options) <= COUNT_MAX
    assert run_command(["compare", "--help"]) == 0
    assert len(capsys.readouterr().out.splitlines()) <= 30


def test_the_whole_help_of_compare_lists_each_key_that_is_no_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["compare", "--help-all"]) == 0
    options, _, keys = capsys.readouterr().out.partition("Keys of study files only:")
    assert not set(COMPARE.moved) & set(OPTION.findall(options.partition("Options:")[2])) - {"--dialect"}
    listed = set(re.findall(r"[a-z_]+", keys))
    assert {key.key for key in COMPARE.moved.values()} | {"cache_state", "recovery", "checksums"} <= listed


@pytest.mark.parametrize("name", sorted(COMPARE.moved))
def test_a_rare_option_is_refused_and_names_a_key_that_exists(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["compare", "17", "18", name, "1"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"pgdyno: {name} is ") and told.count("\n") == 1
    key = COMPARE.moved[name]
    if name in OURS or key.table == "workload.data":
        return
    assert f"write {key.key} = {key.value} below [{key.table}]" in told
    models = [TABLES[key.table]] if key.table in TABLES else parameters_by_kind().values()
    keys = {of.alias or field for model in models for field, of in model.model_fields.items()}
    assert key.key in keys | {"variant"}


@pytest.mark.parametrize("name", ["--build-options=-Dx", "--extension", "--profile", "--opt"])
def test_an_option_whose_meaning_has_another_place_is_refused_with_it(name: str) -> None:
    with pytest.raises(UsageError, match=r"write|use"):
        with_our_spellings([name], {})
