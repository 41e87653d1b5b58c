"""The workload pgbench, seen from outside the engine: variants, data, the checks after a trial."""
