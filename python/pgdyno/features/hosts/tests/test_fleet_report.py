"""The report of a fleet study: lost hosts, slow and noisy hosts, cases spread over hosts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from several_hosts import LARGE, LARGER, SMALL, pooled_of, written
from synthetic_study import Synthetic

from pgdyno.caveats import Caveat
from pgdyno.errors import EvidenceError
from pgdyno.features.hosts.fleet_record import (
    FleetRecord,
    HostState,
    HostWork,
    StudyChoices,
    read_fleet,
    write_fleet,
)
from pgdyno.features.hosts.sections import read_fleet_report


def fleet_of(folder: Path, *works: HostWork) -> Path:
    path = folder / "s.fleet.json"
    write_fleet(
        path, FleetRecord(title="t", study="s", text="", choices=StudyChoices(), command="", works=works)
    )
    return path


def work(host: str, state: HostState = HostState.DONE, **fields: object) -> HostWork:
    return HostWork.model_validate({"host": host, "file": f"s-{host}.sqlite", "state": state, **fields})


def by_kind(caveats: Sequence[Caveat]) -> dict[str, Caveat]:
    return {caveat.kind: caveat for caveat in caveats}


FEW = replace(SMALL, blocks=2)


def test_the_report_names_every_host_without_complete_results(tmp_path: Path) -> None:
    others = [replace(FEW, host={**LARGE, "cores": cores}) for cores in (32, 64)]
    written(tmp_path, **{"s-a": FEW, "s-b": others[0], "s-c": others[1]})
    works = (
        work("a"),
        work("b", HostState.LOST, reason="its node has left the cluster"),
        work("c", HostState.INTERRUPTED, reason="no snapshot"),
        work("d", HostState.FAILED, reason="no space"),
        work("e", HostState.INTERRUPTED),
        work("f", HostState.MEASURING),
        work("g", is_collected=True),
    )
    built = read_fleet_report(fleet_of(tmp_path, *works))
    found = built.findings.incomplete
    assert all(caveat in built.findings.caveats for caveat in found)
    assert [(caveat.kind, caveat.parameters["host"]) for caveat in found] == [
        *(("host-incomplete", host) for host in "bc"),
        *(("host-missing", host) for host in "def"),
        ("host-file-missing", "g"),
    ]
    assert (found[0].parameters["blocks"], found[2].parameters["reason"]) == (FEW.blocks, "no space")
    for words in ("Host b", "Host d", "(measuring: no results file)", "s-g.sqlite is missing"):
        assert words in built.unfinished
    assert [host.name for host in built.findings.hosts] == ["a", "b", "c"]


def test_a_file_whose_cases_were_moved_does_not_count(tmp_path: Path) -> None:
    written(tmp_path, **{"s-a": FEW, "s-b": replace(FEW, host=LARGE)})
    built = read_fleet_report(
        fleet_of(tmp_path, work("a", HostState.LOST, is_moved=True, reason="r"), work("b"))
    )
    assert [host.name for host in built.findings.hosts] == ["b"]
    assert "host-replaced" in by_kind(built.findings.caveats)


def test_a_record_without_files_or_with_damage_is_an_error(tmp_path: Path) -> None:
    path = fleet_of(tmp_path, work("a"))
    with pytest.raises(EvidenceError, match="no results file"):
        read_fleet_report(path)
    for damaged in ("{}", json.dumps({**json.loads(path.read_text()), "password": "x"})):
        path.write_text(damaged)
        with pytest.raises(EvidenceError, match="damaged"):
            read_fleet(path)
    with pytest.raises(EvidenceError, match="cannot read"):
        read_fleet(tmp_path / "absent.fleet.json")


@pytest.mark.parametrize("file", ["", ".", "..", "../x.sqlite", "/x.sqlite", "a/b", "a\x00b"])
def test_a_record_that_names_a_file_elsewhere_is_damaged(tmp_path: Path, file: str) -> None:
    path = fleet_of(tmp_path, work("a"))
    path.write_text(path.read_text().replace('"s-a.sqlite"', json.dumps(file)))
    with pytest.raises(EvidenceError, match="damaged"):
        read_fleet_report(path)


def test_slow_and_noisy_hosts_are_named() -> None:
    def host(n: int, noise: float = 0.02) -> Synthetic:
        return replace(SMALL, host={**LARGE, "cores": 64 + n}, seed=n, blocks=14, slices=2, noise=noise)

    slow = replace(SMALL, host={**LARGE, "cores": 32}, seed=3, rate_per_s=SMALL.rate_per_s / 2)
    found = by_kind(pooled_of(a=SMALL, b=LARGER, c=slow).caveats)
    assert found["host-slow"] == Caveat.of("host-slow", host="c", factor="2.0")
    found = by_kind(pooled_of(d=host(1), e=host(2), f=host(3, noise=0.1)).caveats)
    assert found["host-noisy"].parameters["host"] == "f"
    quiet = by_kind(pooled_of(g=host(1), h=host(2), i=host(3)).caveats)
    assert not {"host-noisy", "host-slow"} & quiet.keys()


def test_cases_of_different_hosts_keep_their_names() -> None:
    """Equal numbers of levels are no reason to match them by position: nothing was fitted."""
    text = "the same study file"
    one = replace(SMALL, levels={"clients": "1"}, file=text)
    eight = replace(LARGER, levels={"clients": "8"}, file=text)
    found = pooled_of(a=one, b=eight)
    assert found.cases == ["clients 1", "clients 8"]
    assert [(of.case, [host.host for host in of.pooled.hosts]) for of in found.primary] == [
        ("clients 1", ["a"]),
        ("clients 8", ["b"]),
    ]
