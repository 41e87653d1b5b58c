"""Workload pgbench outside the engine: data, and checks after a trial."""
