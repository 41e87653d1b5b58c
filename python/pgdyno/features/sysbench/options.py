"""Options of the workload sysbench."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pgdyno.cli.options import ParameterOptions
from pgdyno.features.sysbench.parameters import SysbenchParameters


class SysbenchOptions(
    ParameterOptions,
    model=SysbenchParameters,
    fields="script tables table_size options prepare_threads allow_os",
):
    """Options of sysbench: script and data."""

    SCRIPTS = "script"

    def with_arguments(self, texts: Sequence[str]) -> Self:
        """Return the options with ``--name=value`` of sysbench's command line."""
        return self.replaced(options=[*self.given.get("options", ()), *texts])
