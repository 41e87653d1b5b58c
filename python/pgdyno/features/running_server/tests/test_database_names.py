"""Names of the databases that pgdyno creates on a running server."""

from __future__ import annotations

import pytest

from pgdyno.errors import UsageError
from pgdyno.features.running_server.arms import dataset_database_name
from pgdyno.features.running_server.remote import database_name
from pgdyno.workloads.tpcc.parameters import TpccParameters


def test_names_of_our_databases_need_no_quoting_and_have_a_limit() -> None:
    assert database_name("tpcc", "W 10", 3) == "pgdyno_tpcc_w_10_3"
    with pytest.raises(UsageError, match="63 bytes"):
        database_name("x" * 60)


def test_deviations_of_the_data_have_databases_of_their_own_and_others_have_not() -> None:
    names = {
        dataset_database_name(TpccParameters(warehouses=4, deviate=of))
        for of in ("", "no-rollback", "half-bad-credit")
    }
    assert len(names) == 2
