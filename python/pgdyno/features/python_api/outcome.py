"""Results of studies in Python: findings and document of a results file, as ``pgdyno report`` has them."""

from __future__ import annotations

import html
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib import import_module
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from pgdyno.analysis.study_findings import MetricVerdict
from pgdyno.analysis.telemetry.metrics import ALL_KINDS, PERCENTILES_COMPARED, latency_key
from pgdyno.cli.execution import why_no_valid_block
from pgdyno.cli.report import read_report
from pgdyno.errors import CONDITION_MET, INCONCLUSIVE, EvidenceError, PgdynoError, UsageError
from pgdyno.features.gates.conditions import GateOutcome, gate, parse_condition
from pgdyno.features.gates.section import outcome, reasons
from pgdyno.features.python_api.process import Command
from pgdyno.interruption import STATUS_OF_SIGNAL
from pgdyno.report.csv_format import columns_of, rows_of
from pgdyno.report.document import Document, Place, ShownCaveat
from pgdyno.report.html_format import to_html
from pgdyno.report.json_format import answer_of
from pgdyno.report.markdown_format import to_markdown
from pgdyno.report.study_report import StudyReport
from pgdyno.results.reader import Evidence
from pgdyno.results.records import BlockStatus
from pgdyno.units import Estimate, counted

FRAME_PX = 420
"""Height of a result in a notebook."""


NAMED_MAX = 6
"""Metrics that an error names; a study has a hundred."""


@dataclass(frozen=True)
class Effect:
    """Change of a metric of ``arm`` against ``baseline``, in percent.

    ``low`` and ``high``: ends of the confidence interval, None with too few blocks for one.
    """

    metric: str
    baseline: str
    arm: str
    case: str
    verdict: str
    value: float
    low: float | None
    high: float | None
    confidence: float
    blocks: int


@dataclass(frozen=True)
class Why:
    """Sentences on where the difference comes from."""

    sentences: Sequence[str]

    def __str__(self) -> str:
        return " ".join(self.sentences)


@dataclass(frozen=True)
class GateResult:
    """Outcome of a condition: True if every comparison rules it out. Its text has the answer for a test."""

    passed: bool
    outcome: str
    sentences: Sequence[str]
    answer: str

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return "\n".join([*self.sentences, self.answer])


@dataclass(frozen=True)
class Frame:
    """HTML for a notebook."""

    page: str

    def _repr_html_(self) -> str:
        # A frame keeps the styles of the report and of the notebook apart.
        return (
            f'<iframe srcdoc="{html.escape(self.page)}" style="width: 100%; height: {FRAME_PX}px; border: 0" '
            'sandbox=""></iframe>'
        )


