"""The pages: routes, and what their templates show. Every text is escaped by the templates."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from urllib.parse import urlencode

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from pgdyno import report
from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.study_findings import MetricVerdict
from pgdyno.errors import PgdynoError
from pgdyno.features.serve.index import Entry, Index
from pgdyno.features.serve.studies import Studies
from pgdyno.features.serve.tags import tags_of
from pgdyno.features.side_by_side.report import read_files
from pgdyno.hooks import Hooks
from pgdyno.report.document import Document, FileReport, Place
from pgdyno.report.html_format import to_html
from pgdyno.report.json_format import to_json
from pgdyno.report.markdown_format import to_markdown
from pgdyno.report.plot import Panel, Scale, circle, drawing, element, line, polyline
from pgdyno.report.result_tables import change_with_ci
from pgdyno.report.visible_text import visible
from pgdyno.study.plan import VERDICT_BLOCKS_MIN
from pgdyno.units import given_percent

ROWS_MAX = 500
"""Maximum number of rows of the list; the search finds the others."""

COMPARISONS_MAX = 4
"""Maximum number of comparisons in a row; the page of the run has all."""

SORTS: Mapping[str, tuple[str, Callable[[Entry], object]]] = {
    "date": ("Date (UTC)", lambda of: of.created),
    "title": ("Study", lambda of: of.title.lower()),
    "effect": ("Effect", lambda of: of.summary.largest_percent if of.summary else -1.0),
    "caveats": ("Caveats", lambda of: of.summary.caveats if of.summary else -1),
}
"""Columns that can be sorted: heading and key."""

STATES = ("running", "unfinished")


Page = Callable[[Index, Request], Response]


@dataclass(frozen=True)
class FurtherPages:
    """Pages of a feature. Its folders ``templates`` and ``static`` are used, too.

    ``pages``: about a results file, by address below ``/PATH/ID``; one is empty. ``name``: of the button in
    the page of a run or, with ``in_navigation``, of a link to ``/PATH`` in each page.
    """

    package: str
    name: str
    path: str
    pages: Mapping[str, Page] = field(default_factory=dict)
    in_navigation: bool = False


PAGES = Hooks[FurtherPages]("pages")

ROUTES = Hooks[Callable[[Index, Studies], Sequence[Route]]]("routes")
"""Other addresses of features."""


def application(index: Index, more: Sequence[Route] = ()) -> Starlette:
    """Return the application without its guard. ``more``: routes of forms and their pages."""

    def route(path: str, page: Page) -> Route:
        return Route(path, partial(answered, page, index), methods=["GET"])

    return Starlette(
        routes=[
            route("/", runs_page),
            route("/side-by-side", side_by_side_page),
            route("/run/{id}", run_page),
            route("/run/{id}/rest", rest_page),
            route("/run/{id}/report.{form}", download),
            *(route(f"/{of.path}/{{id}}{end}", page) for of in PAGES for end, page in of.pages.items()),
            Route("/static/{name}", static, methods=["GET"]),
            *more,
        ],
        middleware=[Middleware(GZipMiddleware, compresslevel=5)],
    )


class NotFoundError(PgdynoError):
    """No page has this address."""


def answered(page: Page, index: Index, request: Request) -> Response:
    """Return the page, or that of its error. Starlette calls it in a thread, because analysis takes time."""
    try:
        return page(index, request)
    except (PgdynoError, OSError) as error:
        status = 404 if isinstance(error, NotFoundError) else 422
        return rendered("error.html.j2", status, title="Not available", message=str(error))


@cache
def _templates() -> Environment:
    found = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=ChoiceLoader([PackageLoader(of) for of in (__package__, *(one.package for one in PAGES))]),
    )
    found.globals |= {"change_with_ci": change_with_ci, "effect_bar": effect_bar, "further": [*PAGES]}
    return found


def rendered(template: str, status: int = 200, **values: object) -> HTMLResponse:
    """Return a page. Hidden characters of names are shown, as in reports."""
    return HTMLResponse(visible(_templates().get_template(template).render(**values)), status)


OF_REPORTS = ("report.css", "report.js")
"""Files of one-file reports, which the pages have, too."""


@cache
def _static_files() -> Mapping[str, Traversable]:
    """Return the files of pages by name: those of reports, and those in the folders ``static``."""
    folders = [files(of) / "static" for of in (__package__, *(one.package for one in PAGES))]
    own = [file for folder in folders if folder.is_dir() for file in folder.iterdir()]
    return {file.name: file for file in (*(files(report) / name for name in OF_REPORTS), *own)}


def static(request: Request) -> Response:
    """Return a file of the pages."""
    name = request.path_params["name"]
    if (file := _static_files().get(name)) is None:
        return PlainTextResponse("Not found.", 404)
    kind = mimetypes.guess_type(name)[0] or "text/plain"
    return Response(file.read_bytes(), media_type=kind, headers={"cache-control": "no-cache"})


@dataclass(frozen=True)
class Query:
    """Filters and order of the list: a text, a verdict or a state, a tag."""

    text: str = ""
    verdict: str = ""
    sort: str = "date"
    ascending: bool = False
    tag: str = ""

    @classmethod
    def of(cls, request: Request) -> Query:
        """Return the query of an address; unknown values are ignored."""
        given = request.query_params
        verdict, sort = given.get("verdict", ""), given.get("sort", "")
        return cls(
            given.get("q", ""),
            verdict if verdict in (*Verdict, *STATES) else "",
            sort if sort in SORTS else "date",
            given.get("order") == "asc",
            given.get("tag", ""),
        )

    def chosen(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the files that match, in order."""
        found = [one for one in entries if self._has_words(one) and self._has_verdict(one)]
        found = [one for one in found if not self.tag or self.tag in tags_of(one.path)]
        return sorted(found, key=SORTS[self.sort][1], reverse=not self.ascending)  # type: ignore[arg-type]

    def _has_words(self, one: Entry) -> bool:
        searched = f"{one.title} {one.name} {one.machine}".lower()
        return all(word in searched for word in self.text.lower().split())

    def _has_verdict(self, one: Entry) -> bool:
        found = [str(verdict) for verdict, _ in one.summary.counts] if one.summary else []
        return self.verdict in ("", one.state, *found)

    def tagged(self, tag: str) -> str:
        """Return the address of the list of the files with a tag."""
        return replace(self, tag=tag).address()

    def address(self, sort: str = "") -> str:
        """Return the address of the list; with ``sort``, sorted by a column, or in the other direction."""
        ascending = self.ascending ^ (sort == self.sort) if sort in ("", self.sort) else sort == "title"
        values = {
            "q": self.text,
            "verdict": self.verdict,
            "tag": self.tag,
            "sort": sort or self.sort,
            "order": "asc" if ascending else "",
        }
        return f"/?{urlencode({name: value for name, value in values.items() if value})}"


