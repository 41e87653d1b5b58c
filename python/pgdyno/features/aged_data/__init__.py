"""Data with a history: upgraded by pg_upgrade, or aged by load."""
