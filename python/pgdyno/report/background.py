"""Background: machine, servers, workload, and how it was measured.

- Detailed tables: workload, transactions, failures, settings, servers, trials, machine.
- The paragraphs on the method, made from the plan of the study.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from pgdyno.analysis.case_findings import Findings
from pgdyno.report import conditions
from pgdyno.report.document import Table
from pgdyno.report.result_tables import has_anytime_interval, kind_text
from pgdyno.results.password_masking import masked
from pgdyno.results.records import BlockStatus, RecordedCheck, StudyEnd, TrialStatus
from pgdyno.study.plan import SAME_BLOCKS_MIN, VERDICT_BLOCKS_MIN, Study
from pgdyno.study.values import RESOLUTION
from pgdyno.units import (
    ABSENT,
    counted,
    format_duration,
    format_duration_range,
    format_size,
    given_number,
    given_percent,
    group_digits,
    share_text,
    significant,
)

# ----------------------------------------------------------------------
# Detailed tables: workload, transactions, failures, settings, servers, trials, machine.
# ----------------------------------------------------------------------

SETTINGS_ROWS_MAX = 60
"""Maximum number of differing settings shown; the results file has all."""


def transactions(findings: Findings) -> Table:
    """Return the number of transactions by outcome, kind and arm, in the measured slices."""
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
                    *(group_digits(cell, 0) for cell in cells),
                    share_text(counts.all / total) if total else ABSENT,
                ]
            )
    return Table(
        title="Transactions",
        columns=("kind", "arm", *numeric),
        rows=rows,
        note="Valid trials only. Rolled back: rollbacks by design. Retried: number of attempts.",
        numeric=frozenset(numeric),
        long=True,
    )


def workload(findings: Findings) -> Table:
    """Return the parameters of the workload."""
    facts = masked(findings.study.plan.workload.model_dump(exclude={"scripts"}))
    rows = [[name, value or "none"] for name, value in _flat(facts).items()]
    return Table("Workload", ("", "value"), rows, long=True)


def deviations(findings: Findings) -> Table:
    """Return the deviations of each arm from TPC-C, with their clauses."""
    rows = []
    for of in findings.arms:
        own = findings.study.plan.driving(of.arm.arm).workload.deviations
        rows += [
            [
                of.arm.name if i == 0 else "",
                one.name,
                f"{one.clause}*" if one.allowed else one.clause,
                one.about,
            ]
            for i, one in enumerate(own)
        ]
    return Table(
        "Deviations from TPC-C",
        ("arm", "deviation", "clause", "difference"),
        rows,
        "* TPC-C permits it, but pgdyno's default differs, and the speed may depend on it.",
        dispensable=("difference",),
    )


EFFECTS = {
    "all": "account, teller, branch, history",
    "accounts": "account, history",
    "none": "nothing",
    "unknown": "unknown",
}


def scripts(findings: Findings) -> Table:
    """Return the scripts that clients choose by weight. The results file has their text."""
    every = findings.study.plan.workload.listed_scripts()
    total = sum(script.weight for script in every)
    rows = [
        [
            script.name,
            group_digits(script.weight, 0),
            share_text(script.weight / total),
            "built-in" if script.is_builtin else "custom",
            EFFECTS[script.effect],
        ]
        for script in every
    ]
    columns = ("script", "weight", "share", "type", "tables changed")
    return Table("Scripts", columns, rows, numeric=frozenset({"weight", "share"}), long=True)


def script_options(findings: Findings) -> Table:
    """Return the options of a script of sysbench that were given."""
    given = findings.study.plan.workload.options_of_script()
    rows = [[name, value] for name, value in given.items()]
    return Table("Options of the script", ("option", "value"), rows, long=True)


def failures(findings: Findings) -> Table:
    """Return the failed transactions of all trials by arm, kind and SQLSTATE, the most frequent first."""
    found: dict[tuple[str, str, str], tuple[int, str]] = {}
    names = {of.arm.arm: of.arm.name for of in findings.arms}
    for trial in findings.trials:
        for failure in trial.failures:
            key = (names[trial.arm], failure.kind, failure.sqlstate)
            n, sample = found.get(key, (0, ""))
            found[key] = (n + failure.n, sample or failure.message)
    rows = [
        [arm, kind_text(kind), sqlstate, group_digits(n, 0), sample]
        for (arm, kind, sqlstate), (n, sample) in sorted(found.items(), key=lambda item: -item[1][0])
    ]
    return Table(
        "Failures",
        ("arm", "kind", "SQLSTATE", "n", "example"),
        rows,
        "All trials, including excluded ones.",
        frozenset({"n"}),
    )


SETTINGS = tomllib.loads(files(__package__).joinpath("settings.toml").read_text("utf-8"))
"""Names of settings by their role in reports."""


def settings(findings: Findings) -> Table:
    """Return the effective settings that differ between arms."""
    rows = [row for row in differing_settings(findings) if ABSENT not in row]
    note = "Effective settings that are not equal in all arms."
    if len(rows) > SETTINGS_ROWS_MAX:
        note += f" {len(rows) - SETTINGS_ROWS_MAX} more are in the results file."
    columns = ("setting", *(of.arm.name for of in findings.arms))
    return Table("Settings that differ", columns, rows[:SETTINGS_ROWS_MAX], note)


def version_specific_settings(findings: Findings) -> Table:
    """Return the settings that some versions of the arms do not have."""
    rows = [row for row in differing_settings(findings) if ABSENT in row]
    columns = ("setting", *(of.arm.name for of in findings.arms))
    note = f"{ABSENT}: this version does not have the setting."
    return Table("Settings of some versions only", columns, rows, note, long=True)


def differing_settings(findings: Findings) -> list[list[str]]:
    """Return a row for each effective setting that is not equal in all arms: name, value of each arm."""
    effective = []
    for of in findings.arms:
        known = [t.settings for t in findings.trials if t.arm == of.arm.arm and t.settings]
        effective.append(known[-1] if known else of.arm.settings_requested)
    names = sorted({name for of_arm in effective for name in of_arm} - set(SETTINGS["not_set"]))
    return [
        [name, *(of_arm.get(name, ABSENT) or "(empty)" for of_arm in effective)]
        for name in names
        if len({of_arm.get(name) for of_arm in effective}) > 1
    ]


def server_table(findings: Findings) -> Table:
    """Return the properties of the servers, their data and their clients."""
    facts: list[dict[str, str]] = []
    for of in findings.arms:
        mine = _flat(of.arm.server)
        mine |= {f"dataset {key}": value for key, value in _flat(of.arm.dataset).items()}
        mine["clients"] = findings.study.plan.clients_text(of.arm.clients)
        mine["restore"] = format_duration(of.restore_s) if of.restore_s is not None else ABSENT
        mine["start"] = format_duration(of.start_s) if of.start_s is not None else ABSENT
        memory = of.driver_memory_bytes
        mine["driver memory, peak"] = format_size(memory) if memory is not None else ABSENT
        facts.append(mine)
    names = list(dict.fromkeys(name for of_arm in facts for name in of_arm))
    rows = [[name, *(of_arm.get(name, ABSENT) for of_arm in facts)] for name in names]
    return Table("Servers", ("", *(of.arm.name for of in findings.arms)), rows, long=True)


def trials(findings: Findings) -> Table:
    """Return all trials with the primary metric."""
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
                significant(value, 4) if value else ABSENT,
                str(len(trial.measured)),
                "" if ok else trial.full_reason,
            ]
        )
    columns = ("block", "arm", "status", primary.unit, "slices", "reason")
    return Table("Trials", columns, rows, numeric=frozenset({"block", primary.unit, "slices"}), long=True)


def host(findings: Findings) -> Table:
    """Return the properties of the machine and the driver."""
    study = findings.study
    facts = _flat({name: fact for name, fact in study.host.items() if name != "states"})
    facts |= {f"engine {key}": value for key, value in _flat(study.engine).items()}
    facts["pgdyno"] = study.pgdyno_version
    return Table(
        "Machine and driver", ("", "value"), [[name, value] for name, value in facts.items()], long=True
    )


CELL_REPEATED_MAX = 40


def machine_check_table(findings: Findings) -> Table:
    """Return the checks of the doctor before and after the study."""
    states = findings.study.host_facts.states
    found = [{one.about: one for one in state.checks} for state in states]
    names = list(dict.fromkeys(name for of_state in found for name in of_state))
    rows = [[name, *_without_repeats([_text_of(of_state.get(name)) for of_state in found])] for name in names]
    columns = ("check", *_distinct([state.when for state in states]))
    note = "Checks with a problem are caveats, with a remedy (pgdyno doctor)."
    return Table("State of the machine", columns, rows, note, long=True)


def _text_of(one: RecordedCheck | None) -> str:
    if one is None:
        return ABSENT
    return one.text if one.found == "fine" else f"{one.found}: {one.text}"


def _without_repeats(cells: list[str]) -> list[str]:
    """Replace a long text that repeats the previous cell."""
    long = [i > 0 and cell == cells[i - 1] and len(cell) > CELL_REPEATED_MAX for i, cell in enumerate(cells)]
    return ["the same" if again else cell for cell, again in zip(cells, long, strict=True)]


def _distinct(names: list[str]) -> list[str]:
    """Number repeated names: a resumed study has several states "before" and "after"."""
    found = []
    for i, name in enumerate(names):
        several = names.count(name) > 1
        found.append(f"{name}, {names[: i + 1].count(name)}" if several else name)
    return found


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Flatten nested facts to one level of texts, with readable sizes."""
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


