"""Man pages: groff prints each without a warning, and they have every option and command of the program."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

from pgdyno import __version__
from pgdyno.cli.features import commands
from pgdyno.cli.main import app
from pgdyno.server.engine import version_text

ROOT = Path(__file__).parents[2]


def module_at(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = module_at(ROOT / "docs" / "man_pages.py")
PAGES: dict[str, str] = GENERATOR.man_pages()


@pytest.fixture
def groff() -> str:
    found = shutil.which("groff")
    if found is None:
        pytest.skip("NO GROFF: the man pages were not printed")
    return found


def printed(groff: str, page: str) -> str:
    """Return the printed pages in one line, without overstrikes; groff must have no warning."""
    command = (groff, "-man", "-Tutf8", "-P-cbou", "-ww")
    done = subprocess.run(command, input=page, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return " ".join(done.stdout.split())


def test_groff_prints_every_page_without_a_warning(groff: str) -> None:
    shown = printed(groff, "".join(PAGES.values()))
    for title in (name.removesuffix(".1") for name in PAGES):
        assert f"{title.upper()}(1)" in shown and f"NAME {title} - " in shown, title
    assert shown.count(" SEE ALSO ") == len(PAGES)


def test_characters_with_a_meaning_in_groff_are_printed(groff: str) -> None:
    plain = ".so x 'y' \\n(pc -- `a` ^~ … ≤ 5%"
    assert plain in printed(groff, f'.TH X 1 "" "" ""\n{GENERATOR.text(plain)}\n').replace("’", "'")


def test_every_command_has_a_page_with_all_of_its_options() -> None:
    pending: list[tuple[str, Any]] = [("pgdyno", typer.main.get_command(app))]
    assert {f"pgdyno-{name}.1" for name in commands()} < PAGES.keys()
    seen = 0
    for name, command in pending:
        page = PAGES[f"{name}.1"].replace("\\-", "-")
        for one in command.params:
            options = [text for text in one.opts if text.startswith("--") and not one.hidden]
            assert not [text for text in options if not re.search(rf"\\fB.*{text}(?![\w-])", page)], name
            seen += len(options)
        pending += [(f"{name}-{inner}", one) for inner, one in getattr(command, "commands", {}).items()]
    assert seen > 150 and len(pending) == len(PAGES)


def test_the_page_of_the_program_lists_the_commands_and_exit_statuses(groff: str) -> None:
    shown = printed(groff, PAGES["pgdyno.1"])
    assert all(text.rstrip(".") in shown for _, text in commands().values())
    assert "EXIT STATUS 0 success" in shown and "pgdyno-compare(1)" in shown


def test_a_wheel_has_pages_and_its_commit_and_an_editable_installation_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hook_of: type[BuildHookInterface[Any]] = module_at(ROOT / "hatch_build.py").EngineBuildHook
    monkeypatch.setattr(hook_of, "_programs", lambda _: [])
    hook: Any = hook_of(str(ROOT), {}, None, None, "", "wheel")  # type: ignore[arg-type]
    data: dict[str, Any] = {"shared_scripts": {}, "shared_data": {}, "force_include": {}}
    hook.initialize("editable", data)
    assert not data["shared_data"] and not data["force_include"]
    hook.initialize("standard", data)
    assert sorted(data["shared_data"].values()) == sorted(f"share/man/man1/{name}" for name in PAGES)
    assert all(Path(path).read_text() == PAGES[Path(path).name] for path in data["shared_data"])
    commits = [Path(path).read_text() for path, name in data["force_include"].items()]
    assert len(commits) == (ROOT / ".git").exists()
    assert all(version_text().startswith(f"pgdyno {__version__}, commit {commit}\n") for commit in commits)
