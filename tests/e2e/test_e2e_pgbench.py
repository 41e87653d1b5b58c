"""pgbench workload, end to end: comparisons of builds, and single steps on a running server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from program import COUNTED, PGBENCH, SLICES, Program, write_study

from pgdyno.results.reader import Evidence
from pgdyno.server.processes import Server
from pgdyno.study.schedule import Role

SMALL = (*PGBENCH, "--clients", "2", "--blocks", "1")
SLICE_S, SHORTEST_S, LONGEST_S = 0.1, 0.4, 1.0
"""Length of a slice, and bounds of the warm-up of the custom script."""

DRIVE = ("--clients", "2", "--rate", "50", "--warmup", "0s", "--window", "3s", "--json", "--quiet")
"""Longer than a pause of the machine."""


def test_a_comparison_by_builtin_scripts_passes_its_checks(
    program: Program, server: str, tmp_path: Path
) -> None:
    evidence = tmp_path / "e.sqlite"
    mix = ("-b", "tpcb-like", "-b", "select-only@3", "-M", "prepared")
    profiled = ("--probe", "default", "--probe", "profile")
    ended = program.succeed(
        "compare", *SMALL, *COUNTED, *mix, *profiled, "--evidence", evidence, server, server
    )
    found, document = ended.case, ended.json()
    assert ended.trials == [{"ok": 1}] * 2
    # Without the server's CPU time if one of its processes ended in this short window.
    assert set(found["arms"][0]["levels"]) | {"server_cpu"} == {"tps", "server_cpu", "driver_cpu"}
    assert list(found["arms"][0]["latency_ms"]) == ["tpcb-like", "select-only", "all"]
    assert "TPC" not in document["sentences"][""]["method"][-1]
    assert "contention" in {caveat["code"] for caveat in document["caveats"]}
    states = found["study"]["host"]["states"]
    assert [state["when"] for state in states] == ["before the study", "after the study"]
    # Without perf, or without permission, this is reported. With it, a short profile may be empty.
    missing = [
        of for of in document["caveats"] if of["code"] == "telemetry-missing" and "profile" in of["sentence"]
    ]
    assert not (missing and document["more"]["profiles"][""])
    with Evidence(evidence) as opened:
        for trial in opened.trials():
            checks = {check.name: check.passed for check in trial.checks}
            assert {"rows", "accounts agree with tellers", "history conserved", "mix", "server log"} <= set(
                checks
            )
            assert all(checks.values())
            assert trial.counters == {}
    shown = program.run("report", evidence, "--md")
    assert "tx/s" in shown.out
    assert "| select-only | 3 |" in shown.out
    again = program.succeed("compare", "--resume", evidence, "--json")
    assert "loading" not in again.err


def test_a_custom_script_on_three_arms_gets_the_real_scale_and_one_end_of_its_warm_ups(
    program: Program, server: str, tmp_path: Path
) -> None:
    own, evidence = tmp_path / "own.sql", tmp_path / "e.sqlite"
    own.write_text("SELECT 1 / (:scale - 2 + 1);\n")  # fails unless :scale is at least 2
    times = (*SLICES, "--warmup", f"{SHORTEST_S}s..{LONGEST_S}s")
    options = (*times, "--clients", "1", "--blocks", "1", "--scale", "2", "-f", own, "--evidence", evidence)
    ended = program.succeed("compare", *PGBENCH, *options, server, server, f"{server},work_mem=8MB")
    assert ":scale was set to the scale of the data, 2" in ended.err
    assert "warm-up 400 ms to 1 s" in ended.err
    found, document = ended.case, ended.json()
    assert {"own-scripts-not-checked", "scale-of-the-data"} <= {c["code"] for c in document["caveats"]}
    assert found["arms"][0]["counts"][str(own)]["failed"] == 0
    assert found["arms"][0]["counts"][str(own)]["ok"] > 0
    # Each arm is compared with the first.
    first, again, other = (of["arm"]["name"] for of in found["arms"])
    assert len(document["verdicts"]) == 2
    assert [(c["baseline"], c["arm"]) for c in found["comparisons"]] == [(first, again), (first, other)]
    with Evidence(evidence) as opened:
        trials = opened.trials()
    assert {trial.arm: trial.settings["work_mem"] for trial in trials} == {0: "4MB", 1: "4MB", 2: "8MB"}
    # The time of the end of the warm-up depends on the machine. It is the same for all arms, and reported.
    ends = [end for trial in trials if (end := trial.driver.warm_up)]
    ((by, looks),) = {(end.by, end.looks) for end in ends}
    by_evidence = by == "evidence"
    assert looks > 0
    assert f"This was so in {3 * by_evidence} of 3 trials" in document["sentences"][""]["method"][0]
    assert {of["warm_ups"]["ended_steady"] for of in found["steady_states"]} == {by_evidence}
    # The driver hears of the end in a later slice, so that one arm may have more slices than another.
    assert min(end.driven_s for end in ends) >= SHORTEST_S
    warm_ups = [sum(piece.role is Role.WARM_UP for piece in trial.slices) for trial in trials]
    assert by_evidence or warm_ups == [LONGEST_S / SLICE_S] * 3
    assert [len(trial.measured) for trial in trials] == [4, 4, 4]


def test_an_invalid_script_is_reported_with_line_and_caret_before_servers_are_resolved(
    program: Program, tmp_path: Path
) -> None:
    (tmp_path / "wrong.sql").write_text("SELECT 1;\n\\set x 1 +\n")
    nowhere = tmp_path / "nowhere"
    ended = program.run("compare", "--workload", "pgbench", "-f", tmp_path / "wrong.sql", nowhere, nowhere)
    assert ended.status == 2
    assert ended.err.splitlines()[-3:] == [
        f'pgdyno: {tmp_path}/wrong.sql:2: syntax error in command "set"',
        "\\set x 1 +",
        "          ^ error found here",
    ]


@pytest.fixture
def dsn(running_server: Server) -> Iterator[str]:
    yield running_server.conninfo("bench")
    with closing(running_server.connect()) as connection:
        connection.execute("drop database if exists bench")


def test_a_database_is_loaded_driven_and_checked_step_by_step(
    program: Program, running_server: Server, dsn: str
) -> None:
    made = ("--partitions", "2", "--accounts-copy", "--index", "pgbench_accounts(bid, abalance)")
    loaded = program.succeed("load", dsn, "--workload", "pgbench", *made, "--json")
    assert "scale 1 will take" in loaded.err
    assert loaded.json()["rows"]["pgbench_accounts"] == 100_000
    driven = program.succeed("drive", dsn, "--workload", "pgbench", *DRIVE, "-b", "simple-update")
    assert driven.json()["counts"]["simple-update"]["ok"] > 0
    assert driven.json()["rate"]["unit"] == "tx/s"
    check = ("check", dsn, "--workload", "pgbench", "--json")
    assert program.run(*check, "-b", "simple-update").status == 0
    broken = program.run(*check, "-b", "tpcb-like")  # which did not run
    assert broken.status == 1
    wrong = {one["name"] for one in broken.json()["checks"] if not one["passed"]}
    assert wrong == {"accounts agree with tellers"}
    # Existing tables must equal the requested ones, part by part.
    refused = program.refuse("compare", *SMALL, *SLICES, "--scale", "2", "--into-existing", dsn, "18")
    assert "scale 1, not 2" in refused.complaint
    copied = {"partitions": 2, "accounts_copy": True}
    same = {**copied, "indexes": ["pgbench_accounts(bid, abalance)"]}
    for n, (keys, complaint) in enumerate(
        (
            ({}, "partitions 2, not 0"),
            ({**same, "fillfactor": 90}, "fillfactor 100, not 90"),
            (copied, "indexes pgbench_accounts (bid, abalance), not none"),
            ({**same, "foreign_keys": True}, "foreign_keys false, not true"),
        )
    ):
        study = write_study(
            program.folder / f"{n}.toml",
            [dsn, "18"],
            workload={"kind": "pgbench", "scale": 1, **keys},
            drive={"clients": 2},
            run={"repeats": 1, "window": "0.4s"},
        )
        assert complaint in program.refuse("run", study, "--into-existing").complaint
    program.succeed("load", dsn, "--workload", "pgbench", "--into-existing", "--quiet")
    with closing(running_server.connect("bench")) as connection:
        row = connection.execute("select to_regclass('pgbench_accounts_copy')").fetchone()
        assert row == (None,)
