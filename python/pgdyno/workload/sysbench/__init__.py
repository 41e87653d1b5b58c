"""Workload sysbench: data and checks."""
