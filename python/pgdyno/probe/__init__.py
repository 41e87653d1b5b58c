"""Probes: each is one source of telemetry about a running server."""
