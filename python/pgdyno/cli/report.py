"""``pgdyno report``: report results files as text, HTML, Markdown, JSON or CSV, also while a study runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from pydantic import ValidationError

from pgdyno.analysis.study_findings import StudyFindings, find_study
from pgdyno.cli import options
from pgdyno.cli.console import out, require_writable_page, say, write_out, write_text
from pgdyno.cli.live_view import showing
from pgdyno.cli.options import Added, Output
from pgdyno.errors import EvidenceError, UsageError
from pgdyno.hooks import Hooks
from pgdyno.report.document import FileReport, Judgement
from pgdyno.report.html_format import to_html
from pgdyno.report.json_format import to_json
from pgdyno.report.markdown_format import to_markdown
from pgdyno.report.result_tables import enumeration
from pgdyno.report.study_report import StudyReport, build_study, published_document
from pgdyno.report.terminal_format import print_summary, print_terminal
from pgdyno.results.reader import Evidence

REPORTS = Hooks[Callable[[Sequence[Path], str], FileReport | None]]("reports")
"""Functions that read the files of features, for a value of --as; None for other files."""


def report(
    evidence: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE…",
            help="Results file of a study, finished or running. Several files, or NAME.fleet.json: see --as.",
        ),
    ],
    *,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Self-contained HTML to write.")] = None,
    force: options.Force = False,
    as_: Annotated[
        Literal["whole", "published", "pooled", "side-by-side"],
        typer.Option(
            "--as",
            metavar="VIEW",
            help="published: only the published tables next to the measured values. pooled, side-by-side: "
            "several files. whole: files of one machine side by side, others pooled.",
        ),
    ] = "whole",
    md: Annotated[bool, typer.Option("--md", help="Print the report as Markdown.")] = False,
    json: options.Json = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one row per trial and metric.")] = False,
    full: options.Full = False,
    added: Added,
) -> int:
    """Show the results of a study: verdict, figures, caveats.

    Results files of several hosts are pooled. Those of one machine are shown side by side. Examples:

    \b
      pgdyno report results.sqlite --full
      pgdyno report results.sqlite --html report.html
      pgdyno report results.sqlite --json | jq .verdicts
      pgdyno report small.sqlite large.sqlite --html hosts.html
      pgdyno report last-week.sqlite today.sqlite
      pgdyno report results.sqlite --fail-if slower --summary auto
    """
    is_judged = added.check_judging()
    wanted = [form for form, asked in (("md", md), ("json", json), ("csv", csv)) if asked]
    if len(wanted) > 1:
        raise UsageError(f"--{wanted[0]} and --{wanted[1]} both print to standard output: remove one of them")
    _refuse_output_file(evidence, wanted)
    if as_ == "published":
        for option, is_given in (("--html", html is not None), ("--json", json), ("--csv", csv)):
            if is_given:
                raise UsageError(f"--as published cannot be combined with {option}: remove one of them")
        if is_judged:
            raise UsageError(
                f"--as published cannot be combined with {' or '.join(added.judging)}: remove --as, or "
                "remove these"
            )
        built = read_files(evidence, as_)
        _require_comparison(built, evidence, added)
        _print_published(built, md=md)
        return 0
    if html is not None:
        require_writable_page(html, force=force)
    built = read_files(evidence, as_)
    if is_judged:
        _require_comparison(built, evidence, added)
    if html is not None:
        with showing(f"writing {html}", evidence):
            write_text(html, to_html(built), force=force)
        say(f"report {html}")
    judgements = added.judge(built)
    if wanted or html is None:
        print_report(built, wanted[0] if wanted else "full" if full else "terminal", evidence, judgements)
    for one in judgements:
        one.publish([*evidence, *([html] if html else [])])
    return status_of(judgements)


def publish(built: FileReport, path: Path, html: Path, output: Output, added: Added) -> list[Judgement]:
    """Write and print the report of a study that has just run. Return the judgements on it."""
    with showing(f"writing {html}", [path], output.quiet):
        write_text(html, to_html(built), force=output.force)
    judgements = added.judge(built)
    print_report(built, "json" if output.json else "terminal", [path], judgements)
    if not output.quiet:
        say(f"results {path}   report {html}")
    for one in judgements:
        one.publish([path, html])
    return judgements


def status_of(judgements: Sequence[Judgement], *, quiet: bool = False) -> int:
    """Return the exit status of judgements. Raises PgdynoError."""
    return max((one.status(quiet) for one in judgements), default=0)


def _require_comparison(built: FileReport, evidence: Sequence[Path], added: Added) -> None:
    """Raise UsageError if the files have no comparison of arms."""
    if built.findings is None:
        remedy = enumeration(["--as", *added.judging])
        raise UsageError(f"{evidence[0]} has a {built.kicker} and no comparison: remove {remedy}")


def _refuse_output_file(evidence: Sequence[Path], wanted: Sequence[str]) -> None:
    """Raise UsageError if a file is given to an option that prints, as in ``--csv FILE``."""
    for form in wanted:
        for path in evidence:
            if path.suffix == f".{form}" and len(evidence) > 1:
                raise UsageError(f"--{form} takes no file (got {path}): use --{form} > {path}")


def read_files(evidence: Sequence[Path], as_: str = "whole") -> FileReport:
    """Read and analyze files: by the first feature that knows them, else as one study. Raises PgdynoError."""
    with showing(f"reading {', '.join(map(str, evidence))}", evidence):
        found = (read(evidence, as_) for read in REPORTS)
        return next((report for report in found if report is not None), None) or read_report(evidence[0])


def read_report(evidence: Path) -> StudyReport:
    """Read and analyze one results file. Raises EvidenceError: not such a file, damaged, other version."""
    return build_study(read_findings(evidence))


def read_findings(evidence: Path) -> StudyFindings:
    """Return the findings of a file. Raises EvidenceError, also for an invalid plan or published table."""
    with Evidence(evidence) as opened:
        try:
            return find_study(opened)
        except ValidationError as error:
            message = error.errors()[0]["msg"]
            raise EvidenceError(
                f"{evidence} contains an invalid value ({message}): restore the file from a copy"
            ) from error


def _print_published(built: FileReport, *, md: bool) -> None:
    parts = [part for section in built.sections for part in section.parts.values()]
    if not any(one.tables("published") for one in (built, *parts)):
        raise UsageError("--as published: the study has no published tables: remove --as")
    document = published_document(built)
    if md:
        write_out(to_markdown(document))
    else:
        print_terminal(document, out)


def print_report(
    built: FileReport, form: str, evidence: Sequence[Path], judgements: Sequence[Judgement] = ()
) -> None:
    """Print the report; ``form`` is terminal, full, md, json or csv. JSON includes the judgements.

    A report without a summary is printed in full.
    """
    if form == "terminal" and built.summary:
        print_summary(built, out, f"pgdyno report {shlex.join(map(str, evidence))} --full")
    elif form in ("terminal", "full"):
        print_terminal(built, out)
    elif form == "json":
        write_out(to_json(built, judgements))
    else:
        write_out(to_markdown(built) if form == "md" else built.csv())
