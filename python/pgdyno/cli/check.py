"""``pgdyno check``: check the consistency of the data of a workload, read-only."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from pgdyno.cli import options
from pgdyno.cli.console import out, print_json
from pgdyno.cli.options import expanded
from pgdyno.cli.workload_options import PgbenchScripts, TpccDialect, Which, chosen_parameters
from pgdyno.errors import UsageError
from pgdyno.interruption import Interruption
from pgdyno.server.dsn import Dsn
from pgdyno.server.remote import Remote
from pgdyno.study.pgbench_parameters import PgbenchParameters
from pgdyno.study.tpcc_dialects import DEVIATIONS, in_order
from pgdyno.study.tpcc_parameters import TpccParameters
from pgdyno.workload.interface import Check, Connection
from pgdyno.workload.tpcc.consistency import check_conditions
from pgdyno.workload.tpcc.tpcc_dataset import create_views, marker_or_none, require_warehouses
from pgdyno.workload.workloads import workload_of


@expanded
def check(
    dsn: options.Dsn,
    *,
    which: Which,
    dialect: TpccDialect,
    scripts: PgbenchScripts,
    as_json: options.Json = False,
) -> int:
    """Check the consistency of the data of a workload.

    tpcc: the twelve consistency conditions of TPC-C, without those that cannot hold under the deviations of
    the data and of --dialect and --deviate. pgbench: the invariants of the named scripts, provided
    that no other script changed the data since they were loaded. Reads only; the database need not be made by
    pgdyno. Prints one line per check. Exit status 1 if a check fails. Examples:

    \b
      pgdyno check postgresql://localhost/tpcc
      pgdyno check postgresql://localhost/bench --workload pgbench -b simple-update
    """
    if which.workload == "sysbench":
        raise UsageError("--workload sysbench: its data have no invariants; use tpcc or pgbench")
    sets = dialect.table_sets or 1  # at most one per warehouse
    parameters = chosen_parameters(which, dialect, scripts, default_size=lambda _: sets)
    # No grace period: a read-only command has nothing to shut down in order.
    with Interruption(grace_s=0.0), closing(_connect(dsn)) as conn:
        if isinstance(parameters, PgbenchParameters):
            if "unknown" in parameters.effects:
                raise UsageError(
                    "--file: custom scripts cannot be checked: name built-in scripts with --builtin"
                )
            checks = workload_of(parameters).invariants(lambda: _connect(dsn))
        else:
            assert isinstance(parameters, TpccParameters)
            marker = marker_or_none(conn)
            own = [one.name for one in parameters.deviations]
            names = in_order((*own, *(marker.deviations if marker else ())))
            sets = marker.suffixed_sets if marker else parameters.suffixed_sets
            create_views(conn, sets)
            require_warehouses(conn)
            checks = check_conditions(lambda: _connect(dsn), [DEVIATIONS[name] for name in names], sets)
    if as_json:
        print_json({"passed": all(c.passed for c in checks), "checks": [asdict(c) for c in checks]})
    else:
        out.print(_table(checks))
    return 0 if all(c.passed for c in checks) else 1


def _connect(dsn: str) -> Connection:
    return Remote(Dsn(dsn)).connect()


def _verdict(check: Check) -> Text:
    if check.skipped:
        return Text("skipped", "yellow")
    return Text("yes", "green") if check.passed else Text("NO", "bold red")


def _table(checks: Sequence[Check]) -> Table:
    table = Table("check", "passed", "details", box=None)
    for c in checks:
        table.add_row(c.name, _verdict(c), c.detail)
    return table
