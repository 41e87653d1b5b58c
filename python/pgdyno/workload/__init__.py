"""Workloads: what a dataset must hold, and the proof that a trial did its work."""
