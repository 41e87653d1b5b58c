"""The closed list of doubts about a trial or a study: each with its sentence and its remedy.

A caveat is stored with its parameters and always shown. There is no free text: a doubt that is not in this
list is added to it. Adding a code, or reworking a sentence, needs no new evidence version; renaming a code or
one of its parameters does.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pgdyno.caveats_of_the_machine import OF_THE_MACHINE

Parameter = str | int | float


class Code(StrEnum):
    """The name under which a caveat is stored."""

    # the comparison as such
    BUILDS_DIFFER = "builds-differ"
    CLUSTERS_DIFFER = "clusters-differ"
    SEVERAL_THINGS_CHANGED = "several-things-changed"
    UNSAFE_SETTINGS = "unsafe-settings"
    UNSAFE_ARM = "unsafe-arm"
    NEAREST_VERSION = "nearest-version"
    UNTESTED_VERSION = "untested-version"
    SETTINGS_DROPPED = "settings-dropped"
    DEBUG_SERVER = "debug-server"
    DEBUG_ENGINE = "debug-engine"
    # how it was run
    SEQUENTIAL = "sequential"
    DUET = "duet"
    SCHEDULE_CHANGED = "schedule-changed"
    SERVER_NOT_RESTARTED = "server-not-restarted"
    DATA_NOT_RESTORED = "data-not-restored"
    SHARED_MACHINE = "shared-machine"
    NO_KEYING_AND_THINKING = "no-keying-and-thinking"
    NOT_TPCC_MIX = "not-tpcc-mix"
    MORE_CLIENTS_THAN_BRANCHES = "more-clients-than-branches"
    SCALE_OF_THE_DATA = "scale-of-the-data"
    OWN_SCRIPTS_NOT_CHECKED = "own-scripts-not-checked"
    INTERRUPTED = "interrupted"
    # what was lost
    FEW_BLOCKS = "few-blocks"
    CHECKS_FAILED_TRIALS_EXCLUDED = "checks-failed-trials-excluded"
    TRIALS_FAILED = "trials-failed"
    NOTHING_DONE = "nothing-done"
    FAILURES_OVER_SHARE = "failures-over-share"
    RETRIES_OVER_SHARE = "retries-over-share"
    CACHE_NOT_COLD = "cache-not-cold"
    ONE_SERVER = "one-server"
    PROBE_UNAVAILABLE = "probe-unavailable"
    STATISTICS_RESET = "statistics-reset"
    # what disturbed it
    DRIVER_BUSY = "driver-busy"
    DRIVER_LATE = "driver-late"
    STEAL = "steal"
    CHECKPOINT_IN_SLICES = "checkpoint-in-slices"
    AUTOVACUUM_IN_SLICES = "autovacuum-in-slices"
    SLICES_TOO_SHORT = "slices-too-short"
    WRITE_BACK_IN_SLICES = "write-back-in-slices"
    WINDOW_WITHOUT_CHECKPOINT = "window-without-checkpoint"
    CHECKPOINT_NOT_ORDERED = "checkpoint-not-ordered"
    FEW_CHECKPOINT_CYCLES = "few-checkpoint-cycles"
    WARM_UP_TOO_SHORT = "warm-up-too-short"
    NO_STEADY_STATE = "no-steady-state"
    RATE_CHANGES = "rate-changes"
    EFFECT_CHANGES = "effect-changes"
    RATE_STEPS = "rate-steps"
    # the machine, as the doctor finds it: worded in caveats_of_the_machine.py
    GOVERNOR = "governor"
    BOOST = "boost"
    HEAT = "heat"
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
    CPU_WITHHELD = "cpu-withheld"
    MEMORY_LIMITED = "memory-limited"
    FILES_LIMITED = "files-limited"
    SLOW_CLOCK = "slow-clock"
    CLOCK_SET = "clock-set"
    FILE_SYSTEM = "file-system"
    SPACE_SHORT = "space-short"
    FLUSH_TOO_FAST = "flush-too-fast"
    FLUSH_SLOW = "flush-slow"
    FLUSH_UNEVEN = "flush-uneven"
    # what the statistics say of themselves
    THROUGHPUT_FIXED = "throughput-fixed"
    CAPACITY_NOT_KEPT = "capacity-not-kept"
    INTERVALS_DISAGREE = "intervals-disagree"
    BLOCKS_REMEMBER = "blocks-remember"
    UNDER_NOISE_FLOOR = "under-noise-floor"
    AA_DIFFERS = "aa-differs"
    HOSTS_DISAGREE = "hosts-disagree"
    ONE_MACHINE = "one-machine"
    HOSTS_FITTED_DIFFERENTLY = "hosts-fitted-differently"
    HOSTS_BUILDS_DIFFER = "hosts-builds-differ"


@dataclass(frozen=True)
class Wording:
    """A sentence with {parameters} in braces, and what the reader can do about it."""

    sentence: str
    remedy: str

    @property
    def parameters(self) -> frozenset[str]:
        """The names that the sentence and the remedy need."""
        parsed = [*string.Formatter().parse(self.sentence), *string.Formatter().parse(self.remedy)]
        return frozenset(name for _, name, _, _ in parsed if name)


WORDINGS: Mapping[Code, Wording] = {
    Code.BUILDS_DIFFER: Wording(
        "The arms' servers were compiled differently ({difference}): "
        "a part of the effect may be the compiler's.",
        "Take both from one provider, or build both from source with the same flags.",
    ),
    Code.CLUSTERS_DIFFER: Wording(
        "The arms' clusters were initialised differently ({difference}).",
        "Give both the same initdb options (checksums, locale provider, encoding, WAL segment size).",
    ),
    Code.SEVERAL_THINGS_CHANGED: Wording(
        "The arms {baseline} and {arm} differ in more than one thing ({things}): "
        "the effect is that of all together.",
        "Add arms that change one thing at a time.",
    ),
    Code.UNSAFE_SETTINGS: Wording(
        "The arms {baseline} and {arm} do not keep the same promises ({difference}): "
        "a part of the effect may be the price of safety.",
        "Compare arms of equal safety, or read the effect as that price.",
    ),
    Code.UNSAFE_ARM: Wording(
        "Arm {arm} ran with {settings}: after a crash or a fault of the disk its data may be lost, and its "
        "speed is not that of a server that keeps them.",
        "Leave these settings at their defaults, or do not conclude from it for servers that matter.",
    ),
    Code.NEAREST_VERSION: Wording(
        "Version {requested} was not to be had; {resolved} was measured in its place.",
        "Install {requested}, or name the version that was measured.",
    ),
    Code.UNTESTED_VERSION: Wording(
        "The server of {arm} is PostgreSQL {version}, newer than {newest}, the newest version that this "
        "pgdyno is tested with: telemetry that changed since then may be missing or wrong.",
        "Check counters that matter against the server's own views, or use a pgdyno that is tested with "
        "this version.",
    ),
    Code.SETTINGS_DROPPED: Wording(
        "Arm {arm} ran without {settings}: its server does not know or did not take them.",
        "Take a profile made for this version, or drop these settings from every arm.",
    ),
    Code.DEBUG_SERVER: Wording(
        "Arm {arm} ran on a server built for debugging ({flags}), which costs speed.",
        "Measure a server built without assertions and with optimisation.",
    ),
    Code.DEBUG_ENGINE: Wording(
        "The driver is a debug build: its own CPU time is several times too high and takes from the servers.",
        "Build the engine in release mode (make setup) and measure again.",
    ),
    Code.SEQUENTIAL: Wording(
        "All blocks of one arm ran before the next arm's: "
        "whatever drifted on the machine looks like an effect.",
        "Use the slices or blocks schedule.",
    ),
    Code.DUET: Wording(
        "Both arms ran at the same time, each on half of the cores, and shared the disk and the memory's "
        "bandwidth: what shows only with the whole machine, or what a busy neighbour hides or makes, was not "
        "measured or cannot be told apart.",
        "Confirm it with the schedule slices or blocks, where each arm has the machine to itself.",
    ),
    Code.SCHEDULE_CHANGED: Wording(
        "One arm ran at a time, although slices or a duet were asked for: "
        "the servers' shared buffers ({size}) do not fit into this machine together.",
        "Give every arm smaller shared_buffers, or ask for --schedule blocks.",
    ),
    Code.SERVER_NOT_RESTARTED: Wording(
        "Arm {arm} ran on a server that was up already and was not restarted between blocks, "
        "so the blocks are less independent than the interval assumes.",
        "Let pgdyno start the server itself where the question allows it.",
    ),
    Code.DATA_NOT_RESTORED: Wording(
        "Arm {arm} ran in a database that was not restored between blocks: "
        "each block began with what the ones before it had left.",
        "Leave --into-existing away, and pgdyno works in copies of a database of its own.",
    ),
    Code.SHARED_MACHINE: Wording(
        "The driver shared {cores} cores with the servers.",
        "Watch the driver's CPU per transaction, or drive from a second machine.",
    ),
    Code.NO_KEYING_AND_THINKING: Wording(
        "The clients neither keyed nor thought: a few clients ran as fast as the server allowed.",
        "For TPC-C's own load, pass --pacing keying-and-thinking with ten clients per warehouse.",
    ),
    Code.NOT_TPCC_MIX: Wording(
        "The transaction mix was {mix}, not the TPC-C mix: rates and latencies do not compare with those of "
        "the standard mix.",
        "Leave --mix out (mix in a study file) to run TPC-C's mix.",
    ),
    Code.MORE_CLIENTS_THAN_BRANCHES: Wording(
        "The clients of tpcb-like ({clients}) are more than the rows of pgbench_branches ({scale}) that they "
        "change: a good part of what was measured is waiting for each other.",
        "Take a --scale of at least the number of clients.",
    ),
    Code.SCALE_OF_THE_DATA: Wording(
        ":scale was that of the data, {scale}. pgbench takes 1 where there are script files only, and so "
        "touches the first 100 000 accounts alone: results of such runs are not comparable.",
        "To do as pgbench does, pass --define scale=1.",
    ),
    Code.OWN_SCRIPTS_NOT_CHECKED: Wording(
        "What these scripts leave in the data was not checked, for nobody but their author knows what it "
        "should be: {scripts}. Their mix and the server's log were.",
        "Have the scripts fail where a result is wrong, and look at the failures.",
    ),
    Code.INTERRUPTED: Wording(
        "Interrupted trials, which count for nothing: {trials}.",
        "Continue with --resume where blocks are missing.",
    ),
    Code.FEW_BLOCKS: Wording(
        "Complete blocks of {arm} against {baseline}: {blocks}. Fewer than {blocks_min} give no verdict.",
        "Give it more time (--minutes), or continue with --resume.",
    ),
    Code.CHECKS_FAILED_TRIALS_EXCLUDED: Wording(
        "Trials of arm {arm} that failed a check ({checks}) and are excluded from the estimate: {trials}.",
        "Read the failed checks, and the server's log, kept in the evidence: a server or a workload that "
        "does not do its work has no speed.",
    ),
    Code.TRIALS_FAILED: Wording(
        "Trials of arm {arm} that did not finish: {trials} ({reason}).",
        "Read the server's log, kept in the evidence.",
    ),
    Code.NOTHING_DONE: Wording(
        "Blocks of {arm} against {baseline} in which an arm completed nothing that counts: {blocks}. Such a "
        "block has no ratio; to leave it out would flatter the arm that stalled, so there is no verdict.",
        "Look into the server's log for what held it, or use longer slices (--slice) or fewer clients.",
    ),
    Code.FAILURES_OVER_SHARE: Wording(
        "{share} of arm {arm}'s transactions failed (limit {limit}).",
        "Read the failures by SQLSTATE in the report.",
    ),
    Code.RETRIES_OVER_SHARE: Wording(
        "Arm {arm} retried {share} of its transactions (limit {limit}): "
        "contention is a part of what was measured.",
        "Use more warehouses per client (or a larger --scale), or a lower isolation level.",
    ),
    Code.CACHE_NOT_COLD: Wording(
        "Arm {arm} was to begin with a cold cache, but {share} of its data stayed in the operating system's.",
        "Let nothing else read or map the files of pgdyno's cache while a study runs.",
    ),
    Code.ONE_SERVER: Wording(
        "The arms {arms} took turns on one running server: what each of them used of its CPU time, WAL, "
        "checkpoints, I/O and transaction ids cannot be told apart, so that there are no such figures.",
        "Use the blocks schedule (--schedule blocks), or a server for each arm.",
    ),
    Code.PROBE_UNAVAILABLE: Wording(
        "Telemetry of arm {arm} that is not there: {probes} ({reason}).",
        "Do what the reason asks for where these figures are wanted; no others depend on them.",
    ),
    Code.STATISTICS_RESET: Wording(
        "Trials of arm {arm} in which the statistics of the probe {probe} were reset while they were "
        "measured, so that there are no figures of it: {trials}.",
        "Let nothing reset statistics during a study; where statements are evicted, raise "
        "pg_stat_statements.max; where the server crashed, read its log.",
    ),
    Code.DRIVER_BUSY: Wording(
        "The driver used {share} of the CPU that arm {arm} was measured on (limit {limit}): "
        "it may be the bottleneck.",
        "Use fewer clients, or drive from a second machine.",
    ),
    Code.DRIVER_LATE: Wording(
        "The driver woke {late_ms} ms late at the 99th percentile while arm {arm} was measured "
        "(limit {limit_ms} ms): latencies hold that much of its own delay.",
        "Leave the driver a core, or use fewer clients.",
    ),
    Code.STEAL: Wording(
        "The hypervisor took away {share} of the CPU time while arm {arm} was measured (limit {limit}).",
        "Measure on a machine of your own, or trust only many blocks.",
    ),
    Code.CHECKPOINT_IN_SLICES: Wording(
        "Checkpoints of arm {arm} while the arms were driven in turn: {n}.",
        "Raise checkpoint_timeout and max_wal_size in every arm, or use the blocks schedule.",
    ),
    Code.AUTOVACUUM_IN_SLICES: Wording(
        "Tables of arm {arm} that autovacuum vacuumed or analyzed while the arms were driven in turn: {n}.",
        "Use the blocks schedule, where one arm runs at a time, or turn autovacuum off in every arm.",
    ),
    Code.SLICES_TOO_SHORT: Wording(
        "Half of arm {arm}'s transactions took longer than {latency_ms} ms, {share} of a slice "
        "(limit {limit}): its rate is partly that of a start from nothing, which makes effects look larger.",
        "Use longer slices (--slice), the blocks schedule, or fewer clients.",
    ),
    Code.WRITE_BACK_IN_SLICES: Wording(
        "The arms {baseline} and {arm} wait for the disk differently ({settings}) and were up together: what "
        "one of them has written and not waited for may reach the disk while the other is measured.",
        "Use the blocks schedule (--schedule blocks), where one arm runs at a time.",
    ),
    Code.WINDOW_WITHOUT_CHECKPOINT: Wording(
        "No checkpoint began while arm {arm} was measured: writing pages back is left out, and first changes "
        "of pages, which go whole into the WAL (full_page_writes), have not the share that they have over a "
        "cycle.",
        "Measure whole checkpoint cycles (--window checkpoints:2; a shorter checkpoint_timeout makes them "
        "shorter).",
    ),
    Code.CHECKPOINT_NOT_ORDERED: Wording(
        "The windows of arm {arm} do not begin with a checkpoint, for it was refused: {reason}.",
        "GRANT pg_checkpoint to the user (from PostgreSQL 15 on), or connect as a superuser.",
    ),
    Code.FEW_CHECKPOINT_CYCLES: Wording(
        "Whole checkpoint cycles in a window of arm {arm}: {cycles}, fewer than {wanted} (checkpoints begun "
        "in it, in the mean: {checkpoints}): it shows a part of what writing costs.",
        "Measure whole checkpoint cycles (--window checkpoints:2), where max_wal_size does not make them "
        "come early.",
    ),
    Code.WARM_UP_TOO_SHORT: Wording(
        "Warm-ups of arm {arm} that looked steady at no time: {trials} of {of}; they were cut off after "
        "{time}, and a part of what was measured belongs to them.",
        "Let it warm up for longer (--warmup MIN..MAX, warmup in a study file).",
    ),
    Code.RATE_CHANGES: Wording(
        "Arm {arm} was not steady: over its windows of {window} its rate changed by {change} (interval "
        "{interval}, {trials} trials); {cut}.",
        "Warm up for longer (--warmup), or read its figures as those of a server that is still changing.",
    ),
    Code.EFFECT_CHANGES: Wording(
        "The effect of {arm} against {baseline} was not steady: over the blocks' windows of {window} it "
        "changed by {change} (interval {interval}, {trials} blocks).",
        "Warm up for longer (--warmup), or take longer windows: the estimate is a mean over that change.",
    ),
    Code.RATE_STEPS: Wording(
        "Trials of arm {arm} in which its rate went to another level while it was measured: {trials} of "
        "{of}; the largest step is {size} after {at} of the window, in block {block}.",
        "Look at that time in the block's picture: what else ran, a checkpoint, autovacuum, another load.",
    ),
    Code.NO_STEADY_STATE: Wording(
        "Arm {arm} reached no steady state: its rate still changed by {slope_percent_per_hour} % per hour.",
        "Warm up for longer, or report the slope as the result.",
    ),
    **{Code(name): Wording(*texts) for name, texts in OF_THE_MACHINE.items()},
    Code.THROUGHPUT_FIXED: Wording(
        "The load was fixed ({load}), so throughput says little about speed: the verdict is about the median "
        "latency.",
        "Read the other percentiles and CPU per transaction, too; for throughput run a closed loop.",
    ),
    Code.CAPACITY_NOT_KEPT: Wording(
        "At the rates that the search had found, arm {arm} kept {limit} in {kept} of {blocks} blocks only: "
        "what a short step keeps it does not keep for longer, and its capacity is told too large.",
        "Give the steps more time (--slice), and read the rate as what it stands for a moment.",
    ),
    Code.INTERVALS_DISAGREE: Wording(
        "For {arm} against {baseline} the bootstrap interval ({bootstrap}) would give another verdict than "
        "Student's ({student}): the blocks are not normally spread.",
        "Look at the blocks for outliers, and add blocks.",
    ),
    Code.BLOCKS_REMEMBER: Wording(
        "The blocks of {arm} against {baseline} remember each other: the correlation of a block's ratio with "
        "that of the one before is {correlation} ({blocks} blocks), more than chance would have. Intervals "
        "take blocks for independent, so this one is too narrow, and its verdict is wrong more often than it "
        "says.",
        "Make blocks longer (--window, or a longer --slice), so that what lasts from one to the next lies "
        "within one; look for what comes and goes over minutes; take a verdict near its limit for undecided.",
    ),
    Code.UNDER_NOISE_FLOOR: Wording(
        "The effect of {arm} against {baseline} ({effect}) is under the noise floor ({floor}): arms that are "
        "the same show as much in so many blocks on this machine ({aa_blocks} A/A blocks), so it is not "
        "called a difference.",
        "Measure more blocks, which lowers the floor; or quieten the machine.",
    ),
    Code.AA_DIFFERS: Wording(
        "An arm against itself was called a difference ({effect}, interval {interval}, {aa_blocks} A/A "
        "blocks): chance does that in {alarm} of all studies, else something here favours one of two equal "
        "servers, and the effects may hold as much of it.",
        "Run the study again; where it comes again, look for what the two servers do not share alike.",
    ),
    Code.HOSTS_DISAGREE: Wording(
        "The hosts disagree about which of {arm} and {baseline} has more {metric}: {hosts}. "
        "The pooled estimate describes none of them.",
        "Read each host's own estimate, look for what sets the hosts apart, and measure on more hosts.",
    ),
    Code.ONE_MACHINE: Wording(
        "The evidence of {files} comes from one machine and counts as one host: its blocks share a disk, a "
        "memory and neighbours, and say nothing about another machine.",
        "To know what other machines say, measure on them.",
    ),
    Code.HOSTS_FITTED_DIFFERENTLY: Wording(
        "Not every host ran the study with the same numbers ({keys}): they were fitted to each machine, and "
        "a part of what sets the hosts apart may be that.",
        "Read what was changed on each host; or run the same numbers everywhere, fitted to the smallest.",
    ),
    Code.HOSTS_BUILDS_DIFFER: Wording(
        "The hosts did not measure the same builds ({difference}): a part of what sets them apart may be "
        "these.",
        "Name exact versions, and take the servers from one provider on every host.",
    ),
}


@dataclass(frozen=True)
class Caveat:
    """One doubt with its parameters. ``trial`` is the id of the trial it is about; None: the whole study.

    Raises ValueError where the parameters are not exactly those of the sentence.
    """

    code: Code
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    trial: int | None = None

    def __post_init__(self) -> None:
        """Hold the parameters against the wording, so that a caveat in a file can always be shown."""
        needed, given = WORDINGS[self.code].parameters, frozenset(self.parameters)
        if needed != given:
            raise ValueError(f"caveat {self.code} takes {sorted(needed)}, not {sorted(given)}")

    @property
    def sentence(self) -> str:
        """What is in doubt and why, as one full sentence."""
        return WORDINGS[self.code].sentence.format(**self.parameters)

    @property
    def remedy(self) -> str:
        """What the reader can do about it."""
        return WORDINGS[self.code].remedy.format(**self.parameters)
