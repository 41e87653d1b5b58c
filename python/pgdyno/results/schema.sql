-- Everything that one study measured: enough to recompute every number of its report, and nothing that can be
-- recomputed. One file per study, written as the study goes (WAL mode), whole after every transaction.
--
-- Units: *_unix_s are seconds since 1970-01-01 UTC; other *_s are seconds (REAL). Instants of slices and intervals
-- count from the trial's epoch, which is the start of the driver's run (trial.epoch_unix_s); in the slices schedule
-- all trials of a block share one. JSON columns hold one JSON value as text. Passwords are masked before they get here.

PRAGMA application_id = 0x7067646E;  -- "pgdn"
PRAGMA user_version = 4;             -- the version of this schema; another one is refused, never guessed at

-- One row.
CREATE TABLE study (
    id                  INTEGER PRIMARY KEY CHECK (id = 1),
    title               TEXT NOT NULL,
    created_unix_s      REAL NOT NULL,
    ended_unix_s        REAL,               -- null while it runs, and after a kill
    ended_because       TEXT CHECK (ended_because IN ('verdict', 'budget', 'blocks', 'interrupted', 'failed')),
    pgdyno_version      TEXT NOT NULL,
    engine              TEXT NOT NULL,      -- JSON: what pgdyno-engine version says (docs/reference/engine-protocol.md)
    command             TEXT NOT NULL,      -- the command line that repeats it
    host                TEXT NOT NULL,      -- JSON: machine facts, name → text or number; states: the machine before and after (docs/reference/doctor.md)
    file                TEXT NOT NULL,      -- the study file as it was given; empty for a comparison without one
    changes             TEXT NOT NULL,      -- JSON: list of {key, before, after, why}, of a note the last alone: what was fitted to this machine
    published           TEXT NOT NULL       -- JSON: the tables of the source (docs/reference/study-file.md), with the levels that were run; null without
) STRICT;

-- One comparison of arms. A study file has one for each combination of the factors that are not compared. What is shown are
-- those where aa_of is null; the others, after them, hold the hidden A/A blocks, and their block numbers are those of the
-- blocks beside which they ran.
CREATE TABLE study_case (
    case_id             INTEGER PRIMARY KEY,    -- 0, 1, …
    name                TEXT NOT NULL UNIQUE,   -- empty where there is just one
    levels              TEXT NOT NULL,          -- JSON: factor → level
    plan                TEXT NOT NULL,          -- JSON: see Study in study/plan.py
    arm_levels          TEXT NOT NULL,          -- JSON: list of {factor: level}, one for each arm, of the factors compared
    why_no_aa           TEXT NOT NULL,          -- why the case has no A/A blocks; empty where it has
    aa_of               INTEGER REFERENCES study_case,  -- of A/A blocks: the case of which they double an arm; its arms are that and its twin. Else null
    aa_arm              INTEGER,                -- of A/A blocks: the arm of that case that they double. Else null
    aa_before           TEXT NOT NULL           -- JSON: list of log ratios of A/A blocks of earlier studies under the same load
) STRICT;

-- One row per arm of a case; index 0 is the baseline.
CREATE TABLE arm (
    case_id             INTEGER NOT NULL REFERENCES study_case,
    arm                 INTEGER NOT NULL,
    name                TEXT NOT NULL,
    spec                TEXT NOT NULL,      -- as the user wrote it
    server              TEXT NOT NULL,      -- JSON: provider, version, how it was compiled, initdb options
    settings_requested  TEXT NOT NULL,      -- JSON: name → value, as PostgreSQL writes them
    safety              TEXT NOT NULL,      -- JSON: list of {name, kept: yes, partly, no, unknown; text}
    workload            TEXT NOT NULL,      -- JSON: kind and parameters
    clients             INTEGER NOT NULL CHECK (clients > 0),
    dataset             TEXT NOT NULL,      -- JSON: workload, scale, seed, size
    PRIMARY KEY (case_id, arm),
    UNIQUE (case_id, name)
) STRICT;

CREATE TABLE block (
    case_id             INTEGER NOT NULL REFERENCES study_case,
    block               INTEGER NOT NULL,      -- 0, 1, …: its place in the plan of its case
    seed                INTEGER NOT NULL,
    arm_order           TEXT NOT NULL,         -- JSON: arm indices in the order of the slices or trials
    status              TEXT NOT NULL CHECK (status IN ('running', 'done', 'failed', 'interrupted')),
    started_unix_s      REAL NOT NULL,
    ended_unix_s        REAL,
    PRIMARY KEY (case_id, block)
) STRICT;

