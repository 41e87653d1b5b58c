"""Parameters of SQL statements: the columns they are compared with or assigned to, and values for them."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(__name__)
