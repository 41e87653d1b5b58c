"""What a resume does not read: the evidence file says it, so it is refused, and not silently left."""

from __future__ import annotations

import typer

from pgdyno.errors import UsageError

READ = ("resume", "minutes", "html", "force", "json", "quiet", "fail_if", "summary")
"""Parameters of ``compare`` and ``run`` that a resume obeys."""


def refuse_what_is_not_read(context: typer.Context) -> None:
    """Raises UsageError where the command line has an option or argument beside ``READ``."""
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in READ or source is None or source.name != "COMMANDLINE":
            continue
        said = max(parameter.opts, key=len)
        raise UsageError(
            f"{said}: --resume takes all but --minutes from the evidence file: leave {said} away, "
            "or start a new study"
        )
