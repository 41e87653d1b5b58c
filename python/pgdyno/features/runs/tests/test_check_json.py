"""The JSON of ``pgdyno check``."""

import pytest

from pgdyno.features.runs.command import checks_as_json
from pgdyno.results.records import Check


@pytest.mark.parametrize(("result", "passed"), [(True, True), (None, True), (False, False)])
def test_a_skipped_check_has_not_passed_and_fails_nothing(*, result: bool | None, passed: bool) -> None:
    found = checks_as_json([Check("condition 1", True), Check("condition 2", result, detail="why")])
    assert found["passed"] is passed
    assert [check["passed"] for check in found["checks"]] == [True, result]
    assert found["checks"][1]["skipped"] is (result is None)
