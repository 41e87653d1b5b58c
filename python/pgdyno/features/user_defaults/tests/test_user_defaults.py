"""Defaults of the user: the command line wins, errors name file and key, and a study records what it used."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from report_forms import FORMS, plain, report_of
from synthetic_study import Synthetic

from pgdyno.cli.main import run_command
from pgdyno.features.user_defaults import defaults
from pgdyno.features.user_defaults.defaults import config_path, defaults_of, record_defaults, used
from pgdyno.study.plan import Study
from requested_study import requested_by

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Return a function that writes the file of the user."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def written(text: str) -> Path:
        config_path().parent.mkdir(parents=True, exist_ok=True)
        config_path().write_text(text)
        return config_path()

    return written


@pytest.fixture
def plan_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[Study, str]]:
    """Return a function that returns the study that a command requests, and the command it stores."""
    monkeypatch.chdir(tmp_path)

    def planned(words: str) -> tuple[Study, str]:
        request = requested_by(words, monkeypatch)
        return request.cases[0].study, request.command

    return planned


def test_values_of_the_file_are_used_and_stored_in_the_command(write: Write, plan_of: Any) -> None:
    write('[compare]\nminutes = 2\nclients = 3\nmargin = "1%"\nprobe = ["wal", "io"]\n')
    study, command = plan_of("compare 17 18 --seed 5")
    assert (study.budget_s, study.clients, study.margin) == (120, 3, 0.01)
    assert study.probes == ("wal", "io")
    words = command.split()
    assert words[:2] == ["pgdyno", "compare"] and words[-4:] == ["17", "18", "--seed", "5"]
    expected = "--clients 3 --margin 1% --minutes 2 --probe wal --probe io"
    assert sorted(words[2:-4]) == sorted(expected.split())
    assert {one.key for one in used} == {"minutes", "clients", "margin", "probe"}
    config_path().unlink()
    assert plan_of(command.removeprefix("pgdyno "))[0] == study, "the stored command needs no file"


def test_the_command_line_wins_in_every_spelling(write: Write, plan_of: Any) -> None:
    write('[compare]\nminutes = 2\nclients = 3\nprobe = ["wal"]\n')
    study, command = plan_of("compare 17 18 --minutes=4 -c 6 --probe io --seed 5")
    assert (study.budget_s, study.clients, study.probes) == (240, 6, ("io",)) and not used
    assert command == "pgdyno compare 17 18 --minutes=4 -c 6 --probe io --seed 5"


def test_options_of_another_workload_have_no_effect(write: Write, plan_of: Any) -> None:
    write("[compare]\nwarehouses = 7\nscale = 9\n")
    assert plan_of("compare 17 18")[0].workload.warehouses == 7
    assert plan_of("compare 17 18 --workload pgbench")[0].workload.scale == 9
    write('[compare]\nworkload = "pgbench"\nscale = 9\nwarehouses = 7\n')
    assert plan_of("compare 17 18")[0].workload.scale == 9
    assert plan_of("compare 17 18 --workload=tpcc")[0].workload.warehouses == 7
    write("[compare]\nnodes = 5000\nwarehouses = 7\n")
    assert plan_of("compare 17 18")[0].workload.warehouses == 7
    assert plan_of("compare 17 18 --workload linkbench")[0].workload.nodes == 5000


def test_a_workload_within_an_argument_is_not_the_chosen_one(write: Write) -> None:
    write("[compare]\nwarehouses = 7\nscale = 9\n")
    with defaults_of(["compare", "17", "18", "--title", "with --workload pgbench"]) as found:
        assert [*found["compare"]] == ["warehouses"]


@pytest.mark.parametrize(
    ("text", "words", "left"),
    [
        ('window = "20s"', "--transactions 1000", set()),
        ('window = "20s"\nslice = "1s"\nclients = 2', "-t1000", {"clients"}),
        ("transactions = 1000", "--window=20s", set()),
        ("transactions = 1000", "--slice 1s", set()),
        ("transactions = 1000", "--quick", set()),
        ('slice = "1s"', "--window checkpoints:2", set()),
        ('slice = "1s"', "--window 20s", {"slice"}),
        ('window = "checkpoints:2"', "--slice 1s", set()),
        ('window = "20s"', "--slice 1s", {"window"}),
        ("rate = 5", "--capacity p99<20ms", set()),
        ('capacity = "p99<20ms"', "-R 5", set()),
    ],
)
def test_a_default_that_an_option_excludes_has_no_effect(
    text: str, words: str, left: set[str], write: Write, plan_of: Any
) -> None:
    write(f"[compare]\n{text}\n")
    plan_of(f"compare 17 18 {words}")
    assert {one.key for one in used} == left


@pytest.mark.parametrize(
    ("words", "stop"), [("", "budget"), (" --fail-if slower", "verdict"), (" --stop verdict", "verdict")]
)
def test_a_condition_of_the_file_measures_for_the_whole_budget_as_one_of_the_command_line(
    words: str, stop: str, write: Write, plan_of: Any
) -> None:
    write('[compare]\nfail-if = ["slower:p99:5%"]\n')
    assert plan_of(f"compare 17 18{words}")[0].stop == stop


def applied(words: str) -> list[str]:
    """Return the options with a default for a command line."""
    with defaults_of(words.split()) as found:
        return sorted(found.get(words.split(maxsplit=1)[0], {}))


def test_a_resumed_study_keeps_its_values_but_is_judged(write: Write) -> None:
    write('[compare]\nminutes = 2\nfail-if = ["slower"]\n')
    assert applied("compare 17 18") == ["fail_if", "minutes"]
    assert applied("compare --resume x.sqlite") == applied("compare --resume=x") == ["fail_if"]
    assert applied("compare --help") == applied("docs noise") == applied("report x") == []


def test_tables_of_subcommands_have_their_options(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write('[settings.show]\nserver = "17"\n')
    with defaults_of(["settings", "show", "starter"]) as found:
        assert found["settings"]["show"]["server"]() == "17"
    assert run_command(["config", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {"command": "settings show", "key": "server", "value": "17", "from": "file"} in shown


REFUSED = {
    "[compare\n": r"is not TOML: .*line 1.*: correct it, or remove it",
    "minutes = 5\n": r"minutes is not a table of a command: write for example \[compare\]",
    "[compar]\n": r"compar is not a table of a command \(did you mean compare\?\)",
    "[compare]\nminuts = 5\n": r"minuts below \[compare\] is not an option \(did you mean minutes\?\)",
    "[compare]\nminutes = 0\n": r"minutes below \[compare\] is invalid: --minutes must be greater than 0",
    "[compare]\nschedule = 'fast'\n": r"schedule below \[compare\] is invalid: 'fast' is not one of",
    "[compare]\nminutes = [1]\n": r"minutes below \[compare\] must be a text or a number \(got \[1\]\)",
    "[compare]\nquiet = true\n": r"quiet below \[compare\] is a switch.*: remove it, and use --quiet",
    "[compare]\nevidence = 'x'\n": r"evidence below \[compare\] belongs to a single call",
    "[compare]\nretries = 3\n": r"retries below \[compare\] is a key of study files: write retries",
    "[compare]\nclients = 0\n": r"--clients: must be .* \(--clients 0 is from .*: change it there\)",
    "[compare]\nrate = 5\ncapacity = 'p99 < 5ms'\n": r"exclude each other.*--capacity p99 < 5ms",
}


@pytest.mark.parametrize("text", REFUSED)
def test_an_error_names_the_file_the_key_and_the_remedy(
    write: Write, refusal: Callable[..., str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(text)
    message = refusal(["compare", "17", "18"])
    assert str(path) in message and re.search(REFUSED[text], message), message


def test_an_error_of_the_command_line_does_not_name_the_file(
    write: Write, refusal: Callable[..., str]
) -> None:
    write("[compare]\nclients = 3\n")
    assert "config.toml" not in refusal("compare 17 18 --clients 0")
    assert "config.toml" not in refusal("compare 17 18 --schedule fast")


def test_an_invalid_file_hides_neither_help_nor_pages(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("[compare\n")
    assert [run_command(words.split()) for words in ("compare --help", "docs noise", "config --path")] == [
        0
    ] * 3
    assert capsys.readouterr().out.endswith(f"{path}\n")
    assert run_command(["config"]) == 2


def test_the_command_shows_each_value_with_its_source(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write('[compare]\nmargin = "1%"\n')
    assert run_command(["config"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "compare margin 1% file" in lines and "compare minutes 5 default" in lines
    assert lines[-1] == f"file: {path}"
    path.unlink()
    assert run_command(["config"]) == 0 and capsys.readouterr().out.endswith(f"file: {path} (not present)\n")


def test_the_home_directory_is_not_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert defaults.shown_path() == "~/.config/pgdyno/config.toml"
    assert config_path() == tmp_path / ".config" / "pgdyno" / "config.toml"


def test_a_new_study_stores_the_defaults_for_each_case_and_its_conditions_name_them(write: Write) -> None:
    write("[compare]\nminutes = 2\n")
    writer = Mock()
    with defaults_of(["compare"]) as found:
        found["compare"]["minutes"]()
    record_defaults(writer, [None, None], None, known=frozenset())
    assert not writer.add_caveat.called, "a resumed study has them already"
    record_defaults(writer, [None, None], None, None)
    (caveat, first), (_, second) = (call.args for call in writer.add_caveat.call_args_list)
    assert (first, second) == (0, 1) and caveat.parameters["defaults"] == "--minutes 2"
    text = plain(FORMS["terminal"](report_of(Synthetic(blocks=5, slices=2, caveats=(caveat,)))))
    assert "(--minutes 2)" in " ".join(text.split())
