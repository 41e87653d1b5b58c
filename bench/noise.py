"""Simulated and recorded noise of block ratios (d_b), for many studies at a time.

Arrays have the shape (paths, blocks): a path is the noise of one study. The caller chooses the seed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view
from scipy.signal import lfilter

from pgdyno.analysis.statistics.intervals import paired
from pgdyno.analysis.telemetry.metrics import DRIVER_CPU, SERVER_CPU
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Trial, TrialStatus

Floats = npt.NDArray[np.float64]
Noise = Callable[[np.random.Generator, int, int], Floats]
"""(rng, paths, blocks) → d_b of identical arms."""

SD = 0.025
"""SD of a simulated block: 2.5%, typical of blocks with half a minute per arm on a small machine."""

STUDIES = Path(__file__).with_name("verdicts.jsonl")
RECORDED = Path(__file__).parents[1] / "tests" / "oracle" / "data" / "aa_noise.json"


def normal(sd: float) -> Noise:
    """Gaussian noise, which the proof of the interval assumes."""

    def noise(rng: np.random.Generator, paths: int, blocks: int) -> Floats:
        return np.asarray(rng.normal(0, sd, (paths, blocks)))

    return noise


def heavy_tails(rng: np.random.Generator, paths: int, blocks: int) -> Floats:
    """Student's t with three degrees of freedom: occasional stalls."""
    drawn: Floats = rng.standard_t(3, (paths, blocks)) * (SD / np.sqrt(3))
    return drawn


def outliers(rng: np.random.Generator, paths: int, blocks: int) -> Floats:
    """One block in twenty has six times the SD, in either direction: each arm is slow equally often."""
    usual = rng.normal(0, SD, (paths, blocks))
    return np.where(rng.random((paths, blocks)) < 0.05, 6 * usual, usual)


def one_sided_outliers(rng: np.random.Generator, paths: int, blocks: int) -> Floats:
    """One block in ten loses about 10%, always of the same arm. The mean over all blocks is 0."""
    hit = rng.random((paths, blocks)) < 0.1
    return rng.normal(0, SD, (paths, blocks)) - np.where(hit, rng.exponential(0.1, hit.shape), 0) + 0.01


def skewed(skewness: float, sd: float = SD) -> Noise:
    """Reflected gamma distribution: one arm often gains a little and rarely loses much.

    Without skewness: Gaussian.
    """
    if not skewness:
        return normal(sd)
    shape = (2 / skewness) ** 2

    def noise(rng: np.random.Generator, paths: int, blocks: int) -> Floats:
        return np.asarray((shape - rng.gamma(shape, 1, (paths, blocks))) / np.sqrt(shape) * sd)

    return noise


def autocorrelated(share: float) -> Noise:
    """First-order autoregressive noise with coefficient ``share``."""

    def noise(rng: np.random.Generator, paths: int, blocks: int) -> Floats:
        fresh = rng.normal(0, SD, (paths, blocks))
        fresh[:, 1:] *= np.sqrt(1 - share**2)
        return np.asarray(lfilter([1.0], [1.0, -share], fresh, axis=1))

    return noise


