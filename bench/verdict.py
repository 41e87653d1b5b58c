"""Time until a verdict on this machine, and error rates: ``python -m bench verdict``.

One arm has a known slowdown: each transaction does more of the same work in the server. Complete studies run
as in ``pgdyno compare``, with restores, restarts, checks and A/A blocks, until their verdict or the time
limit. They alternate with studies of identical arms. Results are the share of correct verdicts within the
limit, and the minutes from the start of the first block to the end of the last. Each block is stored with the
covariates of the machine during its measured part.

A study takes minutes, so there are few of them. ``--keep FILE`` collects them over several runs on a machine.
``--record`` stores them in bench/verdicts.jsonl. Thousands
of simulated studies with blocks resampled from the recorded ones complement them.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import numpy as np

from bench.noise import Floats
from bench.stopping import PATHS, SEED, apply_stopping_rule, table
from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.measurement_noise import interim_result
from pgdyno.analysis.statistics.intervals import Method, percent_of, student
from pgdyno.analysis.telemetry.trial_telemetry import telemetry_of_trial
from pgdyno.cli.options import machine_size
from pgdyno.features.disturbed_blocks import repetition
from pgdyno.features.outliers.findings import covariates
from pgdyno.interruption import Interruption
from pgdyno.measure.progress import Progress, Watch
from pgdyno.measure.study_runner import start_study
from pgdyno.results.reader import Evidence
from pgdyno.results.records import TrialStatus
from pgdyno.server.build_store import system_builds
from pgdyno.study.arm_spec import parse_arm
from pgdyno.study.cases import Request, only_case
from pgdyno.study.defaults import SLICE_S, adaptive_warm_up, default_clients, discard_s, fit_block_layout
from pgdyno.study.plan import VERDICT_BLOCKS_MIN, Driving, Study, block_targets
from pgdyno.units import Better
from pgdyno.workloads.pgbench.parameters import PgbenchParameters, Script

WORKS = {
    "cpu": "SELECT count(*) FROM generate_series(1, :work);",
    "update": (
        "\\set aid random(1, 100000 * :scale)\n"
        "BEGIN;\n"
        "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;\n"
        "SELECT count(*) FROM generate_series(1, :work);\n"
        "END;"
    ),
}
"""The loop over ``:work`` takes nearly all the time of a transaction; ``update`` also commits."""

EFFECTS = (0.0, 0.02, 0.05)
MINUTES_MAX = 25.0
TURNS = 20_000
"""A few milliseconds of a core: the round trip and the planning add a few percent."""

RECORDED = Path(__file__).with_name("verdicts.jsonl")
"""Studies with the default options of ``pgdyno compare``, except ``--minutes`` and ``--schedule``."""

OF_HOST = (
    "steal",
    "others",
    "swapped",
    "memory_pressure",
    "disk_write_ms",
    "io_pressure",
    "iowait",
    "cpu_pressure",
)
"""Recorded covariates of the machine (``outliers.findings.COVARIATES``), besides those of the probe
``programs``. ``others`` includes the kernel's work for the servers."""

SOON_MIN = 4.0
"""Time limit in minutes for a change of 5%, to be met by 90% of the studies."""


@dataclass(frozen=True)
class Options:
    """Options of the studies. ``effects``: slowdowns as shares of the work (0.05), 0 for identical arms."""

    effects: tuple[float, ...]
    trials: int
    minutes_max: float
    schedule: str
    slice_s: float
    work: str
    server: str
    turns: int = TURNS
    window_s: float | None = None


@dataclass(frozen=True)
class StudyRun:
    """One complete study. ``log_ratios``: one per block.

    ``covariates``: by block and key, the largest of both arms. Empty for studies before their recording.
    """

    effect: float
    verdict: Verdict
    minutes: float
    log_ratios: tuple[float, ...]
    day: str = ""
    covariates: tuple[Mapping[str, float], ...] = ()

    def line(self, options: Options) -> str:
        """Return the line of a JSON Lines file."""
        return json.dumps({"options": _shared_options(options), **asdict(self)}) + "\n"