def runs_page(index: Index, request: Request) -> Response:
    """Return the list of results files."""
    query, entries = Query.of(request), index.entries()
    chosen = query.chosen(entries)
    tags = {one.id: tags_of(one.path) for one in entries}
    return rendered(
        "runs.html.j2",
        directory=str(index.directory),
        entries=chosen[:ROWS_MAX],
        omitted=max(0, len(chosen) - ROWS_MAX),
        total=len(entries),
        pending=sum(one.summary is None for one in entries),
        running=any(one.state == "running" for one in entries),
        query=query,
        verdicts=(*Verdict, *STATES),
        tags=tags,
        all_tags=sorted({tag for of in tags.values() for tag in of}),
        sorts={name: heading for name, (heading, _) in SORTS.items()},
        comparisons_max=COMPARISONS_MAX,
    )


def side_by_side_page(index: Index, request: Request) -> Response:
    """Return the document of several files, as ``pgdyno report --as side-by-side``."""
    chosen = list(dict.fromkeys(request.query_params.getlist("run")))
    if len(chosen) < 2:
        raise PgdynoError("Side by side requires two files: tick at least two in the list.")
    entries = [entry_of(index, of) for of in chosen]
    found = read_files([one.path for one in entries], "side-by-side")
    assert found is not None
    return rendered("side_by_side.html.j2", title="Side by side", entries=entries, main=main_of(found))


