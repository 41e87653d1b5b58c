"""``pgdyno study``: check and explain study files; their JSON Schema.

- JSON Schema of a study file, for editors, made from the model and the parameters of each workload.
- ``pgdyno study``: check and explain study files without running them.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from rich.table import Table

from pgdyno.cli import options
from pgdyno.cli.console import out, print_json, say
from pgdyno.cli.options import Added, FittedFile, GroupedCommand, Json, complete_study, expanded
from pgdyno.cli.run import examined, read_study, size_of
from pgdyno.errors import UsageError
from pgdyno.features.planning.forecast import StudyForecast, study_forecast
from pgdyno.results.records import NOT_THE_QUESTION
from pgdyno.server.cache_directory import Cache
from pgdyno.study.cases import cases_of
from pgdyno.study.study_file import Drive, Fleet, Run, StudyFile
from pgdyno.study.study_file_reader import bundled_studies, study_path, text_of
from pgdyno.study.values import Option
from pgdyno.study.workload_parameters import parameters_by_kind
from pgdyno.units import counted, format_duration, format_size
from pgdyno.workloads.pgbench.parameters import variants

# ----------------------------------------------------------------------
# JSON Schema of a study file, for editors, made from the model and the parameters of each workload.
# ----------------------------------------------------------------------

SETTING = {"type": ["string", "number", "boolean", "object"]}


def schema() -> dict[str, Any]:
    """Return the schema. Factors and workload have the keys that are checked when cases are made."""
    whole = StudyFile.model_json_schema(by_alias=True)
    whole["$schema"] = "http://json-schema.org/draft-07/schema#"
    whole["title"] = "A study of pgdyno"
    parts: dict[str, Any] = whole["$defs"]
    for table in (Drive, Run, Fleet):
        _describe(table, parts[table.__name__]["properties"])
    kinds = parameters_by_kind()
    parameters: dict[str, Any] = {}
    for parameters_of in kinds.values():
        own = parameters_of.model_json_schema()
        _describe(parameters_of, own["properties"])
        parts |= own.pop("$defs", {})
        parameters |= {name: field for name, field in own["properties"].items() if name != "kind"}
    parameters["variant"] = {
        "enum": list(variants()),
        "description": "A predefined set of parameters of pgbench; other parameters override it.",
    }
    script = {"type": "string", "description": "Built-in script: NAME or NAME@WEIGHT."}
    parameters["scripts"]["items"] = {"anyOf": [script, parameters["scripts"]["items"]]}
    parameters["data"]["anyOf"] = [{"type": "string"}, {"$ref": "#/$defs/OwnData"}]
    for field in parameters.values():
        field.pop("default", None)
        field.pop("title", None)
    properties: dict[str, Any] = whole["properties"]
    kind = {"enum": list(kinds), "description": "Workload of the clients."}
    properties["workload"] |= _table({"kind": kind, **parameters}, required=["kind"])
    properties["warmup_workload"] |= _table(parameters)
    del properties["warmup_workload"]["anyOf"]
    driving = {name: parts["Drive"]["properties"][name] for name in Drive.model_fields}
    server = {"type": "string", "description": "Versions, directories, or named connection strings."}
    values = {"server": server, **driving, **parameters}
    settings = {
        "anyOf": [{"type": "string"}, {"$ref": "#/$defs/Settings"}],
        "description": "Sets of settings: as in an arm (@PROFILE or NAME=VALUE), or tables.",
    }
    workloads = {
        "type": "object",
        "additionalProperties": {"type": "object"},
        "minProperties": 1,
        "description": "Whole workloads by name; keys of drive are allowed, too.",
    }
    factors = {name: _levels(value) for name, value in values.items()}
    factors |= {"settings": _levels(settings), "workload": workloads}
    setting = _levels({"type": ["string", "number", "boolean"], "description": "Levels of one setting."})
    properties["factors"] |= _table(factors) | {"patternProperties": {r"^settings\.": setting}}
    own_keys = {name: parts["Settings"]["properties"][name] for name in ("about", "profiles", "optional")}
    parts["Settings"] = {"type": "object", "properties": own_keys, "additionalProperties": SETTING}
    _bare_texts(parts)
    del parts["Level"]
    return whole


def _describe(model: type[BaseModel], properties: dict[str, Any]) -> None:
    """Name keys instead of options in descriptions, and add the defaults of the options."""
    for name, field in model.model_fields.items():
        shown = properties[field.alias or name]
        shown["description"] = shown.get("description", "").replace("--", "")
        for option in (one for one in field.metadata if isinstance(one, Option)):
            if option.default and not field.default:
                shown["description"] += f" [default: {option.default}]"


def _table(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    made = {"type": "object", "properties": properties, "additionalProperties": False}
    return made | ({"required": required} if required else {})


def _levels(value: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a list of values or a table of named values."""
    of = {key: one for key, one in value.items() if key not in ("default", "title", "description")}
    listed = {"type": "array", "items": of, "minItems": 1}
    described = {"description": value["description"]} if "description" in value else {}
    return described | {
        "anyOf": [
            listed,
            _table({"levels": {**listed, "description": "List of levels."}}, required=["levels"]),
            {"type": "object", "additionalProperties": of, "minProperties": 1},
        ]
    }


