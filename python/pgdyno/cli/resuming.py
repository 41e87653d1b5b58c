"""Options that --resume takes from the evidence file: they are refused instead of ignored."""

from __future__ import annotations

import typer

from pgdyno.errors import UsageError

READ = ("resume", "minutes", "html", "force", "json", "quiet", "fail_if", "summary")
"""Parameters of ``compare`` and ``run`` that a resume reads."""


def refuse_what_is_not_read(context: typer.Context) -> None:
    """Raise UsageError if the command line has an option or argument that is not in ``READ``."""
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in READ or source is None or source.name != "COMMANDLINE":
            continue
        said = max(parameter.opts, key=len)
        raise UsageError(
            f"{said} cannot be combined with --resume, which takes it from the evidence file: remove {said}, "
            "or start a new study"
        )
