-- All measurements of one study or crash test. Every number of its report can be computed from them; computed values are not stored.
-- One file per study, written during the study (WAL mode), consistent after every transaction.
--
-- Units: *_unix_s are seconds since 1970-01-01 UTC; other *_s are seconds (REAL). Times of slices and intervals
-- count from the trial's epoch, the start of the driver's run (trial.epoch_unix_s). In the slices schedule all
-- trials of a block share one epoch. JSON columns contain one JSON value as text.
-- Passwords are masked before storage, except in the workloads of a plan: a resume runs their scripts.

PRAGMA application_id = 0x7067646E;  -- "pgdn"
PRAGMA user_version = 4;             -- version of this schema; files of other versions are refused

-- Tables of docs/generate.py, from the records.

-- The study: one row.
CREATE TABLE study (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    title TEXT NOT NULL,
    created_unix_s REAL NOT NULL,
    ended_unix_s REAL,  -- Null during the study, and after a kill.
    ended_because TEXT CHECK (ended_because IN ('verdict', 'budget', 'blocks', 'interrupted', 'failed')),
    pgdyno_version TEXT NOT NULL,
    engine TEXT NOT NULL,  -- JSON: output of pgdyno-engine version (docs/reference/engine-protocol.md).
    command TEXT NOT NULL,  -- Command line that repeats the study.
    host TEXT NOT NULL,  -- JSON: machine facts, name → text or number; states: the machine before and after (python/pgdyno/features/doctor/README.md).
    file TEXT NOT NULL,  -- Text of the study file; empty for a comparison without one.
    changes TEXT NOT NULL,  -- JSON: values fitted to this machine, list of {key, before, after, why}; a note has only why.
    published TEXT NOT NULL  -- JSON: tables of the source (docs/reference/study-file.md) with the levels that were run; else null.
) STRICT;

-- One comparison of arms. A study file has one for each combination of the factors that are not compared.
-- Reports show the cases with aa_of null. The others, after them, contain the hidden A/A blocks. Their block
-- numbers are those of the blocks that they accompany.
CREATE TABLE study_case (
    case_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,  -- Empty for a single case.
    levels TEXT NOT NULL,  -- JSON: factor → level.
    plan TEXT NOT NULL,  -- JSON: see Study in study/plan.py.
    arm_levels TEXT NOT NULL,  -- JSON: list of {factor: level} of the compared factors, one per arm.
    why_no_aa TEXT NOT NULL,  -- Reason for missing A/A blocks; empty if there are any.
    aa_of INTEGER REFERENCES study_case,  -- For A/A blocks: the case of the duplicated arm; the arms are this one and its duplicate. Else null.
    aa_arm INTEGER,  -- For A/A blocks: the duplicated arm of that case. Else null.
    aa_before TEXT NOT NULL  -- JSON: list of log ratios of A/A blocks of earlier studies with the same load.
) STRICT;

-- One thing compared: an arm of a case. Arm 0 is the baseline.
CREATE TABLE arm (
    case_id INTEGER NOT NULL REFERENCES study_case,
    arm INTEGER NOT NULL,
    name TEXT NOT NULL,
    spec TEXT NOT NULL,  -- As the user wrote it.
    server TEXT NOT NULL,  -- JSON: provider, version, compiler options, initdb options.
    settings_requested TEXT NOT NULL,  -- JSON: name → value, as PostgreSQL writes them.
    safety TEXT NOT NULL,  -- JSON: list of {name, kept: yes, partly, no, unknown; text}.
    workload TEXT NOT NULL,  -- JSON: kind and parameters.
    clients INTEGER NOT NULL CHECK (clients > 0),
    dataset TEXT NOT NULL,  -- JSON: workload, scale, seed, size.
    PRIMARY KEY (case_id, arm),
    UNIQUE (case_id, name)
) STRICT;

-- One trial of every arm, close in time.
CREATE TABLE block (
    case_id INTEGER NOT NULL REFERENCES study_case,
    block INTEGER NOT NULL,  -- Position in the plan of its case: 0, 1, …
    seed INTEGER NOT NULL,  -- Below 2^63.
    arm_order TEXT NOT NULL,  -- JSON: arm indices in the order of the slices or trials.
    status TEXT NOT NULL CHECK (status IN ('running', 'done', 'failed', 'interrupted')),
    started_unix_s REAL NOT NULL,
    ended_unix_s REAL,
    PRIMARY KEY (case_id, block)
) STRICT;

