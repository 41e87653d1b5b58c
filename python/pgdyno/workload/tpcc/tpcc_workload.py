"""The workload tpcc on servers: its data and the checks after a trial."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pgdyno.engine import dataset_format
from pgdyno.errors import DatasetError
from pgdyno.estimate import counted
from pgdyno.study.tpcc_parameters import DECK, TpccParameters, weights_of
from pgdyno.workload.interface import Check, Connect, Connection, OnPhase
from pgdyno.workload.server_log import check_log, counted_in
from pgdyno.workload.tpcc.conformance import Mix, check_conformance, check_constant
from pgdyno.workload.tpcc.consistency import check_conditions, check_new_orders, sum_d_next_o_id
from pgdyno.workload.tpcc.tpcc_dataset import read_mark, require_warehouses


@dataclass(frozen=True)
class Tpcc:
    """See Workload. The engine's load leaves nothing to do, and marks its end."""

    parameters: TpccParameters
    bytes_completed: int = 0

    @property
    def format(self) -> str:
        """The engine's."""
        return dataset_format(self.parameters.kind)

    def require_replaceable(self, conn: Connection) -> None:
        """Nothing."""

    def complete(self, conn: Connection, on_phase: OnPhase) -> None:
        """Nothing."""

    def require(self, conn: Connection) -> None:
        """By the mark."""
        scale, wanted = read_mark(conn).scale, self.parameters.warehouses
        if scale != wanted:
            raise DatasetError(
                f"{conn.info.dbname} holds {counted(scale, 'warehouse')}, not {wanted}: "
                f"pass --warehouses {scale}, or load it again"
            )

    def checks(self, clients: int, *, restored: bool) -> TpccChecks:
        """The same, whatever the trial began with."""
        del restored
        return TpccChecks(clients, weights_of(self.parameters.mix) or DECK)


@dataclass
class TpccChecks:
    """See TrialChecks."""

    clients: int
    mix: Mix = DECK
    next_o_ids_before: int = 0

    def begin(self, conn: Connection) -> None:
        """What the order numbers add up to."""
        self.next_o_ids_before = sum_d_next_o_id(conn)

    def end(self, connect: Connect, result: Mapping[str, Any], server_log: str | None) -> list[Check]:
        """Conditions, conservation, conformance, the log."""
        with closing(connect()) as conn:
            mark = read_mark(conn)
            warehouses = require_warehouses(conn)
            next_o_ids_after = sum_d_next_o_id(conn)
        tally = result["tally"]
        checks = check_conditions(connect)
        checks.append(
            check_new_orders(self.next_o_ids_before, next_o_ids_after, result["counters"]["new_orders"])
        )
        checks += check_conformance(tally, warehouses=warehouses, clients=self.clients, mix=self.mix)
        checks.append(check_constant(mark.c_load, tally["nurand_c"]["c_last"]))
        if server_log is not None:
            checks.append(check_log(server_log, counted_in(result["totals"].values())))
        return checks
