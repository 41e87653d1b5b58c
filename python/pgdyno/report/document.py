"""A report as a document: all that an output format knows, except JSON and CSV.

``study_report`` or a feature turns what it found into one Document. A document has headlines and sections. A
section has sentences, tables, plots or caveats, or further documents (cases, hosts). Each output format is a
walk over the sections, in their order.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from itertools import groupby
from pathlib import Path

from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.study_findings import Compared
from pgdyno.caveats import Caveat, Rank, wordings
from pgdyno.report.plot import Panel


@dataclass(frozen=True)
class Table:
    """``numeric`` names the columns set to the right. A cell that repeats the one above it is empty."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    numeric: frozenset[str] = field(default_factory=frozenset)
    long: bool = False  # details: collapsed in HTML
    dispensable: Sequence[str] = ()  # columns that a narrow terminal omits and names, in this order
    drawing: str = ""  # dispensable column that draws the numbers of others
    said_elsewhere: bool = False  # the summary of a pipeline has it as text
    breaks_first: bool = False  # a narrow page wraps the first column before omitting one
    whole: bool = False  # a terminal has all columns, also if its lines are too short for them
    narrow: Table | None = None  # the same numbers, for a terminal on which a whole table does not fit
    plots: Callable[[], Sequence[Panel]] = tuple  # the drawing of an answer, in HTML
    items: Sequence[str] = ()  # sentences that a terminal has instead of the rows


@dataclass(frozen=True)
class Headline:
    """The verdict on one arm: the claim and its basis (interval, blocks, margin).

    ``more`` is the number of blocks that an undecided verdict needs, a difference in instructions that the
    verdict does not show, or the variation between hosts; it is empty otherwise. A claim about several cases
    has no verdict.
    """

    verdict: Verdict | None
    claim: str
    basis: str = ""
    more: str = ""

    @property
    def sentence(self) -> str:
        """Claim and basis in one sentence."""
        if not self.basis:
            return self.claim
        return f"{self.claim}; {self.basis}." if self.verdict is None else f"{self.claim} ({self.basis})."


@dataclass(frozen=True)
class ShownCaveat:
    """The text of a caveat, with the block where it was raised."""

    code: str
    rank: Rank
    sentence: str
    remedy: str = ""  # empty without an action
    condition: str = ""  # of a routine caveat, in a few words
    link: str = ""  # page of the documentation

    @property
    def more(self) -> str:
        """The command that prints the explanation; empty without one."""
        page = re.sub(r"^docs/|^python/pgdyno/|(/README)?\.md", "", self.link)
        return f"pgdyno docs {page}" if page else ""

    @classmethod
    def of(cls, caveat: Caveat, place: str = "") -> ShownCaveat:
        """``place`` precedes the text: ``Block 3: ``."""
        wording = caveat.wording
        shown = cls(caveat.code, wording.rank, caveat.text, caveat.remedy, caveat.condition, wording.link)
        return shown.at(place)

    def at(self, place: str) -> ShownCaveat:
        """Return the caveat with a place before its texts."""
        condition = self.condition and place + self.condition
        return replace(self, sentence=place + self.sentence, condition=condition)


def by_rank(caveats: Iterable[ShownCaveat]) -> list[ShownCaveat]:
    """The most serious first, then in the order of the files with their texts."""
    ranks, codes = list(Rank), list(wordings())
    return sorted(caveats, key=lambda caveat: (ranks.index(caveat.rank), codes.index(caveat.code)))


def count_by_rank(caveats: Iterable[ShownCaveat]) -> str:
    """Return the number of caveats of each rank: ``1 can change the answer, 3 good to know``."""
    counts = Counter(caveat.rank for caveat in caveats)
    return ", ".join(f"{counts[rank]} {rank.words}" for rank in Rank if counts[rank])


def shown_by_rank(caveats: Iterable[ShownCaveat]) -> Iterator[tuple[str, list[ShownCaveat]]]:
    """Yield a heading for each rank with its caveats. That of routine ones has their conditions."""
    for rank, group in groupby(by_rank(caveats), key=lambda caveat: caveat.rank):
        of = list(group)
        if rank is Rank.ROUTINE:
            yield f"Conditions: {'; '.join(dict.fromkeys(one.condition for one in of))}.", of
        else:
            yield f"{len(of)} {rank.words}:", of


class Place(IntEnum):
    """Place of a section. Text has the sections below the headlines in their order, a page by place."""

    ABOVE = 0  # sentences above the headlines
    HEAD = 1  # sentences with the headlines
    PAGE_HEAD = 2  # collapsed tables in the head of a page
    TOP = 3
    CAVEATS = 4
    BODY = 5


@dataclass(frozen=True)
class Section:
    """One section. Sentences and tables have the same information as ``plots``, which are in HTML only.

    A section without a title continues the one before it.
    """

    id: str
    title: str = ""
    sentences: Sequence[str] = ()
    tables: Sequence[Table] = ()
    caveats: Sequence[ShownCaveat] = ()
    parts: Mapping[str, Document] = field(default_factory=dict)
    plots: Callable[[], Sequence[Panel]] = tuple
    plots_size: str = "medium"  # class of the style sheet: effects (a column), medium, small
    legend: Sequence[str] = ()  # names of arms, for all plots
    plots_note: str = ""
    drawn: Table | None = None  # the plots on a terminal
    brief: Sequence[str] = ()  # sentences of the summary on the terminal
    place: Place = Place.BODY
    after: str = ""  # id of the section that it follows, for a section of a feature about a case
    order: int = 0  # among the sections about all cases; negative: before the results by case
    is_source: bool = False  # about the source of a study: before its results
    has_verdicts: bool = False  # on all cases, corrected for their number: no other table has them
    is_prose: bool = False  # sentences are paragraphs, not items of a list
    is_alarm: bool = False  # sentences are about a severe limitation
    is_long: bool = False  # details: collapsed in HTML


