"""Hidden characters and markup in external data: escaped in every format."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from pgdyno.cli.console import VisibleConsole, print_json
from pgdyno.cli.error_reporting import as_pgdyno_error
from pgdyno.errors import MESSAGE_CHARS_MAX, ConnectError, PgdynoError, UsageError, in_one_line
from pgdyno.report.visible_text import visible, visible_json

HOSTILE = "a\x1b[2J\x1b]0;t\x07\x9b31m\u202eb\u2066\u200f\r\x00\x7f\udc80\U000e0041"
SHOWN = (
    "a\\x1b[2J\\x1b]0;t\\x07\\x9b31m\\u202eb\\u2066\\u200f\\x0d\\x00\\x7f\\udc80\\U000e0041"
)  # fmt: skip


def test_each_hidden_character_is_shown_as_python_writes_it() -> None:
    assert visible(HOSTILE) == SHOWN
    assert visible("tab\tline\n100 µs − 5 % …\u00a0é 中") == "tab\tline\n100 µs − 5 % …\u00a0é 中"


@given(st.text())
def test_visible_characters_are_unchanged(text: str) -> None:
    once = visible(text)
    assert visible(once) == once
    assert all(letter in "\n\t" or ord(letter) >= 32 for letter in once)
    once.encode()


@given(st.text(alphabet=st.characters()))
def test_json_keeps_its_value(text: str) -> None:
    document = visible_json(json.dumps({text: text}, ensure_ascii=False))
    assert json.loads(document) == {text: text}
    assert visible(document) == document


def printed(*renderables: object) -> str:
    file = io.StringIO()
    console = VisibleConsole(file=file, width=200, force_terminal=True, color_system=None)
    for one in renderables:
        console.print(one)
    return file.getvalue()


def test_nothing_printed_is_interpreted_in_any_position() -> None:
    table = Table("[red]name[/]", title=f"{HOSTILE} :smile:")
    table.add_row("[bold]arm[/bold] :warning:")
    table.add_row(Text(HOSTILE))
    found = printed(HOSTILE, "[red]17[/red]", "[/]", table, Panel(f"[link=x]{HOSTILE}"))
    for sequence in ("\x1b[2J", "\x1b]0", "\x07", "\x9b", "\u202e", "\r", "\x00"):
        assert sequence not in found
    # rich itself omits the bell and the carriage return.
    shown = SHOWN.replace("\\x07", "").replace("\\x0d", "")
    for text in (shown, "[red]17[/red]", "[/]", "[bold]arm[/bold] :warning:", "[red]name[/]", ":smile:"):
        assert text in found


def test_json_of_a_command_is_valid_and_readable(capsys: pytest.CaptureFixture[str]) -> None:
    values = [math.nan, np.float64("-inf"), np.float32("nan"), np.int64(2), 0.5]
    print_json({"unit": "µs, ±1", "values": values, "name": HOSTILE})
    text = capsys.readouterr().out
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert found == {"unit": "µs, ±1", "values": [None, None, None, 2, 0.5], "name": HOSTILE}
    assert "µs, ±1" in text


@pytest.mark.parametrize("kind", [PgdynoError, UsageError, ConnectError])
def test_an_error_of_megabytes_is_shortened_and_says_by_how_much(kind: type[PgdynoError]) -> None:
    text = str(kind("x" * 20_000_000))
    assert len(text) < MESSAGE_CHARS_MAX + 100
    assert text.endswith(f"… ({20_000_000 - MESSAGE_CHARS_MAX:,} more characters)")
    assert str(kind("short")) == "short"
    assert len(in_one_line("line\n" * 1_000_000)) < MESSAGE_CHARS_MAX + 100


def test_messages_of_a_library_are_truncated() -> None:
    import psycopg

    found = as_pgdyno_error(psycopg.OperationalError("y" * 1_000_000))
    assert found is not None
    assert len(str(found)) < MESSAGE_CHARS_MAX + 100


def test_every_console_of_the_command_line_escapes_control_characters() -> None:
    package = Path(__file__).parents[2] / "python" / "pgdyno"
    for module in [*(package / "cli").glob("*.py"), *(package / "features").glob("*/*.py")]:
        text = module.read_text()
        assert "rich.markup" not in text, module
        assert module.name == "console.py" or "Console(" not in text, module
