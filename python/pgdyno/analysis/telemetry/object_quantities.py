"""Quantities of each table, index, statement and series: definitions as in ``quantities.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgdyno.analysis.telemetry.formulas import FormulaSource
from pgdyno.analysis.telemetry.quantities import LESS, MORE, NEITHER, OF_TRIALS, Quantity
from pgdyno.estimate import Better
from pgdyno.units import PER_MIB, S_PER_MS

RELATIONS = FormulaSource("relations")
PGSTATTUPLE = FormulaSource("pgstattuple")

OF_RELATIONS: Sequence[Quantity] = (
    Quantity("relation.bytes", "size", "MiB", NEITHER, RELATIONS.finally_("bytes", PER_MIB)),
    Quantity("relation.growth", "growth", "MiB", NEITHER, RELATIONS.growth_finally("bytes", PER_MIB)),
    Quantity(
        "relation.indexes_bytes",
        "size of its indexes",
        "MiB",
        NEITHER,
        RELATIONS.finally_("indexes_bytes", PER_MIB),
    ),
    Quantity(
        "relation.indexes_growth",
        "growth of its indexes",
        "MiB",
        NEITHER,
        RELATIONS.growth_finally("indexes_bytes", PER_MIB),
    ),
    Quantity(
        "relation.total_bytes",
        "size with indexes and TOAST",
        "MiB",
        NEITHER,
        RELATIONS.finally_("total_bytes", PER_MIB),
    ),
    Quantity(
        "relation.hot_share",
        "HOT share of updates",
        "%",
        MORE,
        RELATIONS.part_of("n_tup_hot_upd", "n_tup_upd"),
    ),
    Quantity(
        "relation.updates_per_tx",
        "rows updated per transaction",
        "rows/tx",
        NEITHER,
        RELATIONS.per_tx("n_tup_upd"),
    ),
    Quantity("relation.dead_tuples", "dead tuples", "tuples", NEITHER, RELATIONS.at_end("n_dead_tup")),
    Quantity("relation.autovacuums", "autovacuums", "times", NEITHER, RELATIONS.counted("autovacuum_count")),
    Quantity(
        "relation.autoanalyzes", "autoanalyzes", "times", NEITHER, RELATIONS.counted("autoanalyze_count")
    ),
    Quantity(
        "relation.autovacuum_s",
        "time of autovacuums",
        "s",
        NEITHER,
        RELATIONS.counted("total_autovacuum_time", scale=S_PER_MS),
    ),
    Quantity(
        "relation.hit_share",
        "buffer hit ratio",
        "%",
        MORE,
        RELATIONS.share("heap_blks_hit", "heap_blks_read"),
    ),
    Quantity(
        "relation.index_hit_share",
        "buffer hit ratio",
        "%",
        MORE,
        RELATIONS.share("idx_blks_hit", "idx_blks_read"),
    ),
    Quantity(
        "relation.frozen_xid_age", "age of relfrozenxid", "xids", NEITHER, RELATIONS.at_end("frozen_xid_age")
    ),
    Quantity(
        "relation.age_growth",
        "growth of the age of relfrozenxid",
        "xids",
        NEITHER,
        RELATIONS.growth("frozen_xid_age"),
    ),
    Quantity("relation.tuple_percent", "live tuples", "%", MORE, PGSTATTUPLE.finally_("tuple_percent")),
    Quantity(
        "relation.tuple_percent_growth",
        "growth of the share of live tuples",
        "%",
        MORE,
        PGSTATTUPLE.growth("tuple_percent"),
    ),
    Quantity("relation.dead_percent", "dead tuples", "%", LESS, PGSTATTUPLE.finally_("dead_tuple_percent")),
    Quantity("relation.free_percent", "free space", "%", LESS, PGSTATTUPLE.finally_("free_percent")),
    Quantity(
        "relation.leaf_density",
        "density of its leaf pages",
        "%",
        MORE,
        PGSTATTUPLE.finally_("avg_leaf_density"),
    ),
    Quantity(
        "relation.leaf_fragmentation",
        "fragmentation of its leaf pages",
        "%",
        LESS,
        PGSTATTUPLE.finally_("leaf_fragmentation"),
    ),
)
"""Quantities of each table and index."""


@dataclass(frozen=True)
class SampledQuantity:
    """A quantity without a ``Formula``. ``text`` describes the code (``statements.py``, ``samples.py``)."""

    key: str
    name: str
    unit: str
    better: Better
    text: str


OF_STATEMENTS: Sequence[SampledQuantity] = (
    SampledQuantity("statement.calls", "calls", "calls", NEITHER, "Δ calls"),
    SampledQuantity("statement.mean_ms", "mean time", "ms", LESS, "Δ total_exec_time / Δ calls"),
    SampledQuantity(
        "statement.stddev_ms",
        "standard deviation of the time",
        "ms",
        LESS,
        "of the calls between the readings, from calls, mean and stddev of both",
    ),
    SampledQuantity("statement.total_ms", "total time", "ms", NEITHER, "Δ total_exec_time"),
    SampledQuantity(
        "statement.share_of_time",
        "share of the time of all statements",
        "%",
        NEITHER,
        "Δ total_exec_time / Δ total_exec_time of all",
    ),
    SampledQuantity("statement.rows_per_call", "rows per call", "rows/call", NEITHER, "Δ rows / Δ calls"),
    SampledQuantity(
        "statement.blocks_hit_per_call",
        "buffer hits per call",
        "blocks/call",
        LESS,
        "Δ shared_blks_hit / Δ calls",
    ),
    SampledQuantity(
        "statement.blocks_read_per_call",
        "blocks read per call",
        "blocks/call",
        LESS,
        "Δ shared_blks_read / Δ calls",
    ),
    SampledQuantity(
        "statement.blocks_dirtied_per_call",
        "blocks dirtied per call",
        "blocks/call",
        LESS,
        "Δ shared_blks_dirtied / Δ calls",
    ),
    SampledQuantity(
        "statement.blocks_written_per_call",
        "blocks written per call",
        "blocks/call",
        LESS,
        "Δ shared_blks_written / Δ calls",
    ),
    SampledQuantity("statement.wal_bytes_per_call", "WAL per call", "B/call", LESS, "Δ wal_bytes / Δ calls"),
    SampledQuantity(
        "statement.fpi_per_call", "full-page images per call", "pages/call", LESS, "Δ wal_fpi / Δ calls"
    ),
    SampledQuantity(
        "statement.read_ms_per_call",
        "read time per call",
        "ms/call",
        LESS,
        "Δ shared_blk_read_time / Δ calls",
    ),
    SampledQuantity(
        "statement.write_ms_per_call",
        "write time per call",
        "ms/call",
        LESS,
        "Δ shared_blk_write_time / Δ calls",
    ),
    SampledQuantity(
        "statement.plan_mean_ms", "mean planning time", "ms", LESS, "Δ total_plan_time / Δ plans"
    ),
)
"""Quantities of each statement."""

OF_SAMPLES: Sequence[SampledQuantity] = (
    SampledQuantity(
        "host.server_share", "CPU share of the server", "%", NEITHER, "its processes / all CPU time"
    ),
    SampledQuantity(
        "host.driver_share", "CPU share of the driver", "%", NEITHER, "its process / all CPU time"
    ),
    SampledQuantity(
        "host.rest_share", "CPU share of other processes", "%", LESS, "busy − stolen − server − driver"
    ),
    SampledQuantity("host.steal_share", "CPU steal", "%", LESS, "stolen / all CPU time"),
    SampledQuantity("host.iowait_share", "CPU iowait", "%", LESS, "iowait / all CPU time"),
    SampledQuantity("host.idle_share", "CPU idle", "%", NEITHER, "idle / all CPU time"),
    SampledQuantity("host.disk_read_per_s", "read from disk", "MiB/s", NEITHER, "Δ disk_read_bytes / s"),
    SampledQuantity(
        "host.disk_written_per_s", "written to disk", "MiB/s", NEITHER, "Δ disk_written_bytes / s"
    ),
    SampledQuantity("host.disk_busy_share", "disk utilization", "%", LESS, "Δ disk_busy_s / s"),
    SampledQuantity("host.cpu_pressure", "CPU pressure", "%", LESS, "PSI, some"),
    SampledQuantity("host.io_pressure", "I/O pressure", "%", LESS, "PSI, some"),
    SampledQuantity("host.memory_pressure", "memory pressure", "%", LESS, "PSI, some"),
    SampledQuantity("host.swapped_in_per_s", "read from swap", "MiB/s", LESS, "Δ swap_in_bytes / s"),
    SampledQuantity("host.swapped_out_per_s", "written to swap", "MiB/s", LESS, "Δ swap_out_bytes / s"),
    SampledQuantity(
        "host.network_in_per_s", "received over the network", "MiB/s", NEITHER, "Δ network_in_bytes / s"
    ),
    SampledQuantity(
        "host.network_out_per_s", "sent over the network", "MiB/s", NEITHER, "Δ network_out_bytes / s"
    ),
    SampledQuantity("host.memory_available", "minimum available memory", "MiB", NEITHER, "smallest sample"),
    SampledQuantity("host.page_cache", "page cache and shared memory", "MiB", NEITHER, "mean of the samples"),
    SampledQuantity("host.memory_dirty", "maximum dirty memory", "MiB", NEITHER, "largest sample"),
    SampledQuantity(
        "locks.waiting_backends",
        "backends waiting for a lock",
        "backends",
        LESS,
        "mean of the samples",
    ),
    SampledQuantity("waits.backends", "active backends", "backends", NEITHER, "active backends / samples"),
    SampledQuantity(
        "wait.share", "share of active time", "%", NEITHER, "backends in this wait / active backends"
    ),
    SampledQuantity("probes.late_s", "maximum delay of a sample", "s", LESS, "largest late_s"),
    SampledQuantity(
        "probes.us_per_tx", "CPU of the sampling per transaction", "µs/tx", LESS, "probe_cpu_s / transactions"
    ),
    SampledQuantity("trial.start_s", "start of the server", "s", LESS, "until it accepts connections"),
    SampledQuantity("trial.restart_s", "restart of the server", "s", LESS, "after the measured part"),
    SampledQuantity("trial.recovery_s", "recovery after a crash", "s", LESS, "after the measured part"),
)
"""Quantities of the series and of the trial itself."""

_EVERY: tuple[Quantity | SampledQuantity, ...] = (*OF_TRIALS, *OF_RELATIONS, *OF_STATEMENTS, *OF_SAMPLES)

BY_KEY: Mapping[str, Quantity | SampledQuantity] = {of.key: of for of in _EVERY}