def drift(rng: np.random.Generator, paths: int, blocks: int) -> Floats:
    """Block ratios of slices while the machine loses a third of its speed in every block.

    Rounds are A B, then mirrored, as the driver runs them. A block ratio is the ratio of totals, as in the
    analysis.
    """
    rounds = 20
    first = np.repeat(rng.integers(0, 2, (paths, blocks, rounds // 2)), 2, axis=2)
    first[:, :, 1::2] ^= 1  # the arm whose slice comes first in each round
    at = np.arange(rounds)
    rates = []
    for arm in (0, 1):
        position = 2 * at + np.where(first == arm, 0, 1)
        noise = rng.normal(0, SD * np.sqrt(rounds / 2), (paths, blocks, rounds))
        rates.append(np.exp(noise - position / (2 * rounds) / 3).sum(axis=2))
    return np.asarray(np.log(rates[1] / rates[0]))


BLOCKS_TOGETHER = 5
"""Block length of the bootstrap: consecutive blocks of a study, which keep their autocorrelation."""


Groups = Sequence[Sequence[Floats]]
"""Recorded log ratios by block: a group for each slowdown, with an array for each of its studies."""


def recorded(schedule: str) -> Noise:
    """Draw from the studies that ``python -m bench verdict --record`` stored.

    The recorded blocks include restores and restarts.
    """
    return bootstrap(recorded_groups(schedule))


def bootstrap(groups: Groups) -> Noise:
    """Moving block bootstrap from recorded studies (Künsch, Annals of Statistics 1989)."""
    studies = [of for of in residuals(groups) if len(of) >= BLOCKS_TOGETHER]
    pieces = np.concatenate([sliding_window_view(of, BLOCKS_TOGETHER) for of in studies])

    def noise(rng: np.random.Generator, paths: int, blocks: int) -> Floats:
        drawn = pieces[rng.integers(0, len(pieces), (paths, -(-blocks // BLOCKS_TOGETHER)))]
        return np.asarray(drawn.reshape(paths, -1)[:, :blocks])

    return noise


def residuals(groups: Groups) -> list[Floats]:
    """Return the log ratios of each study minus the mean of its group.

    They are scaled because their SD around the sample mean is too small.
    """
    found = []
    for ratios in groups:
        every = np.concatenate(ratios)
        found += [(of - every.mean()) * np.sqrt(len(every) / (len(every) - 1)) for of in ratios]
    return found


def gaussian_groups(groups: Groups, rng: np.random.Generator) -> Groups:
    """Return independent Gaussian noise with the SD and the number of blocks of each study."""
    return [[rng.normal(0, of.std(ddof=1), len(of)) for of in ratios] for ratios in groups]


def recorded_studies() -> list[dict[str, Any]]:
    """Read the studies that ``python -m bench verdict --record`` stored, as ``bench.verdict.StudyRun``."""
    return [json.loads(line) for line in STUDIES.read_text("utf-8").splitlines()]


def recorded_groups(schedule: str) -> Groups:
    """Return the log ratios of the stored studies with this schedule."""
    selected = [of for of in recorded_studies() if of["options"]["schedule"] == schedule]
    return [
        [np.array(of["log_ratios"]) for of in selected if of["effect"] == effect]
        for effect in sorted({of["effect"] for of in selected})
    ]


COVARIATES: Mapping[str, Callable[[Trial], float | None]] = {
    "server CPU per transaction": lambda trial: SERVER_CPU.value(trial, trial.measured),
    "driver CPU per transaction": lambda trial: DRIVER_CPU.value(trial, trial.measured),
}
"""Value of a trial in µs. Recorded for both trials of a block."""


def recorded_slices() -> tuple[Floats, Floats]:
    """Return the transactions of two identical arms by block and slice."""
    blocks = json.loads(RECORDED.read_text("utf-8"))["blocks"]
    a, b = (np.array([block[arm] for block in blocks], dtype=float) for arm in ("a", "b"))
    return a, b


def recorded_ratios() -> Mapping[str, Floats]:
    """Return ln(b / a) for each complete block of the recording.

    Ratios are of the throughput, the median pair of slices, and the covariates.
    """
    blocks = json.loads(RECORDED.read_text("utf-8"))["blocks"]
    a, b = recorded_slices()
    pairs = np.log(np.maximum(b, 1) / np.maximum(a, 1))
    found = {"throughput": np.log(b.sum(axis=1) / a.sum(axis=1)), "median pair": np.median(pairs, axis=1)}
    for name in COVARIATES:
        values = np.array([block[name] for block in blocks])
        found[name] = np.log(values[:, 1] / values[:, 0])
    return found


def record(evidence: Path) -> None:
    """Write the transactions of each slice of a study with identical arms, block by block."""
    with Evidence(evidence) as opened:
        study, arms, trials = opened.study(), opened.arms(), opened.trials()
    blocks = []
    for number in sorted({trial.block for trial in trials}):
        of = {t.arm: t for t in trials if t.block == number and t.status is TrialStatus.OK}
        if {0, 1} <= of.keys():
            slices = paired(of[0], of[1])
            counts = [[sum(k.executed for k in piece.kinds.values()) for piece in arm] for arm in slices]
            both = (of[0], of[1])
            covariates = {name: [value(trial) for trial in both] for name, value in COVARIATES.items()}
            blocks.append({"a": counts[0], "b": counts[1], **covariates})
    kept = {
        "what": "Transactions in each slice of two identical arms, the k-th of a beside the k-th of b",
        "command": study.command,
        "servers": [arm.server.get("version_text") or arm.server.get("version") for arm in arms],
        "host": {key: study.host.get(key) for key in ("processor", "cores", "memory_bytes", "kernel")},
        "counted_s": round(trials[0].measured[0].counted_s, 6),
        "blocks": blocks,
    }
    RECORDED.write_text(
        json.dumps(kept).replace('{"a"', '\n{"a"').replace('], "b"', '],\n "b"') + "\n", "utf-8"
    )


SCENARIOS: Mapping[str, Noise] = {
    "Gaussian": normal(SD),
    "heavy tails (Student's t, 3 degrees of freedom)": heavy_tails,
    "outliers: 1 block in 20 has six times the SD": outliers,
    "drift: the machine loses a third of its speed in every block": drift,
    "recorded blocks: slices": recorded("slices"),
    "recorded blocks: duet": recorded("duet"),
    "autocorrelation 0.1": autocorrelated(0.1),
    "autocorrelation 0.3": autocorrelated(0.3),
    "skewness 1": skewed(1.0),
    "skewness 1.75": skewed(1.75),
    "1 block in 10 loses about 10%, always of the same arm": one_sided_outliers,
}