# ----------------------------------------------------------------------
# The effect chart of a report as a file: SVG with its own colors, for light paper.
# ----------------------------------------------------------------------

SCALE = 1.5
"""CSS pixels per unit of a chart, as wide as in a report."""

TITLE_HEIGHT = 24.0


def effect_panels(found: FileReport) -> list[Panel]:
    """Return the charts of the effect of all cases."""
    parts = [part for of in found.of("cases") for part in of.parts.values()]
    documents: list[Document] = [found, *parts]
    return [panel for one in documents for of in one.of("effect") for panel in of.plots()]


def effect_svg(found: FileReport) -> str:
    """Return the charts below each other; empty if there is none."""
    drawn: list[Markup] = []
    width, top = 0.0, 4.0
    for panel in effect_panels(found):
        box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', panel.picture)
        assert box
        wide, high = map(float, box.groups())
        place = f'<svg y="{top + TITLE_HEIGHT:g}" width="{wide:g}" height="{high:g}" '
        drawn += [
            element("text", panel.title, x=8, y=top + 16, class_="strong"),
            Markup(str(panel.picture).replace("<svg ", place, 1)),
        ]
        width, top = max(width, wide), top + TITLE_HEIGHT + high
    if not drawn:
        return ""
    return element(
        "svg",
        Markup("").join(
            [
                element("style", Markup(_style())),
                element("rect", width="100%", height="100%", fill="#fffef9"),
                *drawn,
            ]
        ),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {top:g}",
        width=SCALE * width,
        height=SCALE * top,
    )


@cache
def _style() -> str:
    """Return the style sheet of reports without its dark colors and what fits it to a page."""
    text = (files(report) / "report.css").read_text("utf-8")
    text = re.sub(r"(?s)@media [^{]*\{(?:[^{}]|\{[^{}]*\})*\}", "", text)
    rules = re.findall(r"([^{}]+)(\{[^{}]*\})", text)
    drawn = re.compile(r"fill:|stroke:|opacity:|--a0|--c:")
    kept = [name + body for name, body in rules if "svg text" in name or drawn.search(body)]
    return "".join(["svg text { font-family: system-ui, sans-serif; }", *kept])


# ----------------------------------------------------------------------
# Pages of a run
# ----------------------------------------------------------------------

PAINT_BYTES_MAX = 140_000
"""Maximum size of the report in the page of a run; of a larger one, the details are loaded on demand."""

WHOLE_BYTES_MAX = 2_000_000
"""Size of a results file whose details are always loaded on demand: to write a large report takes 1 s."""

FORMS: Mapping[str, tuple[str, str, Callable[[FileReport], str]]] = {
    "html": ("One-file HTML", "text/html", to_html),
    "md": ("Markdown", "text/markdown", to_markdown),
    "csv": ("CSV", "text/csv", lambda of: of.csv()),
    "json": ("JSON", "application/json", lambda of: to_json(of, ())),
    "svg": ("SVG", "image/svg+xml", effect_svg),
}
"""Forms of a report to download, by suffix: name, type, text."""


def run_page(index: Index, request: Request) -> Response:
    """Return the page of a file: the one-file report, with buttons."""
    entry = entry_of(index, request.path_params["id"])
    found = index.report(entry.path)
    is_cut = entry.path.stat().st_size > WHOLE_BYTES_MAX
    main = Markup() if is_cut else main_of(found)
    if is_cut or len(main.encode()) > PAINT_BYTES_MAX:
        first = [of for of in found.sections if of.place < Place.BODY]
        main, is_cut = main_of(replace(found, sections=first, command="")), True
    return _run(entry, found, main, is_cut=is_cut)


