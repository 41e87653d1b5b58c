"""Options of the workload linkbench."""

from __future__ import annotations

from pgdyno.cli.options import ParameterOptions
from pgdyno.features.linkbench.parameters import LinkBenchParameters


class LinkBenchOptions(ParameterOptions, model=LinkBenchParameters, fields="nodes edition distributions"):
    """Options of linkbench: data and operations."""
