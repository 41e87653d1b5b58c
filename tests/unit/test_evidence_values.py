"""Contents of a results file: events as records, packed values, caveats, and never a password."""

from __future__ import annotations

import json
import math
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from synthetic_study import Synthetic, arms_of, study_of

from pgdyno.caveats import Caveat, Rank, wordings
from pgdyno.measure.engine_runs import failures_from, histograms_from, interval_from, slice_from
from pgdyno.results import codec
from pgdyno.results.password_masking import mask_passwords, masked_json
from pgdyno.results.reader import Evidence
from pgdyno.results.records import (
    Block,
    CapacitySearch,
    Counts,
    CpuTimeNs,
    DriverFacts,
    Failure,
    Guarantee,
    HostFacts,
    Kept,
    Measure,
    ServerFacts,
    TrialOutcome,
    TrialStatus,
    facts_from,
)
from pgdyno.results.writer import Writer
from pgdyno.server.engine import DriveResult
from pgdyno.study.arm_spec import ArmSpec
from pgdyno.study.plan import Driving
from pgdyno.study.schedule import Role
from pgdyno.study.values import SearchStep
from pgdyno.workloads.pgbench.parameters import PgbenchParameters, Script

COUNTS = {"ok": 7, "rolled_back": 1, "failed": 2, "skipped": 0, "retried": 3}


def test_a_slice_event_becomes_a_slice() -> None:
    event = {
        "event": "slice",
        "slice": 3,
        "target": 1,
        "role": "measure",
        "opened_ns": 1_000_000_000,
        "counted_from_ns": 1_050_000_000,
        "closed_ns": 2_000_000_000,
        "drained_ns": 2_010_000_000,
        "kinds": {"payment": COUNTS},
        "driver_cpu_ns": {"user": 20_000_000, "system": 30_000_000},
    }
    found = slice_from(event)
    assert (found.position, found.role, found.kinds) == (3, Role.MEASURE, {"payment": Counts(7, 1, 2, 0, 3)})
    assert (found.opened_s, found.counted_from_s, found.closed_s, found.drained_s) == (1.0, 1.05, 2.0, 2.01)
    assert found.driver_cpu_s == pytest.approx(0.05)


def test_an_interval_event_without_an_ok_transaction_has_no_latency() -> None:
    event = {
        "slice": 0,
        "role": "warm-up",
        "from_ns": 0,
        "to_ns": 1_000_000_000,
        "latency_ns": {"p50": 5, "p95": 6, "p99": 7, "max": 8},
    }
    busy = interval_from({**event, "kinds": {"payment": COUNTS}})
    idle = interval_from({**event, "kinds": {"payment": {**COUNTS, "ok": 0}}})
    assert (busy.latency_p50_ns, busy.latency_max_ns, busy.role) == (5, 8, Role.WARM_UP)
    assert (idle.latency_p50_ns, idle.latency_max_ns) == (None, None)


def test_a_result_gives_histograms_and_failures_with_a_sample() -> None:
    payment = {
        "counts": COUNTS,
        "failures": {"40001": 2, "connection": 1, "abandoned": 3},
        "histograms": {"latency": [[10, 3], [20, 4]], "service": [], "lag": [[0, 7]]},
    }
    parts = {"totals": {}, "counters": {}, "tally": {}, "connections_lost": 0}
    event = {
        "stopped": "done",
        "lost": None,
        "driver": {},
        "targets": [{"kinds": {"payment": payment}, **parts}],
    }
    (target,) = DriveResult.of(event).targets
    errors = [
        {"kind": "server", "sqlstate": "40001", "message": "first"},
        {"kind": "server", "sqlstate": "40001", "message": "second"},
        {"kind": "connection", "sqlstate": None, "message": "abandoned by the driver"},
        {"kind": "connection", "sqlstate": None, "message": "closed"},
    ]
    found = histograms_from(target)
    assert [(h.measure, h.n) for h in found] == [(Measure.LATENCY, 7), (Measure.LAG, 7)]
    assert failures_from(target, errors) == [
        Failure("payment", "40001", 2, "first"),
        Failure("payment", "connection", 1, "closed"),
        Failure("payment", "abandoned", 3, "abandoned by the driver"),
    ]


