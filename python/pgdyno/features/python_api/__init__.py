"""The Python API: the package ``pgdyno`` in scripts, notebooks and tests (README.md)."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    requires=("gates",),
    public=(
        *(f"requests:{name}" for name in ("Arm", "LinkBench", "Pgbench", "Sysbench", "Tpcc", "Workload")),
        *(f"studies:{name}" for name in ("Study", "capacity", "compare", "crash", "run", "start")),
        *(
            f"outcome:{name}"
            for name in ("CrashResult", "Effect", "GateResult", "Result", "Run", "open", "runs")
        ),
        *("outcome:PgdynoError", "outcome:UsageError"),  # the others are in pgdyno.errors
    ),
)
