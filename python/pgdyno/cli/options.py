"""Options shared by commands: groups of fields that become options, clients, and durations.

- Options shared by several commands, and groups of options: fields of a dataclass become options.
- Options that features add to ``compare``, ``run`` and ``report``, and what they do with a study.
- Options of the clients: pacing, rate, retries, driver threads.
- The time of a study: warnings about too few blocks, and texts.
- Completion of arguments in a shell.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import typer
from psycopg import ProgrammingError
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.core import TyperCommand
from typer.models import OptionInfo

from pgdyno.errors import PgdynoError, UsageError, naming
from pgdyno.hooks import Hooks
from pgdyno.interruption import Interruption
from pgdyno.measure.machine import machine_resources
from pgdyno.study.arm_spec import LOAD_PARAMETERS, has_secrets
from pgdyno.study.cases import FILE_KEYS, ChosenArms
from pgdyno.study.defaults import MachineSize, block_overhead_s
from pgdyno.study.plan import VERDICT_BLOCKS_MIN, Driving, Study
from pgdyno.study.study_file import TABLES, Drive, StudyFile, driving_fields
from pgdyno.study.values import Option, Rare
from pgdyno.study.workload_parameters import WorkloadParameters, parameters_by_kind
from pgdyno.units import counted, format_duration

if TYPE_CHECKING:  # only options that judge a report import the analysis before a study
    from pgdyno.report.document import FileReport, Judgement

# ----------------------------------------------------------------------
# Options shared by several commands, and groups of options: fields of a dataclass become options.
#
# @dataclass(frozen=True) class Sizes: warehouses: Annotated[int | None, typer.Option(help="…")] = None
#
#     def load(dsn: str, sizes: Sizes) -> int: …          # pgdyno load DSN --warehouses N
#
# Options shared by several commands are so defined once, with their help.
# ----------------------------------------------------------------------


def expanded(command: Callable[..., int]) -> Callable[..., int]:
    """Return the command with the fields of its groups as parameters.

    The parameter ``added`` stands for the options that features add to the command.
    """
    own = inspect.signature(command, eval_str=True)
    takes_added = "added" in own.parameters
    kinds = added_to(command.__name__) if takes_added else []
    groups: dict[str, Any] = {
        p.name: p.annotation for p in own.parameters.values() if _is_group(p.annotation)
    }
    flat = [
        one
        for p in own.parameters.values()
        if p.name != "added"
        for one in (_options(p.annotation) if p.name in groups else [p])
    ]
    for kind in kinds:
        following = kind.COMMANDS[command.__name__]
        place = [p.name for p in flat].index(following) if following else len(flat)
        flat[place:place] = _options(kind)
    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in flat]
    places = {p.name: name for name, group in groups.items() for p in _options(group)}
    places |= {p.name: kind.GROUP or kind.__module__.split(".")[-2] for kind in kinds for p in _options(kind)}
    rare = [p for p in keyword if command.__name__ == WITHOUT_RARE and _study_keys(p)]
    moved = {name: key for p in rare for key in _study_keys(p) for name in _spellings(p)}
    keyword = [p for p in keyword if p not in rare]

    @functools.wraps(command)
    def with_groups(*values: Any, **given: Any) -> int:
        given |= zip((p.name for p in flat), values, strict=False)
        made = {name: built(group, given) for name, group in groups.items()}
        if takes_added:
            made["added"] = Added(built(kind, given) for kind in kinds)
        return command(**given, **made)

    with_groups.groups, with_groups.moved = places, moved  # type: ignore[attr-defined]
    with_groups.__signature__ = own.replace(parameters=keyword)  # type: ignore[attr-defined]
    with_groups.__annotations__ = {p.name: p.annotation for p in keyword} | {"return": int}
    return with_groups


WITHOUT_RARE = "compare"
"""The command without rare options, for which study files have keys. Others have no study file."""


@dataclass(frozen=True)
class StudyKey:
    """Metadata of a rare option: the key of study files in its place. ``value``: one that is always right."""

    table: str
    key: str
    value: str = "…"

    @classmethod
    def of(cls, model: type[BaseModel], name: str) -> StudyKey:
        """Return the key of a field."""
        table = next((table for table, of in TABLES.items() if of is model), "workload")
        field = model.model_fields[name]
        value = str(not field.default).lower() if isinstance(field.default, bool) else cls.value
        return cls(table, field.alias or name, value)

    @property
    def remedy(self) -> str:
        """The place of the key in a study file, without a subject: ``is a key of study files: write …``."""
        arm = f", or add {self.key}={self.value} to each ARM" if self.key in LOAD_PARAMETERS else ""
        how = f"write {self.key} = {self.value} below [{self.table}]{arm}"
        return f"is a key of study files: {how}; see pgdyno docs write-a-study"


def _study_keys(of: inspect.Parameter) -> list[StudyKey]:
    return [one for one in getattr(of.annotation, "__metadata__", ()) if isinstance(one, StudyKey)]


def _spellings(of: inspect.Parameter) -> Sequence[str]:
    (option,) = (one for one in of.annotation.__metadata__ if isinstance(one, OptionInfo))
    # typer takes the first spelling as the default, until it reads the annotation.
    given = [one for one in (option.default, *(option.param_decls or ())) if isinstance(one, str)]
    return given or [f"--{of.name.replace('_', '-')}"]


OPTIONS_MAX = 40
"""Maximum number of options in the help of a command; one with more has them by group."""

MAIN = {"clients", "minutes", "margin", "workload", "data", "file", "evidence", "resume", "json", "quick"}
"""Options in the help of a command with more than OPTIONS_MAX."""

HELP_GROUP, ALL = "pgdyno.help", "all"


class GroupedCommand(TyperCommand):
    """A command whose help has the main options if there are many: ``--help GROUP`` has the others."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, in spellings of added options too. Raises UsageError for an unknown group."""
        for kind in added_to(str(self.name)):
            args = kind.spelled(args, str(self.name))
        own = args[: args.index("--")] if "--" in args else args
        help_at = next((i for i, arg in enumerate(own) if arg in ("-h", "--help")), None)
        if "--help-all" in own:
            ctx.meta[HELP_GROUP], args = ALL, ["--help"]
        elif help_at is not None and self._is_grouped:
            group = next(iter(own[help_at + 1 :]), "-")
            if not group.startswith("-"):  # another option
                if group not in self._listed:
                    raise UsageError(f"--help {group}: no such group; use one of {', '.join(self._listed)}")
                ctx.meta[HELP_GROUP] = group
        return super().parse_args(ctx, args)

    @property
    def moved(self) -> Mapping[str, StudyKey]:
        """Rare options by spelling, with the keys of study files in their place."""
        return getattr(self.callback, "moved", {})

    @property
    def _is_grouped(self) -> bool:
        return len(self.params) > OPTIONS_MAX

    @property
    def _groups(self) -> dict[str, str]:
        """Option → its group: the workload that its help begins with, or else where it is declared."""
        of = getattr(self.callback, "groups", {})
        kinds = {one.name: re.match("([a-z]+): ", getattr(one, "help", None) or "") for one in self.params}
        return {str(name): kind[1] if kind else of.get(name, "study") for name, kind in kinds.items()}

    @property
    def _listed(self) -> list[str]:
        return sorted({group for name, group in self._groups.items() if name not in MAIN})

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the description: of main options up to the form feed, of a group none."""
        wanted = ctx.meta.get(HELP_GROUP, ALL if not self._is_grouped else "")
        if wanted in ("", ALL):
            formatter.write_paragraph()
            with formatter.indentation():
                text, _, more = (self.help or "").partition("\f")
                formatter.write_text(f"{text}{more}" if wanted else text)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the main options, those of a group, or all."""
        groups, wanted = self._groups, ctx.meta.get(HELP_GROUP, "")
        if wanted == ALL or not self._is_grouped:
            super().format_options(ctx, formatter)
            if self.moved:
                with formatter.section("Keys of study files only"):
                    formatter.write_dl(_keys_only(self.moved.values()))
                    formatter.write_text("See pgdyno docs write-a-study.")
            return
        shown = [
            one for one in self.params if (groups[str(one.name)] == wanted if wanted else one.name in MAIN)
        ]
        records = [record for one in shown if (record := one.get_help_record(ctx))]
        if not wanted:
            records = [(re.sub("^-., |, --[a-z-]+", "", names), _in_short(text)) for names, text in records]
        with formatter.section("Options"):
            formatter.write_dl(records)
        formatter.write_paragraph()
        rare = " Rarer: keys of study files." if self.moved else ""
        formatter.write_text(f"More: --help GROUP ({', '.join(self._listed)}) or --help-all.{rare}")


