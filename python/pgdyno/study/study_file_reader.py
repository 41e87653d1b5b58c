"""Reader of a study file: checks beyond the types of its keys, and errors with the path of the key.

- Checks of a study file beyond the types of its keys, such as names that do not exist.
- Reader of a study file: parses the text, and reports errors with the path of the key.
"""

from __future__ import annotations

import difflib
import itertools
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path as Directory
from typing import Any

from pydantic import BaseModel, ValidationError

from pgdyno.errors import StudyFileError, UsageError, plain_message
from pgdyno.study.arm_spec import FILE_BYTES_MAX, read_bytes, read_files, utf8_text
from pgdyno.study.cases import COMBINATIONS_MAX, cases_of, files_of, has_password, own_settings_of, setting_of
from pgdyno.study.plan import window_conflict
from pgdyno.study.study_file import STUDY_ERRORS, Drive, StudyFile, excludes, level_names, table_model
from pgdyno.study.values import Level, Scalar
from pgdyno.study.workload_parameters import parameters_by_kind

# ----------------------------------------------------------------------
# Checks of a study file beyond the types of its keys, such as names that do not exist.
# ----------------------------------------------------------------------

Path = tuple[str | int, ...]
"""The keys and indexes that lead to a value: ``("factors", "clients", 2)``."""

Errors = Iterator[StudyFileError]


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """Return the message for an unknown name, with the nearest one or all known names."""
    names = list(known)
    close = [] if name[:1].isdecimal() else difflib.get_close_matches(name, names, n=1)
    if close:  # never suggests a number, which is rarely a misspelling
        return f"unknown {what}: did you mean {close[0]}?"
    return f"unknown {what}; available: {', '.join(names)}" if names else f"unknown {what}"


def factors_known(file: StudyFile) -> list[str]:
    """Return the possible factors of a study of this workload."""
    return [
        "server",
        "settings",
        "settings.NAME",
        "workload",
        *Drive.model_fields,
        *_workload_keys(_workloads(file)[0][1]["kind"]),
    ]


def _workloads(file: StudyFile) -> list[tuple[Path, Mapping[str, Any]]]:
    """Return the table of the workload, or of each level of the factor workload, with its place."""
    levels = file.factors.get("workload", ())
    tables = [level.value if isinstance(level.value, Mapping) else {"kind": None} for level in levels]
    return [
        (("factors", "workload", level.place), {**file.workload, **table})
        for level, table in zip(levels, tables, strict=True)
    ] or [(("workload",), file.workload)]


def errors_of(file: StudyFile) -> Errors:
    """Yield all errors in names and in combinations of keys."""
    known = parameters_by_kind()
    for place, table in _workloads(file):
        kind = table.get("kind")
        if not isinstance(kind, str) or kind not in known:
            missing = f"is missing; available: {', '.join(known)}"
            words = missing if kind is None else unknown_name("workload", str(kind), known)
            yield StudyFileError((*place, "kind"), words)
            return
        others = Drive.model_fields if "workload" in file.factors else ()
        yield from _unknown_keys(kind, place, [key for key in table if key not in ("kind", *others)])
        yield from _unknown_keys(kind, ("warmup_workload",), file.warmup_workload or ())
    wrong_factors = list(_factors(file))
    yield from wrong_factors
    yield from _run(file)
    yield from _initdb(file)
    if not wrong_factors:
        yield from _exclusions(file)
        for errors in STUDY_ERRORS:
            yield from errors(file)


def _workload_keys(kind: str) -> list[str]:
    parameters = parameters_by_kind()[kind]
    own = [name for name in parameters.model_fields if name != "kind"]
    return ["variant", *own] if parameters.HAS_VARIANTS else own


def _unknown_keys(kind: str, place: Path, keys: Iterable[str]) -> Errors:
    known = _workload_keys(kind)
    for key in keys:
        if key not in known:
            yield StudyFileError((*place, key), unknown_name(f"parameter of {kind}", key, known))


