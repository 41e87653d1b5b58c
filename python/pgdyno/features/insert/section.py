"""Section of the insert benchmark: costs of an operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.comparison import ok_by_block
from pgdyno.analysis.queries import effects_on
from pgdyno.analysis.statistics.intervals import level_of, method_of
from pgdyno.analysis.telemetry.metrics import METRICS, Metric, paced
from pgdyno.analysis.telemetry.trial_telemetry import TrialTelemetry
from pgdyno.features.insert.parameters import InsertParameters, Phase
from pgdyno.report.document import Section, Table
from pgdyno.report.result_tables import change_with_ci, in_a_head, level_text
from pgdyno.results.records import Trial
from pgdyno.study.workload_parameters import Pace
from pgdyno.units import ABSENT, US_PER_S, Better

BLOCK_KIB = 8
"""Size of a block, unless the server was built with another one."""


@dataclass(frozen=True)
class Cost:
    """A cost as the benchmark names it. ``of_query``: per query in phases with queries, else per row.

    ``value``: amount per transaction of a trial. ``whole_machine``: counted for all programs, so that it is
    of one arm only if no other server runs.
    """

    name: str
    unit: str
    of_query: bool
    value: Callable[[Trial, TrialTelemetry], float | None]
    whole_machine: bool = False


def _cpu(trial: Trial, _: TrialTelemetry) -> float | None:
    known = (trial.server_cpu_s, trial.driver_cpu_s)
    if None in known or not trial.transactions:
        return None
    return US_PER_S * sum(one or 0.0 for one in known) / trial.transactions


BLOCKS_READ = "database.blocks_read_per_tx"


def _read(_: Trial, telemetry: TrialTelemetry) -> float | None:
    blocks = telemetry.values.get(BLOCKS_READ)
    return None if blocks is None else BLOCK_KIB * blocks


def _written(_: Trial, telemetry: TrialTelemetry) -> float | None:
    known = [telemetry.values.get(key) for key in ("io.written_bytes_per_tx", "wal.bytes_per_tx")]
    return None if None in known else sum(one or 0.0 for one in known) / 1024


def _machine(counter: str) -> Callable[[Trial, TrialTelemetry], float | None]:
    def value(trial: Trial, telemetry: TrialTelemetry) -> float | None:
        grown = telemetry.machine.get(counter)
        return grown / trial.transactions if grown is not None and trial.transactions else None

    return value


COSTS = (
    Cost("cpupq", "µs", True, _cpu),
    Cost("rkbpq", "KiB", True, _read),
    Cost("rpq", "reads", True, _machine("disk_reads"), whole_machine=True),
    Cost("cspq", "switches", True, _machine("context_switches"), whole_machine=True),
    Cost("wkbpi", "KiB", False, _written),
    Cost("wpi", "writes", False, _machine("disk_writes"), whole_machine=True),
)


def sections(findings: Findings) -> Iterator[Section]:
    """Yield the costs of an operation of a case."""
    workload = findings.study.plan.workload
    if not isinstance(workload, InsertParameters):
        return
    table = cost_table(findings, workload.does)
    if table.rows:
        yield Section("insert-costs", tables=[table], after="latencies")


def cost_table(findings: Findings, phase: Phase) -> Table:
    """Return a row for each cost that the results have, with the changes of the arms."""
    plan = findings.study.plan
    metrics = [
        _metric(cost, findings, phase)
        for cost in COSTS
        # The server does not count what index creation writes.
        if not (cost.whole_machine and plan.is_together) and not (cost.value is _written and phase.indexes)
    ]
    by_block, method = ok_by_block(findings.trials), method_of(plan, findings.trials)
    arms = [of.arm for of in findings.arms]
    effects = effects_on(arms, findings.trials, metrics, plan.schedule, plan.confidence, method)
    rows = []
    for metric in metrics:
        levels = [
            level_of(
                {
                    trial.block: value
                    for block in by_block.values()
                    if (trial := block.get(arm.arm))
                    and (value := metric.value(trial, trial.measured)) is not None
                },
                metric.unit,
                metric.better,
                plan.confidence,
                method,
            )
            for arm in arms
        ]
        if any(levels):
            shown = [level_text(of) if of else ABSENT for of in levels]
            changes = [
                change_with_ci(of[metric.key].percent) if metric.key in of else ABSENT
                for of in effects.values()
            ]
            rows.append([metric.key, metric.name, *shown, *changes])
    names = [arm.name for arm in arms]
    heads = [f"{name} vs. {in_a_head(names[0])}" for name in names[1:]]
    note = "CPU time is that of server and driver. Reads are blocks that were not in shared buffers."
    if not phase.indexes:
        note += " Written bytes are those of pg_stat_io (from version 16 on) and of the WAL."
    missing = " rpq, cspq and wpi count the whole machine: use --schedule=blocks." if plan.is_together else ""
    return Table(
        "Cost per operation",
        ("cost", "unit", *names, *heads),
        rows,
        note + missing,
        frozenset((*names, *heads)),
        long=True,
    )


def _metric(cost: Cost, findings: Findings, phase: Phase) -> Metric:
    """Return a cost as a metric, per query, inserted row or indexed row."""
    pace, operation = Pace("rows/s", "insert", phase.batch), "inserted row"
    if phase.indexes:
        pace, operation = findings.study.plan.workload.pace, "indexed row"
    elif cost.of_query and phase.query is not None:
        pace, operation = phase.pace, "query"
    values: dict[int, Mapping[str, float | None]] = {}
    for trial in findings.trials:
        telemetry = findings.telemetry.by_trial.get(trial.trial)
        each = None if telemetry is None else cost.value(trial, telemetry)
        values[trial.trial] = {cost.name: _per_operation(each, trial, pace)}
    unit = f"{cost.unit} per {operation}"
    recounted = METRICS[BLOCKS_READ].recounted if cost.value is _read else 0
    return Metric(cost.name, unit, cost.unit, Better.LESS, recounted=recounted, by_trial=values)


def _per_operation(per_transaction: float | None, trial: Trial, pace: Pace) -> float | None:
    """Divide by operations instead of transactions, as many as the measured slices have of both."""
    operations = paced(pace, trial.measured)
    transactions = paced(Pace("tx/s", None, 1.0), trial.measured)
    if per_transaction is None or not operations or transactions is None:
        return None
    return per_transaction * transactions / operations