def runs_in(path: Path, options: Options) -> list[StudyRun]:
    """Read the studies in a JSON Lines file that ran with the same options, with any effect."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    found = [dict(json.loads(line)) for line in lines]
    return [
        StudyRun(
            of["effect"],
            Verdict(of["verdict"]),
            of["minutes"],
            tuple(of["log_ratios"]),
            of["day"],
            tuple(of.get("covariates", ())),
        )
        for of in found
        if of["options"] == _shared_options(options)
    ]


def _shared_options(options: Options) -> dict[str, object]:
    """Return the options that studies must share to be counted together."""
    return {key: value for key, value in asdict(options).items() if key not in ("effects", "trials")}


def run(options: Options, first: int = 0) -> Iterator[StudyRun]:
    """Run studies, all effects in turn, so that drift of the machine over hours affects all equally.

    ``first`` is the number of the first trial. It makes the seeds differ from those of earlier trials.
    """
    with tempfile.TemporaryDirectory(prefix="pgdyno-verdict-") as directory, Interruption() as interruption:
        for trial in range(first, first + options.trials):
            for effect in options.effects:
                path = Path(directory) / f"{trial}-{effect}.sqlite"
                study = planned_study(options, effect, seed=1000 * trial + round(1e4 * effect))
                start_study(path, Request(study.title, [only_case(study)], ""), no_progress, interruption)
                if interruption.requested:
                    return
                yield _study_run(path, effect)
                path.unlink()


def planned_study(options: Options, effect: float, seed: int) -> Study:
    """Plan a study as ``pgdyno compare --slice … --minutes … --schedule …`` does."""
    machine, budget_s = machine_size(), 60 * options.minutes_max
    duet = options.schedule == "duet"
    clients = default_clients(replace(machine, cores=max(1, machine.cores // 2)) if duet else machine)
    rhythm = fit_block_layout(budget_s, 1 if duet else 2, options.slice_s, options.schedule, block_targets())
    warm_up = adaptive_warm_up(rhythm.warmup_s, rhythm.warmup_s, options.slice_s)
    rounds = rhythm.rounds
    if options.window_s is not None:
        rounds = max(2, 2 * round(options.window_s / options.slice_s / 2))
    drivings = tuple(_driving(options, share, clients) for share in (0.0, effect))
    return Study.model_validate(
        {
            **dict(drivings[0]),
            "title": f"{effect:.1%} more work",
            "arms": [parse_arm(options.server).model_copy(update={"name": name}) for name in "AB"],
            "drivings": drivings,
            "schedule": options.schedule,
            "slice_s": options.slice_s,
            "discard_s": discard_s(options.slice_s),
            "warmup_s": warm_up.most_s,
            "warmup_min_s": warm_up.least_s,
            "rounds": rounds,
            "budget_s": budget_s,
            "seed": seed,
        }
    )


def _driving(options: Options, effect: float, clients: int) -> Driving:
    workload = PgbenchParameters(
        scale=1 if options.work == "cpu" else clients,
        scripts=(Script(name=options.work, text=WORKS[options.work]),),
        protocol="prepared",
        define={"work": str(round(options.turns * (1 + effect)))},
    )
    return Driving(workload=workload, clients=clients)


@contextmanager
def no_progress(_names: Sequence[str]) -> Iterator[Watch]:
    """Ignore the progress of a study."""

    def watch(_: Progress) -> None:
        pass

    yield watch


def _study_run(path: Path, effect: float) -> StudyRun:
    with Evidence(path) as evidence:
        comparison = interim_result(evidence, 0).comparisons[0]
        blocks = [block for block in evidence.blocks(0) if block.ended_unix_s is not None]
        of_host = _covariates(evidence)
    lasted_s = max(b.ended_unix_s or 0.0 for b in blocks) - min(b.started_unix_s for b in blocks)
    ratios = comparison.primary.log_ratios if comparison.primary else {}
    return StudyRun(
        effect,
        comparison.verdict,
        lasted_s / 60,
        tuple(ratios.values()),
        datetime.now(tz=UTC).date().isoformat(),
        tuple(of_host[block] for block in ratios),
    )


def _covariates(evidence: Evidence) -> dict[int, dict[str, float]]:
    """Return the covariates of the machine by block and key, the largest of both arms."""
    every = evidence.trials()
    trials = [trial for trial in every if trial.status is TrialStatus.OK]
    probed = {of.trial: telemetry_of_trial(of, evidence.readings(of.trial)) for of in every}
    known = covariates(every, probed)
    found: dict[int, dict[str, float]] = {}
    for trial in trials:
        of_block = found.setdefault(trial.block, {})
        values = [(key, known[trial.trial][key]) for key in OF_HOST if key in known[trial.trial]]
        for row in repetition.covariates(evidence, [trial]):
            values += [(key, value) for key, value in row.items() if isinstance(value, float)]
        for key, value in values:
            of_block[key] = max(of_block.get(key, 0.0), round(value, 3))
    return found


def report(runs: Sequence[StudyRun], options: Options) -> str:
    """Format the table of the studies, and the table of simulated studies."""
    residuals = _residuals(runs)
    drawn = [_simulated_row(effect, residuals, runs, options) for effect in options.effects]
    head = (
        "additional work",
        "blocks to draw from",
        "minutes a block",
        f"right within {SOON_MIN:g} min",
        f"right within {options.minutes_max:g} min",
        "another verdict",
        "minutes, median",
        "minutes, 9 of 10",
    )
    simulated = f"{PATHS:,} studies each, of blocks drawn from these:"
    return "\n\n".join((_measured_table(runs, options), simulated, table(head, drawn)))


def _measured_table(runs: Sequence[StudyRun], options: Options) -> str:
    rows = [_row([one for one in runs if one.effect == effect], options) for effect in options.effects]
    head = (
        "additional work",
        "change measured, all blocks",
        "SD of a block",
        "studies",
        "slower",
        "same",
        "faster",
        f"undecided in {options.minutes_max:g} min",
        "minutes, median",
        "minutes, 9 of 10",
    )
    return table(head, rows)


def _row(runs: Sequence[StudyRun], options: Options) -> list[str]:
    if not runs:
        return ["–"] * 10
    every = [d for one in runs for d in one.log_ratios]
    summary = student(every, 0.95)
    verdicts = [one.verdict for one in runs]
    minutes = [one.minutes if one.verdict is not Verdict.UNDECIDED else math.inf for one in runs]
    nine = float(np.quantile(minutes, 0.9, method="inverted_cdf"))
    return [
        _percent(runs[0].effect),
        f"{summary.percent(Better.MORE).signed_text} {summary.percent(Better.MORE).signed_interval_text}",
        "–" if summary.sd is None else f"{percent_of(summary.sd):.1f}%",
        str(len(runs)),
        *(
            str(verdicts.count(of))
            for of in (Verdict.SLOWER, Verdict.SAME, Verdict.FASTER, Verdict.UNDECIDED)
        ),
        *(_minutes(of, options) for of in (median(minutes), nine)),
    ]


def _residuals(runs: Sequence[StudyRun]) -> Floats:
    """Return the residuals of log ratios around the mean of each effect.

    All studies are pooled, because those that stopped early had less noise. Residuals are scaled, because
    their SD around the sample mean is too small.
    """
    of_effects = [
        np.array([d for one in runs if one.effect == effect for d in one.log_ratios])
        for effect in sorted({one.effect for one in runs})
    ]
    left = [(d - d.mean()) * math.sqrt(len(d) / (len(d) - 1)) for d in of_effects if len(d) > 1]
    return np.concatenate([np.zeros(0), *left])


def _simulated_row(effect: float, residuals: Floats, runs: Sequence[StudyRun], options: Options) -> list[str]:
    """Simulate studies with blocks drawn with replacement, as if independent, around the change of this
    effect.
    """
    minutes_each = sum(one.minutes for one in runs) / max(1, sum(len(one.log_ratios) for one in runs))
    blocks = math.floor(options.minutes_max / minutes_each) if minutes_each else 0
    if not len(residuals) or blocks < VERDICT_BLOCKS_MIN:
        return [_percent(effect)] + ["–"] * 7
    drawn = np.random.default_rng(SEED).choice(residuals, (PATHS, blocks))
    found = apply_stopping_rule(drawn, 1 / (1 + effect) - 1, Method.ANYTIME)
    right = found.verdict == (-1 if effect else 0)
    minutes = np.where(right, found.stopped * minutes_each, math.inf)
    median_and_nine = (float(np.quantile(minutes, share, method="inverted_cdf")) for share in (0.5, 0.9))
    shares = ((minutes <= SOON_MIN).mean(), right.mean(), (~right & ~np.isnan(found.verdict)).mean())
    return [
        _percent(effect),
        str(len(residuals)),
        f"{minutes_each:.2f}",
        *(f"{100 * float(share):.1f}%" for share in shares),
        *(_minutes(of, options) for of in median_and_nine),
    ]


def _percent(effect: float) -> str:
    return f"{100 * effect:g}%" if effect else "none"


def _minutes(of: float, options: Options) -> str:
    return f"{of:.1f}" if math.isfinite(of) else f"> {options.minutes_max:g}"


def main(arguments: Sequence[str]) -> int:
    """Print a line per study on standard error, and the tables at the end."""
    parser = argparse.ArgumentParser(prog="python -m bench verdict", description=__doc__)
    parser.add_argument("--effect", type=float, action="append", metavar="PERCENT", help="[default: 2, 5]")
    parser.add_argument("--trials", type=int, default=10, metavar="N", help="studies of each [default: 10]")
    parser.add_argument(
        "--minutes-max", type=float, default=MINUTES_MAX, metavar="N", help="of each [default: 25]"
    )
    parser.add_argument("--schedule", default="slices", help="[default: slices]")
    parser.add_argument("--slice", type=float, default=SLICE_S, metavar="S", help="seconds [default: 0.5]")
    parser.add_argument(
        "--window", type=float, metavar="S", help="seconds per arm and block [default: fitted]"
    )
    parser.add_argument("--work", choices=sorted(WORKS), default="update", help="[default: update]")
    parser.add_argument("--server", help="a version or a directory [default: the installed one]")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="goes on with the studies in it")
    parser.add_argument("--record", action="store_true", help=f"goes on with those in {RECORDED.name}")
    parser.add_argument("--smoke", action="store_true", help="tiny, in seconds: does it still run?")
    chosen = parser.parse_args(arguments)
    builds = system_builds()
    server = chosen.server or (str(builds[0].bin_dir) if builds else "18")
    effects = (0.0, *(percent / 100 for percent in chosen.effect)) if chosen.effect else EFFECTS
    options = Options(
        effects=effects,
        trials=chosen.trials,
        minutes_max=chosen.minutes_max,
        schedule=chosen.schedule,
        slice_s=chosen.slice,
        work=chosen.work,
        server=server,
        window_s=chosen.window,
    )
    if chosen.smoke:
        options = Options((0.0, 1.0), 1, 0.15, chosen.schedule, 0.2, chosen.work, server, 2000, 0.4)
    keep = RECORDED if chosen.record else chosen.keep
    runs = runs_in(keep, options) if keep else []
    for one in run(options, first=len(runs)):
        runs.append(one)
        if keep:
            with keep.open("a", encoding="utf-8") as file:
                file.write(one.line(options))
        found = f"{one.verdict} after {one.minutes:.1f} min, {len(one.log_ratios)} blocks"
        print(f"{100 * one.effect:g}% more work: {found}", file=sys.stderr, flush=True)
    print(report(runs, options))
    return 0
