"""The workload pgbench, seen from outside the engine: data, the checks after a trial."""
