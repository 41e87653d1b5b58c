"""Workloads: their data on servers, and the checks of trials."""
