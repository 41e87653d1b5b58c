"""Specification for the engine, and caveats that only the lab can detect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from example_records import begun

from example_studies import make_study
from pgdyno.measure import drive, telemetry_collection
from pgdyno.measure.arms import LabArm
from pgdyno.measure.engine_runs import EngineRun, drive_specification
from pgdyno.measure.host_counters import MachineCpu, ServerCpu
from pgdyno.measure.telemetry_collection import ProbeKind, TelemetryCollection
from pgdyno.measure.trial import BarrierReadings, driver_busy, trial_caveats
from pgdyno.results.reader import Evidence
from pgdyno.results.records import DriverFacts, Moment, Slice
from pgdyno.study.defaults import Partition
from pgdyno.study.plan import Driving, Rate, Study
from pgdyno.study.schedule import PlannedBlock, PlannedSlice, Role
from pgdyno.workloads.tpcc.parameters import TpccParameters


class Silent:
    """An arm without messages."""

    name = "18"
    local = True

    def log(self) -> str | None:
        return None

    def is_local(self) -> bool:
        return self.local


class Elsewhere(Silent):
    local = False


def study(schedule: str) -> Study:
    return make_study(schedule=schedule, workload=TpccParameters(warehouses=1), clients=1, rounds=2)


def parameters(schedule: str, before: BarrierReadings, after: BarrierReadings) -> dict[str, dict[str, Any]]:
    seen = {"measure": before, "end": after}
    found = trial_caveats(study(schedule), 1, cast(LabArm, Silent()), DriverFacts(), 0, seen, [])
    return {caveat.kind: dict(caveat.parameters) for caveat in found}


@pytest.mark.parametrize(
    ("schedule", "runs", "told"),
    [
        ("slices", (3, 5), 2),
        ("slices", (3, 3), None),
        ("blocks", (3, 5), None),
        ("slices", (None, 5), None),
        ("slices", (3, None), None),
    ],
)
def test_autovacuum_between_slices_is_reported(
    schedule: str, runs: tuple[int | None, int | None], told: int | None
) -> None:
    before, after = (
        BarrierReadings(MachineCpu(s, 0.0), [n], [0]) for s, n in zip((1.0, 2.0), runs, strict=True)
    )
    found = parameters(schedule, before, after).get("autovacuum-in-slices")
    assert found == (None if told is None else {"kind": "autovacuum-in-slices", "arm": "18", "n": told})


@pytest.mark.parametrize(("stolen_s", "share"), [(1.0, "10.0%"), (0.4, None)])
def test_steal_time_is_reported(stolen_s: float, share: str | None) -> None:
    before, after = (BarrierReadings(MachineCpu(*of), [0], [0]) for of in ((10.0, 0.0), (20.0, stolen_s)))
    assert parameters("slices", before, after).get("steal", {}).get("share") == share


@pytest.mark.parametrize(("end", "kind"), [(1, "window-without-checkpoint"), (2, "checkpoint-in-slices")])
def test_only_checkpoints_that_start_between_the_barriers_count(end: int, kind: str) -> None:
    line = "LOG:  checkpoint starting: time\n"
    arm = cast(LabArm, SimpleNamespace(name="18", index=0, log=lambda: 3 * line, is_local=lambda: True))
    barriers = (("measure", 1), ("end", end))
    seen = {name: BarrierReadings(MachineCpu(1.0, 0.0), [0], [n * len(line)]) for name, n in barriers}
    without_probes = study("slices").model_copy(update={"probes": ()})
    found = trial_caveats(without_probes, 1, arm, DriverFacts(), 0, seen, [])
    assert [caveat.kind for caveat in found] == [kind]


@pytest.mark.parametrize(
    ("used_s", "ended", "is_known"), [(0.013, False, True), (0.39, True, False), (0.41, True, True)]
)
def test_a_cpu_time_below_its_resolution_is_absent_with_a_caveat(
    used_s: float, ended: bool, is_known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter([ServerCpu(1.0, 0.0, 0.0, 90), ServerCpu(1.0 + used_s, 0.0, 0.0, 91 if ended else 90)])
    monkeypatch.setattr(telemetry_collection, "server_cpu", lambda _: next(moments))
    arm = SimpleNamespace(name="18", shares_server=False, postmaster_pid=lambda: 7)
    writer, number = begun(tmp_path / "e")
    lab, trial = cast(Any, (SimpleNamespace(writer=writer, case=0), SimpleNamespace(id=number, arm=arm)))
    telemetry = TelemetryCollection(lab, [trial])
    telemetry.read_server_cpu()
    telemetry.read_server_cpu()
    found = telemetry.server_cpu_s(trial)
    writer.close()
    with Evidence(tmp_path / "e") as evidence:
        caveats = evidence.caveats()
    if is_known:
        assert found == pytest.approx(used_s)
        assert caveats == []
    else:
        assert found is None
        assert [(of.kind, of.trial) for of in caveats] == [("probe-unavailable", number)]


def test_a_server_that_ended_has_no_cpu_time() -> None:
    arm = SimpleNamespace(name="18", shares_server=False, postmaster_pid=lambda: 2**22 + 1)
    trial = cast(Any, SimpleNamespace(id=1, arm=arm))
    telemetry = TelemetryCollection(cast(Any, None), [trial])
    telemetry.read_server_cpu()
    assert telemetry.server_cpu_s(trial) is None


def test_probes_halt_before_the_last_readings_and_stop_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def note(name: str) -> Callable[..., None]:
        return lambda *_, **__: calls.append(name)

    def run_drive(*given: Any) -> EngineRun:
        given[3]()  # at the barrier after the measured part
        return EngineRun()

    for name in ("read_server_cpu", "_count", "_close_counters", "_stop_sampling", "_read"):
        monkeypatch.setattr(TelemetryCollection, name, note(name))
    monkeypatch.setattr(telemetry_collection, "PROBE_KINDS", [ProbeKind("plans", after=note("after"))])
    monkeypatch.setattr(drive, "BEFORE_DRIVE", ())
    monkeypatch.setattr(drive, "WarmUp", lambda *_: SimpleNamespace(ends_with=None))
    monkeypatch.setattr(drive, "_note_warm_ups", lambda *_, **__: None)
    monkeypatch.setattr(drive, "read_surroundings", note("surroundings"))
    monkeypatch.setattr(drive, "run_drive", run_drive)
    arm = SimpleNamespace(name="18", conninfo=lambda: "host=a", log=lambda: None)
    trial = cast(Any, SimpleNamespace(id=1, arm=arm, driving=None))
    lab = cast(
        Any,
        SimpleNamespace(
            study=study("blocks").model_copy(update={"probes": ("profile", "plans")}),
            block_study=None,
            case=0,
            rates={},
            warmed_s={},
            watch=lambda _: None,
            interruption=None,
            engine_of=lambda _: None,
        ),
    )
    telemetry = TelemetryCollection(lab, [trial])
    probe = SimpleNamespace(halt=note("halt"), stop=note("stop"))
    telemetry._running.append((trial, "profile", cast(Any, probe)))
    telemetry._readings[1] = []
    block = PlannedBlock(0, 1, (0,), (PlannedSlice(0, Role.MEASURE, 1.0, 0),))
    drive.drive_trials(lab, block, {0: trial}, cast(Any, {"measure": None}), telemetry)
    ends = ["read_server_cpu", "_count", "_close_counters", "halt", "_stop_sampling", "_read"]
    assert calls == [*ends, "surroundings", "stop", "after"]
    assert len({reading.at_s for reading in telemetry.readings_of(trial)}) == 1


def test_tables_are_scanned_outside_of_the_readings_of_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: list[tuple[str, ...]] = []
    monkeypatch.setattr(
        TelemetryCollection, "_read_trial", lambda _, __, ___, probes: sessions.append(tuple(probes))
    )
    probes = ("blocks", "pgstattuple", "profile", "wal")
    lab = cast(Any, SimpleNamespace(study=study("blocks").model_copy(update={"probes": probes})))
    telemetry = TelemetryCollection(lab, [cast(Any, None)])
    telemetry._read(Moment.BEGIN)
    telemetry._read(Moment.END)
    assert sessions == [("pgstattuple",), ("blocks", "wal"), ("blocks", "wal"), ("pgstattuple",)]


def piece(position: int, role: Role, driver_cpu_s: float) -> Slice:
    """One second of a slice."""
    opened_s = float(position)
    return Slice(
        position, role, opened_s, opened_s + 0.05, opened_s + 0.9, opened_s + 1, driver_cpu_s, 0.0, {}
    )


@pytest.mark.parametrize(
    ("used", "cores", "share"),
    [((0.6, 0.6), 2, "30.0%"), ((0.6, 0.4), 2, None), ((1.0, 0.2), 1, "60.0%"), ((0.2, 0.2), 1, None)],
)
def test_the_drivers_share_is_of_the_cores_in_the_measured_slices(
    used: tuple[float, float], cores: int, share: str | None
) -> None:
    # Time to connect and warm up does not count.
    slices = [piece(0, Role.WARM_UP, 9.0), *(piece(1 + i, Role.MEASURE, s) for i, s in enumerate(used))]
    found = [caveat.parameters["share"] for caveat in driver_busy(1, cast(LabArm, Silent()), slices, cores)]
    assert found == ([] if share is None else [share])


@pytest.mark.parametrize(("arm", "told"), [(Silent(), True), (Elsewhere(), False)])
def test_a_busy_driver_matters_where_it_shares_the_servers_machine(arm: Silent, told: bool) -> None:
    slices = [piece(0, Role.MEASURE, 1e6)]
    found = trial_caveats(study("slices"), 1, cast(LabArm, arm), DriverFacts(), 0, {}, slices)
    assert ("driver-busy" in {caveat.kind for caveat in found}) is told


def test_in_a_duet_the_drivers_share_is_of_the_half_that_the_arm_had() -> None:
    playing = study("duet").model_copy(update={"cpu_partition": Partition(cores=((0,), (1,)))})
    slices = [piece(n, Role.MEASURE, 0.3) for n in (0, 1)]
    found = trial_caveats(playing, 1, cast(LabArm, Silent()), DriverFacts(), 0, {}, slices)
    told = {caveat.kind: caveat.parameters for caveat in found}
    assert told["driver-busy"]["share"] == "30.0%"


COMMON = Driving(workload=TpccParameters(warehouses=1), clients=2, rate=Rate(per_s=10))
TARGETS = [("a", "host=a"), ("b", "host=b")]


def test_targets_with_the_same_load_have_no_overrides() -> None:
    specification = drive_specification(COMMON, 1, [], TARGETS)
    assert specification["targets"] == [
        {"name": "a", "conninfo": "host=a"},
        {"name": "b", "conninfo": "host=b"},
    ]
    assert specification == drive_specification(COMMON, 1, [], TARGETS, [COMMON, COMMON])


def test_a_target_contains_only_differences_and_an_explicit_closed_loop() -> None:
    workload = TpccParameters(warehouses=1, isolation="serializable")
    other = COMMON.model_copy(update={"workload": workload, "clients": 5, "rate": None, "retries_max": 3})
    specification = drive_specification(COMMON, 1, [], TARGETS, [COMMON, other])
    assert specification["targets"] == [
        {"name": "a", "conninfo": "host=a"},
        {
            "name": "b",
            "conninfo": "host=b",
            "workload": workload.to_drive(),
            "clients": 5,
            "rate": None,
            "retries_max": 3,
        },
    ]
    assert (specification["clients"], specification["rate"]["per_s"]) == (2, 10)


def test_a_target_may_set_its_threads_or_use_the_default() -> None:
    three = COMMON.model_copy(update={"threads": 3})
    for first, second in ((COMMON, three), (three, COMMON)):
        specification = drive_specification(first, 1, [], TARGETS, [first, second])
        assert specification["threads"] is None
        assert [target.get("threads") for target in specification["targets"]] == [
            first.threads,
            second.threads,
        ]
    alike = drive_specification(three, 1, [], TARGETS, [three, three])
    assert alike["threads"] == 3
    assert not any("threads" in target for target in alike["targets"])


def test_options_of_the_whole_run_cannot_differ() -> None:
    other = COMMON.model_copy(update={"discard_s": 0.5})
    with pytest.raises(ValueError, match="discard_s"):
        drive_specification(COMMON, 1, [], TARGETS, [COMMON, other])


def test_each_target_has_its_driving() -> None:
    with pytest.raises(ValueError, match="argument"):
        drive_specification(COMMON, 1, [PlannedSlice(0, "measure", 1.0, 0)], TARGETS, [COMMON])


def test_a_slice_contains_its_transaction_limit() -> None:
    slices = [PlannedSlice(1, "warm-up", 2.0, 0), PlannedSlice(0, "measure", 90.0, 0, transactions=1000)]
    assert drive_specification(COMMON, 1, slices, TARGETS)["slices"] == [
        {"target": 1, "role": "warm-up", "duration_s": 2.0},
        {"target": 0, "role": "measure", "duration_s": 90.0, "transactions": 1000},
    ]
