"""Crash tests: servers are crashed on purpose, and the acknowledged commits that are gone are counted."""
