"""``pgdyno bundle``: one archive with results files and reports."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from pgdyno.cli.console import require_writable, say
from pgdyno.errors import PgdynoError, UsageError
from pgdyno.features.bundles.archive import copied, made, sha256_of, write
from pgdyno.units import counted, format_size

SUFFIX = ".bundle.zip"


def bundle(
    evidence: Annotated[
        list[Path],
        typer.Argument(metavar="FILE…", help="Results files of one report, as for pgdyno report."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="BUNDLE", help=f"Archive to write. [default: FILE{SUFFIX}]"),
    ] = None,
) -> None:
    """Write results, reports and checksums to one archive.

    `pgdyno verify` recomputes it.

    Example:

    \b
      pgdyno bundle results.sqlite && pgdyno verify results.bundle.zip
    """
    target = output or Path(f"{evidence[0].name.removesuffix('.sqlite')}{SUFFIX}")
    require_writable(target)
    if target.exists():
        raise UsageError(f"{target} exists: name another file with --output, or remove it")
    try:
        with tempfile.TemporaryDirectory(prefix=".pgdyno-bundle-", dir=target.parent) as made_in:
            folder = Path(made_in)
            results = copied(evidence, folder)
            texts = made(folder, results, {name: sha256_of(folder / name) for name in results})
            write(folder / SUFFIX, folder, results, texts)
            (folder / SUFFIX).rename(target)
    except OSError as error:
        raise PgdynoError(f"cannot write {target}: {error.strerror or error}") from error
    say(f"{target}: {format_size(target.stat().st_size)}, {counted(len(results) + len(texts), 'file')}")
