"""Values of one case from trials and telemetry, by metric, arm and block."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_study import Synthetic, write_study

from pgdyno.analysis.study_findings import find_study
from pgdyno.analysis.telemetry.trial_telemetry import TrialTelemetry
from pgdyno.features.published.tables import case_values
from pgdyno.results.reader import Evidence
from pgdyno.results.records import TrialStatus
from pgdyno.units import Better


def test_values_are_those_of_the_ok_trials(tmp_path: Path) -> None:
    wanted = Synthetic(blocks=3, statuses={(1, 0): TrialStatus.EXCLUDED})
    write_study(tmp_path / "study.sqlite", wanted)
    with Evidence(tmp_path / "study.sqlite") as evidence:
        findings = find_study(evidence).first
    trials = findings.trials
    telemetry = {
        trial.trial: TrialTelemetry({"wal.bytes": 8.0, "relation.growth:a": -1.0}, [], ["a"], {})
        for trial in trials
        if trial.block == 0
    }
    found = case_values(findings.study, trials, telemetry)
    assert sorted(found.values["tps"].by_block[0]) == [0, 2]
    assert sorted(found.values["tps"].by_block[1]) == [0, 1, 2]
    assert found.values["tpm"].by_block[1][1] == pytest.approx(60 * found.values["tps"].by_block[1][1])
    assert found.values["tpm"].unit == "TPM" and found.values["tpm"].better is Better.MORE
    assert found.values["wal.bytes"].by_block == {0: {0: 8.0}, 1: {0: 8.0}}
    assert found.values["relation.growth:a"].unit == "MiB"
