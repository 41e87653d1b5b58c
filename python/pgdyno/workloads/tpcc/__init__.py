"""Workload tpcc outside the engine: parameters, dataset, and checks after a trial."""
