"""Workloads: parameters, data on servers, checks of trials. One folder per workload."""