def _keys_only(moved: Iterable[StudyKey]) -> list[tuple[str, str]]:
    """Return the keys of each table that are no options: those that were, and those that never are."""
    found: dict[str, dict[str, None]] = {}
    for table, model in TABLES.items():
        fields = (one for one in model.model_fields.items() if one[0] not in OTHER_OPTIONS)
        found[table] = {field.alias or name: None for name, field in fields if not _options_in(field)}
    for key in moved:
        found.setdefault(key.table, {})[key.key] = None
    return [(f"[{table}]", ", ".join(keys)) for table, keys in found.items()]


def _in_short(text: str) -> str:
    """Return the beginning of a help, and its default."""
    first = re.split(r"\. |[:;,] |\.$", re.sub("^[a-z]+: ", "", text))[0]
    default = re.search(r"\[default: [^\]]*\]", text)
    return f"{first[:1].upper()}{first[1:]}.{f' {default[0]}' if default else ''}"


def _options(group: Any) -> list[inspect.Parameter]:
    """Return the parameters of a group; a field that is a group itself gives all of its own."""
    if issubclass(group, OptionGroups):
        return [one for of in group.types() for one in _options(of)]
    if issubclass(group, ModelOptions):
        return [_parameter(group.MODEL, name) for name in group.FIELDS]
    hints = get_type_hints(group, include_extras=True)
    found = []
    for field in fields(group):
        hint = hints[field.name]
        if _is_group(hint):
            found += _options(hint)
        else:
            kind = inspect.Parameter.KEYWORD_ONLY
            found.append(inspect.Parameter(field.name, kind, default=field.default, annotation=hint))
    return found


