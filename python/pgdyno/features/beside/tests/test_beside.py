"""A program beside the clients: how it ends, who may have one, and its table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import IO, Any, cast

import pytest
from small_study import run_small, small_study
from synthetic_study import Synthetic, write_study
from synthetic_telemetry import readings, series, trial

from pgdyno.analysis.study_findings import find_study
from pgdyno.analysis.telemetry.trial_telemetry import ClientTime, telemetry_of_trial
from pgdyno.cli.report import read_report
from pgdyno.errors import UsageError
from pgdyno.features.beside import program as beside_program
from pgdyno.features.beside.program import Beside, with_probe
from pgdyno.features.beside.section import VALUES, sections, trial_values
from pgdyno.measure.server_probes import Row
from pgdyno.measure.telemetry_collection import ProbeError
from pgdyno.report.markdown_format import to_markdown
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Moment, StoredReading, StudyEnd
from pgdyno.server.builds import Build
from pgdyno.study.defaults import Schedule


def started(*command: str, conninfo: str = "host=/tmp port=5433 dbname=shop") -> Beside:
    arm = SimpleNamespace(conninfo=lambda: conninfo, postmaster_pid=lambda: None)
    return Beside.start(cast(Any, arm), cast(Any, SimpleNamespace(beside=command)))


def ended(program: Beside) -> Row:
    """Wait for the end of the program. Return its row."""
    program._thread.join(60)
    (row,) = program.stop()
    return row


def test_a_program_has_the_address_of_the_server_and_its_status_is_recorded() -> None:
    found = ended(started("sh", "-c", 'echo "$PGHOST $PGPORT $PGDATABASE" >&2; exit 3'))
    assert (found["status"], found["error"]) == (3, "/tmp 5433 shop")
    assert ended(started("true"))["status"] == 0


def test_a_program_has_the_server_of_a_service_and_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = tmp_path / "services.conf"
    service.write_text("[prod]\nhost=db.example\nport=5433\n")
    monkeypatch.setenv("PGSERVICEFILE", str(service))
    monkeypatch.setenv("PGDATABASE", "shop")
    command = ("sh", "-c", 'echo "$PGHOST $PGPORT $PGDATABASE $PGSSLMODE" >&2; exit 3')
    found = ended(started(*command, conninfo="service=prod sslmode=require"))
    assert found["error"] == "db.example 5433 shop require"


def test_a_program_that_still_runs_is_ended_with_its_children() -> None:
    with TemporaryDirectory() as directory:  # pytest's are closed to the user of the servers
        Path(directory).chmod(0o755)
        pipe = Path(directory) / "pipe"
        os.mkfifo(pipe)
        pipe.chmod(0o666)
        program = started("sh", "-c", f"exec 3<>{pipe}; sleep 600 & echo $! >&3; wait")
        with pipe.open() as numbers:
            child = int(numbers.readline())
        program.halt()
        assert not Path(f"/proc/{child}").exists()
        (row,) = program.stop()
    assert row["status"] is None


def test_the_file_of_errors_is_closed_at_each_end(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up, stuck = started("true"), started("true")
    given_up.give_up()
    given_up.give_up()
    assert given_up._errors.closed
    monkeypatch.setattr(stuck._thread, "is_alive", lambda: True)
    monkeypatch.setattr(stuck, "halt", lambda: None)
    with pytest.raises(ProbeError, match="did not end"):
        stuck.stop()
    assert stuck._errors.closed
    opened: list[IO[bytes]] = []

    def refuse(*_: object, errors: IO[bytes], **__: object) -> None:
        opened.append(errors)
        raise PermissionError("not executable")

    monkeypatch.setattr(beside_program, "launch_tree", refuse)
    with pytest.raises(PermissionError):
        started("true")
    assert opened[0].closed


def test_a_program_that_is_not_there_is_a_reason() -> None:
    with pytest.raises(ProbeError, match="there is no program pg_nothing"):
        started("pg_nothing")


def test_arms_that_run_together_have_no_program_beside_nor_has_one_with_a_password() -> None:
    def probes(schedule: Schedule, beside: Sequence[str]) -> Sequence[str]:
        study = small_study(["a", "b"], schedule=schedule, beside=tuple(beside), probes=("wal",))
        return with_probe(study, *cast(Any, (None, None, None))).probes

    assert probes(Schedule.BLOCKS, ["true"]) == ("wal", "beside")
    assert probes(Schedule.SLICES, []) == ("wal",)
    with pytest.raises(UsageError, match="one arm at a time"):
        probes(Schedule.SLICES, ["true"])
    with pytest.raises(UsageError, match="must not contain a password"):
        probes(Schedule.BLOCKS, ["pg_dump", "--dbname=host=h password=secret"])


def test_the_table_has_the_time_of_programs_that_ended_and_errors_are_an_alarm(tmp_path: Path) -> None:
    path = tmp_path / "e.sqlite"
    write_study(path, Synthetic(blocks=6, schedule=Schedule.BLOCKS))
    with Evidence(path) as evidence:
        findings = find_study(evidence).first
    assert not list(sections(findings))

    def row(block: int, arm: int) -> Row:
        status = 1 if (block, arm) == (5, 1) else 0
        return {"took_s": 3.0 + block / 100 + arm, "cpu_s": 2.0, "status": status, "error": "no table"}

    by_trial = {
        trial.trial: replace(
            findings.telemetry.by_trial[trial.trial], after={"beside": [row(trial.block, trial.arm)]}
        )
        for trial in findings.trials
    }
    measured = replace(findings, telemetry=replace(findings.telemetry, by_trial=by_trial))
    (section,) = sections(measured)
    (table,) = section.tables
    assert [line[1:5] for line in table.rows] == [["6", "6", "3.02", "2.00"], ["6", "5", "4.02", "2.00"]]
    assert table.rows[1][5].startswith("+1.00")
    (error,) = section.sentences
    assert "failed in 1 trial" in error and "status 1: no table" in error
    (first,) = (of.trial for of in findings.trials if (of.block, of.arm) == (0, 1))
    by_trial[first].after["beside"][0]["status"] = None
    (table,) = next(iter(sections(measured))).tables
    assert table.rows[1][2:4] == ["4", "–"] and table.rows[1][5] == "–"
    by_trial[first].after["beside"][0]["status"] = 0
    values = [{name: value for name, _, value in trial_values(measured, one)} for one in findings.trials]
    assert {name for of in values for name in of} == {*VALUES.keys}
    assert sum("beside.time" in of for of in values) == 11 and sum(of["beside.cpu"] for of in values) == 24


def test_the_time_of_a_transaction_is_not_broken_down_with_a_program_beside() -> None:
    sampled = {of.probe: of for of in series(0, 20.0)}
    found = readings(0, 1000, 20.0)
    alone = telemetry_of_trial(trial(1), found, sampled).time
    assert alone.statements and alone.wait_samples and alone.on_cpu_us
    found += [StoredReading("beside", moment, 0.0, 0.0, []) for moment in (Moment.BEGIN, Moment.END)]
    assert telemetry_of_trial(trial(1), found, sampled).time == ClientTime()


@pytest.mark.server
def test_a_study_runs_the_program_in_every_window(build: Build, tmp_path: Path) -> None:
    query = "DO $$ BEGIN PERFORM count(*) FROM pg_class; END $$"
    study = small_study(
        [f"A={build.bin_dir}", f"B={build.bin_dir},jit=off"],
        schedule=Schedule.BLOCKS,
        beside=("psql", "--no-psqlrc", "--command", query),
        probes=(),
        blocks_max=2,
        aa=False,
    )
    path = tmp_path / "e.sqlite"
    assert run_small(path, study) is StudyEnd.BLOCKS
    report = read_report(path)
    (section,) = sections(report.findings.first)
    assert [line[1:3] for line in section.tables[0].rows] == [["2", "2"]] * 2
    assert "Program beside the clients: psql" in to_markdown(report)
