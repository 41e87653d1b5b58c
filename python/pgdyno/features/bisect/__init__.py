"""Search for the commit that changed the performance."""
