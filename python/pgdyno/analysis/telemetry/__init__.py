"""What the probes of one trial tell: counters and samples made into quantities with units."""