def _factors(file: StudyFile) -> Errors:
    known = factors_known(file)
    for name, levels in file.factors.items():
        if setting_of(name):
            yield from _setting(name, levels)
        elif name not in known:
            yield StudyFileError(("factors", name), unknown_name("factor", name, known))
        yield from _levels_of_factor(name, levels)
    for n, name in enumerate(file.compare):
        if name not in file.factors:
            yield StudyFileError(("compare", n), unknown_name("factor", name, file.factors))
        elif name in file.compare[:n]:
            yield StudyFileError(("compare", n), f"names {name} twice")
    if file.server is not None and has_password(file.server):
        yield StudyFileError(("server",), PASSWORD)
    if "server" not in file.factors and file.server is None:
        yield StudyFileError((), "server is missing: set it for all arms, or as a factor")
    if "clients" not in file.factors and file.drive.clients is None:
        yield StudyFileError(("drive",), "clients is missing: set it here, or as a factor")
    for name in file.factors:
        for table, place in _also_fixed(file, name):
            yield StudyFileError(place, f"{name} is a factor: remove its value from {table}")


PASSWORD = "must not contain a password: put it in ~/.pgpass"


def _levels_of_factor(name: str, levels: tuple[Level, ...]) -> Errors:
    for level in levels:
        if name == "server" and level.name == level.value and ("=" in level.name or "://" in level.name):
            message = "a connection string requires a name: make the levels a table, NAME = VALUE"
            yield StudyFileError(("factors", name, level.place), message)
        elif name == "server" and isinstance(level.value, str) and has_password(level.value):
            yield StudyFileError(("factors", name, level.place), PASSWORD)
        if name == "settings":
            try:
                own_settings_of({name: level})
            except StudyFileError as error:
                yield _or_single_setting(error, level)


SETTING_NAME = re.compile(r"[a-z_][a-z0-9_$]*(\.[a-z_][a-z0-9_$]*)?")


def _setting(factor: str, levels: tuple[Level, ...]) -> Errors:
    """Yield the errors of a factor ``settings.NAME``."""
    if not SETTING_NAME.fullmatch(setting_of(factor)):
        message = "must be settings.NAME with the name of a setting in lower case, in quotes"
        yield StudyFileError(("factors", factor), message)
    for level in levels:
        if not isinstance(level.value, Scalar):
            yield StudyFileError(("factors", factor, level.place), "must be a plain value")


def _or_single_setting(error: StudyFileError, level: Level) -> StudyFileError:
    """Return the error, or the remedy if the name of a factor ``settings.NAME`` lacks its quotes."""
    is_list = isinstance(level.value, tuple) or (isinstance(level.value, Mapping) and "levels" in level.value)
    if not is_list:
        return error
    message = f'must be a table of settings; write the factor in quotes: "settings.{level.name}"'
    return StudyFileError(error.path[:3], message)


def _also_fixed(file: StudyFile, factor: str) -> Iterator[tuple[str, Path]]:
    if factor == "server" and file.server is not None:
        yield "the study", ("server",)
    if setting_of(factor) in file.settings.values:
        yield "[settings]", ("settings", setting_of(factor))
    if factor in file.workload:
        yield "[workload]", ("workload", factor)
    if factor in Drive.model_fields and getattr(file.drive, factor) is not None:
        yield "[drive]", ("drive", factor)


def _run(file: StudyFile) -> Errors:
    """Yield errors in what a study does not have: how its window, its end and its budget were given."""
    run = file.run
    lengths = {
        "window": run.window_s,
        "transactions": run.transactions,
        "checkpoints": run.checkpoints,
        "rounds": run.rounds,
    }
    if conflict := window_conflict(**lengths):
        yield StudyFileError((), file.as_keys(conflict))
    if run.schedule == "sequential" and run.budget_s is not None:
        message = (
            "cannot be combined with sequential, because it would shorten only the last arm: set repeats"
        )
        yield StudyFileError(("run", "budget"), message)
    elif run.repeats is None and run.budget_s is None:
        yield StudyFileError(("run",), "has no end: set repeats (blocks per case), budget, or both")
    if run.schedule == "sequential" and run.stop == "verdict":
        message = (
            "verdict cannot be combined with sequential, which completes one arm before the next: remove stop"
        )
        yield StudyFileError(("run", "stop"), message)
    if run.budget_s is None and all(length is None for length in lengths.values()):
        yield StudyFileError(
            ("run",), "has no window: set window, transactions, checkpoints, rounds or budget"
        )


def _initdb(file: StudyFile) -> Errors:
    size = file.initdb.wal_segment_bytes
    if size is not None and (size & (size - 1) or not 2**20 <= size <= 2**30):
        yield StudyFileError(("initdb", "wal_segment"), "must be a power of two from 1MB to 1GB")