# ----------------------------------------------------------------------
# The paragraphs on the method, made from the plan of the study.
# ----------------------------------------------------------------------

METHOD = tomllib.loads(files(__package__).joinpath("method.toml").read_text("utf-8"))
"""Sentences on the method that do not depend on the plan."""


def certainty_paragraphs(findings: Findings) -> list[str]:
    """Return the paragraphs on the statistics and the noise."""
    plan = findings.study.plan
    before = f" (before block {SAME_BLOCKS_MIN}: undecided)" if has_anytime_interval(findings) else ""
    statistics = (
        "The block is the unit of replication. Each block gives one ratio per arm; the effect is their "
        f"geometric mean. {_interval(findings)} "
        f"The equivalence margin is {given_percent(plan.margin)}. Arms are equivalent if two one-sided "
        f"tests at {given_percent(round(1 - plan.confidence, 9))} reject a larger effect"
        f"{before}. Otherwise a CI that excludes zero means faster or slower. Anything "
        f"else, or fewer than {VERDICT_BLOCKS_MIN} blocks, means undecided. The verdict is "
        f"about {findings.primary.name}. CIs of other metrics are of the same kind, descriptive and not "
        "corrected for their number."
    )
    if len(findings.arms) > 2:
        statistics += " Comparisons of several arms with the baseline are corrected by Holm's method."
    return [statistics, conditions.noise_sentence(findings)]