class Result:
    """The result of a study, also of one that still runs.

    ``path`` is the results file. Everything else is computed when it is first asked for.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(fspath(path))

    @cached_property
    def _report(self) -> StudyReport:
        return read_report(self.path)

    @property
    def title(self) -> str:
        """Title of the study."""
        return self._report.title

    @property
    def command(self) -> str:
        """Command line that repeats the study."""
        return self._report.command

    @property
    def is_finished(self) -> bool:
        """True if the study has ended; the results of a running one are provisional."""
        return self._report.findings.first.study.ended_because is not None

    @property
    def arms(self) -> list[str]:
        """Names of the arms of the first case, the baseline first."""
        return [of.arm.name for of in self._report.findings.first.arms]

    @property
    def cases(self) -> list[str]:
        """Names of the cases; one empty name for a comparison."""
        return [of.study.case for of in self._report.findings.cases]

    @property
    def answer(self) -> str:
        """The answer of the first screen: verdicts, causes, serious caveats."""
        return "\n".join(answer_of(self._report).sentences)

    @property
    def verdict(self) -> str:
        """``faster``, ``slower``, ``same`` or ``undecided``. Raises UsageError with several comparisons."""
        return str(self._only(self._report.findings.verdicts_on()).verdict)

    @property
    def verdicts(self) -> list[Effect]:
        """Verdicts and effects in the metric of the verdict, of all cases and arms with a block."""
        return [_effect(one, one.percent) for one in self._report.findings.verdicts_on() if one.percent]

    def effect(self, metric: str = "", *, arm: str = "", case: str = "") -> Effect:
        """Return the change of a metric: by default that of the verdict, ``p99``, or one of ``metrics``.

        ``arm`` and ``case`` by name if there are several. Raises UsageError for a metric without values.
        """
        key = latency_key(ALL_KINDS, metric) if metric in PERCENTILES_COMPARED else metric
        every = self._report.findings.verdicts_on(key)
        one = self._only([of for of in every if arm in ("", of.arm) and case in ("", of.case)])
        if one.percent is None:
            known = ", ".join(self.metrics[:NAMED_MAX])
            raise UsageError(f"no effect on {metric or 'the primary metric'}: see metrics ({known}, …)")
        return _effect(one, one.percent)

    @property
    def metrics(self) -> list[str]:
        """Keys of the metrics of the first comparison that have an effect."""
        first = self._report.findings.first
        of_arm = next(iter(first.comparisons), None)
        if of_arm is None:
            return []
        return [*of_arm.effects, *first.telemetry.effects[of_arm.arm.arm]]

    @property
    def why(self) -> Why:
        """The causes of the difference."""
        return Why([sentence for one in self._documents for of in one.of("why") for sentence in of.sentences])

    @property
    def caveats(self) -> Sequence[ShownCaveat]:
        """Reasons to doubt the result, the most serious first: ``rank``, ``sentence``, ``remedy``."""
        return self._report.caveats

    def trials(self) -> list[dict[str, Any]]:
        """Return a row per trial and metric, as ``pgdyno report --csv``, with numbers as values."""
        findings = self._report.findings
        columns = columns_of(findings)
        return [_typed(dict(zip(columns, row, strict=True))) for row in rows_of(findings)]

    def series(self, metric: str = "tps") -> list[dict[str, Any]]:
        """Return a row per moment of each trial: case, block, arm, at_s (since the trial's start), value.

        ``tps``: transactions per second; ``role`` tells warm-up and measurement. Else ``PROBE.COLUMN``, a
        sampled series. Raises UsageError, which lists the series.
        """
        if metric == "tps":
            return [
                {
                    **self._place(case.study.case, trial),
                    "at_s": of.at_s,
                    "value": of.per_s,
                    "role": str(of.role),
                }
                for case in self._report.findings.cases
                for trial in case.trials
                for of in case.series.get(trial.trial, ())
            ]
        return self._sampled(metric)

    def _sampled(self, metric: str) -> list[dict[str, Any]]:
        probe, _, column = metric.partition(".")
        found, known = [], set[str]()
        with Evidence(self.path, verify=False) as evidence:
            for case in self._report.findings.cases:
                for trial in case.trials:
                    for name, of in evidence.series(trial.trial).items():
                        known |= {f"{name}.{one}" for one in of.columns[1:]}
                        if name == probe and column in of.columns[1:]:
                            at = of.columns.index(column)
                            place = self._place(case.study.case, trial)
                            found += [
                                {**place, "at_s": float(point[0]), "value": float(point[at])}
                                for point in of.points
                            ]
        if not found:
            raise UsageError(f"no series {metric}: use one of {', '.join(['tps', *sorted(known)])}")
        return found

    def _place(self, case: str, trial: Any) -> dict[str, Any]:
        return {"case": case, "block": trial.block, "arm": self._names[case, trial.arm]}

    @cached_property
    def _names(self) -> Mapping[tuple[str, int], str]:
        cases = self._report.findings.cases
        return {(of.study.case, one.arm.arm): one.arm.name for of in cases for one in of.arms}

    def to_frame(self) -> Any:
        """Return ``trials`` as a DataFrame of pandas, else of polars. Raises UsageError without both."""
        for library in ("pandas", "polars"):
            with suppress(ImportError):
                return import_module(library).DataFrame(self.trials())
        raise UsageError("to_frame requires pandas or polars: install one of them, or use trials()")

    def plot(self, section: str = "effect") -> Frame:
        """Return the drawing of a section for a notebook. Raises UsageError, which lists the sections."""
        drawn = {of.id: of for one in self._documents for of in one.sections if of.plots()}
        if section not in drawn:
            raise UsageError(f"no drawing {section!r}: use one of {', '.join(drawn)}")
        one = replace(drawn[section], place=Place.TOP)
        return Frame(to_html(Document(title=self.title, sections=[one])))

    def gate(self, condition: str, limit: float | None = None) -> GateResult:
        """Evaluate a condition of ``--fail-if``: ``gate("slower", 5)`` is ``slower:5%``.

        Raises UsageError.
        """
        text = condition if limit is None else f"{condition}:{limit:g}%"
        found = gate(self._report.findings, [parse_condition(text)])
        passed = found.outcome is GateOutcome.PASSED
        return GateResult(passed, str(found.outcome), [outcome(found), *reasons(found)], self.answer)

    def not_slower(self, limit: float | None = None, metric: str = "") -> GateResult:
        """Return whether no arm is more than ``limit`` percent slower; False also if the result is open.

        Without a limit, by the verdict: an arm that is slower within the margin passes.
        """
        return self.gate(f"slower:{metric}" if metric else "slower", limit)

    def extend(self, minutes: float, *, progress: bool = True) -> Result:
        """Continue the study for more minutes and return its new result. Raises PgdynoError."""
        quiet = () if progress else ("--quiet",)
        words = ["compare", "--resume", fspath(self.path), "--minutes", f"{minutes:g}", *quiet]
        return ended(Command(words), self.path)

    def to_markdown(self) -> str:
        """Return the report as Markdown."""
        return to_markdown(self._report)

    def to_html(self) -> str:
        """Return the report as one HTML page."""
        return to_html(self._report)

    def _repr_html_(self) -> str:
        shown = [
            of for of in self._report.sections if of.place in (Place.ABOVE, Place.HEAD) or of.id == "effect"
        ]
        return Frame(to_html(replace(_as_document(self._report), sections=shown)))._repr_html_()

    def __repr__(self) -> str:
        return f"<pgdyno.Result {self.path}>\n{self.answer}"

    @cached_property
    def _documents(self) -> list[Document]:
        parts = [part for of in self._report.of("cases") for part in of.parts.values()]
        return [self._report, *parts]

    def _only(self, found: Sequence[MetricVerdict]) -> MetricVerdict:
        if len(found) != 1:
            known = "; ".join(
                f"arm={one.arm!r}" + (f", case={one.case!r}" if one.case else "") for one in found
            )
            raise UsageError(
                f"{len(found)} comparisons: choose one by arm and case ({known}), or use verdicts"
                if found
                else f"no such comparison: arms {self.arms}, cases {self.cases}"
            )
        return found[0]


@dataclass(frozen=True)
class CrashResult:
    """The result of a crash test. ``document``: that of ``pgdyno crash --json``."""

    document: Mapping[str, Any]

    @property
    def answer(self) -> str:
        """The verdict on each arm."""
        return "\n".join(self.document["sentences"]["answer"])

    @property
    def lost_commits(self) -> Mapping[str, Sequence[int]]:
        """Acknowledged commits that each crash lost, by arm."""
        return {of["arm"]["name"]: of["lost_commits"] for of in self.document["arms"]}

    def __repr__(self) -> str:
        return f"<pgdyno.CrashResult>\n{self.answer}"


@dataclass(frozen=True)
class Run:
    """A results file in a directory, without its analysis. ``machine``: processor and cores, if known."""

    path: Path
    title: str
    created: datetime
    is_finished: bool
    machine: str = ""

    def open(self) -> Result:
        """Return the result."""
        return Result(self.path)


def open(path: str | PathLike[str]) -> Result:  # pgdyno.open
    """Return the result of a results file. Raises EvidenceError: no such file, damaged, another version."""
    found = Result(path)
    _ = found._report  # a wrong file is an error here, not later
    return found


def runs(directory: str | PathLike[str] = ".") -> list[Run]:
    """Return the results files of studies below a directory, the newest first; other files are skipped."""
    found = filter(None, map(read_run, Path(directory).rglob("*.sqlite")))
    return sorted(found, key=lambda one: one.created, reverse=True)


def read_run(path: Path) -> Run | None:
    """Return the results file of a study without its analysis; None for another file."""
    with suppress(EvidenceError), Evidence(path, verify=False) as evidence:
        study = evidence.study()
        created = datetime.fromtimestamp(study.created_unix_s, UTC)
        machine = ""
        with suppress(ValueError):  # a fact of a wrong type
            facts = study.host_facts
            cores = counted(facts.cores, "core") if facts.cores else ""
            machine = ", ".join(filter(None, (facts.processor, cores)))
        return Run(path, study.title, created, study.ended_because is not None, machine)
    return None


def ended(command: Command, path: Path) -> Result:
    """Wait for the end of a study and return its result, also of one that ``stop`` has stopped.

    Raises its error, also without a valid block and for a study that failed.
    """
    status = command.status()
    try:
        why = why_no_valid_block(path)
    except EvidenceError as error:
        raise PgdynoError(command.said or f"the study ended with status {status}") from error
    if why:
        raise PgdynoError(f"no result, because no block is valid: {why}")
    is_stopped = command.is_stopped and status == STATUS_OF_SIGNAL + signal.SIGINT
    if status not in (0, CONDITION_MET, INCONCLUSIVE) and not is_stopped:
        raise PgdynoError(f"the study ended with status {status}; its results are in {path}")
    return Result(path)


def finished_blocks(path: Path) -> int:
    """Return the number of finished blocks of a results file, which may not exist yet."""
    with suppress(EvidenceError), Evidence(path, verify=False) as evidence:
        return sum(
            block.status is BlockStatus.DONE for case in evidence.cases() for block in evidence.blocks(case)
        )
    return 0


def _effect(one: MetricVerdict, percent: Estimate) -> Effect:
    return Effect(
        metric=one.metric,
        baseline=one.baseline,
        arm=one.arm,
        case=one.case,
        verdict=str(one.verdict),
        value=percent.value,
        low=percent.low,
        high=percent.high,
        confidence=percent.confidence,
        blocks=one.blocks,
    )


def _as_document(report: StudyReport) -> Document:
    return Document(**{name: getattr(report, name) for name in Document.__dataclass_fields__})


def _typed(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the CSV document with its value as a number."""
    return {**row, "value": float(row["value"])}
