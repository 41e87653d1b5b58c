"""``pgdyno workload``: scripts from the statements that a database has recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from pgdyno.cli.console import out, print_json, say
from pgdyno.cli.options import Dsn, Json, parser
from pgdyno.errors import PgdynoError, UsageError
from pgdyno.features.statements.scripts import (
    LeftOut,
    StatementScripts,
    read_load,
    read_transactions,
    reading_session,
    require_coverage,
    scripts_of_load,
)
from pgdyno.interruption import Interruption
from pgdyno.report.visible_text import visible
from pgdyno.server.connections import Dsn as ConnectionString
from pgdyno.study.values import parse_percent
from pgdyno.units import counted, group_digits, percent_text
from pgdyno.workloads.pgbench.parameters import COVERAGE_MIN, LIST, MARK, SCRIPTS_MAX, STUB, Script, read_list

app = typer.Typer(help="Make scripts from the statements of a running database.", no_args_is_help=True)

LISTED_SHARE_MIN = 0.001
"""Smallest share of the time for which a statement has its own line; JSON and the list have all."""


@app.command("from-statements")
def from_statements(
    dsn: Dsn,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Directory of the scripts.")],
    database: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Database of the statements. [default: that of the DSN]"),
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=SCRIPTS_MAX, help="Maximum number of scripts.")
    ] = 100,
    share: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT",
            parser=parser("--share", parse_percent),
            help="Stop when the scripts have this share of the execution time. [default: all statements]",
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="csvlog or jsonlog of the server with all statements (log_min_duration_statement = 0): the "
            "statements of a transaction become one script, equal values are drawn once, and numbers and "
            "intervals that no column shows have the range of the log.",
        ),
    ] = None,
    min_coverage: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT",
            parser=parser("--min-coverage", parse_percent),
            help="Smallest share of the execution time that the scripts must have. [default: 50%, or less if "
            "--share is less]",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the scripts in a directory that pgdyno wrote.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make pgbench scripts with weights from pg_stat_statements.

    The DSN is read in sessions that cannot write. The scripts contain no values of rows: they sample values
    from the data that are measured. Values that pgdyno cannot derive are stubs, to be edited before the
    scripts are measured. What has no script is listed with its share of the execution time. Examples:

    \b
      pgdyno workload from-statements postgresql://reader@db.example/shop --output shop-load
      pgdyno compare 17 18 --data shop -f shop-load
    """
    share_max = 1.0 if share is None else share
    coverage_min = min(COVERAGE_MIN, share_max) if min_coverage is None else min_coverage
    require_directory(output, replace=overwrite)
    source = ConnectionString(dsn)
    if database is not None:
        source = source.with_database(database)
    with Interruption() as interruption, reading_session(source) as connection:
        load = read_load(connection)
        say(f"reading {counted(len(load.statements), 'statement')} of the database {load.database}")
        transactions = None if log is None else read_transactions(log, load.database, interruption.check)
        made = scripts_of_load(connection, load, limit, share_max, transactions, interruption.check)
    require_coverage(made, coverage_min)
    scripts = [one.script for one in made.scripts]
    remarks = [f"from-statements {source}", *_summary(made), *_left_out_lines(made)]
    write_directory(output, scripts, remarks, min(COVERAGE_MIN, coverage_min))
    if as_json:
        print_json(_facts(made, output))
    else:
        _print(made, output)


def _summary(made: StatementScripts) -> Iterator[str]:
    yield (
        f"{group_digits(made.made, 0)} of {group_digits(made.statements, 0)} statements have "
        f"scripts, which cover {percent_text(made.coverage, 1)} of the recorded time"
    )


def _left_out_lines(made: StatementScripts) -> Iterator[str]:
    if made.left_out:
        yield f"Left out: {percent_text(1 - made.coverage, 1)}"
    for one in made.left_out:
        yield f"{percent_text(one.share, 2):>7}  {visible(_reason(one))}  {visible(one.shown)}"


def _reason(one: LeftOut) -> str:
    text = f"{one.reason}: {one.detail}" if one.detail else str(one.reason)
    return f"{text} ({counted(one.statements, 'statement')})" if one.statements > 1 else text


