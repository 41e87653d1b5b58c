"""Differences between two arms, beside the one that was asked about, that could make the effect: caveats."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pgdyno.caveats import Caveat, Code
from pgdyno.evidence.records import Arm, Badge, Kept, Trial
from pgdyno.study.schedule import Schedule

CLUSTER_SETTINGS = ("data_checksums", "wal_segment_size", "block_size", "wal_block_size", "segment_size")
"""Settings that initdb or the compiler fixed, and that change what a page or a commit costs."""

NAMES_MAX = 5
"""How many names a sentence lists before it counts the rest."""


UNSAFE_VALUES = {
    "fsync": "off",
    "full_page_writes": "off",
    "data_sync_retry": "on",
    "zero_damaged_pages": "on",
    "ignore_checksum_failure": "on",
    "ignore_invalid_pages": "on",
}
"""Settings by which data may be lost or damage go unnoticed. synchronous_commit is not among them: it gives
up the last commits, and nothing else."""

IN_BADGES = frozenset({"fsync", "full_page_writes"})

WAITS_FOR_DISK = ("fsync", "synchronous_commit", "wal_sync_method")
"""Settings that decide whether a commit waits until the disk has it."""


def differences(baseline: Arm, arm: Arm, trials: Sequence[Trial], schedule: Schedule) -> list[Caveat]:
    """Of one arm against the baseline: safety, clusters, and more things changed than one."""
    before, after = effective(baseline, trials), effective(arm, trials)
    names = {"baseline": baseline.name, "arm": arm.name}
    found = []
    given_up = _safety(baseline, arm)
    if given_up:
        found.append(Caveat(Code.UNSAFE_SETTINGS, {**names, "difference": listed(given_up)}))
    waits = _unequal(WAITS_FOR_DISK, before, after)
    if waits and schedule.is_together:
        found.append(Caveat(Code.WRITE_BACK_IN_SLICES, {**names, "settings": listed(waits)}))
    clusters = [
        f"{name} is {before[name]} in {baseline.name}, {after[name]} in {arm.name}"
        for name in _unequal(CLUSTER_SETTINGS, before, after)
    ]
    if clusters:
        found.append(Caveat(Code.CLUSTERS_DIFFER, {"difference": "; ".join(clusters)}))
    things = _things(baseline, arm)
    if len(things) > 1:
        found.append(Caveat(Code.SEVERAL_THINGS_CHANGED, {**names, "things": ", ".join(things)}))
    return found


def debugged(arm: Arm, trials: Sequence[Trial]) -> list[Caveat]:
    """Whether the arm's server was built for debugging, by its own settings and compiler flags."""
    flags = re.findall(r"(?<!\S)-O(?:0|g)(?!\S)", str(arm.server.get("compiled", {}).get("CFLAGS", "")))
    if effective(arm, trials).get("debug_assertions") == "on":
        flags.append("--enable-cassert")
    return [Caveat(Code.DEBUG_SERVER, {"arm": arm.name, "flags": " ".join(flags)})] if flags else []


def unsafe(arms: Sequence[Arm], trials: Sequence[Trial]) -> list[Caveat]:
    """Of each arm, whether asked for or inherited from a template: what gives its data up. Where arms differ
    in what their badges of safety tell, UNSAFE_SETTINGS says that.
    """
    given_up = {
        arm.arm: [
            f"{name} = {value}"
            for name, value in UNSAFE_VALUES.items()
            if effective(arm, trials).get(name) == value
        ]
        for arm in arms
    }
    in_all = set.intersection(*(set(settings) for settings in given_up.values()))
    told = {
        arm.name: [one for one in given_up[arm.arm] if one in in_all or one.split(" ")[0] not in IN_BADGES]
        for arm in arms
    }
    return [
        Caveat(Code.UNSAFE_ARM, {"arm": arm, "settings": listed(settings)})
        for arm, settings in told.items()
        if settings
    ]


def effective(arm: Arm, trials: Sequence[Trial]) -> Mapping[str, str]:
    """The arm's settings as its last trial found them; empty where none has."""
    known = [trial.settings for trial in trials if trial.arm == arm.arm and trial.settings]
    return known[-1] if known else {}


def listed(names: Sequence[str]) -> str:
    """The first few, and how many more."""
    rest = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {rest} more" if rest > 0 else "")


def _unequal(names: Sequence[str], before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Those that both servers have, with different values."""
    return [name for name in names if name in before and name in after and before[name] != after[name]]


def _things(baseline: Arm, arm: Arm) -> list[str]:
    """What was asked to differ, a kind each: settings are one thing, for they are what one tunes."""
    things = []
    versions = [of.server.get("version") for of in (baseline, arm)]
    if versions[0] != versions[1]:
        things.append(f"version {versions[0]} against {versions[1]}")
    elif baseline.server.get("build_id") != arm.server.get("build_id"):
        things.append("server")
    before, after = baseline.settings_requested, arm.settings_requested
    settings = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if settings:
        things.append(f"settings {listed(settings)}")
    if baseline.workload != arm.workload or baseline.clients != arm.clients:
        things.append("workload")
    return things


def _safety(baseline: Arm, arm: Arm) -> list[str]:
    kept = {badge.name: badge for badge in baseline.safety}
    return [
        f"{badge.name}: {_kept(kept[badge.name])} against {_kept(badge)}"
        for badge in arm.safety
        if badge.name in kept and kept[badge.name].kept != badge.kept
    ]


def _kept(badge: Badge) -> str:
    words = {Kept.YES: "kept", Kept.PARTLY: "partly kept", Kept.NO: "given up", Kept.UNKNOWN: "unknown"}
    return words[badge.kept]
