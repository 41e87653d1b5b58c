"""Columns of ``\\sample``: names as PostgreSQL reads them, weighting. No value is stored or shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from example_studies import make_study
from pgdyno.features.own_data.plan import OwnData, OwnDataParameters
from pgdyno.features.own_data_checks.preflight import (
    ColumnSample,
    SampledValues,
    log_without_values,
    message_without_values,
    sample_caveats,
    with_tested_data,
)
from pgdyno.features.running_server.arms import DsnArm
from pgdyno.features.running_server.remote import Description, Remote
from pgdyno.interruption import Interruption
from pgdyno.measure.arms import Prepared
from pgdyno.server.builds import Version
from pgdyno.server.connections import Dsn
from pgdyno.study.arm_spec import parse_arms
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
    single = drawing.model_copy(update={"scripts": drawing.scripts[:1]})
    assert single.to_drive()["samples"] == {"customer.id": ("1", "2")}
    assert drawing.model_dump_json() == parameters.model_dump_json()


def test_the_simple_protocol_needs_constants() -> None:
    numbers = SampledValues(["1", "-2.5e+3", "NaN"], is_number=True, is_part=False)
    assert numbers.constants() == ("1", "-2.5e+3", "'NaN'")
    texts = SampledValues(["1", "it's", "a\\b"], is_number=False, is_part=False)
    assert [text.strip() for text in texts.constants()] == ["'1'", "'it''s'", "E'a\\\\b'"]
    assert numbers.digest != texts.digest


def test_a_study_of_running_servers_with_a_warmup_of_its_own_samples_nothing() -> None:
    study = make_study(arms=parse_arms(["host=a", "host=b"]), warmup_workload=make_study().workload)
    description = Description(Version(18, 0), "PostgreSQL 18.0", is_local=True, effective={})
    arms = [
        DsnArm(index, spec.name, Remote(Dsn(spec.server)), description, "d", None)
        for index, spec in enumerate(study.arms)
    ]
    prepared = Prepared(study, arms, [], [], Path())
    assert with_tested_data([prepared], lambda _: None, Interruption()) == [prepared]


def test_each_number_of_values_of_a_column_has_one_caveat() -> None:
    def sampled(n: int, *, is_part: bool) -> SampledValues:
        return SampledValues(["1"] * n, is_number=True, is_part=is_part)

    arms = [sampled(2, is_part=True), sampled(3, is_part=True), sampled(2, is_part=True)]
    caveats = sample_caveats([{"t.id": one, "t.all": sampled(9, is_part=False)} for one in arms])
    assert [caveat.parameters for caveat in caveats] == [
        {"column": "t.id", "values": 2},
        {"column": "t.id", "values": 3},
    ]


PLANTED = "Planted 4711"

MESSAGES = {
    "22P02": (
        f'invalid input syntax for type integer: "{PLANTED}"',
        'invalid input syntax for type integer: "…"',
    ),
    "22003": (f'value "{PLANTED}" is out of range for type integer', 'value "…" is out of range for type'),
    "23505": (
        f'duplicate key value violates unique constraint "customer_key"; Key (email)=({PLANTED}) exists.',
        'duplicate key value violates unique constraint "customer_key"',
    ),
    "P0001": (f"no such customer {PLANTED}", "a message of RAISE"),
    "42P01": ('relation "nothing" does not exist', 'relation "nothing" does not exist'),
}


@pytest.mark.parametrize("sqlstate", MESSAGES)
def test_a_message_names_objects_and_no_values(sqlstate: str) -> None:
    message, expected = MESSAGES[sqlstate]
    shown = message_without_values(message, sqlstate)
    assert shown.startswith(expected)
    assert PLANTED not in shown


def test_a_log_keeps_its_lines_and_messages() -> None:
    log = (
        "2026-11-25 20:00:00.000 UTC [1] LOG:  database system is ready to accept connections\n"
        f'2026-11-25 20:00:00.000 UTC [2] ERROR:  invalid input syntax for type integer: "{PLANTED}"\n'
        f"2026-11-25 20:00:00.000 UTC [2] DETAIL:  Key (email)=({PLANTED}) already exists.\n"
        f"2026-11-25 20:00:00.000 UTC [2] STATEMENT:  SELECT '{PLANTED}'\n\tFROM {PLANTED};\n"
    )
    shown = log_without_values(log)
    assert PLANTED not in shown
    assert shown.count("\n") == log.count("\n")
    assert "ready to accept connections" in shown
    assert log_without_values(log[:300] + "\n").startswith(log_without_values(log)[:200])
