"""Workload sysbench: scripts of sysbench, their options, data and checks."""
