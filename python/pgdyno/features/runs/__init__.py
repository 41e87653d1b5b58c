"""Single runs without a comparison: load, check, drive, pgbench."""
