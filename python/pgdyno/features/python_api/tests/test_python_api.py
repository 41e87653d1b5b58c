"""The Python API without servers: its surface, its words for the command line, and results of files."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from synthetic_study import Synthetic, write_study

import pgdyno
from notebooks import execute
from pgdyno.errors import EvidenceError
from pgdyno.features.python_api import studies
from pgdyno.features.python_api.outcome import ended
from pgdyno.features.python_api.requests import option_words
from pgdyno.study.arm_spec import parse_arm

SURFACE = """
    Arm CrashResult Effect GateResult LinkBench Pgbench PgdynoError Result Run Study Sysbench Tpcc UsageError
    Workload capacity compare crash open run runs start
"""
"""The public objects: a change of this list is a change for every user."""


@pytest.fixture(scope="module")
def faster(tmp_path_factory: pytest.TempPathFactory) -> pgdyno.Result:
    path = tmp_path_factory.mktemp("faster") / "faster.sqlite"
    write_study(path, Synthetic(effects=(1.0, 1.2), probed=True))
    return pgdyno.open(path)


def test_the_public_surface_is_pinned_and_known_to_type_checkers() -> None:
    assert pgdyno.__all__ == ["__version__", *SURFACE.split()]
    assert dir(pgdyno) == sorted(pgdyno.__all__)
    assert all(getattr(pgdyno, name).__doc__ for name in SURFACE.split())
    stub = Path(pgdyno.__file__).with_suffix(".pyi").read_text()
    assert sorted(re.findall(r" as (\w+)$", stub, re.MULTILINE)) == sorted(SURFACE.split())
    with pytest.raises(AttributeError, match="no attribute 'comapre'"):
        _ = pgdyno.comapre


@pytest.mark.parametrize(
    ("arm", "settings"),
    [
        (pgdyno.Arm("18", random_page_cost=1.1), {"random_page_cost": "1.1"}),
        (pgdyno.Arm("18", jit=False, enable_sort=True), {"jit": "off", "enable_sort": "on"}),
        (pgdyno.Arm("18", search_path="a, b"), {"search_path": "a, b"}),
        (pgdyno.Arm("18", log_line_prefix="it's=%m "), {"log_line_prefix": "it's=%m "}),
        (pgdyno.Arm("18", pg_stat_statements__track="all"), {"pg_stat_statements.track": "all"}),
        (
            pgdyno.Arm("18", work_mem="64MB", data_directory_mode=0),
            {"work_mem": "64MB", "data_directory_mode": "0"},
        ),
    ],
)
def test_the_settings_of_an_arm_reach_the_parser_as_they_are(
    arm: pgdyno.Arm, settings: dict[str, str]
) -> None:
    assert dict(parse_arm(str(arm)).settings) == settings


def test_an_arm_has_its_name_profiles_and_directory() -> None:
    found = parse_arm(str(pgdyno.Arm(Path("/opt/pg/bin"), "@starter", name="tuned")))
    assert (found.name, found.server, found.profiles) == ("tuned", "/opt/pg/bin", ("starter",))


def test_options_have_the_spelling_of_the_command_line() -> None:
    own = Path("own.sql")
    given = {"fail_if": ["slower", "faster:5%"], "quick": True, "full": False, "margin": None, "file": own}
    expected = ["--fail-if", "slower", "--fail-if", "faster:5%", "--quick", "--file", "own.sql"]
    assert option_words(given) == expected
    assert pgdyno.Pgbench(scale=50).words() == ["--workload", "pgbench", "--scale", "50"]


def test_a_wrong_request_is_an_exception_of_its_type(tmp_path: Path) -> None:
    with pytest.raises(pgdyno.UsageError, match="No such option: --minuts"):
        pgdyno.compare("17", "18", minuts=5, results=tmp_path / "e.sqlite")
    with pytest.raises(pgdyno.UsageError, match="requires at least 2 arms"):
        pgdyno.compare("17", results=tmp_path / "e.sqlite")
    study = tmp_path / "wrong.toml"
    study.write_text(
        'title = "t"\ncompare = ["server"]\n[factors]\nserver = ["17", "18"]\n[drive]\nclints = 1\n'
    )
    with pytest.raises(pgdyno.UsageError, match=r"drive\.clints: unknown key"):
        pgdyno.run(study, results=tmp_path / "e.sqlite")
    with pytest.raises(EvidenceError, match="check the name"):
        pgdyno.open(tmp_path / "absent.sqlite")
    assert not (tmp_path / "e.sqlite").exists()


@pytest.mark.parametrize(
    ("status", "is_stopped", "is_error"),
    [
        (0, False, False),
        (3, False, False),  # a condition of --fail-if is met
        (4, False, False),  # or remains open
        (130, True, False),
        (130, False, True),  # stopped by others
        (143, True, True),
        (1, False, True),
        (-9, False, True),
    ],
)
def test_a_study_that_the_command_line_reports_as_failed_is_an_error(
    status: int, is_stopped: bool, is_error: bool, faster: pgdyno.Result
) -> None:
    command = SimpleNamespace(status=lambda: status, is_stopped=is_stopped, said="")
    if not is_error:
        assert ended(command, faster.path).path == faster.path
        return
    with pytest.raises(pgdyno.PgdynoError, match=f"ended with status {status}; its results are in .*faster"):
        ended(command, faster.path)


def test_a_running_study_reads_its_file_at_most_once_a_second_and_only_after_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "e.sqlite"
    reads, waits = list[Path](), list[float]()

    class Measuring:
        """A command that writes its file in the fourth of ten seconds, and its WAL in the seventh."""

        def __init__(self, _words: object) -> None: ...

        def is_running(self, wait_s: float) -> bool:
            waits.append(wait_s)
            if len(waits) == 4:
                path.touch()
            if len(waits) == 7:
                path.with_name("e.sqlite-wal").touch()
            return len(waits) < 10

    def finished_blocks(of: Path) -> int:
        reads.append(of)
        return int(of.exists())

    monkeypatch.setattr(studies, "Command", Measuring)
    monkeypatch.setattr(studies, "finished_blocks", finished_blocks)
    assert [result.path for result in studies.Study([], path)] == [path]
    assert reads == [path] * 3 and min(waits) >= 1.0


def test_a_result_has_the_answer_of_the_report(faster: pgdyno.Result) -> None:
    assert (faster.arms, faster.cases, faster.is_finished) == (["17", "18"], [""], True)
    assert faster.verdict == "faster"
    effect = faster.effect()
    assert effect.low < 20 < effect.high and (effect.arm, effect.baseline) == ("18", "17")
    assert faster.verdicts == [effect]
    assert faster.effect("p50").metric == "latency.all.p50"
    assert faster.answer.startswith("18 is ") and faster.answer in repr(faster)
    assert all(caveat.sentence for caveat in faster.caveats)
    assert str(faster.why) == " ".join(faster.why.sentences)


def test_a_question_without_one_answer_names_the_choices(tmp_path: Path, faster: pgdyno.Result) -> None:
    with pytest.raises(pgdyno.UsageError, match=r"no effect on nothing: see metrics \(nopm, "):
        faster.effect("nothing")
    with pytest.raises(pgdyno.UsageError, match=r"no such comparison: arms \['17', '18'\]"):
        faster.effect(arm="19")
    write_study(tmp_path / "three.sqlite", Synthetic(effects=(1.0, 1.2, 0.9), names=("16", "17", "18")))
    three = pgdyno.Result(tmp_path / "three.sqlite")
    with pytest.raises(pgdyno.UsageError, match=r"2 comparisons: .*arm='17'; arm='18'"):
        _ = three.verdict
    assert three.effect(arm="18").value < 0 < three.effect(arm="17").value


def test_trials_and_series_are_rows(faster: pgdyno.Result) -> None:
    rates = [row for row in faster.trials() if row["metric"] == "nopm"]
    assert len(rates) == 24 and {row["arm"] for row in rates} == {"17", "18"}
    assert all(isinstance(row["value"], float) for row in rates)
    points = faster.series()
    assert {(row["block"], row["arm"]) for row in points} == {
        (b, arm) for b in range(12) for arm in ("17", "18")
    }
    with pytest.raises(pgdyno.UsageError, match="no series nothing: use one of tps, "):
        faster.series("nothing")


def test_a_sampled_series_is_that_of_the_file(faster: pgdyno.Result) -> None:
    with pytest.raises(pgdyno.UsageError) as error:
        faster.series("no.series")
    name = str(error.value).rpartition(" ")[2]
    rows = faster.series(name)
    assert rows and all({*row} == {"case", "block", "arm", "at_s", "value"} for row in rows)


def test_a_notebook_shows_the_answer_and_drawings_apart_from_its_styles(faster: pgdyno.Result) -> None:
    shown = faster._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and 'sandbox=""' in shown
    page = html.unescape(shown)
    assert "18 is " in page and "<svg" in page
    assert len(shown) < 100_000
    assert "<svg" in html.unescape(faster.plot()._repr_html_())
    with pytest.raises(pgdyno.UsageError, match="no drawing 'x': use one of effect, "):
        faster.plot("x")
    assert len(faster.to_html()) > len(page) and faster.to_markdown().startswith("# ")


def test_runs_lists_the_results_files_newest_first(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    write_study(tmp_path / "old" / "a.sqlite", Synthetic(created_unix_s=1.7e9, title="old"))
    write_study(tmp_path / "b.sqlite", Synthetic(created_unix_s=1.8e9, title="new", ended=None))
    (tmp_path / "other.sqlite").write_text("not a results file")
    (tmp_path / "link.sqlite").symlink_to("absent.sqlite")
    found = pgdyno.runs(tmp_path)
    assert [(one.title, one.is_finished) for one in found] == [("new", False), ("old", True)]
    assert found[1].open().path == tmp_path / "old" / "a.sqlite"


def test_a_gate_in_a_test_shows_the_answer_when_it_fails(tmp_path: Path, faster: pgdyno.Result) -> None:
    write_study(tmp_path / "slower.sqlite", Synthetic(effects=(1.0, 0.8)))
    slower = pgdyno.open(tmp_path / "slower.sqlite")
    assert faster.not_slower() and faster.not_slower(5) and not slower.not_slower(5)
    assert slower.gate("faster").outcome == "passed"
    with pytest.raises(pgdyno.UsageError, match="greater than 0%"):
        faster.not_slower(0)
    (tmp_path / "test_speed.py").write_text(
        "import pgdyno\n"
        "def test_speed(pgdyno_compare):\n"
        "    assert callable(pgdyno_compare)\n"
        "    assert pgdyno.open('slower.sqlite').not_slower(5)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_speed.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "1 failed" in ran.stdout and slower.answer.splitlines()[0] in ran.stdout


def test_the_examples_of_the_page_have_names_that_exist() -> None:
    page = (Path(__file__).parents[1] / "README.md").read_text()
    examples = re.findall("```python\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 4
    for example in examples:
        compile(example, "README.md", "exec")
    assert set(re.findall(r"pgdyno\.([a-zA-Z]\w+)(?!/|\w)", page)) <= {*pgdyno.__all__, "errors"}
    assert {name for name in re.findall(r"result\.(\w+)", page) if not hasattr(pgdyno.Result, name)} == set()


def test_the_notebook_about_results_files_executes(
    faster: pgdyno.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(faster.path.parent)
    ended = execute("read-results")
    assert ended["result"].path.name == "faster.sqlite" and ended["gate"].passed
    assert len(ended["effects"]) > 10 and {*ended["rows"][0]} >= {"arm", "block", "value"}
