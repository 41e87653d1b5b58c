"""Commands are imported on demand; the program's help has the first line of each command's help."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from pgdyno.cli.features import commands
from pgdyno.cli.main import app, run_command


@pytest.mark.parametrize("name", commands())
def test_the_summary_of_a_command_is_the_first_line_of_its_help(name: str) -> None:
    command = typer.main.get_command(app).commands[name]
    assert command.name == name
    assert " ".join(command.help.split()).startswith(commands()[name][1])


WITHOUT_A_COMMAND = {"numpy", "pgdyno.cli.compare", "pgdyno.analysis"}
WITHOUT_A_STUDY = {
    "numpy",
    "scipy",
    "jinja2",
    "pgdyno.measure.prepare",
    "pgdyno.analysis",
    "pgdyno.study.study_file_reader",
}
BEFORE_A_STUDY = {"scipy.special", "jinja2", "pgdyno.analysis.case_findings", "pgdyno.report.study_report"}
OPTIONAL = {
    "pgdyno.features.crash.run",
    "pgdyno.features.own_data.loading",
    "pgdyno.features.fitting.fit",
    "pgdyno.features.fleet.command",
    "pgdyno.features.dumps.dump",
}


IMPORTS = f"""
import sys, types
from pgdyno.cli.main import run_command
from pgdyno.errors import PgdynoError

def stop(*_):
    raise PgdynoError("it measured")

def run(words, status, unneeded):
    assert run_command(words) == status
    assert not unneeded & sys.modules.keys(), (words, unneeded & sys.modules.keys())

run(["--help"], 0, {WITHOUT_A_COMMAND | {"psycopg", "pydantic"}})
run(["--version"], 0, {WITHOUT_A_COMMAND})
of_features = [name for name in sys.modules if name.startswith("pgdyno.features")]
assert not [name for name in of_features if name.count(".") > 2]
sys.modules["pgdyno.measure.study_runner"] = types.SimpleNamespace(start_study=stop, resume_study=stop)
run(["compare", "17", "18", "--plan"], 2, {WITHOUT_A_STUDY | OPTIONAL})
run(["compare", "17", "18"], 1, {BEFORE_A_STUDY | OPTIONAL})
"""
"""Help, an invalid option, and the first line of a study, in one process: each imports more than the last."""


def test_a_command_imports_the_lab_for_a_study_and_the_report_after_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", IMPORTS]
    subprocess.run(command, check=True, cwd=tmp_path, stdout=subprocess.DEVNULL)


WITH_PASSWORD = (
    "workload from-statements {} --output load",
    "load {}",
    "check {}",
    "drive {}",
    "cache list --dsn {}",
    "cache prune --dsn {}",
    "compare 18 {}",
    "compare 18 new={}",
    "crash --real {}",
    "data add shop {}",
    "compare 17 18 --data {}",
)


@pytest.mark.parametrize("command", WITH_PASSWORD)
@pytest.mark.parametrize("dsn", ["postgresql://ann:hunter2@h/d", "host=h sslpassword=hunter2"])
def test_a_password_in_a_connection_string_is_refused_because_ps_shows_it(
    command: str, dsn: str, refusal: Callable[..., str]
) -> None:
    message = refusal([word.format(dsn) for word in command.split()])
    assert "must not contain a password" in message
    assert "~/.pgpass" in message
    assert "hunter2" not in message


@pytest.mark.parametrize("command", ["settings {}", "servers path {}", "doctor {}", "report {}", "run {}"])
@pytest.mark.parametrize("dsn", ["postgresql://ann:hunter2@h/d", "host=h password=hunter2"])
def test_an_error_does_not_repeat_the_password_of_a_misplaced_connection_string(
    command: str, dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([word.format(dsn) for word in command.split()]) in (1, 2)
    message = capsys.readouterr().err
    assert message.startswith("pgdyno: ") and "***" in message and "hunter2" not in message
