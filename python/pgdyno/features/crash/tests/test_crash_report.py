"""Crash tests: the plan, the results file, the findings and their text."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from html import unescape
from pathlib import Path
from typing import Any, cast

import pytest
from report_forms import FORMS, checked_json, plain, sections_of, summarized, tables_of
from report_forms import report_of as study_report_of
from synthetic_study import HOST, Synthetic, write_study

from pgdyno.analysis.statistics.intervals import proportion
from pgdyno.cli.main import run_command
from pgdyno.cli.report import read_report
from pgdyno.errors import EvidenceError
from pgdyno.features.crash import run as crash_run
from pgdyno.features.crash import sections
from pgdyno.features.crash.findings import CrashFindings, CrashTest, find_crashes, median_interval
from pgdyno.features.crash.sections import (
    DISK_TITLE,
    PLURAL,
    CrashReport,
    build_crash_report,
    crash_tables,
    progress_line,
    share_bar,
    with_version,
)
from pgdyno.features.crash_disk.ledger import replayed_bytes
from pgdyno.features.crash_disk.plan import (
    ACTIVE_S_MAX,
    ACTIVE_S_MIN,
    CrashKind,
    CrashMoment,
    CrashPlan,
    DiskBehavior,
    StandbyCrash,
    Survivors,
    planned_crash,
)
from pgdyno.features.crash_disk.records import (
    AuditCounts,
    Corruption,
    Crash,
    CrashArm,
    CrashTestRecord,
    CrashWriter,
    has_study,
    read_crash_test,
)
from pgdyno.features.hosts.sections import read_hosts
from pgdyno.report.answer import BAR_WIDTH
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Guarantee, Kept
from pgdyno.study.arm_spec import parse_arms

PLAN = CrashPlan(arms=tuple(parse_arms(["18", "18,fsync=off"])), cuts=3, seed=5)
POWER = "survives a crash of the system or a power loss"
SERVER = "survives a crash of the server"


def arm_of(index: int, name: str, kept: Kept) -> CrashArm:
    promised = {SERVER: Kept.YES, POWER: kept, "torn-page protection": kept}
    safety = [Guarantee(promise, of, "") for promise, of in promised.items()]
    return CrashArm(index, name, {"version": "18.1"}, {}, safety, 0.2)


ARMS = [arm_of(0, "18", Kept.YES), arm_of(1, "fsync=off", Kept.NO)]


DISK = {"written_bytes": 8_192_000, "writes": 1500, "flushes": 500, "read_bytes": 0, "reads": 0, "failed": 0}


def crash_of(
    number: int,
    arm: int,
    lost: int | None = 0,
    *,
    holes: int = 0,
    corruption: Sequence[Corruption] = (),
    acknowledged: int = 1000,
) -> Crash:
    audit = None if lost is None else AuditCounts(lost, 4, 1, 0, holes, 0, 0.9 if lost else None)
    return Crash(
        number=number,
        arm=arm,
        started_unix_s=1.7e9,
        took_s=8.0,
        active_s=2.5,
        survivors=Survivors.TORN,
        acknowledged=acknowledged,
        recovery_s=None if lost is None else 0.1 * (number + 1),
        **({} if audit is None else asdict(audit)),
        corruption=list(corruption),
        unchecked=["amcheck"],
        replayed_bytes=None if lost is None else 1000 * number,
        disk=DISK,
    )


BROKEN = [Corruption("start", "invalid page in block 3")]
CRASHES = [
    *(crash_of(number, 0) for number in range(3)),
    crash_of(0, 1, 700),
    crash_of(1, 1, 100, holes=2),
    crash_of(2, 1, None, corruption=BROKEN),
]


RECORD = CrashTestRecord(1.7e9, "0.1", {}, "pgdyno crash", {}, PLAN)


def report_of(
    crashes: Sequence[Crash] = CRASHES, arms: Sequence[CrashArm] = ARMS, **changes: object
) -> CrashReport:
    """``changes`` of the plan."""
    plan = PLAN.model_copy(update=changes)
    return build_crash_report(CrashTest(plan, False, find_crashes(plan, arms, crashes), crashes))


def findings_of(report: CrashReport) -> Sequence[CrashFindings]:
    return report.test.arms


def sentences_of(report: CrashReport) -> list[str]:
    return [headline.sentence for headline in report.headlines]


def arms_in_json(report: CrashReport) -> list[dict[str, Any]]:
    return cast(list[dict[str, Any]], json.loads(checked_json(report))["arms"])


def test_moments_follow_from_the_seed_and_are_the_same_for_all_arms() -> None:
    crashes = [planned_crash(PLAN, number, arm) for number in range(200) for arm in (0, 1)]
    assert crashes == [planned_crash(PLAN, one.number, one.arm) for one in crashes]
    for first, second in zip(crashes[::2], crashes[1::2], strict=True):
        assert (first.active_s, first.survivors) == (second.active_s, second.survivors)
        assert first.key != second.key
    moments = [one.active_s for one in crashes]
    assert ACTIVE_S_MIN <= min(moments) < 1.2
    assert 4.8 < max(moments) <= ACTIVE_S_MAX
    assert {one.survivors for one in crashes} == set(Survivors)
    assert planned_crash(PLAN.model_copy(update={"seed": 6}), 0, 0) != crashes[0]
    fixed = PLAN.model_copy(update={"survivors": Survivors.ALL})
    assert {planned_crash(fixed, number, 0).survivors for number in range(20)} == {Survivors.ALL}


def test_a_crash_test_is_read_as_it_was_written_and_continues_only_with_the_same_plan(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    with CrashWriter.begin(path, RECORD, ARMS) as writer:
        for crash in CRASHES[:4]:
            writer.add_crash(crash)
    done = {(crash.number, crash.arm) for crash in CRASHES[:4]}
    for changes in ({}, {"cuts": 50}):
        assert crash_run._crashes_so_far(path, PLAN.model_copy(update=changes)) == done
    with pytest.raises(EvidenceError, match="other options"):
        crash_run._crashes_so_far(path, PLAN.model_copy(update={"kind": CrashKind.SERVER}))
    with CrashWriter.resume_test(path, PLAN) as writer:
        for crash in CRASHES[4:]:
            writer.add_crash(crash)
        writer.finish_test(1.7e9 + 60)
    found = read_crash_test(path)
    assert found is not None
    assert found[0] == replace(RECORD, ended_unix_s=1.7e9 + 60)
    assert found[1:] == (ARMS, sorted(CRASHES, key=lambda one: (one.number, one.arm)))
    with pytest.raises(EvidenceError, match="not a study"):
        Evidence(path)


def test_a_crash_test_continues_only_with_the_same_servers_and_settings(tmp_path: Path) -> None:
    path, cache = tmp_path / "c.sqlite", cast(Any, None)
    CrashWriter.begin(path, RECORD, ARMS).close()
    for changes in ({"server": {"version": "18.2"}}, {"settings": {"work_mem": "4MB"}}):
        with pytest.raises(EvidenceError, match="of other servers or settings: use another name"):
            crash_run._writer(path, PLAN, "", [replace(ARMS[0], **changes), ARMS[1]], cache)
    crash_run._writer(path, PLAN, "", ARMS, cache).close()


def test_losses_and_their_intervals_are_counted_by_crash() -> None:
    safe, unsafe = findings_of(report_of())
    losses = [of.cuts_with_loss for of in (safe, unsafe) if of.cuts_with_loss]
    assert [(of.count, of.n) for of in losses] == [(0, 3), (3, 3)]
    assert (unsafe.lost_max, unsafe.holes, unsafe.cuts_unreadable) == (700, 2, 1)
    assert unsafe.corruption.by_check == {"start": 1}
    assert unsafe.recovery_s is not None
    assert unsafe.recovery_s.n == 2
    # A server that does not start has lost everything that it acknowledged.
    assert crash_of(0, 0, None, corruption=BROKEN).has_loss
    assert not crash_of(0, 0, None, corruption=BROKEN, acknowledged=0).has_loss


@pytest.mark.parametrize(
    "crash",
    [crash_of(0, 0, 1), crash_of(0, 0, None, corruption=BROKEN), crash_of(0, 0, corruption=BROKEN)],
    ids=["loss", "no start", "corruption"],
)
def test_settings_that_promise_everything_are_contradicted_by_any_deviation(crash: Crash) -> None:
    safe, unsafe = findings_of(report_of([crash, crash_of(0, 1, 5)]))
    assert safe.breaks_promise
    assert not unsafe.breaks_promise
    assert not findings_of(report_of())[0].breaks_promise


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, ("honest", "ext4")),
        ({"standby": StandbyCrash.BOTH}, ("honest", "ext4")),
        ({"kind": CrashKind.SERVER}, (None, None)),
        ({"real": True}, (None, None)),
    ],
)
def test_json_has_the_losses_and_the_plan_with_a_disk_only_if_it_is_simulated(
    changes: dict[str, object], shown: tuple[str | None, str | None]
) -> None:
    document = json.loads(checked_json(report_of(**changes)))
    disk = dict(zip(("disk", "file_system"), shown, strict=True))
    assert document["plan"] == PLAN.model_copy(update=changes).model_dump(mode="json") | disk
    assert document["complete"] is False
    assert document["arms"][1]["lost_commits"] == [700, 100]
    assert document["arms"][1]["loss_window_s"] == [0.9, 0.9]


def test_the_limit_without_a_loss_is_the_same_in_the_table_and_in_the_sentence() -> None:
    report = report_of([crash_of(number, 0) for number in range(30)], ARMS[:1])
    ((_, loss, *_),) = crash_tables(report.test)[0].rows
    assert loss == "0/30 (<9.5%)"
    assert "probability below 9.5% with 95% confidence" in sentences_of(report)[0]
    assert "1 left it unreadable" in sentences_of(report_of())[1]
    assert len(sentences_of(report_of([]))) == 2  # before the first crash


@pytest.mark.parametrize(
    ("changes", "counter", "words"),
    [
        ({"disk": DiskBehavior.FAILING}, "failed", "a disk request failed in 1 of 2"),
        ({"disk": DiskBehavior.FULL}, "no_space", "the server found the disk full in 1 of 2"),
        ({"at": CrashMoment.VACUUM}, "in_phase", "1 of 2 during the VACUUM"),
        ({"at": CrashMoment.COMMIT}, "in_phase", "1 of 2 at a flush"),
    ],
)
def test_crashes_after_a_fault_or_in_the_aimed_phase_are_counted(
    changes: dict[str, object], counter: str, words: str
) -> None:
    crashes = [replace(crash_of(0, 0), disk={counter: 1}), replace(crash_of(1, 0), disk={counter: 0})]
    report = report_of(crashes, ARMS[:1], **changes)
    assert words in sentences_of(report)[0]
    assert arms_in_json(report)[0]["cuts_in_phase"] == (1 if "at" in changes else None)
    assert not {"disk", "flush"} & set(sentences_of(report_of(crashes, ARMS[:1]))[0].split())


def test_requests_of_the_disk_are_given_per_acknowledged_commit() -> None:
    report = report_of([crash_of(0, 0), crash_of(1, 0, acknowledged=3000)], ARMS[:1])
    (_, disk) = crash_tables(report.test)
    assert disk.rows == [["18", "4,000", "4 kB", "0.750", "0.250", "0 B"]]
    counters = {"written_bytes": 4096, "writes": 0.75, "flushes": 0.25, "read_bytes": 0, "reads": 0}
    assert arms_in_json(report)[0]["disk_per_commit"] == counters
    without = report_of([replace(crash_of(0, 0), disk={}), crash_of(1, 0)], ARMS[:1])
    assert len(crash_tables(without.test)) == 1
    assert arms_in_json(without)[0]["disk_per_commit"] is None


@pytest.mark.parametrize(
    ("log", "replayed"),
    [
        ("LOG:  redo starts at 0/1591E88\nLOG:  redo done at 0/1591F88 system usage: CPU", 0x100),
        ("LOG:  redo starts at 0/FFFFFF00\nx\nLOG:  redo done at 1/00000100", 0x200),
        ("redo starts at 0/1\nredo done at 0/9\nredo starts at 0/10\nredo done at 0/30", 0x20),
        ("LOG:  redo is not required", 0),
        ("LOG:  redo starts at 0/1591E88\nFATAL:  broken", None),
        ("LOG:  database system is ready", None),
    ],
)
def test_replayed_wal_is_read_from_the_log(log: str, replayed: int | None) -> None:
    assert replayed_bytes(log) == replayed


def test_progress_names_the_loss_or_the_reason_of_an_unreadable_cluster() -> None:
    assert "700 of 1,000" in progress_line(CRASHES[3], "x", PLAN)
    assert "invalid page" in progress_line(CRASHES[5], "x", PLAN)


def test_the_page_and_the_whole_report_have_every_table_and_the_csv_every_crash(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, page = tmp_path / "c.sqlite", tmp_path / "c.html"
    with CrashWriter.begin(path, RECORD, ARMS) as writer:
        for crash in CRASHES:
            writer.add_crash(crash)
    assert run_command(["report", str(path), "--html", str(page)]) == 0
    texts = [unescape(page.read_text("utf-8"))]
    for form in ("--full", "--md", "--json"):
        assert run_command(["report", str(path), form]) == 0
        texts.append(" ".join(plain(capsys.readouterr().out).split()))
    for text in texts:
        assert "700" in text and "fsync=off" in text
        # What the checks found and could not check, and that crashes are missing.
        assert "by the check that failed: start 1. invalid page in block 3" in text
        assert "Not checked after at least one crash: amcheck (18 and fsync=off). The server has no" in text
    for text in texts[:3]:
        assert DISK_TITLE in text and "was interrupted: 3 of 3 power cuts per arm." in text
        assert "How to repeat it" in text and RECORD.command in text
    assert run_command(["report", str(path), "--csv"]) == 0
    rows = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert [(row["arm"], row["acknowledged"], row["lost"]) for row in rows] == [
        (ARMS[of.arm].name, str(of.acknowledged), "" if of.audit is None else str(of.audit.lost))
        for of in sorted(CRASHES, key=lambda of: (of.number, of.arm))
    ]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("crash 18 --kind server --cuts 0", "--cuts"),
        ("crash 18 --kind server --survivors torn", "--survivors torn applies to --kind power only"),
        ("crash 18 --kind server --at commit", "--at commit applies to --kind power only"),
        ("crash --real postgresql://h/x postgresql://i/x", "one running server as a DSN"),
        ("crash --real postgresql://h/x --kind server", "--kind does not apply to --real"),
        ("crash --real postgresql://h/x --within 2s", "--within does not apply to --real"),
        ("crash 18 --standby both --kind backend", "--standby both applies to --kind power and server"),
        ("crash 18 --standby both --disk lying", "--standby both does not apply to --disk lying"),
        ("crash 18 --standby both --at checkpoint", "--standby both does not apply to --at checkpoint"),
        ("crash 18 --standby both --file-system btrfs", "--standby both does not apply to --file-system"),
        ("crash 18 --standby primary", "--standby primary: nobody reads the primary's disk"),
        ("crash 18", "lacks /dev/fuse: provide it, or use pgdyno crash --kind backend or server without"),
        ("compare 18 postgresql://localhost/x --durability", "remove the DSN localhost/x"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_starts(
    command: str, why: str, tmp_path: Path, refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are in the golden commands."""
    monkeypatch.setattr(crash_run, "missing_for_power_cuts", lambda _: ["/dev/fuse"])
    assert why in refusal(f"{command} --evidence {tmp_path}/c")
    assert not (tmp_path / "c").exists()


