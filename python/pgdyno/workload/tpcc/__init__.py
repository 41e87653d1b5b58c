"""Workload tpcc outside the engine: its dataset, and checks after a trial."""
