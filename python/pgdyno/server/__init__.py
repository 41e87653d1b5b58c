"""PostgreSQL servers: builds, data directories, snapshots and restores, start and stop, running servers."""
