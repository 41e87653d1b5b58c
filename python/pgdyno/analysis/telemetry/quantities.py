"""Definitions of the telemetry quantities: key, name, unit, better direction, formula.

Tables, JSON, CSV and published tables use these definitions, as they use ``metrics.py`` for metrics of the
driver. Keys begin with the name of their probe. Quantities of a table, an index or a statement have its name
after a colon: ``relation.hot_share:pgbench_accounts``.

A total over a fixed time grows with the throughput. Less of it may be better or may mean less work, so it has
no better direction. Quantities per transaction have a direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgdyno.analysis.telemetry.formulas import Formula, FormulaSource, How
from pgdyno.estimate import Better
from pgdyno.units import PER_MIB, S_PER_MS

MORE, LESS, NEITHER = Better.MORE, Better.LESS, Better.NEITHER


@dataclass(frozen=True)
class Quantity:
    """A quantity of a trial from a probe."""

    key: str
    name: str
    unit: str
    better: Better
    formula: Formula

    @property
    def how(self) -> How:
        """The reference of its formula."""
        return self.formula.how


WAL = FormulaSource("wal")
CHECKPOINTS = FormulaSource("checkpoints")
DATABASE = FormulaSource("database")
BLOCKS = FormulaSource("blocks")
IO = FormulaSource("io", ("object", "relation"))  # from PostgreSQL 18 on, pg_stat_io includes WAL
RELATIONS = FormulaSource("relations")
WRAPAROUND = FormulaSource("wraparound")
REPLICATION = FormulaSource("replication")
STATEMENTS = FormulaSource("statements")

OF_TRIALS: Sequence[Quantity] = (
    # WAL: from the LSN, which every version has and which includes padding
    Quantity("wal.bytes_per_tx", "WAL per transaction", "B/tx", LESS, WAL.per_tx("lsn_bytes")),
    Quantity("wal.fpi_per_tx", "full-page images per transaction", "pages/tx", LESS, WAL.per_tx("wal_fpi")),
    Quantity(
        "wal.records_per_tx", "WAL records per transaction", "records/tx", NEITHER, WAL.per_tx("wal_records")
    ),
    Quantity("wal.bytes_per_s", "WAL per second", "MiB/s", NEITHER, WAL.per_s("lsn_bytes", PER_MIB)),
    Quantity("wal.bytes", "WAL written", "MiB", NEITHER, WAL.counted("lsn_bytes", scale=PER_MIB)),
    Quantity("wal.fpi", "full-page images", "pages", NEITHER, WAL.counted("wal_fpi")),
    Quantity("wal.buffers_full", "WAL buffers full", "times", NEITHER, WAL.counted("wal_buffers_full")),
    Quantity("wal.syncs_per_tx", "WAL syncs per transaction", "syncs/tx", NEITHER, WAL.per_tx("wal_sync")),
    Quantity(
        "wal.write_us_per_tx",
        "WAL write time per transaction",
        "µs/tx",
        LESS,
        WAL.timed("wal_write_time", "wal_write"),
    ),
    Quantity(
        "wal.sync_us_per_tx",
        "WAL sync time per transaction",
        "µs/tx",
        LESS,
        WAL.timed("wal_sync_time", "wal_sync"),
    ),
    # checkpoints and page writes
    Quantity(
        "checkpoints.timed", "checkpoints by time", "checkpoints", NEITHER, CHECKPOINTS.counted("num_timed")
    ),
    Quantity(
        "checkpoints.requested",
        "checkpoints requested",
        "checkpoints",
        NEITHER,
        CHECKPOINTS.counted("num_requested"),
    ),
    Quantity(
        "checkpoints.write_s",
        "checkpoint write time",
        "s",
        NEITHER,
        CHECKPOINTS.counted("write_time", scale=S_PER_MS),
    ),
    Quantity(
        "checkpoints.sync_s",
        "checkpoint sync time",
        "s",
        NEITHER,
        CHECKPOINTS.counted("sync_time", scale=S_PER_MS),
    ),
    Quantity(
        "checkpoints.pages_per_tx",
        "pages written per transaction",
        "pages/tx",
        LESS,
        CHECKPOINTS.per_tx("buffers_written", "buffers_clean", "buffers_backend"),
    ),
    Quantity(
        "checkpoints.pages_checkpointer",
        "pages written by the checkpointer",
        "pages",
        NEITHER,
        CHECKPOINTS.counted("buffers_written"),
    ),
    Quantity(
        "checkpoints.pages_bgwriter",
        "pages written by the background writer",
        "pages",
        NEITHER,
        CHECKPOINTS.counted("buffers_clean"),
    ),
    Quantity(
        "checkpoints.pages_backends",
        "pages written by backends",
        "pages",
        NEITHER,
        CHECKPOINTS.counted("buffers_backend"),
    ),
    Quantity(
        "checkpoints.backends_share",
        "share of pages that backends wrote",
        "%",
        LESS,
        CHECKPOINTS.share("buffers_backend", "buffers_written", "buffers_clean"),
    ),
    Quantity(
        "checkpoints.bgwriter_stopped",
        "background writer stopped at its limit",
        "times",
        NEITHER,
        CHECKPOINTS.counted("maxwritten_clean"),
    ),
    # the database
    Quantity(
        "database.hit_share",
        "buffer hit ratio",
        "%",
        MORE,
        DATABASE.share("blks_hit", "blks_read"),
    ),
    Quantity(
        "database.blocks_hit_per_tx",
        "buffer hits per transaction",
        "blocks/tx",
        LESS,
        DATABASE.per_tx("blks_hit"),
    ),
    Quantity(
        "database.blocks_read_per_tx",
        "blocks read per transaction",
        "blocks/tx",
        LESS,
        DATABASE.per_tx("blks_read"),
    ),
    Quantity(
        "database.read_us_per_tx",
        "block read time per transaction",
        "µs/tx",
        LESS,
        DATABASE.timed("blk_read_time", "blks_read"),
    ),
    Quantity(
        "database.write_us_per_tx",
        "block write time per transaction",
        "µs/tx",
        LESS,
        DATABASE.timed("blk_write_time", "xact_commit"),
    ),
    Quantity(
        "database.rollback_share",
        "share of transactions rolled back",
        "%",
        NEITHER,
        DATABASE.share("xact_rollback", "xact_commit"),
    ),
    Quantity("database.temp_files", "temporary files", "files", NEITHER, DATABASE.counted("temp_files")),
    Quantity(
        "database.temp_bytes",
        "temporary files written",
        "MiB",
        NEITHER,
        DATABASE.counted("temp_bytes", scale=PER_MIB),
    ),
    Quantity("database.deadlocks", "deadlocks", "deadlocks", NEITHER, DATABASE.counted("deadlocks")),
    Quantity(
        "database.bytes_begin",
        "database size before",
        "MiB",
        NEITHER,
        DATABASE.at_begin("size_bytes", PER_MIB),
    ),
    Quantity("database.bytes", "database size", "MiB", NEITHER, DATABASE.finally_("size_bytes", PER_MIB)),
    Quantity(
        "database.growth", "database growth", "MiB", NEITHER, DATABASE.growth_finally("size_bytes", PER_MIB)
    ),
    Quantity(
        "database.growth_per_tx",
        "database growth per transaction",
        "B/tx",
        LESS,
        DATABASE.growth_per_tx("size_bytes"),
    ),
    # buffer hits
    Quantity(
        "blocks.heap_hit_share",
        "buffer hit ratio of tables",
        "%",
        MORE,
        BLOCKS.share("heap_blks_hit", "heap_blks_read"),
    ),
    Quantity(
        "blocks.index_hit_share",
        "buffer hit ratio of indexes",
        "%",
        MORE,
        BLOCKS.share("idx_blks_hit", "idx_blks_read"),
    ),
    # pg_stat_io: bytes, because an operation is one block in some versions and several in others
    Quantity("io.read_bytes_per_tx", "bytes read per transaction", "B/tx", LESS, IO.per_tx("read_bytes")),
    Quantity(
        "io.written_bytes_per_tx",
        "bytes written per transaction",
        "B/tx",
        LESS,
        IO.per_tx("write_bytes", "extend_bytes"),
    ),
    Quantity("io.read_us_per_tx", "read time per transaction", "µs/tx", LESS, IO.timed("read_time", "reads")),
    Quantity(
        "io.write_us_per_tx", "write time per transaction", "µs/tx", LESS, IO.timed("write_time", "writes")
    ),
    Quantity("io.fsyncs", "files synced", "fsyncs", NEITHER, IO.counted("fsyncs")),
    Quantity("io.evictions_per_tx", "evictions per transaction", "blocks/tx", LESS, IO.per_tx("evictions")),
    # all tables and indexes
    Quantity(
        "relations.hot_share",
        "HOT share of updates",
        "%",
        MORE,
        RELATIONS.part_of("n_tup_hot_upd", "n_tup_upd"),
    ),
    Quantity("relations.dead_tuples", "dead tuples", "tuples", NEITHER, RELATIONS.at_end("n_dead_tup")),
    Quantity(
        "relations.dead_growth", "growth of dead tuples", "tuples", NEITHER, RELATIONS.growth("n_dead_tup")
    ),
    Quantity(
        "relations.autovacuums",
        "tables vacuumed by autovacuum",
        "times",
        NEITHER,
        RELATIONS.counted("autovacuum_count"),
    ),
    Quantity(
        "relations.autoanalyzes",
        "tables analyzed by autovacuum",
        "times",
        NEITHER,
        RELATIONS.counted("autoanalyze_count"),
    ),
    Quantity(
        "relations.total_bytes",
        "tables with their indexes",
        "MiB",
        NEITHER,
        RELATIONS.finally_("total_bytes", PER_MIB),
    ),
    Quantity(
        "relations.indexes_bytes", "indexes", "MiB", NEITHER, RELATIONS.finally_("indexes_bytes", PER_MIB)
    ),
    Quantity(
        "relations.growth",
        "growth of tables with their indexes",
        "MiB",
        NEITHER,
        RELATIONS.growth_finally("total_bytes", PER_MIB),
    ),
    Quantity(
        "relations.indexes_growth",
        "growth of indexes",
        "MiB",
        NEITHER,
        RELATIONS.growth_finally("indexes_bytes", PER_MIB),
    ),
    # ages of transaction IDs
    Quantity(
        "wraparound.xids_per_tx",
        "transaction IDs per transaction",
        "xids/tx",
        LESS,
        WRAPAROUND.per_tx("next_xid"),
    ),
    Quantity(
        "wraparound.age",
        "age of the oldest transaction ID (datfrozenxid)",
        "xids",
        NEITHER,
        WRAPAROUND.at_end("frozen_xid_age"),
    ),
    Quantity(
        "wraparound.age_growth",
        "growth of the age of datfrozenxid",
        "xids",
        NEITHER,
        WRAPAROUND.growth("frozen_xid_age"),
    ),
    # standbys and slots
    Quantity(
        "replication.replay_lag",
        "maximum replay lag",
        "MiB",
        LESS,
        REPLICATION.largest("replay_lag_bytes", PER_MIB),
    ),
    Quantity(
        "replication.replay_lag_s",
        "maximum replay lag in time",
        "s",
        LESS,
        REPLICATION.largest("replay_lag_s"),
    ),
    Quantity(
        "replication.retained",
        "maximum WAL retained for a slot",
        "MiB",
        LESS,
        REPLICATION.largest("retained_bytes", PER_MIB),
    ),
    # all statements
    Quantity(
        "statements.ms_per_tx",
        "execution time per transaction",
        "ms/tx",
        LESS,
        STATEMENTS.per_tx("total_exec_time"),
    ),
    Quantity(
        "statements.plan_ms_per_tx",
        "planning time per transaction",
        "ms/tx",
        LESS,
        STATEMENTS.if_any("total_plan_time", "plans"),
    ),
    Quantity(
        "statements.calls_per_tx",
        "statements per transaction",
        "calls/tx",
        NEITHER,
        STATEMENTS.per_tx("calls"),
    ),
    Quantity(
        "statements.dirtied_per_tx",
        "blocks dirtied per transaction",
        "blocks/tx",
        LESS,
        STATEMENTS.per_tx("shared_blks_dirtied"),
    ),
    Quantity(
        "statements.written_per_tx",
        "blocks written by statements per transaction",
        "blocks/tx",
        LESS,
        STATEMENTS.per_tx("shared_blks_written"),
    ),
)
"""Quantities of a whole trial."""
