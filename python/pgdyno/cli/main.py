"""Program ``pgdyno``: commands imported on first use, and exit statuses of errors.

- Commands, imported on first use: importing all of them takes a second of CPU time.
- Program ``pgdyno``: its commands, and the conversion of errors to messages and exit statuses.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from pgdyno.cli.features import commands, features
from pgdyno.cli.streams import PLAIN, ready_streams, survive_hangup, without_output, writing
from pgdyno.errors import PgdynoError, plain_message
from pgdyno.hooks import Hooks
from pgdyno.interruption import RAY_THREAD

# ----------------------------------------------------------------------
# Commands, imported on first use: importing all of them takes a second of CPU time.
# ----------------------------------------------------------------------


class Loading(Mapping[str, Any]):
    """Commands by name; access imports the command."""

    def __getitem__(self, name: str) -> Any:
        """Return the click command. Raises KeyError."""
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(commands())

    def __len__(self) -> int:
        return len(commands())


@cache
def _command(name: str) -> Any:
    module = import_module(commands()[name][0])
    group = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    if hasattr(module, "app"):
        group.add_typer(module.app, name=name)
    else:
        from pgdyno.cli.options import GroupedCommand, expanded  # noqa: PLC0415

        command = expanded(getattr(module, name))
        own = getattr(module, "AS_COMMAND", {}).get(name, {})
        group.command(name, **{"cls": GroupedCommand, **own})(command)
    return typer.main.get_group(group).commands[name]


class Commands(TyperGroup):
    """Top-level command group that lists its commands without importing them."""

    def __init__(self, **given: Any) -> None:
        """Take typer's arguments; replace its empty set of commands."""
        super().__init__(**given)
        self.commands = Loading()  # type: ignore[assignment]  # nothing adds to it

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in commands().items()])


# ----------------------------------------------------------------------
# Program ``pgdyno``: its commands, and the conversion of errors to messages and exit statuses.
# ----------------------------------------------------------------------

SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
"""Settings of a context, which a command keeps from its first use."""

app = typer.Typer(
    name="pgdyno",
    cls=Commands,
    help="A dynamometer for PostgreSQL: compare servers, with confidence intervals.",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=SETTINGS,
)

DEFAULTS: Hooks[Callable[[Sequence[str]], AbstractContextManager[Mapping[str, Any]]]] = Hooks("defaults")
"""Contexts with defaults for arguments, by command and option, which may explain errors about them."""

COMPLETION = "_PGDYNO_COMPLETE"
"""Environment variable with which a shell requests completions. Messages would appear in the prompt."""

OBJECTS_BETWEEN_COLLECTIONS = 200_000
"""Reports of long studies allocate millions of objects without cycles; collection took 1/6 of their time."""


def _show_version(wanted: bool) -> None:
    if wanted:
        from pgdyno.server.engine import version_text  # noqa: PLC0415

        typer.echo(version_text())
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
    """Run the command line and exit.

    Exit status: 0 success, 1 failure, 2 usage error, 3 condition of --fail-if met, 4 inconclusive (a gate, or
    bisect without a confirmed commit), 70 internal error; 130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP.
    """
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    ready_streams(errors=PLAIN)
    survive_hangup()
    status = run_command(sys.argv[1:])
    if any(thread.name == RAY_THREAD for thread in threading.enumerate()):
        # The end of the interpreter would crash a call inside Ray that has no answer.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command and return the exit status. An error becomes one line on standard error.

    While a shell requests completions, it becomes nothing, because a message would appear in the prompt.
    """
    features()
    try:
        return _status(arguments)
    except BrokenPipeError:
        # The reader of the output has exited (`| head`): the final flush must not fail.
        without_output()
        return 1
    except Exception as error:  # noqa: BLE001  # the last resort
        from pgdyno.cli import error_reporting  # noqa: PLC0415

        message = error_reporting.unexpected(error, arguments)
        if COMPLETION not in os.environ:
            _say(f"pgdyno: {message}")
        return error_reporting.EXIT_STATUS


def _status(arguments: Sequence[str]) -> int:
    try:
        return carry_out(arguments)
    except typer.Abort:
        return 130
    except TyperException as error:
        return _explain(error)
    except PgdynoError as error:
        _say(f"pgdyno: {error}")
        return error.exit_status
    except KeyboardInterrupt:
        _say("pgdyno: aborted; the results file keeps all completed measurements")
        return 130
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is None:  # output of typer itself, such as --help
            without_output()
        place = f"{error.filename}: " if error.filename else ""
        _say(f"pgdyno: {place}{error.strerror or error}")
        return PgdynoError.exit_status
    except MemoryError:
        _say("pgdyno: out of memory: free memory, or reduce --clients or the data size")
        return PgdynoError.exit_status
    except Exception as error:
        from pgdyno.cli.error_reporting import as_pgdyno_error  # noqa: PLC0415

        ours = as_pgdyno_error(error)
        if ours is None:
            raise
        _say(f"pgdyno: {ours}")
        return ours.exit_status


def carry_out(arguments: Sequence[str]) -> int:
    """Carry out one command and return its exit status. Errors are exceptions, also of the parser."""
    with ExitStack() as stack:
        asked = DEFAULTS if commands().keys() & arguments[:1] else ()  # --help and --version have none
        default_map = {k: v for of in asked for k, v in stack.enter_context(of(arguments)).items()}
        status = app(arguments, prog_name="pgdyno", standalone_mode=False, default_map=default_map)
    with writing():
        sys.stdout.flush()
    return status if isinstance(status, int) else 0


def _explain(error: TyperException) -> int:
    """Print an error of the command line parser in one line; without arguments, print the help."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "pgdyno"
    words = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        _say(words)
    else:
        text = plain_message(words).rstrip(".")
        _say(f"pgdyno: {text}; see {path} --help")
    return error.exit_code


def _say(message: str) -> None:
    """Print a message on standard error. It may quote a connection string given where none belongs.

    Importing rich takes a quarter of the CPU time of ``--help``.
    """
    from pgdyno.cli.console import say  # noqa: PLC0415
    from pgdyno.results.password_masking import mask_passwords  # noqa: PLC0415

    say(mask_passwords(message))
