"""Benchmarks of pgdyno against other drivers and against hardware limits, on this machine: ``make bench``."""
