"""``pgdyno report``: report results files as text, HTML, Markdown, JSON or CSV, also while a study runs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from pydantic import ValidationError

from pgdyno.analysis.gates import Gate
from pgdyno.analysis.study_findings import StudyFindings, find_study
from pgdyno.cli import options
from pgdyno.cli.console import out, say, write_out
from pgdyno.cli.gate_options import GateOptions
from pgdyno.cli.options import expanded
from pgdyno.cli.output_files import require_writable_page, write_text
from pgdyno.errors import EvidenceError, UsageError
from pgdyno.features.crash.command import crash_page, read_crashes, show_crash_test
from pgdyno.features.crash.records import has_study
from pgdyno.features.fleet.records import SUFFIX, HostWork, read_fleet
from pgdyno.features.hosts.findings import find_hosts
from pgdyno.features.hosts.sections import HostsReport, build_hosts
from pgdyno.report.html_format import to_html
from pgdyno.report.markdown_format import to_markdown
from pgdyno.report.study_report import StudyReport, build_study, published_document
from pgdyno.report.terminal_format import print_summary, print_terminal
from pgdyno.results.reader import Evidence


@expanded
def report(
    evidence: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE…",
            help="Results file of a study, finished or running. Several files, or NAME.fleet.json: the same "
            "study from several hosts.",
        ),
    ],
    *,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report as a self-contained HTML file.")
    ] = None,
    force: options.Force = False,
    as_: Annotated[
        Literal["whole", "published"],
        typer.Option(
            "--as",
            help="whole: the full report. published: only the published tables next to the measured values.",
        ),
    ] = "whole",
    md: Annotated[
        bool, typer.Option("--md", help="Print the report as Markdown on standard output.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON on standard output.")
    ] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV on standard output, one row per trial and metric.")
    ] = False,
    full: options.Full = False,
    gating: GateOptions,
) -> int:
    """Show the results of a study: verdict, figures, caveats.

    The input is the results file of compare or run. Results of several hosts are pooled. Examples:

    \b
      pgdyno report results.sqlite
      pgdyno report results.sqlite --full
      pgdyno report results.sqlite --html report.html
      pgdyno report results.sqlite --json | jq .verdicts
      pgdyno report small.sqlite large.sqlite --html hosts.html
      pgdyno report results.sqlite --fail-if slower --summary auto
    """
    gating.check()
    wanted = [form for form, asked in (("md", md), ("json", json), ("csv", csv)) if asked]
    if len(wanted) > 1:
        raise UsageError(f"--{wanted[0]} and --{wanted[1]} both print to standard output: remove one of them")
    _refuse_output_file(evidence, wanted)
    if len(evidence) == 1 and _is_crash_test(evidence[0]):
        if as_ != "whole" or gating.is_wanted:
            raise UsageError(
                f"{evidence[0]} has a crash test and no comparison: remove --as, --fail-if and --summary"
            )
        _report_crash_test(evidence[0], html, wanted[0] if wanted else "terminal", force=force)
        return 0
    if as_ == "published":
        for option, is_given in (("--html", html is not None), ("--json", json), ("--csv", csv)):
            if is_given:
                raise UsageError(f"--as published cannot be combined with {option}: remove one of them")
        if gating.is_wanted:
            raise UsageError(
                "--as published cannot be combined with --fail-if or --summary: remove --as, or remove these"
            )
        _print_published(_read(evidence), md=md)
        return 0
    if html is not None:
        require_writable_page(html, force=force)
    built = _read(evidence)
    if html is not None:
        write_html(built, html, force=force)
        say(f"report {html}")
    found = gating.gate(built)
    if wanted or html is None:
        print_report(built, wanted[0] if wanted else "full" if full else "terminal", evidence, found)
    gating.summarise(built, found, [*evidence, *([html] if html else [])])
    return gating.status(found)


def _report_crash_test(path: Path, html: Path | None, form: str, *, force: bool) -> None:
    """Report a crash test, in the formats of studies. Its text has all tables."""
    if html is not None:
        require_writable_page(html, force=force)
        write_text(html, crash_page(path), force=force)
        say(f"report {html}")
        if form == "terminal":
            return
    show_crash_test(path, form)


def _is_crash_test(path: Path) -> bool:
    return path.is_file() and not path.name.endswith(SUFFIX) and not has_study(path)


def _refuse_output_file(evidence: Sequence[Path], wanted: Sequence[str]) -> None:
    """Raise UsageError if a file is given to an option that prints, as in ``--csv FILE``."""
    for form in wanted:
        for path in evidence:
            if path.suffix == f".{form}" and len(evidence) > 1:
                raise UsageError(f"--{form} takes no file (got {path}): use --{form} > {path}")


def _read(evidence: Sequence[Path]) -> StudyReport | HostsReport:
    if any(path.name.endswith(SUFFIX) for path in evidence):
        if len(evidence) > 1:
            raise UsageError(f"a file NAME{SUFFIX} has all hosts of its study: give it alone")
        return read_fleet_report(evidence[0])
    return read_report(evidence[0]) if len(evidence) == 1 else read_hosts(evidence)


def read_report(evidence: Path) -> StudyReport:
    """Read and analyze one results file. Raises EvidenceError: not such a file, damaged, other version."""
    return build_study(read_findings(evidence), read_crashes(evidence, verify=False))


def read_hosts(evidence: Sequence[Path]) -> HostsReport:
    """Read and pool results files. Raises EvidenceError: a bad file, files of different studies."""
    return _pooled(dict(zip(names_of_files(evidence), evidence, strict=True)))


def read_fleet_report(path: Path) -> HostsReport:
    """Read and pool the results files of a fleet study. Raises EvidenceError: a bad file, or none."""
    record = read_fleet(path)
    stem = path.name.removesuffix(SUFFIX)
    works = {work.file.removesuffix(".sqlite").removeprefix(f"{stem}-"): work for work in record.works}
    named = {
        name: path.with_name(work.file)
        for name, work in works.items()
        if not work.is_moved and path.with_name(work.file).is_file()
    }
    if not named:
        raise EvidenceError(f"{path} has no results file beside it: copy the files of the hosts there")
    return _pooled(named, works)


def _pooled(named: Mapping[str, Path], works: Mapping[str, HostWork] | None = None) -> HostsReport:
    found = find_hosts({name: read_findings(path) for name, path in named.items()}, works or {})
    return build_hosts(found, {name: read_crashes(path, verify=False) for name, path in named.items()})


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


def names_of_files(paths: Sequence[Path]) -> list[str]:
    """Return short unique names: the stems, with as many directories as they need to differ.

    Files that differ only in their suffix keep it. Raises UsageError for a duplicate file.
    """
    files = [path.resolve() for path in paths]
    for i, path in enumerate(paths):
        if files[i] in files[:i]:
            raise UsageError(f"{path} is given twice: give the file of each host once")
    stems = [file.with_suffix("").parts for file in files]
    parts = [file.parts if stems.count(stem) > 1 else stem for file, stem in zip(files, stems, strict=True)]
    length = 1
    while len({of[-length:] for of in parts}) < len(parts):
        length += 1
    return ["/".join(of[-length:]) for of in parts]


def write_html(built: StudyReport | HostsReport, html: Path, *, force: bool = False) -> None:
    """Write the HTML report. Raises PgdynoError."""
    write_text(html, to_html(built), force=force)


def _print_published(built: StudyReport | HostsReport, *, md: bool) -> None:
    studies = built.studies.values() if isinstance(built, HostsReport) else [built]
    if not any(study.published for study in studies):
        raise UsageError("--as published: the study has no published tables: remove --as")
    document = published_document(built)
    if md:
        write_out(to_markdown(document))
    else:
        print_terminal(document, out)


def print_report(
    built: StudyReport | HostsReport, form: str, evidence: Sequence[Path], gate: Gate | None = None
) -> None:
    """Print the report; ``form`` is terminal, full, md, json or csv. JSON includes the result of ``gate``."""
    if form == "terminal":
        print_summary(built, out, f"All tables: pgdyno report {shlex.join(map(str, evidence))} --full")
    elif form == "full":
        print_terminal(built, out)
    elif form == "json":
        from pgdyno.report.json_format import to_json  # noqa: PLC0415 - takes 50 ms

        write_out(to_json(built, gate))
    else:
        write_out(to_markdown(built) if form == "md" else built.csv())
