"""Workload pgbench outside the engine: parameters, data, and checks after a trial."""