def built(group: Any, given: dict[str, Any]) -> Any:
    """Return the group with its values, which leave ``given``; absent ones have their defaults."""
    if issubclass(group, OptionGroups):
        return group(*[built(of, given) for of in group.types()])
    if issubclass(group, ModelOptions):
        return group(**{name: given.pop(name) for name in group.FIELDS if name in given})
    hints = get_type_hints(group)
    values = {
        field.name: built(hints[field.name], given) if _is_group(hints[field.name]) else given.pop(field.name)
        for field in fields(group)
        if _is_group(hints[field.name]) or field.name in given
    }
    return group(**values)


def _is_group(annotation: object) -> bool:
    if not isinstance(annotation, type):
        return False
    return is_dataclass(annotation) or issubclass(annotation, ModelOptions | OptionGroups)


class OptionGroups(ABC):
    """Base class of a list of groups, which is complete when a command is declared: features add to it.

    It is made from a group of each of the types.
    """

    @classmethod
    @abstractmethod
    def types(cls) -> Sequence[Any]:
        """Return the types of the groups, in the order of the help."""


class WorkloadGroup(ABC):
    """Base class of a group of options of the workload KIND.

    SCRIPTS: the option for scripts of the user. IN_COMPARISONS_ONLY: the commands for single runs do not have
    the options.
    """

    KIND: ClassVar[str]
    SCRIPTS: ClassVar[str] = ""
    IN_COMPARISONS_ONLY: ClassVar[bool] = False

    @abstractmethod
    def values(self) -> Mapping[str, Any]:
        """Return the values that were given, by name. Raises UsageError."""

    def option(self, name: str) -> str:
        """Return the long spelling of an option."""
        return f"--{name}"

    def is_kind_implied(self) -> bool:
        """Return whether the values choose the workload, if no other one is named."""
        return False

    def aging(self) -> Mapping[str, Any]:
        """Return the parameters of any workload about aging and upgrade of its data. Raises UsageError."""
        return {}

    def of_arm(self, load: Mapping[str, str]) -> Self:
        """Return the options with the parameters of an arm (``ArmSpec.load``). Raises UsageError."""
        del load
        return self

    def with_arguments(self, texts: Sequence[str]) -> Self:
        """Return the options with ``--name=value`` after ``--`` on the command line."""
        del texts
        return self