@given(st.dictionaries(st.integers(0, 60_000_000_000), st.integers(1, 2**40), max_size=50))
def test_packed_pairs_have_the_documented_format_and_round_trip(values: dict[int, int]) -> None:
    ordered = sorted(values.items())
    blob = codec.PAIRS.pack(codec.pairs_from(ordered))
    flat = [number for pair in ordered for number in pair]
    assert zlib.decompress(blob) == struct.pack(f"<{len(flat)}Q", *flat)
    assert codec.PAIRS.unpack(blob, {}).tolist() == [list(pair) for pair in ordered]


def test_values_that_do_not_ascend_are_not_a_histogram() -> None:
    with pytest.raises(ValueError, match="ascend"):
        codec.pairs_from([(2, 1), (2, 1)])


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"not zlib",
        zlib.compress(b"seven b"),
        zlib.compress(b"0" * 160)[:-4],
        zlib.compress(b"0" * (codec.UNPACKED_BYTES_MAX + 1)),
    ],
    ids=["empty", "foreign", "odd length", "cut short", "bomb"],
)
def test_a_blob_of_another_format_is_rejected(blob: bytes) -> None:
    with pytest.raises(ValueError, match="damaged"):
        codec.PAIRS.unpack(blob, {})


@pytest.fixture
def _short_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "LOG_BYTES_MAX", 10_000)


@pytest.mark.usefixtures("_short_logs")
def test_a_very_long_entry_of_a_log_keeps_its_start_and_end() -> None:
    text = codec.unpack_text(codec.pack_text("first\n" + "x" * 30_000 + "\nlast"))
    assert text.startswith("first\n") and text.endswith("\nlast") and "bytes omitted here" in text
    assert len(text) < codec.LOG_BYTES_MAX + 100


@pytest.mark.usefixtures("_short_logs")
def test_the_omitted_middle_of_a_log_is_not_masked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    masked: list[str] = []
    monkeypatch.setattr(codec, "mask_passwords", lambda text: masked.append(text) or text)
    text = codec.unpack_text(codec.pack_text("ERROR:  duplicate key\n" * 5_000))
    assert sum(map(len, masked)) < 2 * codec.LOG_BYTES_MAX
    assert text.count("\n[pgdyno: ") == 1 and text.startswith("ERROR") and text.endswith("key\n")
    assert "bytes omitted here" in text and len(text) < codec.LOG_BYTES_MAX + 100


@pytest.mark.usefixtures("_short_logs")
@pytest.mark.parametrize("shift", range(0, 60, 7))
def test_no_cut_of_a_long_log_divides_a_password(shift: int) -> None:
    entry = "STATEMENT:  ALTER USER MAPPING OPTIONS (password='first-secret\n\tsecond-secret')\n"
    text = codec.unpack_text(codec.pack_text("x" * shift + "\n" + entry * 600))
    assert "bytes omitted here" in text and "secret" not in text


