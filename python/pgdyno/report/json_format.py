"""Reports as JSON, and their JSON Schema: the findings themselves, with the sentences made of them.

A class of findings is its JSON (``analysis/finding_fields.py``). JSON has the fields in their order. Within a
version, fields are only added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import attrgetter, or_
from types import GenericAlias, MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from pgdyno.analysis.finding_fields import about
from pgdyno.analysis.gates import Gate, GateComparison
from pgdyno.analysis.study_findings import StudyFindings
from pgdyno.hooks import Hooks
from pgdyno.report import gate_section
from pgdyno.report.document import Document, FileReport, ShownCaveat
from pgdyno.report.visible_text import json_text

VERSION: Literal[3] = 3
"""Version of the format of all documents."""

Sentences = Mapping[str, Sequence[str]]
"""By section, without empty ones."""


@dataclass(frozen=True)
class Result:
    """A result of a feature, ``more.NAME`` in JSON. ``kind`` is the type of what ``find`` returns."""

    name: str
    kind: Any
    about: str
    find: Callable[[StudyFindings], Any]


RESULTS = Hooks[Result]("results")

DOCUMENTS = Hooks[type]("documents")
"""Classes of the documents of features."""


@dataclass(frozen=True)
class StudyResults:
    """Results of one results file. Sentences of a study with one case have an empty name of the case."""

    title: str
    command: Annotated[str, about("Command that repeats the study.")]
    sentences: Annotated[
        Mapping[str, Sentences],
        about("By case (an empty name for all cases together, or the only one) and id of the section."),
    ]
    caveats: Annotated[Sequence[ShownCaveat], about("Caveats of all cases in words.")]
    study: StudyFindings
    more: Annotated[Mapping[str, Any], about("Results of features by name.")]


@dataclass(frozen=True)
class JsonReport:
    """Fields common to the JSON documents of reports."""

    pgdyno_report: Annotated[Literal[3], about("Version of the format.")]
    verdicts: Annotated[
        Sequence[GateComparison], about("On the metric of the verdicts, of all cases and arms.")
    ]
    gate: Annotated[Gate | None, about("Result of ``--fail-if``; null without it.")]


@dataclass(frozen=True)
class StudyDocument(StudyResults, JsonReport):
    """Report of one results file."""


def to_json(report: FileReport, gate: Gate | None = None) -> str:
    """Return the JSON document of a report, indented."""
    return encoded(report.json(gate))


def sentences_on(gate: Gate | None) -> Sentences:
    """Return the sentences on the result of a gate."""
    return {"gate": [gate_section.outcome(gate), *gate_section.reasons(gate)]} if gate else {}


def encoded(document: object) -> str:
    """Return the JSON of a document. NaN and infinity become null."""
    return json_text(_shown(type(document), document))


def _results() -> list[Result]:
    return sorted(RESULTS, key=lambda one: one.name)


def _shown(kind: Any, value: object) -> Any:
    return _codec(kind).dump_python(value, warnings=False)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of all documents."""
    results = _results()
    config = ConfigDict(json_schema_serialization_defaults_required=True)
    documents = reduce(or_, sorted(DOCUMENTS, key=attrgetter("__name__")), StudyDocument)
    every_kind: Any = GenericAlias(tuple, (documents, *(one.kind for one in results)))
    every = TypeAdapter[Any](every_kind, config=config)
    found = every.json_schema(mode="serialization", schema_generator=_Untitled)
    document, *kinds = found["prefixItems"]
    definitions = found["$defs"]
    more = {one.name: {**kind, "description": one.about} for one, kind in zip(results, kinds, strict=True)}
    about_more = definitions["StudyResults"]["properties"]["more"]["description"]
    definitions["More"] = {
        "description": about_more,
        "properties": more,
        "required": sorted(more),
        "type": "object",
    }
    for name in ("StudyDocument", "StudyResults"):
        definitions[name]["properties"]["more"] = {"$ref": "#/$defs/More"}
    head = {"$schema": GenerateJsonSchema.schema_dialect, "title": "A report of pgdyno"}
    return {**head, **document, "$defs": definitions}


@cache
def _codec(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


class _Untitled(GenerateJsonSchema):
    """Without titles, which repeat the names of the fields."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


def study_results(
    document: Document, findings: StudyFindings, on_gate: Sentences = MappingProxyType({})
) -> StudyResults:
    """Return the results of one file. ``on_gate``: sentences on the gate."""
    parts = {name: part for section in document.of("cases") for name, part in section.parts.items()}
    return StudyResults(
        title=document.title,
        command=document.command,
        sentences={
            **{name: sentences_of(part) for name, part in parts.items()},
            "": {**sentences_of(document), **on_gate},
        },
        caveats=document.caveats,
        study=findings,
        more={one.name: _shown(one.kind, one.find(findings)) for one in _results()},
    )


def sentences_of(document: Document) -> Sentences:
    """Return the sentences of a document by the id of their section, without those of its parts."""
    found: dict[str, Sequence[str]] = {
        "answer": [f"{of.sentence} {of.more}".strip() for of in document.headlines],
        "unfinished": [document.unfinished],
        "percent_of": [document.percent_of],
        **{section.id: section.sentences for section in document.sections},
    }
    said = {name: [sentence for sentence in of if sentence] for name, of in found.items()}
    return {name: of for name, of in said.items() if of}
