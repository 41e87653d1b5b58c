"""Golden files: whole reports of synthetic studies, in tests/data/golden.

    make golden

renews them; review the difference with ``git diff``. ``test_golden_reports.py`` compares them. A reworded
sentence changes golden files only: other tests assert codes, numbers and the presence of parts.

Numbers of JSON and CSV are rounded to ROUNDED_TO digits, because the last digits depend on the CPU. The
random numbers are those of the numpy version in requirements.lock.
"""

from __future__ import annotations

import difflib
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from html import unescape
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measured_trials import noisy
from report_forms import on_terminal, only, report_of, summarized
from several_hosts import LARGE, LARGER, SMALL, pooled_of
from synthetic_study import CREATED_UNIX_S, HOST, Synthetic, write_with_aa

from example_studies import MISTAKES, with_mistake
from pgdyno.analysis.comparison import Verdict
from pgdyno.caveats import Caveat, wordings
from pgdyno.cli.features import features
from pgdyno.cli.report import read_report
from pgdyno.features.dips.findings import ArmDips, Coincidence, Dip, Event
from pgdyno.features.exports.formats import FORMATS, exported
from pgdyno.features.gates.conditions import gate, parse_condition
from pgdyno.features.gates.section import outcome, reasons, to_summary
from pgdyno.features.history.changes import group_files, histories
from pgdyno.features.history.report import HistoryReport, heading, history_sentences, ungated_metrics
from pgdyno.features.hosts.sections import HostsReport, build_hosts
from pgdyno.features.outliers.section import outlier_trials
from pgdyno.features.profiles.findings import Frame, ProfileComparison
from pgdyno.features.profiles.section import cpu_by_function
from pgdyno.features.side_by_side.findings import ReadFile, find_files
from pgdyno.features.side_by_side.report import build_side_by_side
from pgdyno.report.document import FileReport, Place
from pgdyno.report.html_format import to_html
from pgdyno.report.json_format import to_json
from pgdyno.report.markdown_format import to_markdown
from pgdyno.report.study_report import StudyReport, build_study
from pgdyno.report.why_section import why_sentences
from pgdyno.results.records import TrialStatus
from pgdyno.study.study_file_reader import examine_text

features()  # before golden_commands imports the modules of commands, whose options include those of features

FOLDER = Path(__file__).parents[1] / "data" / "golden"
WIDTH = 80
ROUNDED_TO = 5
"""Number of significant digits."""
DIFFERENCE_LINES_MAX = 30
SIZE_BYTES_MAX = 70_000
"""Maximum size of a golden file, because readers review its differences."""

STOLEN = Caveat.of("steal", 3, arm="18", share="6%", limit="5%")
VERDICT = Synthetic(
    effects=(1.0, 1.25),
    blocks=5,
    slices=4,
    noise=0.004,
    probed=True,
    stops_on_verdict=True,
    caveats=(STOLEN, Caveat.of("shared-machine", cores=2)),
)
FAILURES = Synthetic(
    effects=(1.0, 1.10, 0.90),
    names=("17", "18", "18,fsync=off"),
    unsafe_arms=(2,),
    blocks=6,
    failed_per_slice=60,
    statuses={(2, 1): TrialStatus.EXCLUDED},
)
OVERLOAD = Synthetic(effects=(1.0, 0.6), blocks=5, slices=2, fixed_rate_per_s=3000.0, skipped=(0.0, 0.6))
RUNNING = Synthetic(effects=(1.0, 1.1), blocks=2, slices=4, ended=None)

