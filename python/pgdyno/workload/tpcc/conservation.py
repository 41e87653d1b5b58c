"""What the driver says it committed, against what the database says it holds."""

from __future__ import annotations

from pgdyno.workload.check import Check
from pgdyno.workload.interface import Connection


def sum_d_next_o_id(conn: Connection) -> int:
    """The sum of D_NEXT_O_ID over all districts: each committed New-Order adds exactly 1, nothing else
    changes it."""
    row = conn.execute("SELECT coalesce(sum(d_next_o_id), 0) FROM district").fetchone()
    assert row is not None
    return int(row[0])


def check_new_orders(before: int, after: int, committed: int) -> Check:
    """Committed new orders as the driver counted them = growth of the sum of D_NEXT_O_ID since before it
    connected."""
    difference = after - before - committed
    detail = f"driver committed {committed}, the database has {after - before} more"
    return Check("new orders conserved", difference == 0, statistic=float(difference), detail=detail)
