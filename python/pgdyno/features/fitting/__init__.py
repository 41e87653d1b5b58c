"""Fit of a study to a machine and a time budget, which keeps the question of its source."""
