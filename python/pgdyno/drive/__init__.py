"""Drives servers through the engine: the specification that goes in, the run, what comes out."""
