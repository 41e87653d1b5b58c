"""More than one machine: load generators and whole studies on the nodes of a Ray cluster."""