SERVERS = ({"server": "17"}, {"server": "18"})
FACTORS = tuple({"server": server, "settings": of} for server in ("17", "18") for of in ("old", "new"))
CHANGE = {"key": "workload.warehouses", "before": "2000", "after": "16", "why": "the memory is smaller"}
PUBLISHED = {
    "notes": [],
    "tables": [
        {
            "title": "New orders by users",
            "metric": "nopm",
            "columns": [
                {"title": "users"},
                {"title": "18", "levels": {"server": "18", "settings": "old"}},
                {"title": "change", "show": "change", "levels": {"server": "18", "settings": "old"}},
            ],
            "rows": [
                {"cells": ["8", 1000, {"value": 50, "corrected": 40, "note": "the base was wrong"}]}
                | {"levels": {"clients": "8"}},
                {"cells": ["7", 900, 1], "levels": {"clients": "7"}},
            ],
        }
    ],
}
FACTOR = Synthetic(
    names=[", ".join(levels.values()) for levels in FACTORS],
    arms=FACTORS,
    blocks=5,
    slices=2,
    noise=0.004,
    changes=[CHANGE],
    published=PUBLISHED,
)
CASES = (
    replace(FACTOR, levels={"clients": "8"}, effects=(1, 1.1, 1.2, 1.32), rate_per_s=1000),
    replace(FACTOR, levels={"clients": "64"}, effects=(1, 1.1, 0.8, 0.88), rate_per_s=2000, seed=2),
)
LIMIT = "p99 < 25ms"


DIALECTS = Synthetic(
    names=("dialect=spec", "dialect=hammerdb"), dialects=("spec", "hammerdb"), blocks=6, slices=10
)


def study(*cases: Synthetic) -> Callable[[Path], StudyReport]:
    return lambda _: report_of(*cases)


def _hosts(_: Path) -> HostsReport:
    third = replace(LARGER, host={**LARGE, "cores": 32}, seed=9, effects=(1.0, 0.95))
    return build_hosts(pooled_of(small=SMALL, large=LARGER, middle=third))


def sweep_of_clients(
    sigma: float = 0.04, kappa: float = 0.002, clients: Sequence[int] = (1, 4, 8, 16, 64), **more: Any
) -> Iterator[Synthetic]:
    wanted = {"arms": SERVERS, "blocks": 5, "slices": 1, "noise": 0.004, "effects": (1, 1.1), **more}
    for seed, n in enumerate(clients):
        rate = 1000 * n / (1 + sigma * (n - 1) + kappa * n * (n - 1))
        yield replace(Synthetic(**wanted), levels={"clients": str(n)}, rate_per_s=rate, seed=seed)


def _off_the_curve() -> Iterator[Synthetic]:
    for number, case in enumerate(sweep_of_clients(clients=(1, 4, 8, 16))):
        yield replace(case, rate_per_s=case.rate_per_s * (0.5 if number == 2 else 1))


def sweep_of_rates(limit: str = LIMIT, blocks: int = 5) -> Iterator[Synthetic]:
    case = Synthetic(arms=SERVERS, capacity=limit, blocks=blocks, slices=1, noise=0.0, effects=(1, 1))
    for rate in (500, 1000, 2000, 4000):
        slower = (rate / 1000) ** 2
        of_rate = replace(case, fixed_rate_per_s=rate, latencies=[slower, 0.81 * slower], seed=rate)
        yield replace(of_rate, levels={"rate": str(rate)})


def _dips(_: Path) -> StudyReport:
    built = report_of(Synthetic(blocks=5, slices=4, probed=True))
    (findings,) = built.findings.cases
    trials = [trial.trial for trial in findings.trials if trial.arm == 1]
    dips = [
        Dip(trials[0], 3, 1, 3.0, 4.0, 0.5, 1500.0, [Event.CHECKPOINT]),
        Dip(trials[0], 5, 2, 5.0, 7.0, 0.25, 1500.0, [Event.CHECKPOINT]),
        Dip(trials[1], 9, 1, 9.0, 10.0, 0.1, 300.0),
    ]
    together = [
        Coincidence(Event.CHECKPOINT, 2, 0.1, 0.004, is_cause=True),
        Coincidence(Event.WAL_SEGMENT, 3, 2.5, 0.6, is_cause=False),
    ]
    found = replace(
        findings,
        feature_findings={
            **findings.feature_findings,
            "dips": {1: ArmDips(dips, together, 1, 60, 60.0, 180_000.0, trials)},
        },
    )
    return build_study(replace(built.findings, cases=[found]))


