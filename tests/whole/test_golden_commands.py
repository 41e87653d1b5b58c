"""Plans, outputs and errors of commands equal their golden files; ``make golden`` renews these."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from golden_commands import COMMAND_FOLDER, OLD_RESULTS, TOPICS, commands_of, commands_text, write_files
from golden_reports import SIZE_BYTES_MAX, require_golden


@pytest.mark.parametrize("topic", TOPICS)
def test_commands_print_their_golden_text(topic: str) -> None:
    require_golden({f"commands/{topic}.txt": commands_text(topic)})


def test_every_golden_file_of_commands_has_some_and_is_small() -> None:
    for path in COMMAND_FOLDER.iterdir():
        assert commands_of(path.stem), path
        assert path.stat().st_size <= SIZE_BYTES_MAX, path


def test_every_refused_command_has_one_line_and_a_status_for_errors() -> None:
    text = (COMMAND_FOLDER / "refused.txt").read_text("utf-8")
    for part in text.split("\n\n"):
        command, message, status = part.strip().split("\n")
        assert message.startswith("! pgdyno: "), command
        assert status in ("exit status 1", "exit status 2"), command


def test_no_golden_text_has_the_password_of_a_command() -> None:
    for path in COMMAND_FOLDER.iterdir():
        printed = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("$")]
        assert "hunter2" not in "\n".join(printed), path


def test_old_results_files_have_version_4_and_are_used(tmp_path: Path) -> None:
    """They are never renewed: a later version of pgdyno must read and resume them."""
    write_files(tmp_path)
    commands = "\n".join(commands_of("old-results"))
    found = list((tmp_path / "work" / "old").rglob("*.sqlite"))
    assert len(found) == len(list(OLD_RESULTS.rglob("*.xz"))) > 0
    for path in found:
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (4,)
        assert f"old/{path.stem}" in commands or f"old/{path.parent.name}" in commands
