"""Published experiments: their tables with measured values."""
