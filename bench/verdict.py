"""``python -m bench verdict``: how long a verdict takes on this machine, and how often it is wrong.

An arm has a known slowdown: each of its transactions does so much more of the same work in the server. Whole
studies are run as ``pgdyno compare`` runs them, with restores, restarts, checks and A/A blocks, until their
verdict or the limit; studies of two arms that are alike stand between them. What is told of each: whether the
right verdict came in time, and minutes from the beginning of the first block to the end of the last.

A study takes minutes, so there are never many. ``--keep FILE`` collects them over several calls on a machine;
``--record`` does so in bench/verdicts.jsonl, and writes docs/explanation/time-to-a-verdict.md from it.
And what is known of their blocks is told beside: how thousands of studies would end whose blocks were drawn
from these.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import numpy as np

from bench.noise import Floats
from bench.stopping import PATHS, SEED, judged, table
from pgdyno.analysis.comparison.interim_analysis import interim_result
from pgdyno.analysis.comparison.verdict import Verdict
from pgdyno.analysis.statistics.effect import Method, percent_of, student
from pgdyno.cli.duration_options import warm_up_from_option
from pgdyno.cli.options import machine_size
from pgdyno.estimate import Better
from pgdyno.interruption import Interruption
from pgdyno.lab.progress import Progress, Watch
from pgdyno.lab.study_runner import Request, start_study
from pgdyno.results.reader import Evidence
from pgdyno.server.find_build import system_builds
from pgdyno.study.arm_spec import parse_arm
from pgdyno.study.cases import only_case
from pgdyno.study.defaults import SLICE_S
from pgdyno.study.pgbench_parameters import PgbenchParameters, Script
from pgdyno.study.plan import Driving, Study
from pgdyno.study.sizing import default_clients, discard_s, fit_block_layout
from pgdyno.study.stopping_rule import VERDICT_BLOCKS_MIN

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
"""Nearly all of a transaction's time is the loop of ``:work`` turns; update commits besides."""

EFFECTS = (0.0, 0.02, 0.05)
MINUTES_MAX = 25.0
TURNS = 20_000
"""Milliseconds of a core: what comes beside the loop, a round trip and a plan, is a few per cent of it."""

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "time-to-a-verdict.md"
TEMPLATE = Path(__file__).with_name("verdict.txt")
RECORDED = Path(__file__).with_name("verdicts.jsonl")
"""Studies by the default options of ``pgdyno compare``, apart from ``--minutes`` and ``--schedule``."""

SOON_MIN = 4.0
"""Minutes within which a change of 5 % is to be found in 9 of 10 studies."""


@dataclass(frozen=True)
class Wanted:
    """``effects``: slowdowns as shares of the work, 0.05; 0 is no effect."""

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
class Ran:
    """One study. ``log_ratios`` are those of its blocks."""

    effect: float
    verdict: Verdict
    minutes: float
    log_ratios: tuple[float, ...]
    day: str = ""

    def line(self, wanted: Wanted) -> str:
        """For a file that keeps it."""
        return json.dumps({"wanted": _alike(wanted), **asdict(self)}) + "\n"


