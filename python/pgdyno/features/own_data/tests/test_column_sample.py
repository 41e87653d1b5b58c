"""Columns of ``\\sample``: names as PostgreSQL reads them, weighting, and values that are never stored."""

from __future__ import annotations

import pytest

from pgdyno.features.own_data.plan import ColumnSample, OwnData, OwnDataParameters
from pgdyno.features.own_data.preflight import SampledValues
from pgdyno.workloads.pgbench.parameters import Script

TEXT = "\\sample c FROM customer.id\nSELECT :c"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("customer.id", ColumnSample(("customer",), "id")),
        ("Shop.Customer.ID Frequency", ColumnSample(("shop", "customer"), "id", "frequency")),
        ('"My ""Shop""".customer."E.mail" uniform', ColumnSample(('My "Shop"', "customer"), "E.mail")),
        ("größe.x$1", ColumnSample(("größe",), "x$1")),
    ],
)
def test_names_are_folded_unless_they_are_quoted(text: str, expected: ColumnSample) -> None:
    assert ColumnSample.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["id", "a.b.c.d", "customer.id sometimes", "customer.id uniform frequency", "1a.b", 'a."', "a.b;"]
)
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"table\.column"):
        ColumnSample.parse(text)


def test_values_are_driven_and_never_stored() -> None:
    parameters = OwnDataParameters(
        data=OwnData(source="shop"), scripts=(Script(name="s", text=TEXT),), scale=1
    )
    drawing = parameters.with_sample_values({"customer.id": ("1", "2")})
    assert "samples" not in parameters.to_drive()
    assert drawing.to_drive()["samples"] == {"customer.id": ("1", "2")}
    single = drawing.model_copy(update={"scripts": drawing.scripts[:1]})
    assert single.to_drive()["samples"] == {"customer.id": ("1", "2")}
    assert drawing.model_dump_json() == parameters.model_dump_json()


def test_the_simple_protocol_needs_constants() -> None:
    numbers = SampledValues(["1", "-2.5e+3", "NaN"], is_number=True, is_part=False)
    assert numbers.constants() == ("1", "-2.5e+3", "'NaN'")
    texts = SampledValues(["1", "it's", "a\\b"], is_number=False, is_part=False)
    assert [text.strip() for text in texts.constants()] == ["'1'", "'it''s'", "E'a\\\\b'"]
    assert numbers.digest != texts.digest