-- One arm's part of a block. A repeated trial is a new row with the next attempt; the last attempt counts.
CREATE TABLE trial (
    trial               INTEGER PRIMARY KEY,
    case_id             INTEGER NOT NULL,
    block               INTEGER NOT NULL,
    arm                 INTEGER NOT NULL,
    attempt             INTEGER NOT NULL DEFAULT 1,
    status              TEXT NOT NULL CHECK (status IN ('running', 'ok', 'excluded', 'failed', 'interrupted')),
    reason              TEXT NOT NULL DEFAULT '',  -- why it is not ok
    log_error           TEXT NOT NULL DEFAULT '',  -- the first severe message of the server's log, where it explains the reason
    started_unix_s      REAL NOT NULL,
    ended_unix_s        REAL,
    epoch_unix_s        REAL,                   -- the driver's epoch, from which slices and intervals count
    restore_s           REAL,                   -- null where nothing was restored (dsn)
    start_s             REAL,                   -- server start until it accepts connections; null for dsn
    server_cpu_s        REAL,                   -- user + system of all the server's processes over the window; null for dsn
    transactions        INTEGER,                -- executed (not skipped) between the two readings of server_cpu_s
    counters            TEXT NOT NULL DEFAULT '{}',  -- JSON: the workload's own counters, over everything since connection; name → number
    driver_memory_bytes INTEGER,                -- the driver's peak
    driver              TEXT NOT NULL DEFAULT '{}',  -- JSON: threads, round_trip_ns, wake_late_ns, warm_up, capacity (its search), …
    settings            TEXT NOT NULL DEFAULT '{}',  -- JSON: effective settings, name → value
    tally               BLOB,                   -- zlib of JSON: the workload's own counters, for conformance
    recovery_s          REAL,                   -- from a crash after the measured part until the server took connections; null where not tried
    restart_s           REAL,                   -- of a clean stop and start; null where not tried
    probe_cpu_s         REAL,                   -- the probes' own CPU over the window: their thread and their backends; null without probes
    UNIQUE (case_id, block, arm, attempt),
    FOREIGN KEY (case_id, block) REFERENCES block,
    FOREIGN KEY (case_id, arm) REFERENCES arm
) STRICT;

-- A second or so of one arm. In the blocks schedule a trial has one warm-up and one measured slice.
CREATE TABLE slice (
    trial               INTEGER NOT NULL REFERENCES trial,
    position            INTEGER NOT NULL,       -- in the driver's run, over all its arms
    role                TEXT NOT NULL CHECK (role IN ('warm-up', 'measure')),
    opened_s            REAL NOT NULL,
    counted_from_s      REAL NOT NULL,          -- what came before is not counted
    closed_s            REAL NOT NULL,          -- no transaction starts after this, and none counts
    drained_s           REAL NOT NULL,          -- the last one in flight ended
    driver_cpu_user_s   REAL NOT NULL,          -- opened to drained
    driver_cpu_system_s REAL NOT NULL,
    PRIMARY KEY (trial, position)
) STRICT, WITHOUT ROWID;

-- Per slice and kind of transaction, of those that ended in its counted part. Every transaction is exactly one of ok, rolled_back (by
-- design), failed, skipped; retried counts attempts.
CREATE TABLE slice_count (
    trial               INTEGER NOT NULL,
    position            INTEGER NOT NULL,
    kind                TEXT NOT NULL,
    ok                  INTEGER NOT NULL,
    rolled_back         INTEGER NOT NULL,
    failed              INTEGER NOT NULL,
    skipped             INTEGER NOT NULL,
    retried             INTEGER NOT NULL,
    PRIMARY KEY (trial, position, kind),
    FOREIGN KEY (trial, position) REFERENCES slice
) STRICT, WITHOUT ROWID;

-- What the driver streams inside a slice. Latency is of the ok ones of all kinds; null where there was none.
CREATE TABLE interval (
    trial               INTEGER NOT NULL REFERENCES trial,
    position            INTEGER NOT NULL,       -- the slice it belongs to
    role                TEXT NOT NULL CHECK (role IN ('warm-up', 'measure')),
    from_s              REAL NOT NULL,
    to_s                REAL NOT NULL,
    executed            INTEGER NOT NULL,       -- ok and rolled_back of all kinds: a series is read without its kinds
    latency_p50_ns      INTEGER,
    latency_p95_ns      INTEGER,
    latency_p99_ns      INTEGER,
    latency_max_ns      INTEGER,
    PRIMARY KEY (trial, from_s)
) STRICT, WITHOUT ROWID;

CREATE TABLE interval_count (
    trial               INTEGER NOT NULL,
    from_s              REAL NOT NULL,
    kind                TEXT NOT NULL,
    ok                  INTEGER NOT NULL,
    rolled_back         INTEGER NOT NULL,
    failed              INTEGER NOT NULL,
    skipped             INTEGER NOT NULL,
    retried             INTEGER NOT NULL,
    PRIMARY KEY (trial, from_s, kind),
    FOREIGN KEY (trial, from_s) REFERENCES interval
) STRICT, WITHOUT ROWID;

