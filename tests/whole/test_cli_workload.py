"""Options of the workloads: variants, names of scripts, groups of options."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from pgdyno.cli.compare import compare
from pgdyno.cli.error_reporting import as_pgdyno_error
from pgdyno.cli.options import expanded
from pgdyno.cli.workload_options import TpccData
from pgdyno.errors import UsageError
from pgdyno.study.defaults import DEFAULT_PROBES, requested_probes
from pgdyno.workloads.pgbench.parameters import definitions, scripts_of


def test_scripts_are_named_as_pgbench_names_them(tmp_path: Path) -> None:
    file = tmp_path / "a@b.sql"
    file.write_text("SELECT 1;")
    found = scripts_of(["se@2", "tpcb"], [f"{file}@3"])
    assert [(script.name, script.weight) for script in found] == [
        ("select-only", 2),
        ("tpcb-like", 1),
        (str(file), 3),
    ]
    assert [script.text for script in found] == [None, None, "SELECT 1;"]
    assert definitions(["a=1", "b=x=y", "a=2"]) == {"a": "2", "b": "x=y"}


def test_a_file_that_is_not_text_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"SELECT '\xff'")
    with pytest.raises(UsageError, match=r"is not UTF-8 \(byte 8\)"):
        scripts_of([], [str(tmp_path / "f")])


def test_a_name_that_is_not_utf_8_is_named_itself(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"look-\xff.sql")
    path.write_text("SELECT 1")
    with pytest.raises(ValidationError) as raised:
        scripts_of([], [str(path)])
    assert str(as_pgdyno_error(raised.value)).startswith(f"{path} is not UTF-8")
    with pytest.raises(UsageError, match="--define x is not UTF-8"):
        definitions([os.fsdecode(b"x=\xff")])


def test_a_text_that_is_not_utf_8_is_reported_without_its_password() -> None:
    with pytest.raises(ValidationError) as raised:
        TypeAdapter(Annotated[str, Field(min_length=1)]).validate_python("host=h password=hunter2\udcff")
    assert str(as_pgdyno_error(raised.value)) == "host=h password=*** is not UTF-8: use another name"


def test_the_fields_of_a_group_are_options_and_round_trip() -> None:
    @expanded
    def command(name: str, *, data: TpccData, quiet: bool = False) -> int:
        assert (name, quiet) == ("x", True)
        return int(data.given["warehouses"])

    assert list(inspect.signature(command).parameters) == ["name", "warehouses", "quiet"]
    assert command("x", warehouses=4, quiet=True) == 4
    assert "scale" in inspect.signature(expanded(compare)).parameters


def test_an_invalid_element_of_a_list_is_attributed_to_its_option(refusal: Callable[..., str]) -> None:
    told = refusal("load host=h --workload pgbench --index pgbench_accounts(x)")
    assert "--index: pgbench_accounts has no column 'x'" in told


def test_probes_are_added_to_the_default_ones_once() -> None:
    probes = requested_probes(["default", "statements", "wal", "profile"])
    assert probes == (*DEFAULT_PROBES, "statements", "profile")