def _bare_texts(parts: dict[str, Any]) -> None:
    """Allow plain cells and notes in the table ``published``, if a feature has it."""
    if "Row" in parts:
        cells = parts["Row"]["properties"]["cells"]
        cells["items"] = {"anyOf": [{"type": ["string", "number"]}, {"$ref": "#/$defs/Cell"}]}
        notes = parts["PublishedTable"]["properties"]["notes"]
        notes["items"] = {"anyOf": [{"type": "string"}, notes["items"]]}


# ----------------------------------------------------------------------
# ``pgdyno study``: check and explain study files without running them.
# ----------------------------------------------------------------------

CASES_SHOWN_MAX = 40
SCHEDULES = {
    "slices": "the arms take turns in slices",
    "duet": "the arms run simultaneously, each on its own CPU partition",
    "blocks": "the arms run one after the other, in random order",
    "sequential": "all blocks of one arm run before those of the next",
}


def plan_lines(fitted: FittedFile, found: StudyForecast) -> Iterator[str]:
    """Yield the lines of the plan, from title to cases."""
    file = fitted.file
    yield file.title
    if file.source:
        named = (file.source.author, str(file.source.year), file.source.title, file.source.where)
        yield ", ".join(part for part in named if part)
    yield ""
    yield from _part("question", _lost_question(fitted))
    yield from _part("arms", [_levels_line(file, name) for name in file.compare])
    yield from _part("cases", [_levels_line(file, name) for name in file.case_factors])
    yield from _part("excluded", [_exclusion(one) for one in file.exclude])
    drivings = [case.study.driving(n) for case in found.cases for n in range(len(case.arms))]
    yield from _part("workload", dict.fromkeys(one.workload.name for one in drivings))
    yield from _part("clients", [", ".join(dict.fromkeys(str(one.clients) for one in drivings))])
    yield from _part("trial", [_trial(found)])
    blocks = [f"{found.blocks} of {size_of(found.cases)}: {counted(found.trials, 'trial')}"]
    if unmet := found.cases[0].study.unmet_minimum(found.blocks):
        time = format_duration(60 * math.ceil(unmet[0] * found.pass_s / 60))
        blocks.append(f"too few for {unmet[1]}, which needs {unmet[0]}, about {time}")
    yield from _part("blocks", blocks)
    yield from _part("A/A", [_aa(found)])
    yield from _part("time", [_time(file, found)])
    yield from _part("disk", [_disk(found)])
    yield from _part("servers", [f"{spec}: {words}" for spec, words in found.servers.items()])
    yield from _part("settings", found.settings)
    yield from _part("changed", fitted.changed)
    yield from _part("lost", [change["why"] for change in fitted.changes if not change["key"]])
    names = [case.name for case in found.cases[:CASES_SHOWN_MAX]] if len(found.cases) > 1 else []
    more = len(found.cases) - CASES_SHOWN_MAX
    yield from _part("each case", [*names, *([f"and {more} more"] if names and more > 0 else [])])


def _lost_question(fitted: FittedFile) -> list[str]:
    return [NOT_THE_QUESTION, *fitted.lost] if fitted.lost else []


FORECAST_IN_JSON = (
    *("search_s", "blocks", "trials", "aa_blocks", "aa_s", "why_no_aa"),
    *("total_s", "load_s", "disk_bytes", "disk_free_bytes", "servers"),
)


def plan_as_json(fitted: FittedFile, found: StudyForecast) -> dict[str, Any]:
    """Return the plan as JSON; sizes in bytes, times in seconds."""
    return {
        "title": fitted.file.title,
        "lost_question": _lost_question(fitted),
        "cases": [
            {
                "name": case.name,
                "levels": dict(case.levels),
                "arms": [arm.name for arm in case.study.arms],
                "workload": case.study.workload.name,
                "warmup_s": case.study.warmup_s,
                "warmup_min_s": case.study.warmup_min_s,
                "window_s": None if case.study.transactions else case.study.rounds * case.study.slice_s,
                "transactions": case.study.transactions,
            }
            for case in found.cases
        ],
        **{name: getattr(found, name) for name in FORECAST_IN_JSON},
        "settings": list(found.settings),
        "changes": list(fitted.changed),
    }


def _part(name: str, texts: Any) -> Iterator[str]:
    for n, text in enumerate(texts):
        yield f"{'' if n else name:<11}{text}"


