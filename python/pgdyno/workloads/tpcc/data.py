"""Workload tpcc on servers: its data and the checks after a trial."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from pgdyno.errors import DatasetError
from pgdyno.results.records import Check
from pgdyno.server.engine import TargetResult, dataset_format
from pgdyno.server.processes import Connection
from pgdyno.units import counted
from pgdyno.workloads.server_log import check_log, counted_in
from pgdyno.workloads.tpcc.checks import (
    LAST_NAME_CONSTANT,
    Mix,
    check_conditions,
    check_conformance,
    check_constant,
    check_new_orders,
    create_views,
    read_marker,
    require_warehouses,
    skipped,
    sum_d_next_o_id,
)
from pgdyno.workloads.tpcc.dialects import TpccDeviation
from pgdyno.workloads.tpcc.parameters import DECK, TpccParameters, weights_of
from pgdyno.workloads.workload import Connect, Workload


@dataclass(frozen=True)
class Tpcc(Workload):
    """See Workload. The engine loads everything and writes the marker."""

    parameters: TpccParameters

    @property
    def format(self) -> str:
        """Format of the engine."""
        return dataset_format(self.parameters.kind)

    def require(self, conn: Connection) -> None:
        """Check the marker."""
        marker, wanted = read_marker(conn), self.parameters.warehouses
        scale = marker.scale
        if scale != wanted:
            raise DatasetError(
                f"the dataset in {conn.info.dbname} has {counted(scale, 'warehouse')}, not {wanted}: "
                f"use --warehouses {scale}, or load it again"
            )
        if marker.table_sets != self.parameters.sets:
            raise DatasetError(
                f"the dataset in {conn.info.dbname} has {counted(marker.table_sets, 'table set')}, not "
                f"{self.parameters.sets}: use table_sets = {marker.table_sets}, or load it again"
            )
        due = tuple(one.name for one in self.parameters.deviations if one.data)
        if marker.deviations != due:
            raise DatasetError(
                f"the dataset in {conn.info.dbname} has {_listed(marker.deviations)}, but the workload "
                f"requires {_listed(due)}: use the same dialect and deviate, or load it again"
            )

    def invariants(self, connect: Connect) -> list[Check]:
        """Run the consistency conditions."""
        return check_conditions(connect, self.parameters.deviations, self.parameters.suffixed_sets)

    def checks(self, clients: int, *, restored: bool) -> TpccChecks:
        """Return the checks, which are the same with and without restored data."""
        del restored
        mix = weights_of(self.parameters.drawn_mix) or DECK
        own = self.parameters
        return TpccChecks(clients, mix, own.deviations, own.suffixed_sets)


def _listed(deviations: Sequence[str]) -> str:
    return f"the deviations {', '.join(deviations)}" if deviations else "no deviations from TPC-C"


@dataclass
class TpccChecks:
    """See TrialChecks."""

    clients: int
    mix: Mix = DECK
    deviations: Sequence[TpccDeviation] = ()
    suffixed_sets: int = 0
    next_o_ids_before: int = 0

    def begin(self, conn: Connection) -> None:
        """Read the sum of the order numbers."""
        create_views(conn, self.suffixed_sets)
        self.next_o_ids_before = sum_d_next_o_id(conn)

    def end(self, connect: Connect, result: TargetResult, server_log: str | None) -> list[Check]:
        """Check conditions, committed orders, conformance and log."""
        with closing(connect()) as conn:
            mark = read_marker(conn)
            create_views(conn, self.suffixed_sets)
            warehouses = require_warehouses(conn)
            next_o_ids_after = sum_d_next_o_id(conn)
        tally = result.tally
        checks = check_conditions(connect, self.deviations, self.suffixed_sets)
        checks.append(
            check_new_orders(self.next_o_ids_before, next_o_ids_after, result.counters["new_orders"])
        )
        checks += check_conformance(
            tally, warehouses=warehouses, clients=self.clients, mix=self.mix, deviations=self.deviations
        )
        without_constant = [one for one in self.deviations if one.name in ("constant-c", "c-redrawn")]
        if without_constant:
            checks.append(skipped(LAST_NAME_CONSTANT, without_constant[0]))
        elif (constants := tally["nurand_c"]) is not None:
            checks.append(check_constant(mark.c_load, constants["c_last"]))
        if server_log is not None:
            checks.append(check_log(server_log, counted_in(result.totals.values())))
        return checks


WORKLOAD = (TpccParameters, Tpcc)
