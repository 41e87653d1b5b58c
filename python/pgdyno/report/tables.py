"""The tables of a report, as text in cells: the renderers only lay them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pgdyno.analysis.findings import ALL_KINDS, QUANTILES_COMPARED, ArmFindings, Findings, latency_key
from pgdyno.analysis.latency import QUANTILES
from pgdyno.analysis.metrics import Metric
from pgdyno.analysis.verdict import BLOCKS_MIN
from pgdyno.estimate import (
    ABSENT,
    NO_BREAK,
    Estimate,
    decimals_of,
    given_percent,
    grouped,
    share_text,
    signed,
)
from pgdyno.evidence.records import TrialStatus
from pgdyno.units import format_duration, format_size

SETTINGS_ROWS_MAX = 60
"""Settings in which arms differ; more than this says that the arms are different systems."""


DIGITS_WITHOUT_INTERVAL = 2
"""Of a change that few blocks have seen: more would promise what nobody knows."""


@dataclass(frozen=True)
class Table:
    """``numeric`` names the columns set to the right. A cell that repeats the one above it is empty."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    numeric: frozenset[str] = field(default_factory=frozenset)
    long: bool = False  # of interest to few: may be folded away
    dispensable: Sequence[str] = ()  # columns that a narrow page leaves out, the first of them first
    said_elsewhere: bool = False  # the terminal says it in fewer lines than a table takes


def levels(findings: Findings) -> Table:
    """Throughput and CPU of every arm, and what each arm changes."""
    baseline = findings.arms[0].arm.name
    confidence = given_percent(findings.study.plan.confidence)
    rows = [
        _level_row(findings, metric, arm, first=i == 0)
        for metric in findings.metrics
        if any(of.levels[metric.key] for of in findings.arms)
        for i, arm in enumerate(findings.arms)
    ]
    numeric = ("level", f"{confidence} interval", f"change from {baseline}, %", "blocks")
    return Table(
        title="Throughput and CPU",
        columns=("metric", "better", "arm", *numeric),
        rows=rows,
        note="A level's interval holds the machine's drift from block to block, which cancels in the change.",
        numeric=frozenset(numeric),
        dispensable=("better", "blocks", numeric[1]),
    )


def _level_row(findings: Findings, metric: Metric, of: ArmFindings, *, first: bool) -> list[str]:
    level = of.levels[metric.key]
    change = _change(findings, of.arm.arm, metric.key)
    return [
        metric.label if first else "",
        metric.better if first else "",
        of.arm.name,
        grouped(level.value, level.decimals) if level else ABSENT,
        level.interval_text.replace(" ", NO_BREAK) if level and level.n >= BLOCKS_MIN else ABSENT,
        _plain(change) if change else "",
        str(change.n if change else level.n if level else 0),
    ]


def _change(findings: Findings, arm: int, key: str) -> Estimate | None:
    for comparison in findings.comparisons:
        if comparison.arm.arm == arm and key in comparison.effects:
            return comparison.effects[key].percent
    return None


def latencies(findings: Findings) -> Table:
    """Percentiles per kind and arm."""
    numeric = ("transactions", *QUANTILES)
    rows = []
    for kind in [*findings.kinds, ALL_KINDS]:
        for i, of in enumerate(findings.arms):
            pairs = of.latency.get(kind)
            if pairs is None or not len(pairs):
                continue
            values = [_ms(value) for value in of.quantiles_ms(kind).values()]
            rows.append(
                [kind_text(kind) if i == 0 else "", of.arm.name, grouped(int(pairs[:, 1].sum()), 0), *values]
            )
    return Table(
        title="Latency, ms (less is better)",
        columns=("kind", "arm", *numeric),
        rows=rows,
        note=f"{ABSENT}: fewer than ten transactions beyond that percentile.",
        numeric=frozenset(numeric),
        dispensable=("p90", "transactions", "p95"),
    )


def latency_changes(findings: Findings) -> Table:
    """What each arm changes in the latency of each kind."""
    baseline = findings.arms[0].arm.name
    rows = []
    for kind in [*findings.kinds, ALL_KINDS]:
        for i, of in enumerate(findings.arms[1:]):
            changes = [_change(findings, of.arm.arm, latency_key(kind, name)) for name in QUANTILES_COMPARED]
            if any(changes):
                cells = [_plain(change) if change else ABSENT for change in changes]
                rows.append([kind_text(kind) if i == 0 else "", of.arm.name, *cells])
    return Table(
        title=f"Change of latency from {baseline}, % (less is better)",
        columns=("kind", "arm", *QUANTILES_COMPARED),
        rows=rows,
        note=(
            "The mean over blocks of the ratio of that percentile; with its interval where there are "
            f"{BLOCKS_MIN} blocks or more."
        ),
        numeric=frozenset(QUANTILES_COMPARED),
        dispensable=("p90", "p95", "p99"),
    )