def _print(made: StatementScripts, output: Path) -> None:
    table = Table("script", "calls", "time", "statement", box=None)
    for one in made.scripts:
        row = (one.script.name, group_digits(one.calls, 0), percent_text(one.share, 1), one.shown)
        table.add_row(*map(Text, row))  # no markup in names
    out.print(table)
    for line in _summary(made):
        out.print(line, soft_wrap=True)
    listed = [one for one in made.left_out if one.share >= LISTED_SHARE_MIN]
    if listed:
        rest = Table("left out", "time", "statement", box=None)
        for left in listed:
            rest.add_row(*map(Text, (_reason(left), percent_text(left.share, 1), left.shown or left.queryid)))
        out.print(rest)
    if few := len(made.left_out) - len(listed):
        out.print(
            f"{group_digits(few, 0)} more with less than 0.1% each: {output / LIST} lists them",
            soft_wrap=True,
        )
    stubs = [
        (one.script.name, line.removeprefix(STUB).strip())
        for one in made.scripts
        for line in (one.script.text or "").splitlines()
        if line.startswith(STUB)
    ]
    if stubs:
        table = Table("script", "stub", box=None)
        for name, line in stubs:
            table.add_row(Text(f"{name}.sql"), Text(line))
        out.print(table)
        say(f"edit {counted(len(stubs), 'stub')} first: pgdyno refuses scripts that contain an unedited stub")
    say(f"next: pgdyno compare ARM ARM --data SOURCE -f {output}")


def _facts(made: StatementScripts, output: Path) -> dict[str, Any]:
    return {
        "directory": str(output),
        "database": made.load.database,
        "statements": made.statements,
        "time_ms": made.load.time_ms,
        "coverage": made.coverage,
        "scripts": [
            {
                "file": f"{one.script.name}.sql",
                "weight": one.script.weight,
                "queryids": list(one.queryids),
                "calls": one.calls,
                "share": one.share,
                "parameters": [
                    {"number": draw.number, "type": draw.type, "drawn": draw.about, "stub": draw.is_stub}
                    for draw in one.draws
                ],
            }
            for one in made.scripts
        ],
        "left_out": [
            {
                "queryid": one.queryid or None,
                "statements": one.statements,
                "calls": one.calls,
                "share": one.share,
                "reason": one.reason.name.lower(),
                "detail": one.detail,
                "statement": one.shown,
            }
            for one in made.left_out
        ],
    }


def require_directory(directory: Path, *, replace: bool) -> None:
    """Check that scripts can be written to a directory. Raises UsageError.

    It must be absent or empty, or with ``replace`` one that pgdyno wrote.
    """
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise UsageError(f"cannot write {directory}: it is not a directory; name another")
    if not directory.parent.is_dir():
        raise UsageError(f"cannot write {directory}: {directory.parent} is not a directory; create it first")
    if not directory.exists() or not any(directory.iterdir()):
        return
    try:
        is_ours = (directory / LIST).read_text(encoding="utf-8").startswith(MARK)
    except (OSError, UnicodeDecodeError):
        is_ours = False
    if not is_ours:
        raise UsageError(f"{directory} was not written by pgdyno: name another directory")
    if not replace:
        raise UsageError(
            f"{directory} exists: name another directory, or replace its scripts with --overwrite"
        )


def write_directory(
    directory: Path, scripts: Sequence[Script], remarks: Sequence[str], coverage_min: float = COVERAGE_MIN
) -> None:
    """Write scripts and their list, in place of those that pgdyno wrote before.

    Raises PgdynoError, UsageError. ``remarks``: lines of comment at the beginning of the list.
    ``coverage_min``: smallest coverage that reading the list accepts.
    """
    require_directory(directory, replace=True)
    try:
        directory.mkdir(exist_ok=True)
        if (directory / LIST).exists():
            for old in read_list(directory).scripts:
                (directory / old.file).unlink(missing_ok=True)
        for script in scripts:
            (directory / f"{script.name}.sql").write_text(script.text or "", encoding="utf-8")
        lines = [MARK, *(f"# {remark}".rstrip() for remark in remarks)]
        if coverage_min != COVERAGE_MIN:
            lines += ["", f"coverage_min = {coverage_min:.6f}"]
        for script in scripts:
            lines += ["", "[[scripts]]", f'file = "{script.name}.sql"', f"weight = {script.weight}"]
            if script.share is not None:
                lines.append(f"share = {script.share:.6f}")
        (directory / LIST).write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise PgdynoError(f"cannot write {error.filename or directory}: {error.strerror}") from error
