"""JSON Schema of a study file, for editors, made from the model and the parameters of each workload."""

from __future__ import annotations

from typing import Any

from pgdyno.study.pgbench_parameters import variants
from pgdyno.study.study_file import PARAMETERS, Drive, StudyFile

SETTING = {"type": ["string", "number", "boolean", "object"]}


def schema() -> dict[str, Any]:
    """Return the schema. Factors and workload have the keys that are checked when cases are made."""
    whole = StudyFile.model_json_schema(by_alias=True)
    whole["$schema"] = "http://json-schema.org/draft-07/schema#"
    whole["title"] = "A study of pgdyno"
    parts: dict[str, Any] = whole["$defs"]
    parameters: dict[str, Any] = {}
    for parameters_of in PARAMETERS.values():
        own = parameters_of.model_json_schema()
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
    kind = {"enum": list(PARAMETERS), "description": "Workload of the clients."}
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
    factors = {name: _levels(value) for name, value in values.items()} | {"settings": _levels(settings)}
    setting = _levels({"type": ["string", "number", "boolean"], "description": "Levels of one setting."})
    properties["factors"] |= _table(factors) | {"patternProperties": {r"^settings\.": setting}}
    own_keys = {name: parts["Settings"]["properties"][name] for name in ("about", "profiles", "optional")}
    parts["Settings"] = {"type": "object", "properties": own_keys, "additionalProperties": SETTING}
    _bare_cells(parts)
    del parts["Level"]
    return whole


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


def _bare_cells(parts: dict[str, Any]) -> None:
    """Allow a plain number or text as a cell."""
    cells = parts["Row"]["properties"]["cells"]
    cells["items"] = {"anyOf": [{"type": ["string", "number"]}, {"$ref": "#/$defs/Cell"}]}
