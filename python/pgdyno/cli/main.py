"""The program ``pgdyno``: its commands, and the one place where errors become messages and exit statuses."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from pydantic import ValidationError
from typer.exceptions import TyperException

from pgdyno import __version__
from pgdyno.cli import cache, check, compare, demo, drive, load, report, servers, settings
from pgdyno.cli.console import say
from pgdyno.errors import PgdynoError, UsageError

app = typer.Typer(
    name="pgdyno",
    help="A dynamometer for PostgreSQL: which is faster, by how much, how sure, and why.",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("compare")(compare.compare)
app.command("report")(report.report)
app.command("load")(load.load)
app.command("drive")(drive.drive)
app.command("check")(check.check)
app.add_typer(servers.app, name="servers")
app.add_typer(settings.app, name="settings")
app.add_typer(cache.app, name="cache")
app.command("demo")(demo.demo)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pgdyno {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Runs the command line. Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    sys.exit(_run())


def _run() -> int:
    try:
        status = app(standalone_mode=False)
        return status if isinstance(status, int) else 0
    except typer.Abort:
        return 130
    except TyperException as error:
        say(f"pgdyno: {error.format_message()} (see --help)")
        return error.exit_code
    except ValidationError as error:
        say(f"pgdyno: {_first_complaint(error)}")
        return UsageError.exit_status
    except PgdynoError as error:
        say(f"pgdyno: {error}")
        return error.exit_status
    except KeyboardInterrupt:
        say("pgdyno: ended at once; what was in the evidence is safe")
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone (`| head`): what is left to be flushed must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _first_complaint(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    text = first["msg"].removeprefix("Value error, ")
    return f"{where}: {text}" if where else text
