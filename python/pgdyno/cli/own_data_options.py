"""Options of data of the user."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from pgdyno.errors import UsageError
from pgdyno.study.workload_parameters import read_script


@dataclass(frozen=True)
class OwnDataOptions:
    """Options of data of the user, for pgbench scripts."""

    data: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="pgbench: data of your own: a dump, a backup, a directory with load.sql, a DSN that is read "
            "once, or a name (`pgdyno data`). Requires --file and implies --workload pgbench.",
        ),
    ] = None
    check: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.sql",
            help="pgbench: queries that must return no row after each trial. May be repeated.",
        ),
    ] = None
    no_analyze: Annotated[
        bool, typer.Option("--no-analyze", help="Do not run ANALYZE before the snapshot of --data.")
    ] = False

    def of_pgbench(self) -> dict[str, Any]:
        """Return the parameters of pgbench. Raises UsageError."""
        found: dict[str, Any] = {}
        if self.data is not None:
            found["data"] = {"source": self.data, "analyze": not self.no_analyze}
        elif self.no_analyze:
            raise UsageError("--no-analyze requires --data: remove it")
        if self.check:
            found["checks"] = [{"name": str(path), "text": read_script(path)} for path in self.check]
        return found
