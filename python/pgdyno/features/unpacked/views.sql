-- Tables and views that `pgdyno unpack` adds. In a results file, points, pairs and readings are packed.

CREATE TABLE series_point (
    trial INTEGER NOT NULL REFERENCES trial,
    probe TEXT NOT NULL,
    at_s REAL NOT NULL,  -- Since the trial's epoch.
    "column" TEXT NOT NULL,
    value REAL NOT NULL
);

CREATE TABLE histogram_bin (
    trial INTEGER NOT NULL REFERENCES trial,
    kind TEXT NOT NULL,
    measure TEXT NOT NULL,
    value_ns INTEGER NOT NULL,
    n INTEGER NOT NULL
);

CREATE TABLE reading_value (
    trial INTEGER NOT NULL REFERENCES trial,
    probe TEXT NOT NULL,
    moment TEXT NOT NULL,
    at_s REAL NOT NULL,
    "row" INTEGER NOT NULL,
    "column" TEXT NOT NULL,
    value  -- A number or a text.
);

-- A row per trial, with the names of its case and arm, without A/A blocks.
CREATE VIEW trials AS
SELECT trial, study_case.name AS case_name, block, arm.name AS arm_name, attempt, status
FROM trial JOIN study_case USING (case_id) JOIN arm USING (case_id, arm)
WHERE aa_of IS NULL;

CREATE VIEW series_points AS
SELECT trials.*, probe, at_s, "column", value FROM series_point JOIN trials USING (trial);

CREATE VIEW histogram_bins AS
SELECT trials.*, kind, measure, value_ns, n FROM histogram_bin JOIN trials USING (trial);

CREATE VIEW reading_values AS
SELECT trials.*, probe, moment, at_s, "row", "column", value FROM reading_value JOIN trials USING (trial);
