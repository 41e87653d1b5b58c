"""Decisions of the lab before anything is loaded, and before a study is resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast
from unittest.mock import patch

import pytest
from report_forms import plain
from synthetic_study import Synthetic, arms_of, study_of, write_study

from edited_evidence import edited
from example_studies import make_study
from pgdyno.analysis.statistics.intervals import Method
from pgdyno.analysis.study_findings import find_study
from pgdyno.cli.execution import why_no_valid_block
from pgdyno.cli.report import read_report
from pgdyno.errors import EvidenceError, Interrupted, UsageError
from pgdyno.interruption import Interruption
from pgdyno.measure import preflight, study_runner
from pgdyno.measure.arms import Prepared
from pgdyno.measure.machine import describe_host
from pgdyno.measure.preflight import fit_schedule, require_connections, settings_request
from pgdyno.measure.study_runner import require_comparable
from pgdyno.measure.trial import Lab
from pgdyno.report.background import certainty_paragraphs
from pgdyno.report.markdown_format import to_markdown
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Arm, StudyEnd, TrialStatus
from pgdyno.results.writer import Writer
from pgdyno.server.build_store import Resolved
from pgdyno.server.builds import Build, Version
from pgdyno.server.settings import Definition, MachineResources
from pgdyno.server.settings_catalogue import Catalogue
from pgdyno.study.arm_spec import parse_arms
from pgdyno.study.plan import Study

MACHINE = MachineResources(8 << 30, 2, "ssd")
MAX_CONNECTIONS = Definition(
    "max_connections", "integer", None, "1", "262143", (), "postmaster", None, "group", "what it is", None
)


def study(arms: Sequence[str], clients: int) -> Study:
    return make_study(arms=parse_arms(arms), clients=clients)


@pytest.mark.parametrize(
    ("arm", "clients", "connections"),
    [
        ("18", 90, None),
        ("18", 200, "210"),
        ("18,@default", 200, "210"),
        ("18,@default,max_connections=500", 200, "500"),
    ],
)
def test_an_arm_has_room_for_its_clients_unless_it_says_otherwise(
    arm: str, clients: int, connections: str | None
) -> None:
    wanted = study([arm, "18,max_connections=300"], clients)
    build, known = (
        SimpleNamespace(version=Version(18, 4), libraries=()),
        SimpleNamespace(definitions={"max_connections": MAX_CONNECTIONS}, library_dir=None),
    )
    found = settings_request(wanted, 0, cast(Any, build), cast(Any, known), MACHINE)
    assert found.settings.get("max_connections") == connections


def wanted_of(*max_connections: str | None) -> Any:
    """Arms whose servers have this number of connections, or the default of 100."""
    return {
        index: SimpleNamespace(
            build=SimpleNamespace(version=Version(18, 4)),
            catalogue=SimpleNamespace(
                definitions={"max_connections": MAX_CONNECTIONS}, initial={"max_connections": "100"}
            ),
            requested=SimpleNamespace(settings={} if text is None else {"max_connections": text}),
        )
        for index, text in enumerate(max_connections)
    }


def test_too_many_clients_for_the_servers_are_rejected_for_all_arms_at_once() -> None:
    arms = ["18", "17", "18,max_connections=20"]
    require_connections(study(arms, 18), wanted_of(None, "0x64", "20"))
    with pytest.raises(
        UsageError, match=r"^--clients: 21 connections .* 18,max_connections=20 \(20\): .* 21"
    ):
        require_connections(study(arms, 19), wanted_of(None, "0x64", "20"))
    with pytest.raises(UsageError, match=r"of 17 \(60\), 18,max_connections=20 \(20\): set it to 92 "):
        require_connections(study(arms, 90), wanted_of(None, "60", "20"))


@pytest.mark.parametrize(
    ("shared_buffers", "fits"), [("128MB", True), ("0x4000", True), ("4GB", False), ("524288", False)]
)
def test_a_schedule_that_had_to_be_changed_is_a_caveat(shared_buffers: str, fits: bool) -> None:
    definition = replace(MAX_CONNECTIONS, name="shared_buffers", unit="8kB", max_val="1073741823")
    arm = SimpleNamespace(
        build=SimpleNamespace(version=Version(18, 4)),
        requested=SimpleNamespace(settings={"shared_buffers": shared_buffers}),
        catalogue=SimpleNamespace(definitions={"shared_buffers": definition}),
    )
    caveats: list[Any] = []
    wanted = cast(Any, {0: arm, 1: arm})
    found = fit_schedule(study(["17", "18"], 2), wanted, MACHINE, lambda _: None, caveats)
    assert found.schedule == ("slices" if fits else "blocks")
    assert [caveat.kind for caveat in caveats] == ([] if fits else ["schedule-changed"])


ENGINE = {**study_of(Synthetic()).engine, "rustc": "rustc 1.85.0", "dataset_format": {"tpcc": "7f"}}


def resumed(
    path: Path, arms: Sequence[Arm], schedule: str = "slices", engine: object = None, **host: object
) -> None:
    """Resume a study made on this machine, or one with other facts, with these arms."""
    measured_here = {**describe_host(path.parent), **host}
    stored = replace(study_of(Synthetic()), host=measured_here, engine=engine or ENGINE)
    with Writer.create(path, stored, arms_of(Synthetic())):
        pass
    ready = SimpleNamespace(records=arms, data_path=path.parent, study=SimpleNamespace(schedule=schedule))
    with patch.object(study_runner, "build_info", lambda: ENGINE):
        require_comparable(path, [cast(Prepared, ready)])


def with_server(**facts: str) -> list[Arm]:
    return [replace(arm, server={**arm.server, **facts}) for arm in arms_of(Synthetic())]


def test_a_study_resumes_in_its_results_file(tmp_path: Path) -> None:
    resumed(tmp_path / "e", with_server())


def test_a_study_whose_slice_a_calibration_chose_resumes_with_that_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions stored the length and its source; they are removed (ADR 27)."""
    source = "the calibration of 2026-11-20 10:00 UTC (18.4, pgbench, 8 clients)"
    chosen = {"slice_s": 0.25, "discard_s": 0.0125, "slice_from": source, "slices_may_grow": False}
    old, continued = study_of(Synthetic()), list[Study]()
    plan = Study.model_validate_json(json.dumps(old.plan.model_dump(mode="json") | chosen))
    with Writer.create(tmp_path / "e", replace(old, plan=plan), arms_of(Synthetic())):
        pass

    def prepare(studies: Sequence[Study], *_: object) -> NoReturn:
        continued.extend(studies)
        raise Interrupted("")

    monkeypatch.setattr(study_runner, "prepare_arms", prepare)
    with pytest.raises(Interrupted), Interruption() as stop:
        study_runner.resume_study(tmp_path / "e", 5.0, lambda _: nullcontext(lambda _: None), stop)
    assert [of.slice_s for of in continued] == [0.25] and not continued[0].has_grown_slices
    assert source in to_markdown(read_report(tmp_path / "e"))


