"""Verdicts on single queries: a sentence for each arm, and a table with the largest contributions first."""

from __future__ import annotations

from pgdyno.analysis.comparison.query_changes import QueryChange, QueryChanges, QueryKind
from pgdyno.analysis.comparison.verdict import Verdict
from pgdyno.analysis.findings.case_findings import Findings
from pgdyno.estimate import ci_text, counted, decimals_of, group_digits, signed, significant
from pgdyno.report.profile_section import column_name
from pgdyno.report.result_tables import Table, with_interval
from pgdyno.report.telemetry_tables import shortened
from pgdyno.study.stopping_rule import INTERVAL_BLOCKS_MIN

NAMED_MAX = 2
"""Maximum number of queries named in a sentence; the table has all."""

NAME_LENGTH_MAX = 40
"""Maximum length of a query's name in a sentence."""

WORDS = {
    Verdict.SLOWER: "slower",
    Verdict.FASTER: "faster",
    Verdict.SAME: "equivalent",
    Verdict.UNDECIDED: "undecided",
}


def query_sentences(findings: Findings) -> list[str]:
    """Return a paragraph for each arm, on its scripts and on its statements."""
    return [query_sentence(of) for of in findings.queries]


def query_sentence(of: QueryChanges) -> str:
    """Return ``Statements: 2 of 214 slower on 18, 1 faster. Largest contributions: …``."""
    found = {verdict: len(of.with_verdict(verdict)) for verdict in WORDS}
    n_slower = found.pop(Verdict.SLOWER)
    counts = [f"{n_slower or 'none'} of {len(of.changes)} slower on {of.arm.name}"] if of.changes else []
    counts += [f"{n} {WORDS[verdict]}" for verdict, n in found.items() if n]
    if of.uncompared:
        most = _short(of.kind, of.uncompared[0])
        counts.append(f"{len(of.uncompared)} with too few calls (most time: {most})")
    sentence = f"{of.kind.capitalize()}s: {', '.join(counts)}."
    differing = [change for change in of.changes if change.verdict in {Verdict.SLOWER, Verdict.FASTER}]
    if differing:
        named = [_named(of.kind, change) for change in differing[:NAMED_MAX]]
        sentence += f" Largest contributions: {'; '.join(named)}."
    return sentence


def _named(kind: QueryKind, change: QueryChange) -> str:
    percent = change.percent
    interval = f"{ci_text(percent.confidence)} {percent.signed_interval_text}"
    basis = f"({interval}), {_contribution(change)} of the time of all"
    return f"{_short(kind, change.name)} {percent.signed_text} {basis}"


def _short(kind: QueryKind, name: str) -> str:
    """Return the name in quotation marks: the end of a script's path, the start of a statement."""
    if len(name) > NAME_LENGTH_MAX:
        kept = NAME_LENGTH_MAX - 1
        name = f"…{name[-kept:]}" if kind == "script" else f"{name[:kept]}…"
    return f"“{name}”"


def query_tables(findings: Findings) -> list[Table]:
    """Return a table of scripts and one of statements."""
    kinds: tuple[QueryKind, ...] = ("script", "statement")
    return [_table(kind, [of for of in findings.queries if of.kind == kind], findings) for kind in kinds]


def _table(kind: QueryKind, of_arms: list[QueryChanges], findings: Findings) -> Table:
    several, usual = len(of_arms) > 1, findings.study.plan.confidence
    rows = [
        [
            shortened(change.name),
            *([of.arm.name] if several else []),
            _ms(change.baseline_ms),
            _ms(change.arm_ms),
            with_interval(change.percent, usual, INTERVAL_BLOCKS_MIN),
            group_digits(100 * change.share, 1),
            _contribution(change),
            str(change.verdict),
        ]
        for of in of_arms
        for change in of.changes
    ]
    baseline = column_name(findings.arms[0].arm.name, "baseline")
    arm = "arm" if several or not of_arms else column_name(of_arms[0].arm.name, "arm")
    numeric = (f"{baseline}, ms", f"{arm}, ms", "change, %", "time, %", "contribution")
    return Table(
        title=f"Change of the mean time by {kind} (lower is better)",
        columns=(kind, *(["arm"] if several else []), *numeric, "verdict"),
        rows=rows,
        note=_note(kind, of_arms) if of_arms else "",
        numeric=frozenset(numeric),
        long=True,
        dispensable=("time, %", numeric[0], numeric[1]),
    )


def _note(kind: QueryKind, of_arms: list[QueryChanges]) -> str:
    what = (
        "the mean service time of the driver, from the first command of a script to its end"
        if kind == "script"
        else "the mean execution time of pg_stat_statements"
    )
    n_family, n_missing = of_arms[0].family, max(len(of.uncompared) for of in of_arms)
    note = (
        f"The times are {what}. The CIs are corrected over {counted(n_family, 'comparison')} (Holm). "
        "time, % is the share of the baseline's time. The contribution is the change of the time of all "
        "queries due to this one. Queries share the server, so a slow query can slow others, too."
    )
    if n_missing:
        note += f" {counted(n_missing, kind)} had too few calls in a block of an arm."
    return note


def _contribution(change: QueryChange) -> str:
    percent = 100 * change.contribution
    return signed(percent, min(1, decimals_of(percent, 2)), "%")


def _ms(ms: float) -> str:
    return significant(ms, 3)
