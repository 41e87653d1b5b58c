"""Comparison of an arm with the baseline: effects, verdicts, caveats, and measurement noise."""