def with_crashes(path: Path, *cases: Synthetic) -> Path:
    """Write a study whose second arm is faster, with a crash test in which this arm loses commits."""
    write_study(path, *cases)
    with Evidence(path) as evidence:
        specs = evidence.study().plan.arms
    record = replace(RECORD, plan=PLAN.model_copy(update={"arms": specs}))
    arms = [replace(arm, name=spec.name) for arm, spec in zip(ARMS, specs, strict=True)]
    with CrashWriter.begin(path, record, arms) as writer:
        for crash in (crash_of(0, 0), crash_of(0, 1, 700), crash_of(1, 0), crash_of(1, 1)):
            writer.add_crash(crash)
        writer.finish_test(1.7e9 + 60)
    return path


FASTER = Synthetic(effects=(1, 1.2), blocks=6)
FEW = replace(FASTER, blocks=2)


@pytest.mark.parametrize("cases", [1, 2])
def test_every_form_has_speed_and_loss_of_each_arm(tmp_path: Path, cases: int) -> None:
    study = [FASTER] if cases == 1 else [replace(FASTER, levels={"clients": n}) for n in ("8", "64")]
    built = read_report(with_crashes(tmp_path / "e", *study))
    for form in FORMS.keys() - {"csv"}:
        text = " ".join(plain(FORMS[form](built)).split())
        if form == "summary":
            assert "commits lost in power cuts: 17 in 0 of 2; 18 in 1 of 2 (up to 700" in text
        else:
            assert "none of 2 power cuts lost an acknowledged commit" in text, form
            assert "1 of 2 power cuts lost acknowledged commits (up to 700" in text, form
    (section, *_) = sections_of(built)
    slower, faster, *unchecked = section.sentences
    assert unchecked == [
        "Not checked after at least one crash: amcheck (17 and 18). The server has no program, extension or "
        "checksums for it, is remote, or the check timed out."
    ]
    (panel,) = section.plots()
    assert str(panel.picture).count("<circle") == 2
    assert "baseline; none of 2" in slower
    basis = "average over 2 cases, " if cases == 2 else ""
    assert re.search(rf"NOPM \+(1[789]|2[01])\.?\d*% \({basis}95% CI .*\); 1 of 2", faster)


