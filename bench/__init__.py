"""Our own speed against the peers and the machine's limits, side by side on this machine: ``make bench``."""
