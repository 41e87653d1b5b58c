"""The GitHub Action of a gate: its steps run here as a runner runs them, with its files and variables."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from program import COUNTED, Program

from pgdyno.cli.main import app

ROOT = Path(__file__).parents[2]
PLACE = ROOT / ".github" / "actions" / "gate"
ACTION: dict[str, Any] = yaml.safe_load((PLACE / "action.yml").read_text())
INSTALL, COMPARE = ACTION["runs"]["steps"]
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")
"""The shell of a step with ``shell: bash``."""

FILES = ("GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")
ARMS = {"baseline": "17", "candidate": "18"}


class Runner:
    """A runner with programs that record their arguments in the place of pgdyno and make."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        self.environ = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "RUNNER_TEMP": str(folder),
            "GITHUB_ACTION_PATH": str(PLACE),
            **{name: str(folder / name) for name in FILES},
        }

    def program(self, name: str, status: int = 0) -> None:
        path = self.folder / "bin" / name
        path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >"$RUNNER_TEMP/arguments"\nexit {status}\n')
        path.chmod(0o755)

    def step(self, step: Mapping[str, Any], **inputs: str) -> int:
        given = {name: of["default"] for name, of in ACTION["inputs"].items() if "default" in of} | inputs
        names = {
            variable: re.fullmatch(r"\$\{\{ inputs\.(\w+) \}\}", value)[1]
            for variable, value in step["env"].items()
        }
        environ = self.environ | {variable: given[name] for variable, name in names.items()}
        return subprocess.run([*BASH, step["run"]], env=environ, cwd=self.folder, check=False).returncode

    def lines(self, name: str) -> list[str]:
        return (self.folder / name).read_text().splitlines()

    @property
    def outputs(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.lines("GITHUB_OUTPUT"))


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def test_every_input_is_used_and_no_expression_stands_in_a_script() -> None:
    used = {value for step in (INSTALL, COMPARE) for value in step["env"].values()}
    assert used == {f"${{{{ inputs.{name} }}}}" for name in ACTION["inputs"]}
    assert not any("${{" in step["run"] for step in (INSTALL, COMPARE))
    assert all(of["value"].startswith("${{ steps.compare.outputs.") for of in ACTION["outputs"].values())


@pytest.mark.parametrize(
    ("status", "outcome", "inconclusive", "expected"),
    [
        (0, "passed", "fail", 0),
        (3, "failed", "pass", 3),
        (4, "inconclusive", "fail", 4),
        (4, "inconclusive", "pass", 0),
        (1, "error", "pass", 1),
        (130, "error", "pass", 130),
    ],
)
def test_the_outcome_is_that_of_the_gate(
    runner: Runner, status: int, outcome: str, inconclusive: str, expected: int
) -> None:
    runner.program("pgdyno", status)
    assert runner.step(COMPARE, **ARMS, inconclusive=inconclusive) == expected
    assert runner.outputs["outcome"] == outcome


def test_the_command_has_the_inputs_as_single_arguments_and_options_that_exist(runner: Runner) -> None:
    runner.program("pgdyno")
    hostile = "git:a b@HEAD^1;$(touch hacked)"
    inputs = {"baseline": hostile, "candidate": "18", "limit": "7", "options": "--scale 20 --quiet"}
    assert runner.step(COMPARE, **inputs) == 0
    words = runner.lines("arguments")
    assert words[:3] == ["compare", hostile, "18"] and not (runner.folder / "hacked").exists()
    assert words[words.index("--scale") + 1] == "20" and words[words.index("--fail-if") + 1] == "slower:7%"
    program: Any = typer.main.get_command(app)
    known = {name for one in program.commands["compare"].params for name in one.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_without_a_wheel_the_action_builds_its_own_repository(runner: Runner) -> None:
    runner.program("make")
    assert runner.step(INSTALL) == 0
    assert runner.lines("arguments") == ["-C", str(ROOT), "setup"]
    assert runner.lines("GITHUB_PATH") == [str(ROOT / ".venv" / "bin")]


@pytest.mark.server
def test_the_gate_runs_pgdyno_itself_and_posts_the_summary(
    runner: Runner, program: Program, server: str
) -> None:
    runner.environ = {
        **program.environment(),
        **runner.environ,
        "PATH": f"{Path(sys.executable).parent}:{runner.environ['PATH']}",
    }
    # Two blocks are too few for a verdict, and for a trend, which a busy machine has.
    options = " ".join((*COUNTED, "--scale 1 --clients 1 --blocks 2 --quiet"))
    status = runner.step(
        COMPARE, baseline=server, candidate=server, minutes="60", limit="90", options=options
    )
    assert (status, runner.outputs["outcome"]) == (4, "inconclusive")
    assert Path(runner.outputs["results"]).exists()
    assert Path(runner.outputs["results"]).with_suffix(".html").exists()
    summary = (runner.folder / "GITHUB_STEP_SUMMARY").read_text()
    assert summary.startswith("## pgdyno: ") and "slower:90%" in summary