def test_a_report_over_hosts_has_the_losses_of_each_host(tmp_path: Path) -> None:
    large = {**HOST, "cores": 64, "processor": "another"}
    one = with_crashes(tmp_path / "one.sqlite", FEW)
    other = with_crashes(tmp_path / "other.sqlite", replace(FEW, host=large))
    write_study(tmp_path / "without.sqlite", replace(FEW, host={**HOST, "cores": 32}))
    built = read_hosts([one, other, tmp_path / "without.sqlite"])
    (table,) = (table for table in tables_of(built) if table.title == "Durability by host")
    assert [row[1] for row in table.rows] == ["one", "", "other", ""]
    for form in FORMS.keys() - {"csv", "summary"}:
        text = " ".join(plain(FORMS[form](built)).split())
        assert text.count('"cuts_with_loss": { "count": 1,' if form == "json" else "1/2") >= 2, form


def test_the_study_stays_as_it_was_and_ended(tmp_path: Path) -> None:
    path = tmp_path / "e"
    write_study(path, FEW)
    before = json.loads(checked_json(read_report(path)))
    path.unlink()
    after = json.loads(checked_json(read_report(with_crashes(path, FEW))))
    assert after["more"]["durability"]["arms"][1]["lost_commits"] == [700, 0]
    assert after.pop("sentences")[""].pop("durability") and before.pop("sentences")
    said, unsaid = after.pop("answer"), before.pop("answer")
    assert said["arms"] == unsaid["arms"]
    added = [one for one in said["sentences"] if one not in unsaid["sentences"]]
    assert [one.partition(": ")[0] for one in added] == ["Acknowledged commits lost in power cuts"]
    assert len(said["sentences"]) == len(unsaid["sentences"]) + 1
    assert {**after, "more": before["more"]} == before
    assert has_study(path)
    found = read_crash_test(path)
    assert found is not None
    assert len(found[2]) == 4


