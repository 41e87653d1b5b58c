"""The exceptions of the API: the root, and wrong requests. The others are in ``pgdyno.errors``."""

from pgdyno.errors import PgdynoError, UsageError

__all__ = ["PgdynoError", "UsageError"]
