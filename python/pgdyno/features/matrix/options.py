"""``pgdyno run STUDY --versions 14..18``: other levels of the factor server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer

from pgdyno.cli.options import StudyOptions
from pgdyno.errors import UsageError, naming
from pgdyno.study.cases import cases_of
from pgdyno.study.study_file import StudyFile
from pgdyno.study.values import levels_of

_RANGE = re.compile(r"(\d{1,2})\.\.(\d{1,2})")


@dataclass(frozen=True)
class Versions(StudyOptions):
    """The option of ``run`` for other versions than those of the study."""

    COMMANDS: ClassVar = {"run": "evidence"}

    versions: Annotated[
        str | None,
        typer.Option(
            metavar="14..18|14,18",
            help="Servers of the study, baseline first, instead of the levels of its factor server.",
        ),
    ] = None

    def changed(self, file: StudyFile) -> StudyFile:
        """Return the study with these servers. Raises UsageError."""
        if self.versions is None:
            return file
        if "server" not in file.factors:
            raise UsageError("--versions requires a study in which server is a factor: remove it")
        from pgdyno.study.study_file_reader import errors_of  # noqa: PLC0415  # run has imported it

        with naming("--versions"):
            try:
                levels = levels_of(tuple(servers_of(self.versions)))
            except ValueError as error:
                raise UsageError(str(error)) from None
            changed = file.model_copy(update={"factors": {**file.factors, "server": levels}})
            for wrong in errors_of(changed):
                if wrong.path[:2] == ("factors", "server"):  # published tables may have other levels
                    raise UsageError(wrong.message)
            cases_of(changed)  # reports what is no server
        return changed


def servers_of(text: str) -> list[str]:
    """Return the servers of ``14..18`` or ``14,17.5,18``. Raises UsageError."""
    found = _RANGE.fullmatch(text.strip())
    if found is None:
        servers = [one.strip() for one in text.split(",")]
    else:
        first, last = int(found[1]), int(found[2])
        servers = [str(major) for major in range(first, last + 1)]
    if len(servers) < 2 or "" in servers:
        raise UsageError(f"must name two versions or more, for example 14..18 (got {text!r})")
    return servers