class ModelOptions:
    """Base class of a group whose options are fields of a model, with the metadata ``Option``.

    ``class Load(ModelOptions, model=CrashPlan, fields="scale clients")`` has the options --scale, --clients.
    ``given``: the values on the command line by field; options that are absent have no value. An option may
    give the values of several fields.
    """

    MODEL: ClassVar[type[BaseModel]]
    FIELDS: ClassVar[Sequence[str]]

    def __init_subclass__(cls, *, model: type[BaseModel] = BaseModel, fields: str = "") -> None:
        """Declare the model and its fields, in the order of the help."""
        cls.MODEL, cls.FIELDS = model, fields.split()

    def __init__(self, **given: Any) -> None:
        self.given: dict[str, Any] = {}
        for name, value in given.items():
            if isinstance(value, Mapping):
                self.given |= value
            elif value not in (None, [], ()):
                self.given[name] = value


class ParameterOptions(ModelOptions, WorkloadGroup):
    """Base class of a group whose options are fields of the parameters of a workload."""

    def __init_subclass__(cls, *, model: type[WorkloadParameters], fields: str) -> None:
        """Declare the parameters and their fields, in the order of the help."""
        super().__init_subclass__(model=model, fields=fields)
        cls.KIND = model.model_fields["kind"].default

    def values(self) -> Mapping[str, Any]:
        """Return the values that were given, by field."""
        return self.given

    def option(self, name: str) -> str:
        """Return the long spelling of an option; the name of one that is a part of an ARM, too."""
        return name if name in LOAD_PARAMETERS else option_name(self.MODEL, name)

    def replaced(self, **given: Any) -> Self:
        """Return the options with other values."""
        return type(self)(**{**self.given, **given})


def option_of(model: type[BaseModel], name: str) -> Option:
    """Return the option of a field."""
    return _options_in(model.model_fields[name])[0]


def option_name(model: type[BaseModel], name: str) -> str:
    """Return the long spelling of the option of a field."""
    return next(iter(option_of(model, name).names), f"--{name.replace('_', '-')}")


OTHER_OPTIONS = {"rounds": "--window", "checkpoints": "--window", "warmup_min_s": "--warmup"}
"""Options of fields that the option of another key gives, too."""


def option_of_fields(names: Sequence[str]) -> str:
    """Return the option of a field of a study or of another plan, or the name of a part of an ARM.

    ``names``: the path to the field.
    """
    models = (*TABLES.values(), *parameters_by_kind().values())
    for name in reversed(names):
        if name in OTHER_OPTIONS:
            return OTHER_OPTIONS[name]
        key = FILE_KEYS.get(name, name)
        for model in models:
            if key in model.model_fields and _options_in(model.model_fields[key]):
                return key if key in LOAD_PARAMETERS else option_name(model, key)
    return f"--{names[0].replace('_', '-')}"


def _options_in(field: FieldInfo) -> list[Option]:
    return [one for one in field.metadata if isinstance(one, Option)]


