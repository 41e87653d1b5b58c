"""Driving servers through the engine: specification, runs and results."""