@pytest.mark.parametrize(
    ("arms", "options", "says"),
    [
        (with_server(build_id="another"), {}, "another server of 17"),
        (with_server(version_text="PostgreSQL 18.5"), {}, "another server of 17"),
        (with_server(), {"processor": "abacus"}, r"another processor \(abacus;"),
        (with_server(), {"memory_bytes": 1}, "another memory_bytes"),
        (with_server(), {"schedule": "blocks"}, r"another schedule \(slices;"),
        (
            with_server(),
            {"engine": ENGINE | {"version": "0.0.9"}},
            r"another version of the engine \(0\.0\.9; now 0\.1\.0\): start a new study",
        ),
        (with_server(), {"engine": ENGINE | {"profile": "debug"}}, "another profile of the engine"),
        (with_server(), {"engine": ENGINE | {"rustc": "rustc 1.90.0"}}, "another rustc of the engine"),
        (with_server(), {"engine": ENGINE | {"dataset_format": {}}}, "another dataset_format of the engine"),
    ],
)
def test_blocks_of_other_engines_servers_machines_or_schedules_are_not_pooled(
    arms: Sequence[Arm], options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(EvidenceError, match=says):
        resumed(tmp_path / "e", arms, **options)


def test_a_study_without_a_valid_block_reports_the_reason(tmp_path: Path) -> None:
    lost = {(block, block % 2): TrialStatus.FAILED for block in range(3)}
    write_study(tmp_path / "lost", Synthetic(blocks=3, statuses=lost))
    assert why_no_valid_block(tmp_path / "lost").startswith(("17: ", "18: "))
    del lost[2, 0]
    write_study(tmp_path / "one", Synthetic(blocks=3, statuses=lost))
    assert why_no_valid_block(tmp_path / "one") == ""


def test_two_builds_of_one_version_are_each_inspected_and_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    version = Version(19, 0, "devel")
    old, new = (Build("system", version, Path(f"/{name}/bin"), "", "") for name in ("old", "new"))
    flags = {old: "-O2", new: "-O3"}
    monkeypatch.setattr(preflight, "resolve_all", lambda *_, **__: Resolved((old, new), (), ()))
    monkeypatch.setattr(
        preflight,
        "catalogue",
        lambda build, _: Catalogue("", {"CFLAGS": flags[build]}, {}, {"of": flags[build]}),
    )
    cache, caveats = cast(Any, SimpleNamespace(store=lambda **_: None)), []
    asked = study(["/old/bin", "/new/bin"], 2)
    found = preflight.resolve_arms(asked, cache, MACHINE, lambda _: None, caveats)
    assert [found[index].catalogue.initial["of"] for index in (0, 1)] == ["-O2", "-O3"]
    (caveat,) = caveats
    assert caveat.kind == "builds-differ"
    assert "19devel (system) in /new/bin has -O3" in str(caveat.parameters["difference"])


@contextmanager
def nobody(_names: Sequence[str]) -> Iterator[object]:
    yield lambda _event: None


@contextmanager
def made_ready(studies: Sequence[object], *_: object) -> Iterator[list[SimpleNamespace]]:
    yield [SimpleNamespace(study=study, arms=[], records=[], data_path=Path()) for study in studies]


def resumed_without_running(
    path: Path, minutes: float | None, monkeypatch: pytest.MonkeyPatch, **changes: object
) -> None:
    """Resume a study of 12 blocks without interim analyses, in which nothing further runs."""
    write_study(path, Synthetic(stops_on_verdict=False))
    stored = make_study(**{"stop": "budget", **changes}).model_dump_json()
    with edited(path) as connection:
        connection.execute("UPDATE study_case SET plan = ?", (stored,))
    monkeypatch.setattr(study_runner, "prepare_arms", made_ready)
    monkeypatch.setattr(study_runner, "require_comparable", lambda *_: None)
    monkeypatch.setattr(study_runner, "_measure", lambda *_: StudyEnd.BUDGET)
    monkeypatch.setattr(study_runner.aa_blocks, "with_aa", lambda labs, *_: labs)
    monkeypatch.setattr(study_runner.aa_blocks, "NOISE_HISTORIES", ())
    with Interruption() as interruption:
        study_runner.resume_study(path, minutes, nobody, interruption)


@pytest.mark.parametrize(
    ("minutes", "changes", "method"),
    [
        (5.0, {}, Method.ANYTIME),
        (5.0, {"blocks_max": 20}, Method.ANYTIME),
        (None, {}, Method.STUDENT),  # to the end that was fixed beforehand
        (5.0, {"blocks_max": 12}, Method.STUDENT),  # no block is left to be run
        (5.0, {"blocks_max": 20, "schedule": "sequential"}, Method.STUDENT),  # there is only one analysis
    ],
)
def test_an_extended_study_has_anytime_valid_intervals(
    tmp_path: Path, minutes: float | None, changes: Any, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "e.sqlite"
    resumed_without_running(path, minutes, monkeypatch, **changes)
    with Evidence(path) as evidence:
        found = find_study(evidence).first
    primary = found.comparisons[0].primary
    assert primary is not None and primary.summary.method is method
    told = "The study was resumed: its length (12 blocks in total) was not fixed in advance"
    assert (told in plain(certainty_paragraphs(found)[0])) == (method is Method.ANYTIME)


def test_an_interrupted_extension_is_continued_with_the_rest_of_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets: list[float] = []

    def measure(_path: object, _writer: object, labs: Sequence[Lab], *_: object) -> StudyEnd:
        budgets.extend(lab.study.budget_s for lab in labs)
        return StudyEnd.INTERRUPTED

    resumed_without_running(tmp_path / "e", 5.0, monkeypatch)
    monkeypatch.setattr(study_runner, "_measure", measure)
    with Interruption() as interruption:
        study_runner.resume_study(tmp_path / "e", None, nobody, interruption)
    assert budgets == [pytest.approx(12 * 38 + 300)]


def test_a_resumed_study_is_analyzed_with_the_blocks_that_its_time_allows() -> None:
    lab = SimpleNamespace(
        study=make_study(budget_s=600.0), case=0, aa={}, interruption=SimpleNamespace(requested=True)
    )
    left: list[int] = []

    def analyze(_lab: Lab, budget: study_runner.Budget) -> Any:
        left.append(budget.blocks_left_of(0))
        return SimpleNamespace(is_decided=False)

    ending = study_runner.run_study([cast(Lab, lab)], analyze, [12], spent_s=360.0)
    assert (ending, left) == (StudyEnd.INTERRUPTED, [8])


def test_results_of_warm_ups_are_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Lab] = []

    def measure(_path: object, _writer: object, labs: Sequence[Lab], *_: object) -> StudyEnd:
        taken.extend(labs)
        return StudyEnd.BUDGET

    resumed_without_running(tmp_path / "e", 5.0, monkeypatch, warmup_s=4.0, warmup_min_s=2.0)
    with edited(tmp_path / "e") as connection:
        connection.execute("UPDATE interval SET role = 'warm-up' WHERE position < 4")
    monkeypatch.setattr(study_runner, "_measure", measure)
    with Interruption() as interruption:
        study_runner.resume_study(tmp_path / "e", 5.0, nobody, interruption)
    (lab,) = taken
    assert {arm: len(rates) for arm, rates in lab.rates.items()} == {0: 12, 1: 12}
    with Evidence(tmp_path / "e") as evidence:
        trial = evidence.trials()[0]
        rates = [sum(k.executed for k in one.kinds.values()) for one in evidence.intervals(trial.trial)]
    assert len(rates) == 4 and lab.rates[trial.arm][trial.block] == pytest.approx(rates)