def _noise(folder: Path) -> StudyReport:
    """A study with six A/A blocks whose noise floor exceeds the effect."""
    wanted = Synthetic(blocks=8, slices=4, noise=0.001, effects=(1.0, 1.03), rate_per_s=10_000.0)
    write_with_aa(folder / "e", [wanted], [-0.06, 0.06] * 3)
    return read_report(folder / "e")


STUDIES: Mapping[str, Callable[[Path], FileReport]] = {
    "verdict": study(VERDICT),
    "failures": study(FAILURES),
    "running": study(RUNNING),
    "factors": study(*CASES),
    "hosts": _hosts,
    "clients": study(*sweep_of_clients()),
    "rates": study(*sweep_of_rates()),
    "overload": study(OVERLOAD),
    "capacity": study(Synthetic(effects=(1, 1.3), latencies=(1.0, 90.0), capacity=LIMIT, blocks=6, slices=1)),
    "noise": _noise,
    "dips": _dips,
    "dialects": study(DIALECTS),
}
WITH_MARKDOWN = ("verdict", "failures", "overload", "factors", "hosts", "dialects")
WITH_EVERY_FORM = ("verdict", "hosts")
"""Studies that are written in every format. The others have the same formats of other sections."""

HEADLINES = {
    "faster": Synthetic(effects=(1, 1.1)),
    "slower": Synthetic(effects=(1, 0.9)),
    "faster by a factor": Synthetic(effects=(1, 11)),
    "slower by a factor": Synthetic(effects=(1, 0.04)),
    "equivalent": Synthetic(effects=(1, 1), noise=0.004),
    "slower within the margin": Synthetic(effects=(1, 0.993), noise=0.001, blocks=30, seed=4),
    "undecided": Synthetic(effects=(1, 1), noise=0.08, seed=2),
    "undecided, more instructions": Synthetic(
        effects=(1, 1), noise=0.08, seed=2, instructions=(500_000, 501_500)
    ),
    "too few blocks for the verdict same": Synthetic(
        effects=(1, 1), noise=0.004, blocks=9, stops_on_verdict=True
    ),
    "two blocks": Synthetic(effects=(1, 1.1), blocks=2),
    "one block": Synthetic(blocks=1),
    "no block": Synthetic(blocks=0),
    "a stalled arm": Synthetic(stalled=[(2, 1)]),
    "fixed rate": Synthetic(effects=(1.0, 1.25), fixed_rate_per_s=500.0),
    "fixed rate, faster within the margin": Synthetic(effects=(1, 1.01), noise=0.001, fixed_rate_per_s=500.0),
    "skipped arrivals": OVERLOAD,
    "higher capacity": Synthetic(effects=(1, 1.3), capacity=LIMIT, blocks=8),
    "lower capacity": Synthetic(effects=(1, 0.7), capacity=LIMIT, blocks=8),
    "equivalent capacity": Synthetic(effects=(1, 1), noise=0.001, capacity=LIMIT, blocks=8),
    "lower capacity within the margin": Synthetic(effects=(1, 0.99), noise=0.001, capacity=LIMIT, blocks=8),
    "undecided capacity": Synthetic(effects=(1, 1), noise=0.3, capacity=LIMIT, blocks=8),
}

SECTIONS: Mapping[str, Sequence[Synthetic]] = {
    "no maximum": tuple(sweep_of_clients(0.01, 0.0, (1, 2, 4, 8))),
    "extrapolation": tuple(sweep_of_clients(0.01, 0.01, (1, 2, 4, 8))),
    "lack of fit": tuple(_off_the_curve()),
    "one pass": tuple(sweep_of_clients(0.04, 0.02, (1, 2, 4, 8), blocks=1)),
    "a baseline that stalled": tuple(sweep_of_clients(stalled=[(0, 0)], blocks=2)),
    "rates too low": tuple(sweep_of_rates("p99 < 1s", blocks=2)),
    "rates too high": tuple(sweep_of_rates("p99 < 1ms", blocks=2)),
    "factors with few passes": tuple(replace(case, blocks=3, published=None) for case in CASES),
}

STEAL = Synthetic(blocks=10, slices=2, slowed={(7, 1): 0.5}, stolen={(7, 1): 0.12})

