"""Caveats: the closed list of reservations about a trial or a study.

A caveat is stored as a code with parameters. ``caveats.toml`` has the texts of those of the
core, and the file of that name in the folder of a feature has its own. A new code or text does not change the
schema version; renaming a code or a parameter does.
"""

from __future__ import annotations

import functools
import string
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.resources import files
from importlib.resources.abc import Traversable

from pgdyno.hooks import Hooks

Parameter = str | int | float

_OF_FEATURES = Hooks[Traversable]("caveats")


class Code(StrEnum):
    """Codes under which the core's caveats are stored."""

    # the comparison
    BUILDS_DIFFER = "builds-differ"
    CLUSTERS_DIFFER = "clusters-differ"
    PLACEMENT_FIXED = "placement-fixed"
    SEVERAL_THINGS_CHANGED = "several-things-changed"
    UNSAFE_SETTINGS = "unsafe-settings"
    UNSAFE_ARM = "unsafe-arm"
    NEAREST_VERSION = "nearest-version"
    UNTESTED_VERSION = "untested-version"
    SETTINGS_DROPPED = "settings-dropped"
    SETTINGS_SKIPPED = "settings-skipped"
    JIT_UNAVAILABLE = "jit-unavailable"
    DEBUG_SERVER = "debug-server"
    DEBUG_ENGINE = "debug-engine"
    # the execution
    SEQUENTIAL = "sequential"
    DUET = "duet"
    SCHEDULE_CHANGED = "schedule-changed"
    SHARED_MACHINE = "shared-machine"
    NO_KEYING_AND_THINKING = "no-keying-and-thinking"
    NOT_TPCC_MIX = "not-tpcc-mix"
    TPCC_DEVIATIONS = "tpcc-deviations"
    MORE_CLIENTS_THAN_BRANCHES = "more-clients-than-branches"
    SCALE_OF_THE_DATA = "scale-of-the-data"
    LOW_COVERAGE = "low-coverage"
    OWN_SCRIPTS_NOT_CHECKED = "own-scripts-not-checked"
    INTERRUPTED = "interrupted"
    # incomplete data
    FEW_BLOCKS = "few-blocks"
    CHECKS_FAILED_TRIALS_EXCLUDED = "checks-failed-trials-excluded"
    TRIALS_FAILED = "trials-failed"
    BLOCKS_LOST_BY_FAILURE = "blocks-lost-by-failure"
    NOTHING_DONE = "nothing-done"
    NO_CAPACITY = "no-capacity"
    FAILURES_OVER_SHARE = "failures-over-share"
    ARRIVALS_SKIPPED = "arrivals-skipped"
    MEDIAN_NOT_OBSERVED = "median-not-observed"
    RETRIES_OVER_SHARE = "retries-over-share"
    CACHE_NOT_COLD = "cache-not-cold"
    PROBE_UNAVAILABLE = "probe-unavailable"
    STATISTICS_RESET = "statistics-reset"
    # disturbances
    DRIVER_BUSY = "driver-busy"
    DRIVER_LATE = "driver-late"
    STEAL = "steal"
    CHECKPOINT_IN_SLICES = "checkpoint-in-slices"
    AUTOVACUUM_IN_SLICES = "autovacuum-in-slices"
    SLICES_TOO_SHORT = "slices-too-short"
    WRITE_BACK_IN_SLICES = "write-back-in-slices"
    WINDOW_WITHOUT_CHECKPOINT = "window-without-checkpoint"
    CHECKPOINT_NOT_FORCED = "checkpoint-not-forced"
    FEW_CHECKPOINT_CYCLES = "few-checkpoint-cycles"
    WARM_UP_TOO_SHORT = "warm-up-too-short"
    NO_STEADY_STATE = "no-steady-state"
    RATE_TREND = "rate-trend"
    EFFECT_TREND = "effect-trend"
    WARM_UP_EXTENDED = "warm-up-extended"
    WARM_UP_BIAS = "warm-up-bias"
    RATE_STEP = "rate-step"
    # statistics
    THROUGHPUT_FIXED = "throughput-fixed"
    CAPACITY_NOT_SUSTAINED = "capacity-not-sustained"
    INTERVALS_DISAGREE = "intervals-disagree"
    AUTOCORRELATED_BLOCKS = "autocorrelated-blocks"
    SKEWED_BLOCKS = "skewed-blocks"
    UNDER_NOISE_FLOOR = "under-noise-floor"
    AA_DIFFERS = "aa-differs"


class Severity(StrEnum):
    """Possible influence of a caveat on a reader's conclusions, listed from most to least severe."""

    HIGH = "high"  # the verdict or its meaning
    MEDIUM = "medium"  # the size of an effect or of a level
    LOW = "low"  # context; the comparison stays sound


@dataclass(frozen=True)
class Wording:
    """Texts of a caveat, with {parameters} in braces. ``link``: a page of the documentation, as a path in
    the repository with an anchor; or empty. ``merged_over``: a parameter, for example ``arm``; reports
    merge caveats that differ in nothing else into one."""

    text: str
    remedy: str
    severity: Severity
    link: str = ""
    merged_over: str = ""

    @property
    def parameters(self) -> frozenset[str]:
        """Names of the parameters in both texts."""
        parsed = [*string.Formatter().parse(self.text), *string.Formatter().parse(self.remedy)]
        return frozenset(name for _, name, _, _ in parsed if name)


@functools.cache
def wordings() -> Mapping[str, Wording]:
    """Return the texts of every caveat by code, the core's first."""
    read = [
        tomllib.loads(of.read_text("utf-8")) for of in (files(__package__) / "caveats.toml", *_OF_FEATURES)
    ]
    return {
        code: Wording(**{**entry, "severity": Severity(entry["severity"])})
        for entries in read
        for code, entry in entries.items()
    }


@dataclass(frozen=True)
class Caveat:
    """One reservation with its parameters. ``trial`` is the ID of the affected trial; None for the study.

    Raises ValueError for an unknown code, and unless the parameters are exactly those of the texts.
    """

    code: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    trial: int | None = None

    def __post_init__(self) -> None:
        """Compare the parameters with those of the texts, so that a stored caveat can always be shown."""
        if self.code not in wordings():
            raise ValueError(f"unknown caveat {self.code}")
        needed, given = wordings()[self.code].parameters, frozenset(self.parameters)
        if needed != given:
            raise ValueError(f"caveat {self.code} requires {sorted(needed)} (got {sorted(given)})")

    @property
    def text(self) -> str:
        """The reservation in full sentences."""
        return wordings()[self.code].text.format(**self.parameters)

    @property
    def remedy(self) -> str:
        """The recommended action."""
        return wordings()[self.code].remedy.format(**self.parameters)

    @property
    def severity(self) -> Severity:
        """Possible influence on a reader's conclusions."""
        return wordings()[self.code].severity

    @property
    def link(self) -> str:
        """The page of the documentation with an explanation, as a path; empty if there is no such page."""
        return wordings()[self.code].link
