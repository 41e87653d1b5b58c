"""Results of a whole case or study: findings, factors, scalability, capacity, hosts, gates, history."""