PORTS = (
    'new = "postgresql://localhost:5418"\n\n[workload]\nscripts = ["select-only@9"]\n',
    'scripts = ["postgresql://localhost:5418", "select-only@9"]',
    "scripts = ['postgresql://localhost:5418','select-only@9']",
    'new = "postgresql://localhost:$PORT"\nscripts = ["select-only@9"]\n',
    'scripts = ["postgresql://[::1]:5418", "select-only@9"]',
    "pgdyno compare postgresql://localhost:5418 18 -b select-only@9",
)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://u:secret@host/db", "postgresql://u:***@host/db"),
        ("postgres://u:se@cret@host/db", "postgres://u:***@host/db"),
        ("postgresql://:secret@/db?host=/tmp", "postgresql://:***@/db?host=/tmp"),
        ("postgresql://u@host/db?password=secret&x=1", "postgresql://u@host/db?password=***&x=1"),
        ("host=h password=secret user=u", "host=h password=*** user=u"),
        (r"password = 'sec\'ret' user=u", "password = *** user=u"),
        ("sslpassword=secret", "sslpassword=***"),
        ("PASSWORD=secret", "PASSWORD=***"),
        ("postgresql://u@host:5432/db", "postgresql://u@host:5432/db"),
        ("no_password=kept", "no_password=kept"),
        ("postgresql://u:zz?topsy#1@host/db", "postgresql://u:***@host/db"),
        ("postgresql://u:a secret@host/db", "postgresql://u:***@host/db"),
        ("postgresql://u:a@h/x postgresql://u:b@h/y", "postgresql://u:***@h/x postgresql://u:***@h/y"),
        ("postgresql://u@host/db?pass%77ord=secret&x=1", "postgresql://u@host/db?pass%77ord=***&x=1"),
        ("postgresql://u@host/db?%70assword=secret", "postgresql://u@host/db?%70assword=***"),
        (r"password=two\ words user=u", "password=*** user=u"),
        ("password=it's user=u", "password=*** user=u"),
        ("PGPASSWORD=secret pgdyno", "PGPASSWORD=*** pgdyno"),
        ("scram_client_key=secret", "scram_client_key=***"),
        ("/tmp/postgresql:/u:secret@host/db", "/tmp/postgresql:/u:***@host/db"),
        ("postgresql://u:12345@host/db", "postgresql://u:***@host/db"),
        ('"postgresql://u:s3\'c"ret@h" a@9', '"postgresql://u:***@h" a@9'),
        *((text, text) for text in PORTS),
    ],
)
def test_passwords_are_masked_and_ports_are_not(text: str, masked: str) -> None:
    assert mask_passwords(text) == masked
    assert mask_passwords(masked) == masked


def test_passwords_in_json_are_masked_by_key_and_in_texts() -> None:
    value = {"password": "s3cret", "nested": [{"dsn": "postgresql://u:s3cret@h/d"}], "port": 5432}
    assert "s3cret" not in masked_json(value) and "5432" in masked_json(value)


def test_no_password_reaches_the_file_by_any_way(tmp_path: Path) -> None:
    dsn = "postgresql://u:hunter2@h/d"
    wanted = Synthetic(names=("17", dsn), title=dsn)
    with Writer.create(tmp_path / "e", replace(study_of(wanted), case=dsn), arms_of(wanted)) as writer:
        writer.begin_block(Block(0, 1, (0, 1), 0.0))
        trial = writer.begin_trial(0, 1, 0.0)
        writer.describe_arm(1, safety=[Guarantee("durable", Kept.UNKNOWN, dsn)])
        outcome = TrialOutcome(
            TrialStatus.FAILED,
            1.0,
            reason=f"no connection to {dsn}",
            settings={"primary_conninfo": "password=hunter2"},
            driver=DriverFacts(stopped_by=dsn),
            failures=[Failure("payment", "28P01", 1, dsn)],
        )
        writer.finish_trial(trial, outcome)
        writer.add_caveat(Caveat.of("trials-failed", arm=dsn, trials=1, reason=dsn))
    assert b"hunter2" not in (tmp_path / "e").read_bytes()


def test_the_workloads_of_a_plan_are_stored_as_they_run_and_its_arms_without_passwords(
    tmp_path: Path,
) -> None:
    login = "SELECT id FROM users WHERE mail = :m AND password = 'x';\n"
    scripts = (Script(name="login.sql", text=login),)
    own = PgbenchParameters(scale=1, scripts=scripts, define={"password": "abc"})
    drivings = tuple(Driving(workload=own, clients=clients) for clients in (8, 9))
    study = study_of(Synthetic())
    dsn = ArmSpec(name="running", server="host=db password=hunter2", is_dsn=True)
    plan = study.plan.model_copy(
        update={
            "arms": (study.plan.arms[0], dsn),
            "workload": own,
            "warmup_workload": own,
            "drivings": drivings,
            "beside": ("sh", "-c", "psql password=hunter2"),
        }
    )
    with Writer.create(tmp_path / "e", replace(study, plan=plan), arms_of(Synthetic())) as writer:
        with Evidence(tmp_path / "e") as evidence:
            stored = [evidence.study().plan]
        writer.repeat_with(plan, 0)
        with Evidence(tmp_path / "e") as evidence:
            stored.append(evidence.study().plan)
    for of in stored:
        assert (of.workload, of.warmup_workload, of.drivings) == (own, own, drivings)
    assert b"hunter2" not in (tmp_path / "e").read_bytes()


