"""Caveats: the closed list of reservations about a trial or a study.

A caveat is stored as a code with parameters. ``caveats.toml`` has the texts. A new code or text does not
change the schema version; renaming a code or a parameter does.
"""

from __future__ import annotations

import string
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

Parameter = str | int | float


class Code(StrEnum):
    """Code under which a caveat is stored."""

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
    SERVER_NOT_RESTARTED = "server-not-restarted"
    DATA_NOT_RESTORED = "data-not-restored"
    SHARED_MACHINE = "shared-machine"
    NO_KEYING_AND_THINKING = "no-keying-and-thinking"
    NOT_TPCC_MIX = "not-tpcc-mix"
    TPCC_DEVIATIONS = "tpcc-deviations"
    MORE_CLIENTS_THAN_BRANCHES = "more-clients-than-branches"
    SCALE_OF_THE_DATA = "scale-of-the-data"
    LOW_COVERAGE = "low-coverage"
    OWN_SCRIPTS_NOT_CHECKED = "own-scripts-not-checked"
    DATA_WITHOUT_STATISTICS = "data-without-statistics"
    DATA_CHANGED = "data-changed"
    SAMPLE_IS_PART = "sample-is-part"
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
    ONE_SERVER = "one-server"
    PROBE_UNAVAILABLE = "probe-unavailable"
    STATISTICS_RESET = "statistics-reset"
    # disturbances
    DRIVER_BUSY = "driver-busy"
    DRIVER_LATE = "driver-late"
    DRIVER_CLOCKS = "driver-clocks"
    DRIVER_NETWORK = "driver-network"
    DRIVER_NODE_BUSY = "driver-node-busy"
    DRIVER_NEAR_CEILING = "driver-near-ceiling"
    DRIVER_CEILING_UNKNOWN = "driver-ceiling-unknown"
    DRIVER_NODE_LOST = "driver-node-lost"
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
    EFFECT_CHANGED_BY_WARM_UP = "effect-changed-by-warm-up"
    RATE_STEP = "rate-step"
    # the machine, checked by the doctor
    GOVERNOR = "governor"
    BOOST = "boost"
    THERMAL_THROTTLING = "thermal-throttling"
    ON_BATTERY = "on-battery"
    SMT = "smt"
    VIRTUAL_MACHINE = "virtual-machine"
    NUMA = "numa"
    HUGE_PAGES = "huge-pages"
    SMALL_PAGES = "small-pages"
    PREEMPTION = "preemption"
    SWAP_USED = "swap-used"
    SWAPPING = "swapping"
    OUT_OF_MEMORY = "out-of-memory"
    MACHINE_STEAL = "machine-steal"
    OTHER_LOAD = "other-load"
    PRESSURE = "pressure"
    CPU_LIMITED = "cpu-limited"
    CPU_THROTTLED = "cpu-throttled"
    MEMORY_LIMITED = "memory-limited"
    FILES_LIMITED = "files-limited"
    SLOW_CLOCK = "slow-clock"
    CLOCK_SET = "clock-set"
    FILE_SYSTEM = "file-system"
    SPACE_SHORT = "space-short"
    FLUSH_TOO_FAST = "flush-too-fast"
    FLUSH_SLOW = "flush-slow"
    FLUSH_UNEVEN = "flush-uneven"
    # statistics
    THROUGHPUT_FIXED = "throughput-fixed"
    CAPACITY_NOT_SUSTAINED = "capacity-not-sustained"
    INTERVALS_DISAGREE = "intervals-disagree"
    TAIL_LATENCY_DISPERSED = "tail-latency-dispersed"
    AUTOCORRELATED_BLOCKS = "autocorrelated-blocks"
    SKEWED_BLOCKS = "skewed-blocks"
    UNDER_NOISE_FLOOR = "under-noise-floor"
    AA_DIFFERS = "aa-differs"
    HOSTS_DISAGREE = "hosts-disagree"
    ONE_MACHINE = "one-machine"
    HOSTS_FITTED_DIFFERENTLY = "hosts-fitted-differently"
    HOSTS_BUILDS_DIFFER = "hosts-builds-differ"
    HOST_INCOMPLETE = "host-incomplete"
    HOST_MISSING = "host-missing"
    HOST_REPLACED = "host-replaced"
    HOST_SLOW = "host-slow"
    HOST_NOISY = "host-noisy"


class Severity(StrEnum):
    """Possible influence of a caveat on a reader's conclusions, listed from most to least severe."""

    HIGH = "high"  # the verdict or its meaning
    MEDIUM = "medium"  # the size of an effect or of a level
    LOW = "low"  # context; the comparison stays sound


@dataclass(frozen=True)
class Wording:
    """Texts of a caveat, with {parameters} in braces. ``link``: a page of docs/ with an anchor, or empty."""

    text: str
    remedy: str
    severity: Severity
    link: str = ""

    @property
    def parameters(self) -> frozenset[str]:
        """Names of the parameters in both texts."""
        parsed = [*string.Formatter().parse(self.text), *string.Formatter().parse(self.remedy)]
        return frozenset(name for _, name, _, _ in parsed if name)


def _read_wordings() -> Mapping[Code, Wording]:
    """Read ``caveats.toml``. Raises ValueError unless it has exactly the codes of ``Code``."""
    entries = tomllib.loads(Path(__file__).with_name("caveats.toml").read_text("utf-8"))
    if set(entries) != {code.value for code in Code}:
        raise ValueError(
            f"caveats.toml and Code differ: {sorted(set(entries) ^ {code.value for code in Code})}"
        )
    return {
        Code(code): Wording(
            entry["text"], entry["remedy"], Severity(entry["severity"]), entry.get("link", "")
        )
        for code, entry in entries.items()
    }


WORDINGS: Mapping[Code, Wording] = _read_wordings()


@dataclass(frozen=True)
class Caveat:
    """One reservation with its parameters. ``trial`` is the ID of the affected trial; None for the study.

    Raises ValueError unless the parameters are exactly those of the texts.
    """

    code: Code
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    trial: int | None = None

    def __post_init__(self) -> None:
        """Compare the parameters with those of the texts, so that a stored caveat can always be shown."""
        needed, given = WORDINGS[self.code].parameters, frozenset(self.parameters)
        if needed != given:
            raise ValueError(f"caveat {self.code} requires {sorted(needed)} (got {sorted(given)})")

    @property
    def text(self) -> str:
        """The reservation in full sentences."""
        return WORDINGS[self.code].text.format(**self.parameters)

    @property
    def remedy(self) -> str:
        """The recommended action."""
        return WORDINGS[self.code].remedy.format(**self.parameters)

    @property
    def severity(self) -> Severity:
        """Possible influence on a reader's conclusions."""
        return WORDINGS[self.code].severity

    @property
    def link(self) -> str:
        """The page of the documentation with an explanation, as a path; empty if there is no such page."""
        link = WORDINGS[self.code].link
        return f"docs/{link}" if link else ""
