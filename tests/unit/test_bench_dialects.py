"""Counting by ``python -m bench dialects``."""

from __future__ import annotations

from pathlib import Path

from bench.dialects import (
    GROUPS,
    NOT_MEASURED,
    Measured,
    Setup,
    line_of,
    recorded,
    report,
    study_of,
)

from pgdyno.workloads.tpcc.dialects import DEVIATIONS, DIALECTS, SPEC


def test_every_deviation_and_dialect_is_in_one_group() -> None:
    named = [name for group in GROUPS.values() for name in group]
    assert sorted([*named, *NOT_MEASURED, SPEC]) == sorted([*DEVIATIONS, *DIALECTS])


def test_the_study_of_a_group_has_one_deviation_or_dialect_per_arm() -> None:
    for group, names in GROUPS.items():
        study = study_of(group, Setup(2, 4, "18"), minutes=1, rounds=4, seed=1)
        workloads = [study.driving(arm).workload for arm in range(len(study.arms))]
        assert len(workloads) == len(names) + 1
        assert not workloads[0].deviations
        calls = {one.calls for one in workloads}
        assert calls == {"statements" if group == "statements" else "procedures"}


def test_arms_of_one_setup_are_counted_together(tmp_path: Path) -> None:
    path, old, new = tmp_path / "r.jsonl", Setup(1, 4, "15"), Setup(4, 8, "15")
    one = Measured("no-rollback", "procedures", (0.01, 0.02, 0.03), "2026-11-24")
    path.write_text(line_of(one, old) + 2 * line_of(one, new), "utf-8")
    setup, measured = recorded(path)
    assert (setup, measured) == (new, [one, one])
    assert report(measured).splitlines()[-1].split(" | ")[-1].startswith("6")
    assert "no-rollback" not in report([Measured("no-rollback", "procedures", (0.01,), "")])
