"""Estimates, intervals, tests and fits that know nothing of servers: numbers in, numbers out."""