def _plain(change: Estimate) -> str:
    if change.low is None or change.high is None or change.n < BLOCKS_MIN:
        decimals = min(1, decimals_of(change.value, DIGITS_WITHOUT_INTERVAL))
        return signed(change.value, decimals, "")
    value = signed(change.value, change.decimals, "")
    low, high = (signed(end, change.decimals, "") for end in (change.low, change.high))
    return f"{value} ({low}{NO_BREAK}…{NO_BREAK}{high})"


def transactions(findings: Findings) -> Table:
    """Outcomes per kind and arm, of the measured slices."""
    numeric = ("ok", "rolled back", "failed", "skipped", "retried", "share")
    rows = []
    for kind in findings.kinds:
        for i, of in enumerate(findings.arms):
            if kind not in of.counts:
                continue
            counts, total = of.counts[kind], sum(each.all for each in of.counts.values())
            cells = (counts.ok, counts.rolled_back, counts.failed, counts.skipped, counts.retried)
            rows.append(
                [
                    kind_text(kind) if i == 0 else "",
                    of.arm.name,
                    *(grouped(cell, 0) for cell in cells),
                    share_text(counts.all / total) if total else ABSENT,
                ]
            )
    return Table(
        title="Transactions",
        columns=("kind", "arm", *numeric),
        rows=rows,
        note="Of the trials that count. Rolled back are those that end so by design; retried: attempts.",
        numeric=frozenset(numeric),
        long=True,
    )


def failures(findings: Findings) -> Table:
    """Failed transactions of all trials, by arm, kind and SQLSTATE."""
    found: dict[tuple[str, str, str], tuple[int, str]] = {}
    names = {of.arm.arm: of.arm.name for of in findings.arms}
    for trial in findings.trials:
        for failure in trial.failures:
            key = (names[trial.arm], failure.kind, failure.sqlstate)
            n, sample = found.get(key, (0, ""))
            found[key] = (n + failure.n, sample or failure.sample)
    rows = [
        [arm, kind_text(kind), sqlstate, grouped(n, 0), sample]
        for (arm, kind, sqlstate), (n, sample) in found.items()
    ]
    return Table(
        "Failures", ("arm", "kind", "SQLSTATE", "n", "a message"), rows, "Of all trials.", frozenset({"n"})
    )


def safety(findings: Findings) -> Table:
    """What each arm's settings keep and give up."""
    words = {True: "kept", False: "GIVEN UP", None: "unknown"}
    badges = [{badge.name: badge for badge in of.arm.safety} for of in findings.arms]
    names = list(dict.fromkeys(name for of_arm in badges for name in of_arm))
    rows = [
        [name, *(words[of_arm[name].kept] if name in of_arm else ABSENT for of_arm in badges)]
        for name in names
    ]
    columns = ("promise", *(of.arm.name for of in findings.arms))
    return Table("Safety", columns, rows, note=" ".join(given_up(findings)), said_elsewhere=True)


def given_up(findings: Findings) -> list[str]:
    """``GIVEN UP by 17 and 18: can be restored to a point in time (archive_mode is off).``, one a promise."""
    by_promise: dict[tuple[str, str], list[str]] = {}
    for of in findings.arms:
        for badge in of.arm.safety:
            if badge.kept is False:
                by_promise.setdefault((badge.name, badge.text), []).append(of.arm.name)
    return [
        f"GIVEN UP by {listed(names) if len(names) < len(findings.arms) else 'every arm'}: "
        f"{promise}{f' ({reason})' if reason else ''}."
        for (promise, reason), names in by_promise.items()
    ]


