"""Load generators on other nodes."""
