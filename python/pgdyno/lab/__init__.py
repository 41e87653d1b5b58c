"""Runs a study: preflight checks, datasets, blocks, trials, warm-ups. It sees all other packages."""
