"""Probes: sources of telemetry of servers and the machine."""
