"""Facts that the analysis compares: a wrong type is damage, and additional facts are only shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from synthetic_study import Synthetic, write_study

from edited_evidence import edited
from pgdyno.cli.report import read_findings
from pgdyno.errors import EvidenceError
from pgdyno.results.records import HostFacts, ServerFacts, facts_from

CHECK = {"about": "swap", "found": "fine", "text": "none", "code": "swap"}


def test_missing_facts_are_empty_and_further_ones_ignored() -> None:
    found = facts_from(ServerFacts, {"version": "18.1", "port": 5432, "compiled": None})
    assert (found.shown, found.build_id, found.compiled_with("CFLAGS")) == ("18.1", None, "")
    host = facts_from(HostFacts, {"states": [{"when": "before", "checks": [CHECK], "load": 0.1}]})
    assert (host.cores, host.states[0].checks[0].about) == (None, "swap")


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("arm", "server", {"version": 18}),
        ("arm", "server", {"compiled": ["-O2"]}),
        ("study", "host", {"cores": "two"}),
        ("study", "host", {"states": [{"when": "before"}]}),
        ("study", "engine", {"profile": {}}),
    ],
)
def test_a_fact_of_a_wrong_type_is_a_damaged_file(
    table: str, column: str, value: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "e.sqlite"
    write_study(path, Synthetic(blocks=1))
    with edited(path) as connection:
        connection.execute(f"UPDATE {table} SET {column} = ?", (json.dumps(value),))
    with pytest.raises(EvidenceError):
        read_findings(path)