class Tone(StrEnum):
    """Emphasis of a line."""

    PLAIN = "plain"
    STRONG = "strong"
    CAVEAT = "caveat"
    ALARM = "alarm"


@dataclass(frozen=True)
class Line:
    """A line of the summary. ``begin`` precedes it; the lines of a long one are indented below it.

    ``is_cut``: a terminal omits what does not fit one line. ``is_spare``: a full screen omits the line.
    """

    text: str
    tone: Tone | Verdict = Tone.PLAIN
    begin: str = ""
    is_cut: bool = False
    is_spare: bool = False
    is_headline: bool = False  # the headlines of a page have it


SERIOUS_MAX = 3
"""Maximum number of caveats at the top of a report on a terminal."""


def serious(caveats: Iterable[ShownCaveat]) -> list[Line]:
    """Return the first sentences of the caveats that can change the answer, one for each code."""
    found: dict[str, str] = {}
    for caveat in caveats:
        if caveat.rank is Rank.CHANGES_ANSWER:
            found.setdefault(caveat.code, re.split(r"(?<!vs\.)(?<=\.) ", caveat.sentence)[0])
    return [Line(sentence, Tone.CAVEAT, "! ", True) for sentence in list(found.values())[:SERIOUS_MAX]]


@dataclass(frozen=True)
class Document:
    """A report: the answer, then sections."""

    CAUSES = "Causes in full"  # title of the sentences at HEAD below an answer

    title: str
    sections: Sequence[Section]
    headlines: Sequence[Headline] = ()
    unfinished: str = ""  # a sentence while the study has not ended
    differs: str = ""  # differences of the arms
    percent_of: str = ""  # definition of the percentages
    command: str = ""  # repeats the study
    summary: Sequence[Line | Table] = ()  # fits the first screen of a terminal
    kicker: str = ""  # above the headlines of a page

    def of(self, *ids: str) -> list[Section]:
        """Return the sections with one of these ids."""
        return [section for section in self.sections if section.id in ids]

    def at(self, *places: Place) -> list[Section]:
        """Return the sections at one of these places."""
        return [section for section in self.sections if section.place in places]

    @property
    def answer(self) -> Sequence[Line | Table]:
        """The summary below the headlines, for a page: without drawings, and tables that are sections."""
        return [
            one if isinstance(one, Line) else _undrawn(one)
            for one in self.summary
            if (one.text and not one.is_headline if isinstance(one, Line) else not one.title)
        ]

    @property
    def caveats(self) -> Sequence[ShownCaveat]:
        """The caveats, without those of parts."""
        return [caveat for section in self.sections for caveat in section.caveats]

    def tables(self, *ids: str) -> list[Table]:
        """Return the tables of the sections with one of these ids."""
        return [table for section in self.of(*ids) for table in section.tables]

    @property
    def body(self) -> list[Section]:
        """The sections of a text below the headlines."""
        return [section for section in self.sections if section.place > Place.HEAD]


def _undrawn(table: Table) -> Table:
    kept = [i for i, column in enumerate(table.columns) if column != table.drawing]
    rows = [[row[i] for i in kept] for row in table.rows]
    return replace(table, columns=[table.columns[i] for i in kept], rows=rows)


@dataclass(frozen=True)
class Judgement:
    """A judgement on a report, for example by a gate. ``name``: key of ``found`` and ``sentences`` in JSON.

    ``publish`` writes further files after the files of the report. ``status`` returns the exit status, and
    reports the reasons unless they are unimportant and its argument is True. Raises PgdynoError.
    """

    name: str
    found: object
    sentences: Sequence[str]
    publish: Callable[[Sequence[Path]], None]
    status: Callable[[bool], int]


@dataclass(frozen=True, kw_only=True)
class FileReport(Document, ABC):
    """The report of one or more files. ``findings`` are those of its comparisons, None without any."""

    findings: Compared | None

    @abstractmethod
    def csv(self) -> str:
        """Return the CSV document."""

    @abstractmethod
    def json(self, judgements: Sequence[Judgement]) -> object:
        """Return the JSON document, a dataclass."""


def address_of(text: str) -> str:
    """Return the address of a section or a case in a page: ``point-select`` of ``Point select``."""
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")


def short_title(title: str) -> str:
    """Return a title without units and conditions: they are long, and may change between studies."""
    return re.split(r",| \(", title)[0]


def placed(sections: Iterable[Section], further: Iterable[Section]) -> list[Section]:
    """Insert further sections where they say; at the end without such a section.

    One with the ID of a section adds its caveats to it.
    """
    others = list(further)
    own = [
        replace(one, caveats=[*one.caveats, *(c for of in others if of.id == one.id for c in of.caveats)])
        for one in sections
    ]
    others = [of for of in others if of.id not in {one.id for one in own}]
    found = [one for section in own for one in (section, *(of for of in others if of.after == section.id))]
    return [*found, *(of for of in others if of not in found)]


def tables_section(id_: str, tables: Iterable[Table], place: Place = Place.BODY) -> Section:
    """Return a section of the tables that have rows."""
    return Section(id_, tables=[table for table in tables if table.rows], place=place)
