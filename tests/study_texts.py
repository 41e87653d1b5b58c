"""Studies from texts of study files."""

from __future__ import annotations

from pgdyno.errors import UsageError
from pgdyno.study.study_file import StudyFile
from pgdyno.study.study_file_reader import examine


def read_study(text: str, name: str) -> StudyFile:
    """Return the study in the text of a file of that name. Raises UsageError with its first error."""
    file, problems = examine(text, name)
    if problems or file is None:
        raise UsageError(problems[0])
    return file