_ALIKE = Synthetic(effects=(1, 1), blocks=8, slices=4, noise=0.004, levels={"clients": "4"})
_OTHER = replace(_ALIKE, levels={"clients": "9"})
GATES: Mapping[str, tuple[Sequence[Synthetic], str]] = {
    "met": ([replace(VERDICT, effects=(1, 0.9), blocks=8)], "slower"),
    "passed": ([_ALIKE], "slower not-same"),
    "an arm without a trial": (
        [_ALIKE, replace(_OTHER, statuses={(block, 1): TrialStatus.FAILED for block in range(8)})],
        "slower slower:average",
    ),
    "inconclusive": ([replace(_ALIKE, noise=0.08, seed=2)], "slower slower:5%"),
    "a tail percentile of few blocks": ([_ALIKE], "slower:p99"),
    "few transactions": ([replace(_ALIKE, rate_per_s=40.0)], "slower:p99"),
    "an arm that stalled": ([_ALIKE, replace(_OTHER, stalled=[(2, 1), (5, 1)])], "slower"),
    "one met, one not evaluable": (
        [replace(_ALIKE, effects=(1, 0.9)), replace(_OTHER, stalled=[(2, 1)])],
        "slower",
    ),
}
"""Cases and conditions."""

EXPORTED = Synthetic(effects=(1, 0.9), blocks=8, slices=4)
NIGHT = Synthetic(blocks=5, slices=2, noise=0.01)
HISTORIES = {"a change": (12, 7, 2), "another window": (8, 7, 3), "few files": (5, 5, 2)}
"""Number of files, the first file of another kernel and a slower arm, and the slices of its windows."""


@cache
def built(name: str) -> FileReport:
    """Return the report of a study, which is built once per process."""
    with tempfile.TemporaryDirectory() as folder:
        return STUDIES[name](Path(folder))


def reports(name: str) -> dict[str, str]:
    """Return the text of each golden file of a study."""
    of = built(name)
    texts = {"txt": on_terminal(of, WIDTH), "summary.txt": summarized(of, WIDTH)}
    if name in WITH_MARKDOWN:
        texts["md"] = to_markdown(of)
    if name in WITH_EVERY_FORM:
        texts["json"] = rounded_json(to_json(of))
        texts["csv"] = rounded_text(_first_block(of.csv()))
        texts["html.txt"] = text_of_html(to_html(of))
    return {f"{name}.{form}": _without_trailing_spaces(text) for form, text in texts.items()}


def headlines() -> str:
    """Return the headline of each kind of verdict."""
    lines = []
    for name, wanted in HEADLINES.items():
        for headline in only(report_of(replace(wanted, slices=min(wanted.slices, 4)))).headlines:
            lines += [f"{name}: {headline.sentence}", *([f"    {headline.more}"] if headline.more else [])]
    return "\n".join(lines).replace("\u00a0", " ") + "\n"


def sections() -> str:
    """Return the sentences of sections in uncommon situations."""
    lines = []
    for name, cases in SECTIONS.items():
        for section in report_of(*cases).at(Place.TOP):
            if not section.sentences:
                continue
            lines += [f"{name}, {section.title}:", *(f"    {sentence}" for sentence in section.sentences)]
    return "\n".join(lines).replace("\u00a0", " ") + "\n"


def explanations() -> str:
    """Return the sentences about time breakdowns, outlier trials and CPU profiles."""
    lines = []
    for name, update_us, verdict, blocks in (
        ("one statement differs", -400.0, Verdict.FASTER, 12),
        ("nothing differs", 0.0, Verdict.SAME, 12),
        ("undecided", -400.0, Verdict.UNDECIDED, 12),
        ("few blocks", -400.0, Verdict.FASTER, 4),
    ):
        breakdown = noisy(np.random.default_rng(5), update_us, blocks, confidence=0.975)
        lines += [f"time breakdown, {name}:", *(f"    {one}" for one in why_sentences(breakdown, verdict))]
    findings = report_of(STEAL).findings.first
    table = outlier_trials(findings)
    lines += ["outlier trials:", *(f"    {' | '.join(row)}" for row in table.rows), f"    {table.note}"]
    arms = [of.arm for of in findings.arms]
    for name, covered in (("sampled share known", (0.96, 0.92)), ("sampled share unknown", (None, None))):
        profile = ProfileComparison(
            *arms, [0, 1], (6000, 5000), covered, 99, [], Frame("", 0.0, 0.0, False, [])
        )
        lines += [f"CPU profile, {name}:", f"    {cpu_by_function(findings, [profile]).note}"]
    return "\n".join(lines).replace("\u00a0", " ") + "\n"


