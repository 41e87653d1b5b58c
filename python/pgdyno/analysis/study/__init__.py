"""What holds for a whole case or study: findings, factors, curves, hosts, gates, history."""