-- One arm's part of a block. A repeated trial is a new row with the next attempt, and the last one counts.
CREATE TABLE trial (
    trial INTEGER PRIMARY KEY,
    case_id INTEGER NOT NULL,
    block INTEGER NOT NULL,
    arm INTEGER NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 1,
    status TEXT NOT NULL CHECK (status IN ('running', 'ok', 'excluded', 'failed', 'interrupted')),
    reason TEXT NOT NULL DEFAULT '',  -- Reason if it is not ok.
    log_error TEXT NOT NULL DEFAULT '',  -- First severe message of the server's log, if it explains the reason.
    started_unix_s REAL NOT NULL,
    ended_unix_s REAL,
    epoch_unix_s REAL,  -- Epoch of the driver: origin of the times of slices and intervals.
    restore_s REAL,  -- Null without a restore (dsn).
    start_s REAL,  -- Server start until it accepts connections; null for dsn.
    server_cpu_s REAL,  -- User + system of all the server's processes over the window; null if it cannot be read, as for dsn.
    transactions INTEGER,  -- Neither failed nor skipped, between the two readings of server_cpu_s.
    counters TEXT NOT NULL DEFAULT '{}',  -- JSON: counters of the workload since connection, including warm-up; name → number.
    driver_memory_bytes INTEGER,  -- Peak of the driver.
    driver TEXT NOT NULL DEFAULT '{}',  -- JSON: threads, round_trip_ns, wake_late_ns, warm_up, capacity (its search), …
    settings TEXT NOT NULL DEFAULT '{}',  -- JSON: effective settings, name → value.
    tally BLOB,  -- Zlib of JSON: counters of the workload, for conformance checks.
    recovery_s REAL,  -- From a crash after the measured part until the server accepts connections; null if not measured.
    restart_s REAL,  -- Clean stop and start; null if not measured.
    probe_cpu_s REAL,  -- CPU of the probes over the window: their thread and their backends; null without probes.
    UNIQUE (case_id, block, arm, attempt),
    FOREIGN KEY (case_id, block) REFERENCES block,
    FOREIGN KEY (case_id, arm) REFERENCES arm
) STRICT;

-- A short turn of one arm. In the blocks schedule a trial has one warm-up and one measured slice.
CREATE TABLE slice (
    trial INTEGER NOT NULL REFERENCES trial,
    position INTEGER NOT NULL,  -- In the driver's run, over all arms.
    role TEXT NOT NULL CHECK (role IN ('warm-up', 'measure')),
    opened_s REAL NOT NULL,
    counted_from_s REAL NOT NULL,  -- Earlier transactions are not counted.
    closed_s REAL NOT NULL,  -- Later transactions neither start nor count.
    drained_s REAL NOT NULL,  -- The last one in flight ended.
    driver_cpu_user_s REAL NOT NULL,  -- Opened to drained.
    driver_cpu_system_s REAL NOT NULL,
    PRIMARY KEY (trial, position)
) STRICT, WITHOUT ROWID;

-- Transactions that ended in the counted part of a slice, by kind. Every transaction is exactly one of ok,
-- rolled_back (as designed), failed, skipped; retried counts attempts.
CREATE TABLE slice_count (
    trial INTEGER NOT NULL,
    position INTEGER NOT NULL,
    kind TEXT NOT NULL,
    ok INTEGER NOT NULL,
    rolled_back INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    retried INTEGER NOT NULL,
    PRIMARY KEY (trial, position, kind),
    FOREIGN KEY (trial, position) REFERENCES slice
) STRICT, WITHOUT ROWID;

-- A part of a slice, streamed by the driver. Latency is that of its ok transactions of all kinds; null
-- without any.
CREATE TABLE interval (
    trial INTEGER NOT NULL REFERENCES trial,
    position INTEGER NOT NULL,  -- Position of the slice.
    role TEXT NOT NULL CHECK (role IN ('warm-up', 'measure')),
    from_s REAL NOT NULL,
    to_s REAL NOT NULL,
    executed INTEGER NOT NULL,  -- Ok and rolled_back of all kinds, so that a series is read without kinds.
    latency_p50_ns INTEGER,
    latency_p95_ns INTEGER,
    latency_p99_ns INTEGER,
    latency_max_ns INTEGER,
    PRIMARY KEY (trial, from_s)
) STRICT, WITHOUT ROWID;