@pytest.mark.parametrize(
    ("standby", "kind", "level", "promise"),
    [
        (StandbyCrash.PRIMARY, CrashKind.SERVER, "local", Kept.NO),
        (StandbyCrash.PRIMARY, CrashKind.SERVER, "Remote_Write", Kept.YES),
        (StandbyCrash.BOTH, CrashKind.POWER, "remote_write", Kept.NO),
        (StandbyCrash.BOTH, CrashKind.SERVER, "remote_write", Kept.YES),
        (StandbyCrash.BOTH, CrashKind.POWER, "on", Kept.YES),
        (StandbyCrash.STANDBY, CrashKind.POWER, "local", Kept.YES),
    ],
)
def test_the_promise_of_a_standby_depends_on_what_a_commit_waits_for(
    standby: StandbyCrash, kind: CrashKind, level: str, promise: Kept
) -> None:
    arm = replace(ARMS[0], settings={"synchronous_commit": level})
    report = report_of([crash_of(0, 0)], [arm], standby=standby, kind=kind)
    assert [found.promised for found in findings_of(report)] == [promise]
    whose = {"primary": "of the primary", "both": "of primary and standby", "standby": "of the standby"}
    assert f"none of 1 {PLURAL[kind][0]} {whose[standby]} lost" in sentences_of(report)[0]


