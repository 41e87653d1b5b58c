"""Estimates, intervals, tests and fits on plain numbers, independent of servers."""
