"""Steady state: warm-ups, stationarity of the measured windows, drift, checkpoint cycles."""