def gates() -> str:
    """Return the outcome and the reasons of gates, and a summary for a pipeline."""
    lines = []
    for name, (cases, conditions) in GATES.items():
        of = report_of(*cases)
        found = gate(of.findings, [parse_condition(text) for text in conditions.split()])
        lines += [
            f"{name} ({conditions}):",
            f"    {outcome(found)}",
            *(f"    {one}" for one in reasons(found)),
        ]
        if name == "met":
            shown = to_summary(of, of.findings.verdicts_on(), found, [name]).partition("<details>")[0]
            lines += ["summary:", *(f"    {line}" for line in shown.splitlines())]
    return _without_trailing_spaces("\n".join(lines).replace("\u00a0", " "))


def exports() -> str:
    """Return the document of each format: a case with intervals, one with a stalled block, a few blocks."""
    cases = [
        replace(EXPORTED, levels={"clients": "4"}),
        replace(EXPORTED, levels={"clients": "8"}, stalled=[(2, 1)]),
        replace(EXPORTED, levels={"clients": "9"}, blocks=3),
    ]
    of = report_of(*cases).findings
    return "".join(f"{name}: {rounded_json(exported(of, name))}" for name in FORMATS)


@cache
def history_of(name: str) -> HistoryReport:
    """Return one of HISTORIES."""
    nights, changed_at, windows = HISTORIES[name]
    studies = []
    for i in range(nights):
        later = i >= changed_at
        night = replace(
            NIGHT,
            effects=(1, 0.9 if later else 1),
            slices=windows if later else 2,
            seed=100 + i,
            created_unix_s=CREATED_UNIX_S + 86_400.0 * i,
            host={**HOST, "kernel": "Linux 6.2.0" if later else "Linux 6.1.0"},
        )
        studies.append((f"night-{i:02}.sqlite", report_of(night).findings))
    return HistoryReport(histories(group_files(studies, [], {})), {})


def history() -> str:
    """Return the sentences of histories: changes, another fit, too few files."""
    lines = []
    for name, (nights, _, _) in HISTORIES.items():
        report = history_of(name)
        for of in report.histories:
            lines += [f"{name}, {heading(of)}:", *(f"    {sentence}" for sentence in history_sentences(of))]
        lines += [f"    {sentence}" for sentence in ungated_metrics(report, nights)]
    return "\n".join(lines).replace("\u00a0", " ") + "\n"


def files() -> str:
    """Return the report of two files side by side."""
    later = {"created_unix_s": CREATED_UNIX_S + 7 * 86_400, "host": {**HOST, "kernel": "Linux 6.2.0"}}
    today = replace(SMALL, seed=5, rate_per_s=2800, effects=(1, 1.2), versions=("17", "18.4"), **later)
    read = {name: ReadFile(report_of(of).findings, {}) for name, of in (("old", SMALL), ("today", today))}
    text = on_terminal(build_side_by_side(find_files(read)), WIDTH)
    return _without_trailing_spaces(text.replace("\u00a0", " "))


def caveats() -> str:
    """Return every caveat as reports show it, with the names of its parameters as their values."""
    lines = []
    for code, wording in wordings().items():
        for name in wording.kinds or (code,):
            of = Caveat.of(name, **{one: one.upper() for one in wording.parameters(name) - {"kind"}})
            lines.append(f"{', '.join(dict.fromkeys((code, name)))} ({wording.rank.words}): {of.text}")
            lines += [f"    {text}" for text in (of.condition, of.remedy) if text]
    return "\n".join(lines) + "\n"