def kept_in(path: Path, wanted: Wanted) -> list[Ran]:
    """The studies in such a file that were run as ``wanted`` says, of whatever effect."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    found = [dict(json.loads(line)) for line in lines]
    return [
        Ran(of["effect"], Verdict(of["verdict"]), of["minutes"], tuple(of["log_ratios"]), of["day"])
        for of in found
        if of["wanted"] == _alike(wanted)
    ]


def _alike(wanted: Wanted) -> dict[str, object]:
    """What studies must have in common to be counted together."""
    return {key: value for key, value in asdict(wanted).items() if key not in ("effects", "trials")}


def run(wanted: Wanted, first: int = 0) -> Iterator[Ran]:
    """Every effect in turn, so that what drifts on the machine over hours meets all alike. ``first``: the
    number of the first trial, by which its seed is another than those of trials before.
    """
    with tempfile.TemporaryDirectory(prefix="pgdyno-verdict-") as directory, Interruption() as interruption:
        for trial in range(first, first + wanted.trials):
            for effect in wanted.effects:
                path = Path(directory) / f"{trial}-{effect}.sqlite"
                study = study_of(wanted, effect, seed=1000 * trial + round(1e4 * effect))
                start_study(path, Request(study.title, [only_case(study)], ""), _unwatched, interruption)
                if interruption.requested:
                    return
                yield _ran(path, effect)
                path.unlink()


def study_of(wanted: Wanted, effect: float, seed: int) -> Study:
    """As ``pgdyno compare --slice … --minutes … --schedule …`` would lay it out."""
    machine, budget_s = machine_size(), 60 * wanted.minutes_max
    duet = wanted.schedule == "duet"
    clients = default_clients(replace(machine, cores=max(1, machine.cores // 2)) if duet else machine)
    rhythm = fit_block_layout(budget_s, 1 if duet else 2, wanted.slice_s, wanted.schedule)
    warm_up = warm_up_from_option(None, rhythm.warmup_s, wanted.slice_s, extends=True)
    rounds = rhythm.rounds
    if wanted.window_s is not None:
        rounds = max(2, 2 * round(wanted.window_s / wanted.slice_s / 2))
    drivings = tuple(_driving(wanted, share, clients) for share in (0.0, effect))
    return Study.model_validate(
        {
            **dict(drivings[0]),
            "title": f"{effect:.1%} more work",
            "arms": [parse_arm(wanted.server).model_copy(update={"name": name}) for name in "AB"],
            "drivings": drivings,
            "schedule": wanted.schedule,
            "slice_s": wanted.slice_s,
            "discard_s": discard_s(wanted.slice_s),
            "warmup_s": warm_up.most_s,
            "warmup_min_s": warm_up.least_s,
            "rounds": rounds,
            "budget_s": budget_s,
            "seed": seed,
        }
    )


def _driving(wanted: Wanted, effect: float, clients: int) -> Driving:
    workload = PgbenchParameters(
        scale=1 if wanted.work == "cpu" else clients,
        scripts=(Script(name=wanted.work, text=WORKS[wanted.work]),),
        protocol="prepared",
        define={"work": str(round(wanted.turns * (1 + effect)))},
    )
    return Driving(workload=workload, clients=clients)


@contextmanager
def _unwatched(_names: Sequence[str]) -> Iterator[Watch]:
    def watch(_: Progress) -> None:
        pass

    yield watch


def _ran(path: Path, effect: float) -> Ran:
    with Evidence(path) as evidence:
        comparison = interim_result(evidence, 0).comparisons[0]
        blocks = [block for block in evidence.blocks(0) if block.ended_unix_s is not None]
    lasted_s = max(b.ended_unix_s or 0.0 for b in blocks) - min(b.started_unix_s for b in blocks)
    ratios = comparison.primary.log_ratios.values() if comparison.primary else ()
    day = datetime.now(tz=UTC).date().isoformat()
    return Ran(effect, comparison.verdict, lasted_s / 60, tuple(ratios), day)


def report(ran: Sequence[Ran], wanted: Wanted) -> str:
    """The table of the studies, and that of studies of blocks like theirs."""
    noise = _noise(ran)
    drawn = [_drawn_row(effect, noise, ran, wanted) for effect in wanted.effects]
    head = (
        "additional work",
        "blocks to draw from",
        "minutes a block",
        f"right within {SOON_MIN:g} min",
        f"right within {wanted.minutes_max:g} min",
        "another verdict",
        "minutes, median",
        "minutes, 9 of 10",
    )
    drawn_from = f"{PATHS:,} studies each, of blocks drawn from these:"
    return "\n\n".join((_measured(ran, wanted), drawn_from, table(head, drawn)))


def _measured(ran: Sequence[Ran], wanted: Wanted) -> str:
    rows = [_row([one for one in ran if one.effect == effect], wanted) for effect in wanted.effects]
    head = (
        "additional work",
        "change measured, all blocks",
        "SD of a block",
        "studies",
        "slower",
        "same",
        "faster",
        f"undecided in {wanted.minutes_max:g} min",
        "minutes, median",
        "minutes, 9 of 10",
    )
    return table(head, rows)


def _row(ran: Sequence[Ran], wanted: Wanted) -> list[str]:
    if not ran:
        return ["–"] * 10
    every = [d for one in ran for d in one.log_ratios]
    summary = student(every, 0.95)
    verdicts = [one.verdict for one in ran]
    minutes = [one.minutes if one.verdict is not Verdict.UNDECIDED else math.inf for one in ran]
    nine = float(np.quantile(minutes, 0.9, method="inverted_cdf"))
    return [
        _percent(ran[0].effect),
        f"{summary.percent(Better.MORE).signed_text} ({summary.percent(Better.MORE).signed_interval_text})",
        "–" if summary.sd is None else f"{percent_of(summary.sd):.1f}%",
        str(len(ran)),
        *(
            str(verdicts.count(of))
            for of in (Verdict.SLOWER, Verdict.SAME, Verdict.FASTER, Verdict.UNDECIDED)
        ),
        *(_minutes(of, wanted) for of in (median(minutes), nine)),
    ]


def _noise(ran: Sequence[Ran]) -> Floats:
    """Of the log ratios of all studies what is left around the mean of each effect. Of all, because one that
    stopped early had quiet blocks; scaled, because around their own mean they spread less than others would.
    """
    of_effects = [
        np.array([d for one in ran if one.effect == effect for d in one.log_ratios])
        for effect in sorted({one.effect for one in ran})
    ]
    left = [(d - d.mean()) * math.sqrt(len(d) / (len(d) - 1)) for d in of_effects if len(d) > 1]
    return np.concatenate([np.zeros(0), *left])


def _drawn_row(effect: float, noise: Floats, ran: Sequence[Ran], wanted: Wanted) -> list[str]:
    """Blocks are drawn with replacement, as if independent, around the change that this much work makes."""
    minutes_each = sum(one.minutes for one in ran) / max(1, sum(len(one.log_ratios) for one in ran))
    blocks = math.floor(wanted.minutes_max / minutes_each) if minutes_each else 0
    if not len(noise) or blocks < VERDICT_BLOCKS_MIN:
        return [_percent(effect)] + ["–"] * 7
    drawn = np.random.default_rng(SEED).choice(noise, (PATHS, blocks))
    found = judged(drawn, 1 / (1 + effect) - 1, Method.ANYTIME)
    right = found.verdict == (-1 if effect else 0)
    minutes = np.where(right, found.stopped * minutes_each, math.inf)
    median_and_nine = (float(np.quantile(minutes, share, method="inverted_cdf")) for share in (0.5, 0.9))
    shares = ((minutes <= SOON_MIN).mean(), right.mean(), (~right & ~np.isnan(found.verdict)).mean())
    return [
        _percent(effect),
        str(len(noise)),
        f"{minutes_each:.2f}",
        *(f"{100 * float(share):.1f}%" for share in shares),
        *(_minutes(of, wanted) for of in median_and_nine),
    ]


def _percent(effect: float) -> str:
    return f"{100 * effect:g}%" if effect else "none"


def _minutes(of: float, wanted: Wanted) -> str:
    return f"{of:.1f}" if math.isfinite(of) else f"> {wanted.minutes_max:g}"


def page() -> str:
    """docs/explanation/time-to-a-verdict.md."""
    lines = RECORDED.read_text("utf-8").splitlines() if RECORDED.exists() else []
    tables, days = {}, set()
    for schedule in ("slices", "duet"):
        alike = [of for line in lines if (of := json.loads(line)["wanted"])["schedule"] == schedule]
        tables[schedule] = "No study has been recorded."
        if alike:
            # The last options; studies of others are kept, but not shown.
            wanted = Wanted(effects=EFFECTS, trials=0, **alike[-1])
            ran = kept_in(RECORDED, wanted)
            tables[schedule] = report(ran, wanted)
            days |= {one.day for one in ran}
    return TEMPLATE.read_text("utf-8").format(
        **tables, days=", ".join(sorted(days)), minutes=f"{MINUTES_MAX:g}", soon=f"{SOON_MIN:g}"
    )


def main(arguments: Sequence[str]) -> int:
    """Prints a line a study on standard error, and the table at the end."""
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
    parser.add_argument(
        "--record", action="store_true", help=f"keeps them in {RECORDED.name}, and renews the page"
    )
    parser.add_argument("--smoke", action="store_true", help="tiny, in seconds: does it still run?")
    chosen = parser.parse_args(arguments)
    builds = system_builds()
    server = chosen.server or (str(builds[0].bin_dir) if builds else "18")
    effects = (0.0, *(percent / 100 for percent in chosen.effect)) if chosen.effect else EFFECTS
    wanted = Wanted(
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
        wanted = Wanted((0.0, 1.0), 1, 0.15, chosen.schedule, 0.2, chosen.work, server, 2000, 0.4)
    keep = RECORDED if chosen.record else chosen.keep
    ran = kept_in(keep, wanted) if keep else []
    for one in run(wanted, first=len(ran)):
        ran.append(one)
        if keep:
            with keep.open("a", encoding="utf-8") as file:
                file.write(one.line(wanted))
        found = f"{one.verdict} after {one.minutes:.1f} min, {len(one.log_ratios)} blocks"
        print(f"{100 * one.effect:g}% more work: {found}", file=sys.stderr, flush=True)
        if chosen.record:
            PAGE.write_text(page(), "utf-8")
    print(report(ran, wanted))
    return 0