def test_every_caveat_is_a_sentence_with_a_remedy_and_a_routine_one_is_a_condition() -> None:
    for code, wording in wordings().items():
        for name in wording.kinds or (code,):
            parameters = dict.fromkeys(wording.parameters(name) - {"kind"}, "something")
            caveat = Caveat.of(name, **parameters)
            assert (caveat.code, caveat.kind) == (code, name)
            assert bool(caveat.condition) is (wording.rank is Rank.ROUTINE), name
            assert caveat.text.endswith("."), name
            assert caveat.remedy.endswith(".") or (caveat.condition and not caveat.remedy), name
            assert "{" not in caveat.text + caveat.remedy + caveat.condition, name


@pytest.mark.parametrize("parameters", [{}, {"cores": 2, "more": 1}, {"core": 2}])
def test_a_caveat_takes_the_parameters_of_its_sentence_and_no_others(parameters: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="shared-machine"):
        Caveat.of("shared-machine", **parameters)


def test_counts_add_up_without_retries() -> None:
    assert Counts.total([]) == Counts()
    total = Counts.total([Counts(1, 2, 3, 4, 5), Counts(10, 20, 30, 40, 50)])
    assert total == Counts(11, 22, 33, 44, 55)
    assert (total.all, total.executed) == (110, 33)


FACTS_JSON = TypeAdapter(DriverFacts)
STORED: dict[str, Any] = {
    "cpu_ns": {"user": 7, "system": 8},
    "memory_peak_bytes": 9_000_000,
    "wake_late_ns": {"p50": 1, "p99": 12, "max": 13},
    "threads": 2,
    "io": "io_uring",
    "round_trip_ns": {"p50": 40_000, "p99": 50_000},
    "capacity": {
        "limit": "p99 < 20ms",
        "closed_loop_per_s": 2000.5,
        "steps": [{"rate_per_s": 1400.0, "latency_ms": 3.5}, {"rate_per_s": 1750.0, "latency_ms": None}],
    },
    "warm_up": {"driven_s": 5.0, "by": "evidence", "values": 5, "looks": 1, "looks_steady": 1, "times": 1},
    "ordered_checkpoint_s": 0.25,
}
"""Facts as in the first version of the results file with these keys."""


def test_stored_facts_round_trip() -> None:
    facts = FACTS_JSON.validate_json(json.dumps(STORED))
    assert FACTS_JSON.dump_python(facts, mode="json") == STORED
    tried = [SearchStep(1400.0, 3.5), SearchStep(1750.0, math.inf)]
    assert facts.capacity == CapacitySearch("p99 < 20ms", 2000.5, tried)
    assert facts.cpu_ns == CpuTimeNs(user=7, system=8)


@pytest.mark.parametrize("text", ["{}", '{"of_a_later_version": [1]}', '{"round_trip_ns": null}'])
def test_unknown_keys_and_missing_facts_are_no_error(text: str) -> None:
    assert FACTS_JSON.validate_json(text) == DriverFacts()
    assert FACTS_JSON.dump_python(DriverFacts()) == {}


CHECK = {"about": "swap", "found": "fine", "text": "none", "code": "swap"}


def test_missing_facts_are_empty_and_further_ones_ignored() -> None:
    found = facts_from(ServerFacts, {"version": "18.1", "port": 5432, "compiled": None})
    assert (found.shown, found.build_id, found.compiled_with("CFLAGS")) == ("18.1", None, "")
    host = facts_from(HostFacts, {"states": [{"when": "before", "checks": [CHECK], "load": 0.1}]})
    assert (host.cores, host.states[0].checks[0].about) == (None, "swap")
