"""The pages of *Explore*, and their data as JSON. The query of an address has the whole state of a page."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from pgdyno.features.crash_disk.records import read_crash_test
from pgdyno.features.explore import latency, series, views
from pgdyno.features.serve.index import Entry, Index, State
from pgdyno.features.serve.pages import MOVED, FurtherPages, NotFoundError, rendered
from pgdyno.report.visible_text import visible_json
from pgdyno.results.reader import Evidence
from pgdyno.results.records import TrialStatus
from pgdyno.results.results_file import state_of

POINTS_MAX = 4000
"""Maximum number of parts of a window: the pixels of a wide screen."""

METRICS_MAX = 24
"""Maximum number of metrics in an answer."""

DIGITS_MAX = 40
"""Maximum length of a range in an address: Python refuses to read very long numbers."""

DEFAULTS = ("driver.tps", "driver.p99", "waits.waiting", "server.lsn_bytes", "host.server_cpu_s")
"""Metrics of a page whose address names none, if they are recorded."""


@dataclass(frozen=True)
class Case:
    """A case of a study. ``blocks``: number of each block, and a status of its trials other than ok."""

    number: int
    names: dict[int, str]
    arms: list[str]
    blocks: dict[int, str]


@lru_cache(maxsize=8)
def _case(path: Path, number: int, state: State) -> Case:  # noqa: ARG001  # a key of the cache
    with Evidence(path, verify=False) as evidence:
        names = {of: evidence.study(of).case or "the only case" for of in evidence.cases()}
        if number not in names:
            raise NotFoundError(f"No case {number}: the study has {len(names)}.")
        blocks = {of.block: "" for of in evidence.blocks(number)}
        for trial in evidence.trials(number):
            if trial.status is not TrialStatus.OK:
                blocks[trial.block] = str(trial.status)
        return Case(number, names, [arm.name for arm in evidence.arms(number)], blocks)


def times_page(index: Index, request: Request) -> Response:
    """Return the page of the series, whose script asks for the values; of a crash test, its crashes."""
    entry = entry_of(index, request)
    if views.TIMES not in views.views_of(entry.path, state_of(entry.path)):
        return crashes_page(index, request)
    case = _chosen_case(entry, request)
    found = series.recorded(entry.path, case.number, state_of(entry.path))
    keys = [metric.key for metric in found.metrics]
    first = [key for key in keys if key in DEFAULTS] or keys[:1]
    wanted = [key for key in request.query_params.getlist("metric") if key in keys] or first
    of_view = {"metrics": found.metrics, "first": first, "wanted": wanted, "is_diluted": found.is_diluted}
    return _page(request, entry, views.TIMES, "explore.html.j2", "times.js", case, of_view)


def latency_page(index: Index, request: Request) -> Response:
    """Return the page of the latencies; its script asks for the values."""
    entry = _entry_with(views.LATENCY, index, request)
    case = _chosen_case(entry, request)
    kinds = latency.kinds_of(latency.latencies(entry.path, case.number, state_of(entry.path)))
    template = "explore_latency.html.j2"
    return _page(request, entry, views.LATENCY, template, "latency.js", case, {"kinds": kinds})


def part_page(view: str, index: Index, request: Request) -> Response:
    """Return a view that consists of sections of the report. A form without a script chooses arms."""
    entry = _entry_with(view, index, request)
    case, searched = _chosen_case(entry, request), Markup("")
    if view == views.CAPACITY:
        arms, blocks = _chosen(request, case)
        searched = views.searches(entry.path, case.number, arms, blocks)
    parts = searched + views.parts_of(index.report(entry.path), view, f"/run/{entry.id}")
    shown = {"parts": parts, "has_choice": bool(searched), "has_cases": view == views.MATRIX}
    return _page(request, entry, view, "explore_parts.html.j2", "", case, shown)


def crashes_page(index: Index, request: Request) -> Response:
    """Return the crashes of a file, one by one."""
    entry = _entry_with(views.CRASHES, index, request)
    found = read_crash_test(entry.path, verify=False)
    assert found is not None
    _, arms, crashes = found
    outcomes = views.outcomes_of(crashes)
    outcome = request.query_params.get("metric", "")
    outcome = outcome if outcome in outcomes else next(iter(outcomes), "lost")
    chosen = _numbers(request, "arm", [of.arm for of in arms])
    parts = views.crashes_part(arms, [of for of in crashes if of.arm in chosen], outcome)
    shown = {"crash_arms": arms, "arms": chosen, "outcomes": outcomes, "outcome": outcome, "parts": parts}
    return _page(request, entry, views.CRASHES, "explore_crashes.html.j2", "", None, shown)


def _page(
    request: Request,
    entry: Entry,
    view: str,
    template: str,
    script: str,
    case: Case | None,
    of_view: Mapping[str, Any],
) -> Response:
    of_case: dict[str, Any] = {}
    if case is not None:
        arms, blocks = _chosen(request, case)
        of_case = {"case": case, "arms": arms, "blocks": blocks}
    return rendered(
        template,
        title=f"Explore {entry.title}",
        entry=entry,
        views=views.views_of(entry.path, state_of(entry.path)),
        view=view,
        script=script,
        is_log=request.query_params.get("scale") == "log",
        **{**of_case, **of_view},
    )


def _chosen(request: Request, case: Case) -> tuple[list[int], list[int]]:
    """Return the chosen arms and blocks of a case."""
    return _numbers(request, "arm", range(len(case.arms))), _numbers(request, "block", case.blocks)


def latency_json(index: Index, request: Request) -> Response:
    """Return curves and heat map of the chosen trials."""
    entry = entry_of(index, request)
    case = _chosen_case(entry, request)
    trials = latency.latencies(entry.path, case.number, state_of(entry.path))
    kind = request.query_params.get("kind", "")
    return _json(asdict(latency.view_of(trials, kind, *_chosen(request, case))))


def series_json(index: Index, request: Request) -> Response:
    """Return the values of metrics in a window."""
    entry = entry_of(index, request)
    case = _chosen_case(entry, request)
    found = series.recorded(entry.path, case.number, state_of(entry.path))
    window = series.Window(
        _number(request, "from", -math.inf),
        _number(request, "to", math.inf),
        int(min(max(_number(request, "points", 600), 1), POINTS_MAX)),
        *_chosen(request, case),
    )
    wanted = list(dict.fromkeys(request.query_params.getlist("metric")))[:METRICS_MAX]
    by_key = {metric.key: metric for metric in found.metrics}
    span = series.span_of(found, window)
    return _json(
        {
            "from_s": span[0],
            "to_s": span[1],
            "charts": [
                asdict(series.chart(found, by_key[key], window, span)) for key in wanted if key in by_key
            ],
            "marks": series.marks(found, window, span),
            "warm_ups": [
                span
                for block, spans in found.warm_ups.items()
                if window.blocks is None or block in window.blocks
                for span in spans
            ],
        }
    )


def _json(found: object) -> Response:
    text = json.dumps(found, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(visible_json(text), media_type="application/json")


def entry_of(index: Index, request: Request) -> Entry:
    """Return the file of an address. Raises NotFoundError."""
    entry = index.entry(request.path_params["id"])
    if entry is None:
        raise NotFoundError(MOVED)
    return entry


def _entry_with(view: str, index: Index, request: Request) -> Entry:
    """Return the file of an address. Raises NotFoundError, also if it has no data for the view."""
    entry = entry_of(index, request)
    if view not in views.views_of(entry.path, state_of(entry.path)):
        raise NotFoundError(f"This file has no data for the view {views.NAMES[view]}.")
    return entry


def _chosen_case(entry: Entry, request: Request) -> Case:
    return _case(entry.path, int(_number(request, "case", 0)), state_of(entry.path))


def _number(request: Request, name: str, otherwise: float) -> float:
    """Return a number of the query; a wrong one is ignored."""
    try:
        found = float(request.query_params.get(name, ""))
    except ValueError:
        return otherwise
    return found if math.isfinite(found) else otherwise


def _numbers(request: Request, name: str, known: Iterable[int]) -> list[int]:
    """Return the known numbers in ranges such as ``0,3-5``; all without the name in the query."""
    every = list(known)
    if name not in request.query_params:
        return every
    found: set[int] = set()
    for part in ",".join(request.query_params.getlist(name)).split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal() and len(part) <= DIGITS_MAX:
            found |= {of for of in every if int(first) <= of <= int(last or first)}
    return sorted(found)


EXPLORE = FurtherPages(
    __package__,
    "Explore",
    "explore",
    {
        views.TIMES: times_page,
        "/series.json": series_json,
        views.LATENCY: latency_page,
        "/latency.json": latency_json,
        views.CRASHES: crashes_page,
        **{view: partial(part_page, view) for view in views.PARTS},
    },
)
