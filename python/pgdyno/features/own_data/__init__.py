"""Data of the user: databases, dumps, backups, and scripts that draw from their columns."""
