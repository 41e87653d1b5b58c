"""Reports as JSON, and their JSON Schema: the findings themselves, with the sentences made of them.

A class of findings is its JSON (``analysis/finding_fields.py``). JSON has the fields in their order. Within a
version, fields are only added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeVar

from pgdyno.analysis.finding_fields import Key, about, shown
from pgdyno.analysis.study_findings import MetricVerdict, StudyFindings
from pgdyno.hooks import Hooks
from pgdyno.report.document import Document, FileReport, Judgement, Line, ShownCaveat, Table
from pgdyno.report.visible_text import json_text

VERSION: Literal[3] = 3
"""Version of the format of all documents."""

Sentences = Mapping[str, Sequence[str]]
"""By section, without empty ones."""


@dataclass(frozen=True)
class Result(Key):
    """A result of a feature, ``more.NAME`` in JSON. ``find`` returns its value."""

    find: Callable[[StudyFindings], Any]


RESULTS = Hooks[Result]("results")

JUDGEMENTS = Hooks[Key]("judgements")
"""Keys of judgements in the documents of comparisons. Their values are null without the options."""

AnyKey = TypeVar("AnyKey", bound=Key)

DOCUMENTS = Hooks[type]("documents")
"""Classes of the documents of features."""


@dataclass(frozen=True)
class Answer:
    """The first screen of a terminal: verdicts, causes, and caveats that can change a verdict."""

    sentences: Sequence[str]
    arms: Annotated[Sequence[Mapping[str, str]], about("A row per arm as text; empty with several cases.")]


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
        Sequence[MetricVerdict], about("On the metric of the verdicts, of all cases and arms.")
    ]
    answer: Answer
    judgements: Mapping[str, Any]
    """Judgements of features by name. JSON has their names in the place of this field."""


@dataclass(frozen=True)
class StudyDocument(StudyResults, JsonReport):
    """Report of one results file."""


def to_json(report: FileReport, judgements: Sequence[Judgement] = ()) -> str:
    """Return the JSON document of a report, indented."""
    return encoded(report.json(judgements))


def judged(judgements: Sequence[Judgement]) -> Mapping[str, Any]:
    """Return the values of ``JsonReport.judgements``."""
    found = {one.name: one.found for one in judgements}
    return {key.name: shown(key.kind, found.get(key.name)) for key in by_name(JUDGEMENTS)}


def sentences_on(judgements: Sequence[Judgement]) -> Sentences:
    """Return the sentences of judgements by name."""
    return {one.name: one.sentences for one in judgements if one.sentences}


def encoded(document: object) -> str:
    """Return the JSON of a document. NaN and infinity become null."""
    found = shown(type(document), document)
    return json_text(with_judgements(found, found.get("judgements", {})))


def with_judgements(fields: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with those of the judgements in the place of ``judgements``."""
    parts = (values if name == "judgements" else {name: value} for name, value in fields.items())
    return {name: value for part in parts for name, value in part.items()}


def by_name(keys: Iterable[AnyKey]) -> list[AnyKey]:
    """Return keys sorted by name."""
    return sorted(keys, key=attrgetter("name"))


def study_results(
    document: Document, findings: StudyFindings, judgements: Sequence[Judgement] = ()
) -> StudyResults:
    """Return the results of one file."""
    parts = {name: part for section in document.of("cases") for name, part in section.parts.items()}
    return StudyResults(
        title=document.title,
        command=document.command,
        sentences={
            **{name: sentences_of(part) for name, part in parts.items()},
            "": {**sentences_of(document), **sentences_on(judgements)},
        },
        caveats=document.caveats,
        study=findings,
        more={one.name: shown(one.kind, one.find(findings)) for one in by_name(RESULTS)},
    )


def answer_of(document: Document) -> Answer:
    """Return the answer of a document."""
    said = [text for one in document.headlines for text in (one.sentence, one.more)]
    said += [document.unfinished, *(of.begin + of.text for of in document.answer if isinstance(of, Line))]
    tables = (of for of in document.answer if isinstance(of, Table))
    return Answer(
        [*filter(None, said)], [dict(zip(of.columns, row, strict=True)) for of in tables for row in of.rows]
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
