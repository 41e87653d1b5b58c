"""JSON of reports: every document matches the published schema, also with unusual values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_forms import case_in, checked_json, mismatches, report_of, the_schema
from synthetic_study import SKIPPED_AFTER_NS, Synthetic

from pgdyno.analysis.study_findings import StudyFindings
from pgdyno.report.json_format import to_json
from pgdyno.report.study_report import build_study

ROOT = Path(__file__).parents[2]
CASE = Synthetic(effects=(1.0, 1.1), blocks=5)


@pytest.fixture(scope="module")
def findings() -> StudyFindings:
    return report_of(CASE).findings


@pytest.fixture(scope="module")
def found(findings: StudyFindings) -> Any:
    return json.loads(checked_json(build_study(findings)))


@pytest.mark.parametrize(
    "changed",
    [
        {"unknown": 1},
        {"title": 1},
        {"gate": "passed"},
        {"verdicts": None},
        {"pgdyno_report": 2},
        {"more": {}},
    ],
    ids=str,
)
def test_a_different_document_does_not_match_the_schema(found: Any, changed: dict[str, Any]) -> None:
    assert list(mismatches(found | changed, the_schema()))


def test_every_key_of_the_schema_is_required(found: Any) -> None:
    parts = the_schema()["$defs"]
    assert set(parts["StudyDocument"]["required"]) == set(found)
    assert not [
        name for name, of in parts.items() if set(of.get("required", ())) != set(of.get("properties", ()))
    ]


def test_numbers_that_json_does_not_have_become_null(findings: StudyFindings) -> None:
    host = {"nan": math.nan, "inf": [np.float64("inf")], "cores": np.int64(2), "\udc80": "\udc80"}
    study = replace(findings.first.study, host=host, ended_unix_s=math.inf)
    odd = replace(findings, cases=[replace(findings.first, study=study)])
    found = case_in(json.loads(to_json(replace(build_study(findings), findings=odd))))["study"]
    assert found["host"] == {"nan": None, "inf": [None], "cores": 2, "\udc80": "\udc80"}
    assert found["ended_unix_s"] is None


def test_a_latency_with_only_a_known_bound_is_marked() -> None:
    wanted = Synthetic(blocks=5, slices=2, fixed_rate_per_s=3000.0, skipped=(0.0, 0.6))
    whole, overloaded = case_in(json.loads(checked_json(report_of(wanted))))["arms"]
    assert whole["lower_bounds"] == {}
    bounds = overloaded["lower_bounds"]
    assert bounds["latency.payment.p99"] == overloaded["latency_ms"]["payment"]["p99"]
    assert bounds["median_latency"] == pytest.approx(SKIPPED_AFTER_NS / 1e6)
    assert overloaded["levels"]["median_latency"] is None


def test_every_definition_has_a_description() -> None:
    parts = the_schema()["$defs"]
    assert len(parts) > 50
    assert not [name for name, part in parts.items() if not part.get("description")]


def test_a_file_of_several_cases_matches_the_schema() -> None:
    built = report_of(*(replace(CASE, levels={"clients": str(n)}) for n in (1, 2, 4, 8)))
    found = json.loads(checked_json(built))
    assert len(found["study"]["cases"]) == 4 and next(iter(found["sentences"]["clients 8"])) == "answer"


def test_the_new_paths_of_the_decision_record_exist() -> None:
    (page,) = (ROOT / "docs" / "adr").glob("*-findings-are-the-json.md")
    paths = re.findall(r"^\| `[^|]+` \| `([^|`]+)`", page.read_text("utf-8"), re.MULTILINE)
    assert len(paths) > 30
    assert not [path for path in paths if not exists(path.replace("[]", ".[]").split("."), the_schema())]


def exists(path: Sequence[str], of: Any) -> bool:
    """Return whether a value exists in a schema: ``arms[].latency_ms.KIND``, where KIND is any key."""
    if "$ref" in of:
        of = the_schema()["$defs"][of["$ref"].removeprefix("#/$defs/")]
    if "anyOf" in of:
        return any(exists(path, one) for one in of["anyOf"])
    if not path:
        return True
    key, *rest = path
    if key == "[]":
        return "items" in of and exists(rest, of["items"])
    own = of.get("properties", {})
    others = of.get("additionalProperties", False)
    if key in own or others is True:  # JSON with any keys
        return key not in own or exists(rest, own[key])
    return key.isupper() and others is not False and exists(rest, others)