def listed(names: Sequence[str]) -> str:
    """``17, 18 and 18,fsync=off``."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def checks(findings: Findings) -> Table:
    """Each check, how often it passed, and what it said where it did not."""
    rows = []
    names = list(dict.fromkeys(check.name for trial in findings.trials for check in trial.checks))
    for name in names:
        for i, of in enumerate(findings.arms):
            mine = [c for t in findings.trials if t.arm == of.arm.arm for c in t.checks if c.name == name]
            if not mine:
                continue
            p_values = [check.p_value for check in mine if check.p_value is not None]
            bad = [check.detail for check in mine if not check.passed]
            least = min(p_values, default=None)
            rows.append(
                [
                    name if i == 0 else "",
                    of.arm.name,
                    f"{len(mine) - len(bad)} of {len(mine)}",
                    grouped(least, decimals_of(least, 2)) if least is not None else ABSENT,
                    bad[0] if bad else "",
                ]
            )
    return Table(
        title="Checks",
        columns=("check", "arm", "passed", "least p", "what failed"),
        rows=rows,
        note="A trial that fails a check is shown, excluded from the estimate, and counted.",
        numeric=frozenset({"passed", "least p"}),
        long=all(row[4] == "" for row in rows),
    )


def settings(findings: Findings) -> Table:
    """The effective settings in which arms differ."""
    effective = []
    for of in findings.arms:
        known = [t.settings for t in findings.trials if t.arm == of.arm.arm and t.settings]
        effective.append(known[-1] if known else of.arm.settings_requested)
    names = sorted({name for of_arm in effective for name in of_arm})
    rows = [
        [name, *(of_arm.get(name, ABSENT) for of_arm in effective)]
        for name in names
        if len({of_arm.get(name) for of_arm in effective}) > 1
    ]
    note = "Effective settings that are not equal in all arms."
    if len(rows) > SETTINGS_ROWS_MAX:
        note += f" {len(rows) - SETTINGS_ROWS_MAX} more are in the evidence."
    columns = ("setting", *(of.arm.name for of in findings.arms))
    return Table("Settings that differ", columns, rows[:SETTINGS_ROWS_MAX], note)


def servers(findings: Findings) -> Table:
    """What is known of the servers, their data and their clients."""
    facts: list[dict[str, str]] = []
    for of in findings.arms:
        mine = _flat(of.arm.server)
        mine |= {f"dataset {key}": value for key, value in _flat(of.arm.dataset).items()}
        mine["clients"] = str(of.arm.clients)
        mine["restore"] = format_duration(of.restore_s) if of.restore_s is not None else ABSENT
        mine["start"] = format_duration(of.start_s) if of.start_s is not None else ABSENT
        memory = of.driver_memory_bytes
        mine["driver's memory, peak"] = format_size(memory) if memory is not None else ABSENT
        facts.append(mine)
    names = list(dict.fromkeys(name for of_arm in facts for name in of_arm))
    rows = [[name, *(of_arm.get(name, ABSENT) for of_arm in facts)] for name in names]
    return Table("Servers", ("", *(of.arm.name for of in findings.arms)), rows, long=True)


def trials(findings: Findings) -> Table:
    """Every trial, with its primary metric."""
    primary, names = findings.primary, {of.arm.arm: of.arm.name for of in findings.arms}
    rows = []
    for trial in findings.trials:
        value = primary.value(trial, trial.measured)
        ok = trial.status is TrialStatus.OK
        rows.append(
            [
                str(trial.block + 1),
                names[trial.arm],
                str(trial.status),
                grouped(value, decimals_of(value, 4)) if value else ABSENT,
                str(len(trial.measured)),
                "" if ok else trial.reason,
            ]
        )
    columns = ("block", "arm", "status", primary.unit, "slices", "reason")
    return Table("Trials", columns, rows, numeric=frozenset({"block", primary.unit, "slices"}), long=True)


def host(findings: Findings) -> Table:
    """The machine, the driver, the plan's place in time."""
    study = findings.study
    facts = _flat(study.host)
    facts |= {f"engine {key}": value for key, value in _flat(study.engine).items()}
    facts["pgdyno"] = study.pgdyno_version
    return Table(
        "Machine and driver", ("", "value"), [[name, value] for name, value in facts.items()], long=True
    )


def kind_text(kind: str) -> str:
    """``new_order`` as ``new order``."""
    return "all kinds" if kind == ALL_KINDS else kind.replace("_", " ")


def _ms(value: float | None) -> str:
    return ABSENT if value is None else grouped(value, decimals_of(value, 3))


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested facts as one level of texts; sizes in bytes made readable."""
    found: dict[str, str] = {}
    for key, value in facts.items():
        name = prefix + str(key).replace("_", " ")
        if isinstance(value, Mapping):
            found |= _flat(value, f"{name} ")
        elif name.endswith(" bytes") and isinstance(value, int | float):
            found[name.removesuffix(" bytes")] = format_size(int(value))
        elif isinstance(value, list | tuple):
            found[name] = ", ".join(str(item) for item in value)
        else:
            found[name] = ABSENT if value is None else str(value)
    return found
