"""Options of the workload insert."""

from __future__ import annotations

from pgdyno.cli.options import ParameterOptions
from pgdyno.features.insert.parameters import InsertParameters


class InsertOptions(ParameterOptions, model=InsertParameters, fields="phase rows queues inserts"):
    """Options of insert: phase and data."""