def study_file_errors() -> str:
    """Return the errors of mistakes in a study file. Messages of the TOML parser are its own."""
    lines = []
    for name in MISTAKES:
        _, problems = examine_text(with_mistake(name), "x.toml")
        own = [re.sub(r"^(x.toml:).*", r"\1", one) for one in problems] if "toml" in name else problems
        lines += [f"{name}:", *(f"    {one}" for one in own)]
    return "\n".join(lines) + "\n"


def rounded_json(text: str) -> str:
    """Return the document with rounded numbers, a line for each innermost list or table.

    The documents of the files of a host are omitted: they have the form of a study.
    """

    def rounded(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: list(of) if key == "files" else rounded(of) for key, of in value.items()}
        if isinstance(value, list):
            return [rounded(of) for of in value]
        return float(f"{value:.{ROUNDED_TO}g}") if isinstance(value, float) else value

    indented = json.dumps(rounded(json.loads(text)), indent=1, ensure_ascii=False)
    short = re.sub(r"([\[{])\n\s+([^\[\]{}]{0,400}?)\n\s+([\]}])", _on_one_line, indented)
    return short + "\n"


def _on_one_line(found: re.Match[str]) -> str:
    return found[1] + re.sub(r"\n\s+", " ", found[2]) + found[3]


def _first_block(text: str) -> str:
    """Return the rows of the first block: each metric once per arm."""
    head, *rows = text.splitlines()
    at = head.split(",").index("block")
    return "\n".join([head, *(row for row in rows if row.split(",")[at] in ("0", ""))]) + "\n"


def rounded_text(text: str) -> str:
    return re.sub(r"-?\d+\.\d+(e-?\d+)?", lambda found: f"{float(found[0]):.{ROUNDED_TO}g}", text)


def text_of_html(page: str) -> str:
    """Return the text of a page without charts and documentation, a line for each element, and links."""
    text = re.sub(r'<div class="passage">.*?</div></details>', "", page, flags=re.DOTALL)
    text = re.sub(r"<(style|svg|script)\b.*?</\1>|<wbr>", "", text, flags=re.DOTALL)
    text = re.sub(r'<a [^>]*href="([^"]*)"[^>]*>(.*?)</a>', r"\2 (\1)", text, flags=re.DOTALL)
    text = re.sub(r"</t[dh]>\s*<t[dh][^>]*>", " | ", text)
    lines = (" ".join(unescape(line).split()) for line in re.split(r"<[^>]*>|\n", text))
    return "\n".join(filter(None, lines)) + "\n"


def _without_trailing_spaces(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


TEXTS: Mapping[str, Callable[[], str]] = {
    "headlines": headlines,
    "sections": sections,
    "explanations": explanations,
    "exports": exports,
    "gates": gates,
    "history": history,
    "files": files,
    "caveats": caveats,
    "study_file_errors": study_file_errors,
}
"""Golden files other than reports."""


def golden_texts() -> dict[str, str]:
    """Return the text of each golden file by its name."""
    texts = {f"{name}.txt": text() for name, text in TEXTS.items()}
    return texts | {file: text for name in STUDIES for file, text in reports(name).items()}


def difference(expected: str, found: str, name: str) -> str:
    """Return the first lines of a difference, and how to accept it."""
    lines = difflib.unified_diff(expected.splitlines(), found.splitlines(), name, "now", lineterm="", n=1)
    shown = list(islice(lines, DIFFERENCE_LINES_MAX + 1))
    more = ["…"] if len(shown) > DIFFERENCE_LINES_MAX else []
    remedy = f"{name} is out of date. If the difference is intended, renew it: make golden"
    return "\n".join([remedy, *shown[:DIFFERENCE_LINES_MAX], *more])


def require_golden(texts: dict[str, str]) -> None:
    """Fail with the difference of the first text that is not its golden file."""
    for name, found in texts.items():
        path = FOLDER / name
        expected = path.read_text("utf-8") if path.exists() else ""
        if found != expected:
            pytest.fail(difference(expected, found, f"tests/data/golden/{name}"), pytrace=False)


def main() -> None:
    """Write every golden file, and remove files of former studies."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    texts = golden_texts()
    for path in FOLDER.glob("*.*"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
