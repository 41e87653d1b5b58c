"""Reader of a study file: parses the text, and reports errors with line and key.

``studies/x.toml:17: factors.clients[2]: must be greater than or equal to 1``
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path as Directory
from typing import Any

from pydantic import BaseModel, ValidationError

from pgdyno.errors import StudyFileError, UsageError
from pgdyno.study.arm_spec import read_files
from pgdyno.study.cases import cases_of, files_of
from pgdyno.study.study_file import StudyFile
from pgdyno.study.study_file_checks import errors_of, unknown_name
from pgdyno.study.toml_lines import Path, line_of, lines_of, too_deep
from pgdyno.study.values import plain_message

FILE_BYTES_MAX = 1 << 20
"""Maximum size of a study file, which is stored in the results file."""


DEPTH_MAX = 32
"""Maximum depth of nested brackets and of dotted keys: the parser is recursive, and quadratic in the
names."""


def examine_text(
    text: str, name: str, directory: Directory = Directory()
) -> tuple[StudyFile | None, list[str]]:
    """Return the study, or None if it cannot be read, and one line per error.

    Its settings files are relative to ``directory``.
    """
    if len(text) > FILE_BYTES_MAX:
        return None, [f"{name}: is larger than 1 MiB, the maximum size of a study file"]
    if (line := too_deep(text, DEPTH_MAX)) is not None:
        return None, [f"{name}:{line}: is nested deeper than {DEPTH_MAX} levels, the maximum"]
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return None, [_of_parser(name, text, str(error))]
    except ValueError as error:  # an integer with too many digits for Python
        return None, [f"{name}: {str(error).partition(';')[0]}"]
    lines = lines_of(text)
    file: StudyFile | None = None
    try:
        file = StudyFile.of(data)
        found = list(errors_of(file))
        if not found:
            file = _with_files(file, directory)
            cases_of(file)  # its errors are those of combinations
    except StudyFileError as error:
        found = [error]
    except ValidationError as error:
        found = [_complaint(data, one) for one in error.errors()]
    errors = {(line_of(lines, one.path), str(one)) for one in found}
    return file, [f"{name}:{line}: {message}" for line, message in sorted(errors)]


def _with_files(file: StudyFile, directory: Directory) -> StudyFile:
    """Return the study with the contents of its settings files. Raises StudyFileError."""
    read = dict(file.settings_files)
    for name, place in files_of(file).items():
        try:
            read |= {} if name in read else read_files([name], directory)
        except UsageError as error:
            raise StudyFileError(place, str(error)) from None
    return file.model_copy(update={"settings_files": read})


def text_with_files(text: str, file: StudyFile) -> str:
    """Return the text of a study with the contents of its settings files, which it needs no more."""
    given = tomllib.loads(text).get("settings_files", {})
    lines = [text.rstrip("\n")] if text else []
    for name, settings in file.settings_files.items():
        if name not in given:
            lines += ["", f"[settings_files.{json.dumps(name)}]"]
            lines += [f"{json.dumps(setting)} = {json.dumps(value)}" for setting, value in settings.items()]
    return "\n".join(lines) + "\n" if len(lines) > 1 else text


def _of_parser(name: str, text: str, message: str) -> str:
    """Move the line of a parser message, ``… (at line 3, column 5)``, to the front."""
    words, _, place = message.rpartition(" (at ")
    line = place.removeprefix("line ").partition(",")[0]
    line = line if line.isdecimal() else str(text.count("\n") + 1)
    return f"{name}:{line}: {words[:1].lower()}{words[1:]}" if words else f"{name}:{line}: {message}"


def _complaint(data: Any, error: Mapping[str, Any]) -> StudyFileError:
    path = _path(data, error["loc"], is_missing=error["type"] == "missing")
    if error["type"] == "extra_forbidden":
        return StudyFileError(
            (*path[:-1], str(path[-1])), unknown_name("key", str(path[-1]), _known_beside(path))
        )
    return StudyFileError(path, plain_message(error["msg"]))


def _path(data: Any, loc: tuple[str | int, ...], *, is_missing: bool) -> Path:
    """Return the keys of ``loc``, without the names of alternatives that pydantic inserts."""
    path: list[str | int] = []
    for n, part in enumerate(loc):
        within = isinstance(data, Mapping) and part in data
        if within or (isinstance(data, list) and isinstance(part, int) and part < len(data)):
            data = data[part]
            path.append(part)
        elif is_missing and n == len(loc) - 1:
            path.append(part)
    return tuple(path)


def _known_beside(path: Path) -> list[str]:
    """Return the known keys of the table that contains the last key of the path."""
    model: type[BaseModel] | None = StudyFile
    for part in path[:-1]:
        if isinstance(part, str) and model is not None:
            model = _model_of(model, part)
    return [] if model is None else [field.alias or key for key, field in model.model_fields.items()]


def _model_of(model: type[BaseModel], key: str) -> type[BaseModel] | None:
    field = next((one for name, one in model.model_fields.items() if key in (name, one.alias)), None)
    pending = [] if field is None else [field.annotation]
    while pending:
        one = pending.pop()
        if isinstance(one, type) and issubclass(one, BaseModel):
            return one
        pending += getattr(one, "__args__", ())
    return None


def bundled_studies() -> Directory:
    """Return the directory of the bundled studies: inside the package, or beside it in a checkout."""
    package = Directory(__file__).parents[1]
    inside = package / "studies"
    return inside if inside.is_dir() else package.parents[1] / "studies"