def test_a_study_to_which_crashes_are_not_added_stays_as_it_is(
    tmp_path: Path, refusal: Callable[..., str]
) -> None:
    write_study(tmp_path / "e", FEW)
    before = (tmp_path / "e").read_bytes()
    refusal(f"crash 17 18 --kind server --evidence {tmp_path}/e", 1)
    assert (tmp_path / "e").read_bytes() == before


def test_bars_show_the_share_and_its_interval() -> None:
    assert share_bar(None) == ""
    assert share_bar(proportion(0, 10)).startswith("●")
    assert share_bar(proportion(10, 10)).endswith("●")
    assert {len(share_bar(proportion(n, 10))) for n in range(11)} == {BAR_WIDTH}


def coverage(n: int, rank: int) -> float:
    """Probability that the median lies between the order statistics, by enumeration of signs."""
    signs = itertools.product((0, 1), repeat=n)
    return sum(rank < sum(below) < n - rank for below in signs) / 2**n


@pytest.mark.parametrize("n", [6, 9, 12])
def test_the_interval_of_the_median_covers_and_the_next_narrower_one_does_not(n: int) -> None:
    found = median_interval([float(value) for value in range(n, 0, -1)])
    assert found is not None
    assert found.low is not None
    rank = int(found.low) - 1
    assert found.high == n - rank
    assert coverage(n, rank) >= 0.95
    assert coverage(n, rank + 1) < 0.95


