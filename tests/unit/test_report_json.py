"""JSON of reports: every document matches the published schema, also with unusual values."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from report_forms import checked_json
from synthetic_study import SKIPPED_AFTER_NS, Synthetic, write_study

from pgdyno.cli.report import read_report
from pgdyno.report.json_format import CaseDocument, decoded, encoded, schema

CASE = Synthetic(effects=(1.0, 1.1), blocks=5)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("json") / "e.sqlite"
    write_study(path, CASE)
    return checked_json(read_report(path))


def case(text: str) -> CaseDocument:
    document = decoded(text)
    assert isinstance(document, CaseDocument)
    return document


def test_a_decoded_document_gives_the_same_text(text: str) -> None:
    assert encoded(decoded(text)) == text


@pytest.mark.parametrize(
    "changed",
    [{"unknown": 1}, {"title": 1}, {"verdict": "better"}, {"arms": None}, {"pgdyno_report": 1}, {"plan": {}}],
    ids=str,
)
def test_a_different_document_does_not_match_the_schema(text: str, changed: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        decoded(json.dumps(json.loads(text) | changed))


def test_a_key_is_missing_only_if_the_schema_allows_it(text: str) -> None:
    found = json.loads(text)
    required = set(schema()["$defs"]["CaseDocument"]["required"])
    assert required == set(found)
    of_several = {"lost_question", "published", "published_changes", "published_notes"}
    of_several |= {"published_not_repeated", "capacity", "durability", "factors", "scalability"}
    assert of_several == set(schema()["$defs"]["CaseDocument"]["properties"]) - required


def test_numbers_that_json_does_not_have_become_null(text: str) -> None:
    document = case(text)
    host = {"nan": math.nan, "inf": [np.float64("inf")], "cores": np.int64(2), "\udc80": "\udc80"}
    odd = replace(document, host=host, created_unix_s=math.inf)
    found = json.loads(encoded(odd))
    assert found["host"] == {"nan": None, "inf": [None], "cores": 2, "\udc80": "\udc80"}
    assert found["created_unix_s"] is None


def test_a_latency_with_only_a_known_bound_is_marked(tmp_path: Path) -> None:
    write_study(tmp_path / "e", Synthetic(blocks=5, slices=2, fixed_rate_per_s=3000.0, skipped=(0.0, 0.6)))
    whole, overloaded = json.loads(checked_json(read_report(tmp_path / "e")))["arms"]
    assert whole["lower_bounds"] == {}
    bounds = overloaded["lower_bounds"]
    assert bounds["latency.payment.p99"] == overloaded["latency_ms"]["payment"]["p99"]
    assert bounds["median_latency"] == pytest.approx(SKIPPED_AFTER_NS / 1e6)
    assert overloaded["levels"]["median_latency"] is None


def test_every_definition_has_a_description() -> None:
    parts = schema()["$defs"]
    assert len(parts) > 50
    assert not [name for name, part in parts.items() if not part.get("description")]


def test_a_file_of_several_cases_matches_the_schema(tmp_path: Path) -> None:
    write_study(tmp_path / "e", *(replace(CASE, levels={"clients": str(n)}) for n in (1, 2, 4, 8)))
    found = json.loads(checked_json(read_report(tmp_path / "e")))
    assert {"over_cases", "cases"} <= set(found)