CREATE TABLE interval_count (
    trial INTEGER NOT NULL,
    from_s REAL NOT NULL,
    kind TEXT NOT NULL,
    ok INTEGER NOT NULL,
    rolled_back INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    retried INTEGER NOT NULL,
    PRIMARY KEY (trial, from_s, kind),
    FOREIGN KEY (trial, from_s) REFERENCES interval
) STRICT, WITHOUT ROWID;

-- Failed transactions of one kind and SQLSTATE (connection for a lost one), with one message.
CREATE TABLE failure (
    trial INTEGER NOT NULL REFERENCES trial,
    kind TEXT NOT NULL,
    sqlstate TEXT NOT NULL,
    n INTEGER NOT NULL,
    sample TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (trial, kind, sqlstate)
) STRICT, WITHOUT ROWID;

-- HDR histogram of the ok transactions of one kind with intended start in the counted part of a slice,
-- including those that ended while it drained (docs/adr/0006): 3 significant digits, 1 ns to 60 s. latency =
-- done − intended, service = done − sent, lag = sent − intended. skipped: the time that each skipped arrival
-- of an open loop had waited, a lower bound of its latency.
CREATE TABLE histogram (
    trial INTEGER NOT NULL REFERENCES trial,
    kind TEXT NOT NULL,
    measure TEXT NOT NULL CHECK (measure IN ('latency', 'service', 'lag', 'skipped')),
    n INTEGER NOT NULL,  -- Sum of the counts in pairs; readers check it.
    pairs BLOB NOT NULL,  -- Zlib stream (RFC 1950) of (value in ns, count) pairs in ascending order of value, each number an unsigned 64-bit little-endian integer. A value represents all values of its bucket within 0.1%.
    PRIMARY KEY (trial, kind, measure)
) STRICT, WITHOUT ROWID;

-- Result of a check of a trial or a database. One failed check excludes the trial from the estimate.
CREATE TABLE check_result (
    trial INTEGER NOT NULL REFERENCES trial,
    name TEXT NOT NULL,
    passed INTEGER CHECK (passed IN (0, 1)),  -- Null: skipped, because it cannot hold; the detail is the reason.
    statistic REAL,  -- Value of the test statistic; null for a check without one.
    p_value REAL,
    detail TEXT NOT NULL DEFAULT '',  -- One line with the compared values and, if the check failed, the first violations.
    PRIMARY KEY (trial, name)
) STRICT, WITHOUT ROWID;

-- Raw counters that a probe read at one moment, from the server or the host, or the reason why they are
-- missing. Readers compute the differences.
CREATE TABLE reading (
    trial INTEGER NOT NULL REFERENCES trial,
    probe TEXT NOT NULL,
    moment TEXT NOT NULL CHECK (moment IN ('begin', 'end', 'after')),  -- Before and after the measured part; after a VACUUM.
    at_s REAL NOT NULL,  -- Since the trial's epoch.
    took_s REAL NOT NULL,
    reason TEXT NOT NULL DEFAULT '',  -- Reason for missing rows.
    absence TEXT CHECK (absence IN ('version', 'shared-server', 'reset', 'other')),  -- Code of the reason.
    found BLOB,  -- Zlib of JSON: list of {column: number, text or null}; null if unavailable.
    PRIMARY KEY (trial, probe, moment)
) STRICT, WITHOUT ROWID;

