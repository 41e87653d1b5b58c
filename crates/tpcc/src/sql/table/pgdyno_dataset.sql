CREATE TABLE pgdyno_dataset (
    workload  text        NOT NULL,
    scale     integer     NOT NULL,
    seed      numeric(20) NOT NULL,
    format    text        NOT NULL,
    c_load    integer     NOT NULL,
    loaded_at timestamptz NOT NULL DEFAULT current_timestamp
)
