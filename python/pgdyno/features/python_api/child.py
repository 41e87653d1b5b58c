"""A command in a process of its own, started by ``process``: its error goes to a descriptor as JSON.

    python -m pgdyno.features.python_api.child PARENT_PID DESCRIPTOR WORD…

It ends with the process that started it, as after Ctrl-C: measurements are kept and servers are stopped.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from typer.exceptions import TyperException

from pgdyno.cli import main as program
from pgdyno.cli.error_reporting import as_pgdyno_error
from pgdyno.cli.features import features
from pgdyno.cli.streams import PLAIN, ready_streams
from pgdyno.errors import PgdynoError, UsageError
from pgdyno.results.password_masking import mask_passwords
from pgdyno.server.child import end_with


def main() -> None:
    """Carry out the command and exit with its status."""
    parent_pid, descriptor, *words = sys.argv[1:]
    end_with(int(parent_pid), signal.SIGINT)
    sys.argv = ["pgdyno", *words]  # the command that the results file names
    ready_streams(errors=PLAIN)
    features()
    try:
        status = program.carry_out(words)
    except TyperException as error:
        status = _write(int(descriptor), UsageError(error.format_message()))
    except Exception as error:
        ours = error if isinstance(error, PgdynoError) else as_pgdyno_error(error)
        if ours is None:
            raise
        status = _write(int(descriptor), ours)
    sys.exit(status)


def _write(descriptor: int, error: PgdynoError) -> int:
    said = {"kind": type(error).__name__, "message": mask_passwords(str(error))}
    os.write(descriptor, json.dumps(said).encode())
    return error.exit_status


if __name__ == "__main__":
    main()