-- Samples of a probe in each second (less often in a long window), about ten minutes per row.
CREATE TABLE series (
    trial INTEGER NOT NULL REFERENCES trial,
    probe TEXT NOT NULL,
    from_s REAL NOT NULL,  -- Since the trial's epoch: the first sample's at_s.
    columns TEXT NOT NULL,  -- JSON: list of names, first at_s (since the trial's epoch) and late_s.
    points BLOB NOT NULL,  -- Zlib of little-endian float64, row by row, ascending in at_s; NaN for missing values.
    PRIMARY KEY (trial, probe, from_s)
) STRICT, WITHOUT ROWID;

-- A caveat of a trial or a case, from the closed lists in caveats.toml of the core and of features.
CREATE TABLE caveat (
    caveat INTEGER PRIMARY KEY,
    case_id INTEGER NOT NULL REFERENCES study_case,
    trial INTEGER REFERENCES trial,  -- Null for a caveat about the whole case.
    code TEXT NOT NULL,
    parameters TEXT NOT NULL  -- JSON.
) STRICT;

-- The server's log over the trial.
CREATE TABLE log (
    trial INTEGER PRIMARY KEY REFERENCES trial,
    text BLOB NOT NULL  -- Zlib (RFC 1950) of UTF-8 text.
) STRICT;

-- A crash test (pgdyno crash). A file has a study, a crash test, or a study with a crash test of its arms
-- (--durability). One row.
CREATE TABLE crash_test (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    created_unix_s REAL NOT NULL,
    ended_unix_s REAL,  -- Null during the test, and after a kill.
    pgdyno_version TEXT NOT NULL,
    engine TEXT NOT NULL,  -- JSON: output of pgdyno-engine version.
    command TEXT NOT NULL,  -- Command line that repeats the test.
    host TEXT NOT NULL,  -- JSON: machine facts, name → text or number.
    plan TEXT NOT NULL  -- JSON: see CrashPlan in features/crash_disk/plan.py.
) STRICT;

-- One arm of a crash test.
CREATE TABLE crash_arm (
    arm INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    server TEXT NOT NULL,  -- JSON: version, provider.
    settings TEXT NOT NULL,  -- JSON: requested settings, name → value.
    safety TEXT NOT NULL,  -- JSON: list of {name, kept: yes, partly, no, unknown; text}, derived from the effective settings.
    wal_writer_delay_s REAL NOT NULL  -- Effective value.
) STRICT;

-- One crash of an arm. Counts are transactions, except damaged: rows (README.md).
CREATE TABLE crash (
    number INTEGER NOT NULL,  -- 0, 1, …
    arm INTEGER NOT NULL REFERENCES crash_arm,
    started_unix_s REAL NOT NULL,
    took_s REAL NOT NULL,  -- Duration of start, load, crash, recovery and checks together.
    active_s REAL NOT NULL,  -- From the first transaction until the crash.
    survivors TEXT,  -- Unflushed writes that survived a power cut; null for other crashes.
    acknowledged INTEGER NOT NULL,  -- Transactions acknowledged before the crash.
    recovery_s REAL,  -- From the start of the server until it accepts connections; null if it does not.
    replayed_bytes INTEGER,  -- WAL that the recovery replayed; null if the log has no messages about it.
    lost INTEGER,  -- Acknowledged and absent; null if the rows cannot be read; so are the next ones.
    in_doubt INTEGER,  -- Sent and not acknowledged.
    in_doubt_present INTEGER,
    phantoms INTEGER,  -- Present and never sent.
    holes INTEGER,  -- Lost before a present one of the same client.
    damaged INTEGER,
    loss_window_s REAL,  -- From the first lost acknowledgement until the crash; null without a loss.
    corruption TEXT NOT NULL,  -- JSON: list of {check, text}; check is mount, start, read, amcheck, consistency, checksums or log.
    unchecked TEXT NOT NULL,  -- JSON: list of checks that were not possible.
    disk TEXT NOT NULL,  -- JSON: counters at the crash, name → number: of the disk; no_space: the server found it full; in_phase: before the end of the checkpoint or VACUUM.
    PRIMARY KEY (number, arm)
) STRICT;

-- End of the tables.

-- Checksums of the rows of each table, updated in the same transaction, and of the definitions in sqlite_schema.
-- The digest of a row is BLAKE2b with 8 bytes over its values in the order of the columns, each as "TYPE LENGTH BYTES"
-- (row_digest in results_file.py).
CREATE TABLE checksum (
    name                TEXT PRIMARY KEY,       -- name of the table
    rows                INTEGER NOT NULL,
    digest              TEXT NOT NULL           -- hexadecimal: sum of the digests of its rows as little-endian integers, modulo 2^64
) STRICT, WITHOUT ROWID;
