"""Runs a study: preflight checks, datasets, blocks, trials, warm-ups, the engine, probes."""
