"""The workload tpcc, seen from outside the engine: what its dataset holds and the checks after a trial."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import Any

from pgdyno.workload.check import Check
from pgdyno.workload.server_log import check_log
from pgdyno.workload.tpcc.conformance import Mix, check_conformance, check_constant
from pgdyno.workload.tpcc.conservation import Connection, check_new_orders, sum_d_next_o_id
from pgdyno.workload.tpcc.consistency import check_conditions
from pgdyno.workload.tpcc.dataset import read_mark, require_warehouses


def check_trial(
    connect: Callable[[], Connection],
    *,
    result: Mapping[str, Any],
    clients: int,
    next_o_ids_before: int | None,
    server_log: str | None,
    mix: Mix = "deck",
) -> list[Check]:
    """Everything that must hold after a trial, for one target. The server must be idle.

    ``result`` is the target's part of the engine's result; ``next_o_ids_before`` is ``sum_d_next_o_id`` from
    before the driver connected, None if it was not read; ``server_log`` what the server said during the
    trial, None where we cannot read it. Raises ConnectError, DatasetError, ServerError.
    """
    with closing(connect()) as conn:
        mark = read_mark(conn)
        warehouses = require_warehouses(conn)
        next_o_ids_after = sum_d_next_o_id(conn)
    checks = check_conditions(connect)
    if next_o_ids_before is not None:
        checks.append(check_new_orders(next_o_ids_before, next_o_ids_after, result["committed_new_orders"]))
    checks += check_conformance(result["tally"], warehouses=warehouses, clients=clients, mix=mix)
    checks.append(check_constant(mark.c_load, result["tally"]["nurand_c"]["c_last"]))
    if server_log is not None:
        checks.append(check_log(server_log, counted_in(result["totals"].values())))
    return checks


def counted_in(totals: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """What the driver counted that a server logs too, from the counts of every kind since connection."""
    counts = list(totals)
    rolled_back, failed, retried = (
        sum(c[key] for c in counts) for key in ("rolled_back", "failed", "retried")
    )
    return {"rolled_back": rolled_back, "failed": failed, "conflicts": retried + failed}


__all__ = ["Check", "check_trial", "counted_in", "sum_d_next_o_id"]
