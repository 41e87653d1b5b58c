"""Telemetry of one trial: counters and samples of the probes as quantities with units."""