def method_paragraphs(findings: Findings) -> list[str]:
    """Return the paragraphs on the schedule and the metrics."""
    plan = findings.study.plan
    layout = [METHOD["schedules"][plan.schedule], _partitions(plan), _restored(findings), _sizes(plan)]
    layout += [conditions.warm_up_sentence(findings), conditions.window_sentence(plan)]
    layout += [METHOD["steps"][step] for step in METHOD["steps"] if getattr(plan, step)]
    paragraphs = [" ".join(sentence for sentence in layout if sentence), METHOD["latency"]]
    return [*paragraphs, _capacity(plan)] if plan.searches_capacity else paragraphs


def _capacity(plan: Study) -> str:
    text: str = METHOD["capacity_of_clients" if plan.searches_clients else "capacity"]
    width = given_percent(RESOLUTION - 1)
    steps: str = METHOD["capacity_steps"]
    return text.format(limit=plan.limit_text, width=width, clients=plan.clients) + steps


def _partitions(plan: Study) -> str:
    """Return the CPU partitions of a duet."""
    partition = plan.cpu_partition
    if partition is None:
        return ""
    sides = " and ".join(", ".join(map(str, side)) for side in partition.cores)
    found = f"The CPU partitions are cores {sides}"
    found += ", which are SMT siblings of one physical core." if partition.of_one_core else "."
    if resting := partition.resting:
        found += (
            f" The {'core' if len(resting) == 1 else 'cores'} {', '.join(map(str, resting))} stayed idle."
        )
    return found


