"""Whole studies on the nodes of a Ray cluster."""
