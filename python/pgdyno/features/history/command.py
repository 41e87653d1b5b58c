"""``pgdyno history``: detect changes in the results of a repeated study."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from pgdyno.analysis.study_findings import AVERAGE, StudyFindings
from pgdyno.cli import options
from pgdyno.cli.console import out, require_writable_page, say, write_out, write_text
from pgdyno.cli.report import read_findings
from pgdyno.errors import EvidenceError, PgdynoError, UsageError, naming
from pgdyno.features.gates.conditions import EXIT_STATUSES, GateOutcome, parse_condition
from pgdyno.features.history.changes import group_files, histories
from pgdyno.features.history.report import (
    NEWEST_FILES,
    HistoryCondition,
    HistoryReport,
    history_document,
    history_to_json,
    judge_history,
)
from pgdyno.report.html_format import to_html
from pgdyno.report.terminal_format import print_terminal

FILES_MAX = 2000
"""Maximum number of files in one directory: each is read and analyzed."""


def history(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory of results files, searched recursively.")
    ],
    *,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            help="Further metric besides that of the verdict, for example p99 or server_cpu. May be "
            "repeated.",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="HTML page to write, with a chart per series.")
    ] = None,
    force: options.Force = False,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="CONDITION",
            help="Exit with status 3 after a recently confirmed change from the baseline: slower, faster or "
            "change (any). May be repeated.",
        ),
    ] = None,
    newest: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="With --fail-if: a change that one of the newest N files confirmed is recent. "
            f"[default: {NEWEST_FILES}]",
        ),
    ] = None,
    json: options.Json = False,
) -> int:
    """Find when the results of a repeated study changed, and what changed with them.

    Files of the same study on the same machine form time series: the change of each arm against the baseline,
    and the level of each arm. Changes from the baseline are tested after each file, and at least two files
    must confirm them. Examples:

    \b
      pgdyno history nightly
      pgdyno history nightly --html history.html --fail-if slower
      pgdyno history nightly --metric p99 --metric server_cpu --json
    """
    asked, keys = _conditions(fail_if or ()), [_key(text) for text in metric or ()]
    if newest is not None and not asked:
        raise UsageError(f"--newest {newest} requires --fail-if: add --fail-if, or remove --newest")
    newest = NEWEST_FILES if newest is None else newest
    if html is not None:
        require_writable_page(html, force=force)
    skipped: dict[str, str] = {}
    groups = group_files(_studies(directory, skipped), keys, skipped)
    report = HistoryReport(histories(groups), skipped)
    for file, why in skipped.items():
        say(f"skipped {file}: {why}")
    if not report.histories:
        raise PgdynoError(f"{directory} has no usable results file of a finished study")
    _require_known(report, keys)
    gate = judge_history(report, asked, newest) if asked else None
    if html is not None:
        write_text(html, to_html(history_document(report)), force=force)
        say(f"history {html}")
    if json:
        write_out(history_to_json(report, gate))
    else:
        print_terminal(history_document(report), out)
    if gate is None:
        return 0
    for sentence in [*gate.met, *gate.awaiting]:
        say(f"pgdyno: {sentence}", wrap=True)
    if gate.outcome is GateOutcome.NOT_EVALUABLE:
        raise PgdynoError(f"--fail-if {', '.join(asked)} cannot be evaluated: {' '.join(gate.not_evaluable)}")
    return EXIT_STATUSES[gate.outcome]


def _require_known(report: HistoryReport, keys: Sequence[str]) -> None:
    """Raise PgdynoError for a metric without a value in any file."""
    known = {AVERAGE, *(series.key.metric for history in report.histories for series in history.series)}
    for key in keys:
        if key not in known:
            raise PgdynoError(f"--metric {key}: no results file has a value of this metric")


def _conditions(asked: Sequence[str]) -> list[HistoryCondition]:
    for text in asked:
        if text not in set(HistoryCondition):
            raise UsageError(f"--fail-if must be one of {', '.join(HistoryCondition)} (got {text!r})")
    return [HistoryCondition(text) for text in asked]


def _key(text: str) -> str:
    """Return the metric's key. Raises UsageError: unknown, or neither more nor less of it is better."""
    with naming("--metric"):
        found = parse_condition(f"slower:{text}")
        if found.limit_percent is not None:
            raise UsageError(f"{text}: give a metric without a limit")
    return found.metric


def _studies(directory: Path, skipped: dict[str, str]) -> Iterator[tuple[str, StudyFindings]]:
    """Yield name and findings of each file. Raises UsageError: not a directory, too many files."""
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory: name the directory of the results files")
    paths = sorted(directory.rglob("*.sqlite"))
    if len(paths) > FILES_MAX:
        raise UsageError(
            f"{directory} has {len(paths)} results files; the maximum is {FILES_MAX}: name a subdirectory"
        )
    for path in paths:
        name = str(path.relative_to(directory))
        try:
            study = read_findings(path)
        except EvidenceError as error:
            skipped[name] = str(error)
            continue
        yield name, study