def test_few_values_have_no_interval_and_none_no_median() -> None:
    assert median_interval([]) is None
    found = median_interval([3.0, 1.0])
    assert found is not None
    assert (found.value, found.n, found.low, found.high) == (2.0, 2, None, None)


@pytest.mark.parametrize(
    ("spec", "version", "shown"),
    [
        ("10.3,fsync=off,work_mem=4MB", "10.20", "10.20,fsync=off,work_mem=4MB"),
        ("10.3", "10.20", "10.20"),
        ("10.3", None, "10.3"),
        ("18,fsync=off", "18.4", "18,fsync=off"),
        ("git:REL_10_3", "10.3", "git:REL_10_3"),
    ],
)
def test_the_suggested_crash_test_names_a_server_that_is_there(
    spec: str, version: str | None, shown: str
) -> None:
    assert with_version(spec, version) == shown


def test_a_long_command_for_a_crash_test_is_an_option_of_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(seed: int) -> str:
        return summarized(study_report_of(Synthetic(blocks=5, unsafe_arms=(1,), seed=seed)))

    assert "To measure lost commits: sudo pgdyno crash 17 18" in plain(shown(1))
    monkeypatch.setattr(sections, "COMMAND_MAX", 10)
    assert "To measure lost commits: repeat the study with --durability" in plain(shown(2))