def parser(option: str, parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a parser for ``typer.Option`` whose errors name the option."""

    def read(text: str) -> Any:
        with naming(option):
            return parse(text)

    return read


def option_from(model: type[BaseModel], name: str, default: object = None, text: str = "") -> Any:
    """Return the ``typer.Option`` of a field.

    ``default``: added to the help, if the field names no other. ``text``: another help.
    """
    field, option = model.model_fields[name], option_of(model, name)
    spelled = option_name(model, name)
    text = re.sub(r"(--[a-z-]+)=", r"\1 ", text or field.description or "")
    if spelled.startswith("--no-"):
        text = f"Without {text[:1].lower()}{text[1:]}"
    if issubclass(model, WorkloadParameters):
        of = option.of or model.model_fields["kind"].default
        text = f"{of}: {text[:1].lower()}{text[1:]}"
    text, _, stated = text.partition(" [default: ")
    parts = [text, "May be repeated."] if option.is_repeated else [text]
    default = option.default or default
    parts += [f"[default: {stated}"] if stated else [] if default is None else [f"[default: {default}]"]
    bounds = {key: getattr(one, key) for one in field.metadata for key in ("ge", "le") if hasattr(one, key)}
    return typer.Option(
        *(option.names or [spelled]),
        metavar=option.metavar,
        help=" ".join(parts),
        min=bounds.get("ge") if option.has_range else None,
        max=bounds.get("le") if option.has_range else None,
        parser=parser(spelled, option.parse) if option.parse else None,
    )


def _parameter(model: type[BaseModel], name: str) -> inspect.Parameter:
    """Return a field as a parameter of a command: of its type if typer has it, else of type str."""
    field = model.model_fields[name]
    option = option_of(model, name)
    annotation: Any = field.annotation
    while get_origin(annotation) in (Union, UnionType, Annotated):
        annotation = get_args(annotation)[0]
    if option.values:
        annotation = Literal[option.values]
    is_enum = isinstance(annotation, type) and issubclass(annotation, StrEnum)
    is_known = annotation in (bool, int, float) or get_origin(annotation) is Literal or is_enum
    kind: Any = annotation if is_known else str
    kind = list[str] if option.is_repeated else kind
    default = field.default if type(field.default) in (int, float, str) or is_enum else None
    rare = [StudyKey.of(model, name)] if isinstance(option, Rare) else []
    hint = Annotated[kind, option_from(model, name, default), *rare]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Suppress progress messages.")]
Full = Annotated[
    bool, typer.Option("--full", help="Print all tables, not only the summary that fits one screen.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Overwrite the --html file even if pgdyno did not write it.")
]
Clients = Annotated[int | None, option_from(Drive, "clients", "4 per core of an arm")]
IntoExisting = Annotated[
    bool,
    typer.Option(
        "--into-existing", help="Use the database named in the DSN even if pgdyno did not create it."
    ),
]


def require_no_password(conninfo: str | None) -> str | None:
    """Return a connection string of the command line. Raises UsageError if it has a password: ps shows it."""
    with contextlib.suppress(ProgrammingError, UnicodeError):  # malformed: Dsn says so
        if conninfo is not None and has_secrets(conninfo):
            raise UsageError(
                "a connection string on the command line must not contain a password, which ps shows: put it "
                "in ~/.pgpass, in the file that PGPASSFILE names, or in PGPASSWORD"
            )
    return conninfo


Dsn = Annotated[
    str,
    typer.Argument(
        metavar="DSN",
        callback=require_no_password,
        help="Database, as a libpq connection string or URI. "
        "The password is read from ~/.pgpass, PGPASSFILE or PGPASSWORD.",
    ),
]


SEED_MAX = 2**53 - 1
"""Largest integer that JSON numbers hold exactly."""


def machine_size() -> MachineSize:
    """Return the cores and the memory available to this process, up to the limits of its control groups."""
    found = machine_resources(Path("/"))
    return MachineSize(found.cores, found.memory_bytes)


@dataclass(frozen=True)
class Output:
    """Options of the report of a study."""

    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="HTML report to write. [default: name of the results file with .html]"
        ),
    ] = None
    force: Force = False
    json: Json = False
    quiet: Quiet = False


# ----------------------------------------------------------------------
# Options that features add to ``compare``, ``run`` and ``report``, and what they do with a study.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class FittedFile:
    """A study file with the sizes with which it runs.

    ``changes``: the changed sizes, as the results file stores them. ``lost``, ``changed``: the losses of the
    question and the changes, as sentences. ``aa_refused_by``: the option that disabled A/A blocks.
    """

    file: StudyFile
    changes: Sequence[Mapping[str, str]] = ()
    lost: Sequence[str] = ()
    changed: Sequence[str] = ()
    aa_refused_by: str = ""


@dataclass(frozen=True)
class StudyOptions:
    """Base class of a dataclass of options that a feature adds to a command such as ``compare`` or ``run``.

    The commands call each method at one point of a study. The methods of this class change nothing.
    """

    COMMANDS: ClassVar[Mapping[str, str]]
    """Commands that have the options. The help lists the options before the named parameter, or last if the
    name is empty."""

    GROUP: ClassVar[str] = ""
    """Group of the options in the help, if not that of the feature."""

    READ_ON_RESUME: ClassVar[bool] = False
    """True if the options apply to a resumed study. Other options cannot be combined with --resume."""

    @classmethod
    def spelled(cls, args: list[str], command: str) -> list[str]:  # noqa: ARG003
        """Return the arguments of a command in spellings that the parser of options has."""
        return args

    def chosen_arms(self, texts: Sequence[str]) -> ChosenArms | None:  # noqa: ARG002
        """Return the arms of ``compare`` for the arguments ARM; None: as written. Raises UsageError."""
        return None

    def run_elsewhere(self, call: RunCall) -> int | None:  # noqa: ARG002
        """Run or resume the study elsewhere, and report it. Return the exit status; None: not asked for."""
        return None

    def changed(self, file: StudyFile) -> StudyFile:
        """Return the study file of ``run`` with other values. Raises UsageError."""
        return file

    def fitted(self, file: StudyFile, minutes: float | None) -> FittedFile | None:  # noqa: ARG002
        """Return the study file, scaled to this machine and time; None: as it is. Raises UsageError."""
        return None

    @property
    def measures_whole_budget(self) -> bool:
        """True if ``compare`` stops at the end of its budget, unless --stop says otherwise."""
        return False

    def study_fields(self, in_file: Study | None) -> dict[str, Any]:  # noqa: ARG002
        """Return the fields of the study that the options set. ``in_file``: the study without them."""
        return {}

    def check(self, studies: Callable[[], Sequence[Study]]) -> None:
        """Raise UsageError for options that do not suit each other, or the studies of the cases."""

    def check_elsewhere(self, option: str) -> None:
        """Raise UsageError for options that do not suit each other, or ``option``, which runs the study
        elsewhere.
        """

    def begin(self, path: Path) -> None:
        """Begin with what accompanies a study. ``path``: its results file, which need not exist yet."""

    @property
    def follow_up(self) -> str:
        """Name of the follow-up, which is run after the study; empty if there is none."""
        return ""

    def follow(self, path: Path, interruption: Interruption, *, quiet: bool) -> None:
        """Run the follow-up of a study that was neither interrupted nor failed. Raises PgdynoError."""

    def on_resume(self) -> list[str]:
        """Return the options for the command that resumes the study."""
        return []

    JUDGING: ClassVar[Sequence[str]] = ()
    """Names of the options that judge a report."""

    def check_judging(self, results: Path | None = None) -> bool:  # noqa: ARG002
        """Return whether any option judges a report. Raises UsageError before the results file is written."""
        return False

    def judge(self, built: FileReport) -> Judgement | None:  # noqa: ARG002
        """Judge a report with a comparison; None without an option. Raises UsageError."""
        return None


STUDY_OPTIONS: Hooks[type[StudyOptions]] = Hooks("options")


def added_to(command: str) -> list[type[StudyOptions]]:
    """Return the options that features add to a command, in an order that does not depend on theirs."""
    found = (kind for kind in STUDY_OPTIONS if command in kind.COMMANDS)
    return sorted(found, key=lambda kind: kind.__name__)


Kind = TypeVar("Kind", bound=StudyOptions)


class Added(tuple[StudyOptions, ...]):
    """The options of all features for one call of a command."""

    def of(self, kind: type[Kind]) -> Kind:
        """Return those of one kind."""
        return next(one for one in self if isinstance(one, kind))

    def fitted(self, file: StudyFile, minutes: float | None = None) -> FittedFile | None:
        """Return the study file, scaled to this machine and time; None: as it is. Raises UsageError."""
        return next(filter(None, (one.fitted(file, minutes) for one in self)), None)

    def study_fields(self, in_file: Study | None = None) -> dict[str, Any]:
        """Return the fields of the study that the options set."""
        return {name: value for one in self for name, value in one.study_fields(in_file).items()}

    @property
    def judging(self) -> list[str]:
        """Names of the options that judge a report."""
        return [name for one in self for name in one.JUDGING]

    def check_judging(self, results: Path | None = None) -> bool:
        """Return whether any option judges a report. Raises UsageError before the results file is written."""
        return True in [one.check_judging(results) for one in self]

    def judge(self, built: FileReport) -> list[Judgement]:
        """Return the judgements on a report."""
        return [found for one in self if (found := one.judge(built))]

    @property
    def read_on_resume(self) -> list[str]:
        """Names of the options that apply to a resumed study."""
        return [field.name for one in self if one.READ_ON_RESUME for field in fields(one)]


NOTHING_ADDED = Added()


@dataclass(frozen=True)
class RunCall:
    """A call of ``run``. ``study``: a new study; None: that of ``results`` continues."""

    study: Path | None
    results: Path = Path()
    minutes: float | None = None
    nearest: bool = False
    no_aa: bool = False
    into_existing: bool = False
    command: str = ""
    output: Output = Output()
    added: Added = NOTHING_ADDED


# ----------------------------------------------------------------------
# Options of the clients: pacing, rate, retries, driver threads.
# ----------------------------------------------------------------------


class ClientOptions(ModelOptions, model=Drive, fields="pacing rate arrivals retries threads"):
    """Options for the start of transactions."""

    def driving(self, workload: WorkloadParameters, clients: int) -> Driving:
        """Return how the clients drive an arm. Raises UsageError, ValidationError."""
        fields = driving_fields({**self.given, "clients": clients})
        return Driving.model_validate({**fields, "workload": workload})


# ----------------------------------------------------------------------
# The time of a study: warnings about too few blocks, and texts.
# ----------------------------------------------------------------------

SearchTime = Callable[[Study, MachineSize], float]
"""Time in seconds that a trial needs to search for its rate, before its warm-up."""

SEARCH_TIMES: Hooks[SearchTime] = Hooks("search_time")

BUDGETS_OF_A_BLOCK_MAX = 2.0
"""Maximum length of the first block in budgets. The first block always runs; a longer one is an error."""


def block_least_s(study: Study) -> float:
    """Return the minimum load time of a block, in seconds; 0 if unknown (--transactions)."""
    if study.transactions is not None:
        return 0.0
    least_s = study.warmup_s if study.warmup_min_s is None else study.warmup_min_s
    return study.turns * (least_s + study.rounds * study.slice_s)


def require_time_for_block(study: Study) -> None:
    """Refuse a budget far too short for one block, if lengths are given explicitly. Raises UsageError.

    Skipped for checkpoint cycles, whose length depends on the server, and for a given number of blocks.
    """
    block_s = block_least_s(study)
    is_open = study.checkpoints is not None or study.blocks_max is not None
    if is_open or block_s <= BUDGETS_OF_A_BLOCK_MAX * study.budget_s:
        return
    raise UsageError(
        f"--minutes {study.budget_s / 60:.3g} is too short for one block, which takes at least "
        f"{format_duration(block_s)}: use at least {math.ceil(block_s / 6) / 10:g} "
        f"({math.ceil(VERDICT_BLOCKS_MIN * block_s / 60)} for the {VERDICT_BLOCKS_MIN} blocks of a "
        "verdict), or shorten --slice, --window or --warmup"
    )


def shortage(study: Study, machine: MachineSize, cases: int = 1) -> str:
    """Return a warning if the study has too few blocks for a verdict, or for *same*; else an empty string.

    ``cases`` share the minutes. This is no error: fewer blocks have an interval, too, and the estimate of the
    blocks is rough.
    """
    driven_s, most = block_least_s(study), study.blocks_max or sys.maxsize
    if not driven_s or most < VERDICT_BLOCKS_MIN:
        return ""
    search_s = sum(of(study, machine) for of in SEARCH_TIMES) if study.searches_capacity else 0.0
    searches_s = len(study.arms) * search_s
    likely_s = driven_s + searches_s + block_overhead_s(study.turns)
    blocks = int(study.budget_s / likely_s)
    if (unmet := study.unmet_minimum(min(blocks, most))) is None:
        return ""
    least, verdict = unmet
    if least > most:
        return (
            f"at most {most} blocks are too few for {verdict}, which needs {least} unless the study has a "
            f"fixed length: use --blocks {least} or more, or --stop budget"
        )
    needed = math.ceil(cases * least * likely_s / 60)
    arms = counted(len(study.arms), "arm") + (f" in {counted(cases, 'case')}" if cases > 1 else "")
    search = f" with searches of about {format_duration(round(searches_s))}" if searches_s else ""
    # The first block always runs.
    return (
        f"{arms}{search} need about {needed} min for {least} blocks, the minimum for {verdict}; "
        f"{format_duration(cases * study.budget_s)} gives about {max(1, blocks)}: use --minutes {needed} or "
        f"more{', or fewer arms' if len(study.arms) > 2 else ''}"
    )


def time_text(study: Study) -> str:
    """Return the time as text: ``at most 5 min in all``, ``3 blocks, about 48 s``."""
    if (block_s := block_least_s(study)) > study.budget_s:
        return f"one block, {format_duration(block_s)} or more"
    most, blocks = "at most " if study.stops_on_verdict else "", study.blocks_max
    overhead_s = block_overhead_s(study.turns)
    if block_s and blocks and (likely_s := blocks * (block_s + overhead_s)) < study.budget_s:
        return f"{most}{counted(blocks, 'block')}, about {format_duration(round(likely_s))}"
    return f"{most}{format_duration(study.budget_s)} in all"


def window_text(study: Study) -> str:
    """Return the window of an arm in a block: ``20 s in slices of 1 s``, ``2 checkpoint cycles``."""
    if study.transactions is not None:
        return f"{counted(study.transactions, 'transaction')} per client"
    if study.checkpoints is not None:
        return counted(study.checkpoints, "checkpoint cycle")
    turns = f" in slices of {format_duration(study.slice_s)}" if study.is_together else ""
    turns += ", both arms simultaneously" if study.schedule == "duet" else ""
    return f"{format_duration(study.rounds * study.slice_s)}{turns}"


# ----------------------------------------------------------------------
# Completion of arguments in bash, zsh and fish: studies, arms with their profiles and settings files.
#
# Each function imports what it reads when a shell calls it.
# ----------------------------------------------------------------------

FILE_ENDS = (".conf", ".sql")
"""Usual ends of the names of settings files."""


def complete_study(incomplete: str) -> list[str]:
    """Return the bundled studies, and study files below the current directory."""
    from pgdyno.study.study_file_reader import bundled_studies  # noqa: PLC0415

    bundled = sorted(path.stem for path in bundled_studies().rglob("*.toml"))
    return [*_starting(bundled, incomplete), *_files(incomplete, (".toml",))]


def complete_server(incomplete: str) -> list[str]:
    """Return the versions of installed and cached servers, and words for a server."""
    from pgdyno.server.build_store import system_builds  # noqa: PLC0415
    from pgdyno.server.cache_directory import Cache  # noqa: PLC0415

    try:
        builds = [*system_builds(), *Cache.open().store().cached()]
    except PgdynoError:
        builds = []
    versions = sorted({text for one in builds for text in (str(one.version.major), str(one.version))})
    return _starting([*versions, "system", "devel", "git:"], incomplete)


def complete_arm(incomplete: str) -> list[str]:
    """Return servers, and after a comma the profiles and settings files of an arm.

    bash splits words at @: the word is then a part of the arm.
    """
    head, comma, part = incomplete.rpartition(",")
    if comma or part.startswith("@"):
        names = complete_profile(part.removeprefix("@")) if part[:1] in ("", "@") else []
        return [f"{head}{comma}@{name}" for name in names]
    words = os.environ.get("COMP_WORDS", "").split()
    before = words[:-1] if incomplete else words
    return complete_profile(incomplete) if before[-1:] == ["@"] else complete_server(incomplete)


def complete_profile(incomplete: str) -> list[str]:
    """Return the profiles, and settings files below the current directory."""
    from pgdyno.server.settings import PROFILES  # noqa: PLC0415

    return [*_starting(PROFILES, incomplete), *_files(incomplete, FILE_ENDS)]


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _files(incomplete: str, ends: tuple[str, ...]) -> Iterator[str]:
    """Yield the files with these ends, and the directories, whose paths start like the incomplete one."""
    directory, _, _ = incomplete.rpartition("/")
    place = Path(directory or ("/" if incomplete.startswith("/") else ".")).expanduser()
    try:
        entries = sorted(place.iterdir())
    except OSError:
        return
    for entry in entries:
        shown = f"{directory}/{entry.name}" if "/" in incomplete else entry.name
        if shown.startswith(incomplete) and not entry.name.startswith("."):
            if entry.is_dir():
                yield f"{shown}/"
            elif entry.name.endswith(ends):
                yield shown
