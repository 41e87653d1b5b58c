"""pgdyno: a dynamometer for PostgreSQL."""

__version__ = "0.1.0"
