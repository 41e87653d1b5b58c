"""``pgdyno history``: the evidence of one study at many times, and when it changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from pgdyno.analysis.study.gate import parse_condition
from pgdyno.analysis.study.history import grouped, histories
from pgdyno.analysis.study.over_hosts import AVERAGE
from pgdyno.analysis.study.study import StudyFindings
from pgdyno.cli import options
from pgdyno.cli.console import out, print_json, say
from pgdyno.cli.gating import TRIPPED
from pgdyno.cli.place import require_place_of_text, write_text
from pgdyno.cli.report import read_findings
from pgdyno.errors import EvidenceError, PgdynoError, UsageError
from pgdyno.report.history import NEWEST, HistoryReport, News, as_object, news, untold
from pgdyno.report.history_page import to_html
from pgdyno.report.terminal import print_history

FILES_MAX = 2000
"""In one directory: each is read and analysed."""


def history(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where the evidence files lie, also in directories below.")
    ],
    *,
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Beside the one of the verdicts: p99, server_cpu, … (repeatable)."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A page with a picture of each series.")
    ] = None,
    force: options.Force = False,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if", metavar="CONDITION", help="End with status 3 on news: slower, faster, change."
        ),
    ] = None,
    newest: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help=f"With --fail-if: in so many files a change is news. [default: {NEWEST}]"
        ),
    ] = None,
    json: options.Json = False,
) -> int:
    """Say when a study that is run again and again began to give other results, and what else changed then.

    Files of the same study on the same machine are a series each: of what an arm changes against the
    baseline, and of every arm's own level. Where a series changed is found by E-divisive means. Examples:

    \b
      pgdyno history nightly
      pgdyno history nightly --html history.html --fail-if slower
      pgdyno history nightly --metric p99 --metric server_cpu --json
    """
    asked, keys = _conditions(fail_if or ()), [_key(text) for text in metric or ()]
    if newest is not None and not asked:
        raise UsageError("--newest says what --fail-if takes for news: add --fail-if, or leave it away")
    newest = NEWEST if newest is None else newest
    if html is not None:
        require_place_of_text(html, force=force)
    skipped: dict[str, str] = {}
    groups = grouped(_studies(directory, skipped), keys, skipped)
    report = HistoryReport(histories(groups), skipped)
    for file, why in skipped.items():
        say(f"not used: {file}: {why}")
    if not report.histories:
        raise PgdynoError(f"no finished evidence in {directory} can be used")
    _require_known(report, keys)
    found = news(report, asked, newest) if asked else None
    unjudged = untold(report, newest) if asked else []
    if html is not None:
        write_text(html, to_html(report), force=force)
        say(f"history {html}")
    if json:
        print_json(as_object(report, found, unjudged))
    elif html is None:
        print_history(report, out)
    for sentence in found or ():
        say(f"pgdyno: {sentence}")
    if unjudged and not found:
        raise PgdynoError(f"--fail-if {', '.join(asked)} cannot be judged: {' '.join(unjudged)}")
    return TRIPPED if found else 0


def _require_known(report: HistoryReport, keys: Sequence[str]) -> None:
    """Raises PgdynoError for a metric that no file has a number of."""
    known = {AVERAGE, *(series.key.metric for history in report.histories for series in history.series)}
    for key in keys:
        if key not in known:
            raise PgdynoError(f"--metric {key}: no file has a number of it")


def _conditions(asked: Sequence[str]) -> list[News]:
    for text in asked:
        if text not in set(News):
            raise UsageError(f"--fail-if: {text!r} is no condition: there are {', '.join(News)}")
    return [News(text) for text in asked]


def _key(text: str) -> str:
    """Raises UsageError for a metric that does not exist, or of which neither more nor less is good."""
    return parse_condition(f"slower:{text}").metric


def _studies(directory: Path, skipped: dict[str, str]) -> Iterator[tuple[str, StudyFindings]]:
    """Raises UsageError for what is no directory, or has too many files."""
    if not directory.is_dir():
        raise UsageError(f"{directory} is no directory: name the one with the evidence files")
    paths = sorted(directory.rglob("*.sqlite"))
    if len(paths) > FILES_MAX:
        raise UsageError(
            f"{directory} has {len(paths)} evidence files: {FILES_MAX} at most can be read together"
        )
    for path in paths:
        name = str(path.relative_to(directory))
        try:
            study = read_findings(path)
        except EvidenceError as error:
            skipped[name] = str(error)
            continue
        yield name, study