def _levels_line(file: StudyFile, factor: str) -> str:
    return f"{factor}: {', '.join(level.name for level in file.factors[factor])}"


def _exclusion(one: Any) -> str:
    parts = [
        f"{factor} {', '.join(map(str, levels)) if isinstance(levels, tuple) else levels}"
        for factor, levels in one.items()
    ]
    return " with ".join(parts)


def _trial(found: StudyForecast) -> str:
    study, measured = found.cases[0].study, _range(found.window_s)
    if study.transactions is None:
        measured += " measurement"
    else:
        measured = f"{counted(study.transactions, 'transaction')} per client, about {measured}"
    warmups_s = sorted(case.study.warmup_s for case in found.cases)
    least = "" if study.warmup_min_s is None else "at most "
    warmup = f"{least}{_range((warmups_s[0], warmups_s[-1]))} warm-up, then " if warmups_s[-1] else ""
    search = (
        f"about {format_duration(round(found.search_s))} capacity search, then " if found.search_s else ""
    )
    return f"{search}{warmup}{measured}; {SCHEDULES[study.schedule]}"


def _range(ends_s: tuple[float, float]) -> str:
    first, last = map(format_duration, ends_s)
    return first if first == last else f"{first} to {last}"


def _aa(found: StudyForecast) -> str:
    """Describe the A/A blocks, in which an arm is compared with an identical arm."""
    if found.why_no_aa and not found.aa_s:
        return f"no A/A blocks: {found.why_no_aa}"
    if not found.aa_blocks:
        return "no A/A block: the study has few blocks per case"
    return f"{counted(found.aa_blocks, 'A/A block')} of identical arms, about {format_duration(found.aa_s)}"


def _time(file: StudyFile, found: StudyForecast) -> str:
    by_budget = file.run.budget_s is not None and found.total_s == file.run.budget_s
    total = format_duration(found.total_s)
    total = f"{total}, the budget" if by_budget else f"about {total}"
    loading = f"about {format_duration(found.load_s)} for loading data once"
    return f"{total}, plus {loading} (estimate for a small machine)"


def _disk(found: StudyForecast) -> str:
    enough = "" if found.fits_the_disk else ", which is too little: use --fit to scale the study down"
    return (
        f"{format_size(found.disk_bytes)} at most for datasets and live copies; "
        f"{format_size(found.disk_free_bytes)} free{enough}"
    )


app = typer.Typer(help="Check, explain and list study files.", no_args_is_help=True)


@app.command("check")
def check(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…", help="Study files, or names of bundled studies.", autocompletion=complete_study
        ),
    ],
) -> int:
    """Check study files and print each error with the path of its key.

    \b
      pgdyno study check mine.toml
    """
    status = 0
    for given in files:
        path = study_path(given)
        file, problems = examined(path)
        if file is None or problems:
            status = UsageError.exit_status
            for problem in problems:
                say(f"pgdyno: {problem}")
        else:
            out.print(f"{path}: ok: {size_of(cases_of(file))}", markup=False, soft_wrap=True)
    return status


def plan(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="Study file, or name of a bundled study.", autocompletion=complete_study
        ),
    ],
    as_json: Json = False,
    *,
    added: Added,
) -> int:
    """Show cases, run time and disk usage of a study without running it.

    \b
      pgdyno study plan mine.toml
      pgdyno study plan moppel-2019-pgbench-11-vs-12 --fit --minutes 30
    """
    study = read_study(file)
    fitted = added.fitted(study) or FittedFile(study)
    found = study_forecast(fitted.file, Cache.open(), options.machine_size())
    if as_json:
        print_json(plan_as_json(fitted, found))
    else:
        for line in plan_lines(fitted, found):
            out.print(line, markup=False, soft_wrap=True)
    return 0


app.command("plan", cls=GroupedCommand)(expanded(plan))


@app.command("list")
def list_studies(as_json: Json = False) -> None:
    """List the bundled studies: published experiments and templates.

    To write a study, copy a template and edit it; its comments explain each key.
    """
    found = [(path, tomllib.loads(text_of(path))) for path in sorted(bundled_studies().rglob("*.toml"))]
    if as_json:
        print_json([{"name": path.stem, "path": str(path), "title": data["title"]} for path, data in found])
        return
    for heading, folder in (("published", bundled_studies()), ("templates", bundled_studies() / "templates")):
        table = Table(heading, "", box=None, title_justify="left")
        for path, data in found:
            if path.parent == folder:
                table.add_row(path.stem, data["title"])
        out.print(table)
        out.print(str(folder), markup=False, soft_wrap=True)
        out.print()


@app.command("schema")
def print_schema() -> None:
    """Print the JSON Schema of study files, for use in editors.

    \b
      pgdyno study schema > study.schema.json       # and in the study: #:schema study.schema.json
    """
    print_json(schema())
