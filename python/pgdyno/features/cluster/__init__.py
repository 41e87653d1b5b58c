"""Connection to a Ray cluster, which load generators and fleets share."""