def _exclusions(file: StudyFile) -> Errors:
    for n, exclusion in enumerate(file.exclude):
        wrong = list(level_errors(file, ("exclude", n), exclusion))
        yield from wrong
        if not exclusion:
            yield StudyFileError(("exclude", n), "has no factor, so it would exclude everything")
        elif not wrong and not has_effect(file, n):
            yield StudyFileError(
                ("exclude", n), "has no effect: earlier entries exclude the same combinations"
            )


def has_effect(file: StudyFile, n: int) -> bool:
    """Return True if the exclusion excludes a combination that earlier ones do not."""
    names = [[level.name for level in levels] for levels in file.factors.values()]
    for chosen in itertools.islice(itertools.product(*names), COMBINATIONS_MAX):
        levels = dict(zip(file.factors, chosen, strict=True))
        if excludes(file.exclude[n], levels) and not any(excludes(e, levels) for e in file.exclude[:n]):
            return True
    return False


def level_errors(file: StudyFile, path: Path, given: Mapping[str, Scalar | tuple[Scalar, ...]]) -> Errors:
    """Yield an error for each factor and level that the file does not have. ``path``: of the table given."""
    for factor, levels in given.items():
        if factor not in file.factors:
            yield StudyFileError((*path, factor), unknown_name("factor", factor, file.factors))
            continue
        known = [level.name for level in file.factors[factor]]
        for n, name in enumerate(level_names(levels)):
            if name not in known:
                place = (*path, factor, n) if isinstance(levels, tuple) else (*path, factor)
                yield StudyFileError(place, f"{name}: {unknown_name(f'level of {factor}', name, known)}")


# ----------------------------------------------------------------------
# Reader of a study file: parses the text, and reports errors with the path of the key.
#
# ``studies/x.toml: factors.clients[2]: must be greater than or equal to 1``
# ----------------------------------------------------------------------

_LONG_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){32}""")
"""A dotted key of more than 32 names: the time of the parser is quadratic in them."""

_ZERO = re.compile(r"(?<!\\)(?:\\\\)*\\(?:u0000|U00000000)")

TOO_DEEP = "is nested too deeply: use at most 32 levels"


def examine_text(
    text: str, name: str, directory: Directory = Directory()
) -> tuple[StudyFile | None, list[str]]:
    """Return the study, or None if it cannot be read, and one line per error.

    Its settings files are relative to ``directory``.
    """
    if len(text) > FILE_BYTES_MAX:
        return None, [f"{name}: is larger than 1 MiB, the maximum size of a study file"]
    if _LONG_KEY.search(text):
        return None, [f"{name}: {TOO_DEEP}"]
    if _ZERO.search(text):
        return None, [f"{name}: contains a zero byte (\\u0000), which no name or value can have: remove it"]
    file: StudyFile | None = None
    try:
        data = tomllib.loads(text)
    except RecursionError:
        return None, [f"{name}: {TOO_DEEP}"]
    except ValueError as error:  # also an integer with too many digits for Python
        words = str(error).partition(";")[0]
        return None, [f"{name}: {words[:1].lower()}{words[1:]}"]
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
    return file, [f"{name}: {message}" for message in dict.fromkeys(map(str, found))]


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
    for n, part in enumerate(path[:-1]):
        if isinstance(part, str) and model is not None:
            model = (table_model(part) if n == 0 else None) or _model_of(model, part)
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


def study_path(given: str) -> Directory:
    """Return the file of that path, or the bundled study of that name. Raises UsageError."""
    path = Directory(given)
    if path.exists() or path.suffix or len(path.parts) > 1:
        return path
    known = {found.stem: found for found in bundled_studies().rglob("*.toml")}
    if given in known:
        return known[given]
    close = [name for name in known if name.startswith(given)] or difflib.get_close_matches(given, known, n=1)
    hint = f"did you mean {close[0]}?" if close else "`pgdyno study list` shows the bundled studies"
    raise UsageError(f"unknown study {given!r}: {hint}")


def text_of(path: Directory) -> str:
    """Return the text of a study file. Raises UsageError."""
    data = read_bytes(path, "study file", "cannot read {path}: {why}; see `pgdyno study list`")
    return utf8_text(path, data).replace("\r\n", "\n")
