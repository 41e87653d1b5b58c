"""``pgdyno check``: does a tpcc database hold together? It only reads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict

import psycopg
from rich.markup import escape
from rich.table import Table

from pgdyno.cli import options
from pgdyno.cli.console import out, print_json
from pgdyno.errors import ConnectError, UsageError
from pgdyno.workload.check import Check
from pgdyno.workload.interface import Connection
from pgdyno.workload.tpcc.consistency import check_conditions
from pgdyno.workload.tpcc.dataset import require_warehouses


def check(
    dsn: options.Dsn,
    as_json: options.Json = False,
) -> int:
    """Check TPC-C's twelve consistency conditions.

    Works on any tpcc database and only reads. A line for each condition; exit status 1 if one does not
    hold. Example:

    \b
      pgdyno check postgresql://localhost/tpcc
    """
    with closing(_connect(dsn)) as conn:
        require_warehouses(conn)
    checks = check_conditions(lambda: _connect(dsn))
    if as_json:
        print_json({"passed": all(c.passed for c in checks), "checks": [asdict(c) for c in checks]})
    else:
        out.print(_table(checks))
    return 0 if all(c.passed for c in checks) else 1


def _connect(dsn: str) -> Connection:
    try:
        return psycopg.connect(dsn, autocommit=True)
    except psycopg.ProgrammingError as error:
        # libpq quotes the connection string, which may hold a password.
        raise UsageError("the DSN is neither a libpq connection string nor a URI") from error
    except psycopg.Error as error:
        raise ConnectError(f"no connection: {str(error).strip().splitlines()[0]}") from error


def _table(checks: Sequence[Check]) -> Table:
    table = Table("check", "holds", "what", box=None)
    for c in checks:
        table.add_row(c.name, "[green]yes[/]" if c.passed else "[bold red]NO[/]", escape(c.detail))
    return table
