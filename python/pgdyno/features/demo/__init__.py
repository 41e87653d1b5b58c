"""The demo: the effect of synchronous_commit in about two minutes."""