-- Failed transactions of the counted part by SQLSTATE ("connection" for a lost one), with one message as a sample.
CREATE TABLE failure (
    trial               INTEGER NOT NULL REFERENCES trial,
    kind                TEXT NOT NULL,
    sqlstate            TEXT NOT NULL,
    n                   INTEGER NOT NULL,
    sample              TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (trial, kind, sqlstate)
) STRICT, WITHOUT ROWID;

-- HDR histograms of the ok transactions that were intended in the counted part of a slice, also of those that ended
-- while it drained (docs/adr/0006): 3 significant digits, 1 ns to 60 s.
-- latency = done − intended, service = done − sent, lag = sent − intended.
-- pairs is a zlib stream (RFC 1950) of (value in ns, how many) pairs in ascending order of value, each number an
-- unsigned 64-bit little-endian integer. A value stands for all that share its bucket and is within 0.1 % of them.
CREATE TABLE histogram (
    trial               INTEGER NOT NULL REFERENCES trial,
    kind                TEXT NOT NULL,
    measure             TEXT NOT NULL CHECK (measure IN ('latency', 'service', 'lag')),
    n                   INTEGER NOT NULL,       -- the sum over pairs: a reader checks it
    pairs               BLOB NOT NULL,
    PRIMARY KEY (trial, kind, measure)
) STRICT, WITHOUT ROWID;

-- Did the workload do its work? One failed check excludes the trial from the estimate.
CREATE TABLE check_result (
    trial               INTEGER NOT NULL REFERENCES trial,
    name                TEXT NOT NULL,
    passed              INTEGER NOT NULL CHECK (passed IN (0, 1)),
    statistic           REAL,                   -- of a statistical test, else null
    p_value             REAL,
    detail              TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (trial, name)
) STRICT, WITHOUT ROWID;

-- What a probe read at a moment: counters as the server or the host gives them, to be subtracted by who reads this.
CREATE TABLE reading (
    trial               INTEGER NOT NULL REFERENCES trial,
    probe               TEXT NOT NULL,
    moment              TEXT NOT NULL CHECK (moment IN ('begin', 'end', 'after')),  -- of the measured part; after a VACUUM
    at_s                REAL NOT NULL,          -- since the trial's epoch
    took_s              REAL NOT NULL,
    reason              TEXT NOT NULL DEFAULT '',  -- why there are no rows
    absence             TEXT CHECK (absence IN ('version', 'shared-server', 'reset', 'other')),  -- the code of the reason; null: other
    found               BLOB,                   -- zlib of JSON: list of {column: number, text or null}; null where they cannot be had
    PRIMARY KEY (trial, probe, moment)
) STRICT, WITHOUT ROWID;

-- What was sampled each second (or at a coarser step in a long window), ten minutes or so in a row.
CREATE TABLE series (
    trial               INTEGER NOT NULL REFERENCES trial,
    probe               TEXT NOT NULL,
    from_s              REAL NOT NULL,          -- since the trial's epoch: the first sample's at_s
    columns             TEXT NOT NULL,          -- JSON: list of names; the first are at_s and late_s
    points              BLOB NOT NULL,          -- zlib of little-endian float64, a row of these columns after the other; NaN: not there
    PRIMARY KEY (trial, probe, from_s)
) STRICT, WITHOUT ROWID;

-- Doubts of the closed list in caveats.py; trial is null for one about the whole case.
CREATE TABLE caveat (
    caveat              INTEGER PRIMARY KEY,
    case_id             INTEGER NOT NULL REFERENCES study_case,
    trial               INTEGER REFERENCES trial,
    code                TEXT NOT NULL,
    parameters          TEXT NOT NULL           -- JSON
) STRICT;

-- The server's log over the trial: zlib (RFC 1950) of UTF-8 text.
CREATE TABLE log (
    trial               INTEGER PRIMARY KEY REFERENCES trial,
    text                BLOB NOT NULL
) STRICT;

-- What the rows of each table have to be, changed in the same transaction as they are; and of sqlite_schema, the definitions themselves.
-- A row's digest is BLAKE2b, of 8 bytes, of its values in the order of the columns, each as "TYPE LENGTH BYTES": row_digest in checksums.py.
CREATE TABLE checksum (
    name                TEXT PRIMARY KEY,       -- of the table
    rows                INTEGER NOT NULL,
    digest              TEXT NOT NULL           -- hexadecimal: the sum of the digests of its rows, each a little-endian integer, modulo 2^64
) STRICT, WITHOUT ROWID;
