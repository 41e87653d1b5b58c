SELECT pg_advisory_xact_lock(1346847556, $1)