def _interval(findings: Findings) -> str:
    plan = findings.study.plan
    level = f"({given_percent(plan.confidence)} unless stated otherwise)"
    if not plan.needs_anytime_intervals:
        return f"Its CI {level} is Student's t on log ratios."
    blocks = counted(sum(block.status is BlockStatus.DONE for block in findings.blocks), "block")
    ended = (
        "and stopped when all verdicts were decided"
        if findings.study.ended_because is StudyEnd.VERDICT
        else ""
    )
    if not has_anytime_interval(findings):
        return (
            f"Its CI {level} is Student's t on log ratios, because the study has no interim analysis: the "
            f"first follows block {VERDICT_BLOCKS_MIN}."
        )
    first = VERDICT_BLOCKS_MIN
    analyses = f"An interim analysis followed each block from the {first}th on ({blocks} in total) {ended}"
    if not plan.stops_on_verdict:
        analyses = f"The study was resumed: its length ({blocks} in total) was not fixed in advance"
    return (
        f"Its CI {level} is a mixture t test on log ratios, valid at any stopping time. {analyses.strip()}."
    )


def _restored(findings: Findings) -> str:
    """Return the state of the data at the start of a block."""
    arms, plan = [of.arm for of in findings.arms], findings.study.plan
    running = [arm.name for arm in arms if arm.server_facts.provider == "dsn"]
    sentences = []
    if len(running) < len(arms):
        which = "all arms" if not running else "the other arms"
        restored = f"the data of {which} is restored from the snapshot"
        sentences.append(
            f"Before each block, {restored} and the server is restarted{METHOD['caches'][plan.cache_state]}."
        )
    if running:
        data = "is used as it is" if plan.into_existing else "is copied from the template database"
        sentences.append(f"{', '.join(running)} was already running and is not restarted; its data {data}.")
    return " ".join(reversed(sentences))


def _sizes(plan: Study) -> str:
    parts = [f"warm-up {format_duration_range(plan.warmup_min_s, plan.warmup_s)}"]
    if plan.is_together:
        slices = f"{plan.slices_per_trial()} slices of {format_duration(plan.slice_s)} per arm and block"
        found_by = plan.slice_from
        parts.append(f"{slices} (length from {found_by})" if found_by else slices)
    elif plan.window_s is not None:
        parts.append(f"measured window {format_duration(plan.window_s)} per arm and block")
    elif plan.transactions is not None:
        parts.append(f"{counted(plan.transactions, 'transaction')} of each client per arm and block")
    if plan.discard_s and plan.transactions is None:
        parts.append(f"first {format_duration(plan.discard_s)} of each discarded")
    if plan.rate_per_s is not None:
        parts.append(f"open loop at {given_number(plan.rate_per_s)} transactions per second")
    elif plan.pacing != "none":
        parts.append(f"pacing {plan.pacing}")
    else:
        parts.append("closed loop without pacing")
    parts.append(f"seed {plan.seed}")
    sentence = ", ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}."