def rest_page(index: Index, request: Request) -> Response:
    """Return the details of a report that are not in the page of its run."""
    entry = entry_of(index, request.path_params["id"])
    found = index.report(entry.path)
    details = [of for of in found.sections if of.place == Place.BODY]
    rest = replace(
        found, sections=details, headlines=(), summary=(), unfinished="", differs="", percent_of=""
    )
    return _run(entry, found, main_of(rest))


def _run(entry: Entry, found: FileReport, main: Markup, *, is_cut: bool = False) -> Response:
    has_chart = bool(effect_panels(found))
    return rendered(
        "run.html.j2",
        title=found.title,
        command=found.command,
        forms={suffix: name for suffix, (name, _, _) in FORMS.items() if suffix != "svg" or has_chart},
        has_chart=has_chart,
        entry=entry,
        main=main,
        is_cut=is_cut,
        has_blocks=found.findings is not None,
    )


def download(index: Index, request: Request) -> Response:
    """Return the report in another form, as a file."""
    entry, form = entry_of(index, request.path_params["id"]), request.path_params["form"]
    if form not in FORMS:
        raise NotFoundError(f"No form {form}: use one of {', '.join(FORMS)}.")
    _, kind, text_of = FORMS[form]
    text = text_of(index.report(entry.path))
    if not text:
        raise NotFoundError("This report has no chart of the effect.")
    name = re.sub(r"[^\w.-]", "_", entry.path.stem, flags=re.ASCII)
    headers = {"content-disposition": f'attachment; filename="{name}.{form}"'}
    return Response(text.encode(), media_type=kind, headers=headers)


def path_of(index: Index, of: str) -> Path:
    """Return the path with an identifier. Raises NotFoundError."""
    path = index.path_of(of)
    if path is None:
        raise NotFoundError(MOVED)
    return path


MOVED = "No results file has this address: it was moved or removed."


def entry_of(index: Index, of: str) -> Entry:
    """Return the entry with an identifier. Raises NotFoundError."""
    entry = index.entry(of)
    if entry is None:
        raise NotFoundError(MOVED)
    return entry


# ----------------------------------------------------------------------
# Parts of pages
# ----------------------------------------------------------------------

BAR_PERCENT = 25.0
"""End of the axis of an effect in the list; an interval beyond it has an arrow."""

BAR = Scale(-BAR_PERCENT, BAR_PERCENT, 6.0, 154.0)
BAR_WIDTH, BAR_HEIGHT = 160.0, 16.0


def effect_bar(of: MetricVerdict, margin: float) -> Markup:
    """Return the interval of a comparison against the margin, on the axis of all rows."""
    assert of.percent is not None
    middle, value = BAR_HEIGHT / 2, of.percent.value
    begin, end = BAR.inside(-100 * margin / (1 + margin)), BAR.inside(100 * margin)
    parts = [
        element("rect", x=begin, y=0, width=round(end - begin, 1), height=BAR_HEIGHT, class_="margin"),
        line(BAR(0), 0, BAR(0), BAR_HEIGHT, class_="zero"),
    ]
    low, high = of.percent.low, of.percent.high
    if low is None or high is None or of.percent.n < VERDICT_BLOCKS_MIN:  # as in reports
        low = high = value
    parts.append(line(BAR.inside(low), middle, BAR.inside(high), middle, class_="interval"))
    if low < -BAR_PERCENT:
        parts.append(polyline([(6, middle - 4), (0, middle), (6, middle + 4)], class_="beyond"))
    if high > BAR_PERCENT:
        parts.append(polyline([(154, middle - 4), (160, middle), (154, middle + 4)], class_="beyond"))
    if abs(value) <= BAR_PERCENT:
        parts.append(circle(BAR(value), middle, 3.5, class_="dot"))
    label = f"{change_with_ci(of.percent)}; margin ±{given_percent(margin)}"
    return drawing(BAR_WIDTH, BAR_HEIGHT, label, parts, f"bar v-{of.verdict}")


def main_of(document: Document) -> Markup:
    """Return the content of the one-file report of a document."""
    found = re.search(r"(?s)<main>(.*)</main>", to_html(document))
    assert found
    return Markup(found[1])
