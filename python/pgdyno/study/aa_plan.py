"""Hidden A/A blocks: the arm that is doubled, and the position. A pure function of the seed of the study.

One A/A block follows one in BLOCKS_PER_AA blocks of a case, after the first BLOCKS_PER_AA. It compares an arm
with a second server of the same build and settings, restored from the same snapshot, under the same schedule.
It is an ordinary block of two arms, and therefore shows the noise of such blocks
(docs/adr/0011-hidden-aa.md).
"""

from __future__ import annotations

import hashlib
import random

from pgdyno.study.plan import Study

BLOCKS_PER_AA = 10
"""Blocks per A/A block, and blocks before the first one. A study with a clear result has ended by then, and a
noise floor almost never changes a verdict."""


def aa_arms(study: Study) -> list[int]:
    """Return the arms that can be doubled: those whose server pgdyno starts."""
    return [index for index, arm in enumerate(study.arms) if not arm.is_dsn]


def why_no_aa(study: Study) -> str:
    """Return the reason why a study has no A/A blocks; empty if it has them."""
    if not study.aa:
        return f"disabled by {study.aa_refused_by}" if study.aa_refused_by else "disabled"
    if study.schedule == "sequential":
        return "the schedule sequential runs all blocks of one arm before the next arm"
    if not aa_arms(study):
        return "all arms are running servers, which pgdyno cannot start a second time"
    return ""


def aa_arm_after(study: Study, block: int) -> int | None:
    """Return the arm of the A/A block that follows this block, or None if none follows.

    The position within each BLOCKS_PER_AA blocks is random, so that A/A blocks do not coincide with periodic
    activity. The arms take turns in a random order: the noise of A vs. B is the mean of the noises of A vs. A
    and of B vs. B.
    """
    arms = [] if why_no_aa(study) else aa_arms(study)
    group, place = divmod(block, BLOCKS_PER_AA)
    if not arms or group == 0 or place != _stream(study, "place", group).randrange(BLOCKS_PER_AA):
        return None
    cycle, turn = divmod(group - 1, len(arms))
    return _stream(study, "turns", cycle).sample(arms, len(arms))[turn]


def share_of_time(study: Study) -> float:
    """Return the time of A/A blocks as a share of the other blocks: a tenth with two arms.

    For blocks after the first BLOCKS_PER_AA.
    """
    return 0.0 if why_no_aa(study) else 2 / (BLOCKS_PER_AA * len(study.arms))


def aa_study(study: Study, arm: int) -> Study:
    """Return the comparison of an arm with a second identical server.

    Load and measurement are those of the arm. Tests after the measured part (crash, VACUUM) are omitted,
    because they do not show noise.
    """
    spec, driving = study.arms[arm], study.driving(arm)
    digest = hashlib.blake2b(f"{study.seed}:aa:{arm}".encode(), digest_size=6).digest()
    return study.model_copy(
        update={
            **dict(driving),
            "title": f"A/A of {spec.name}",
            "arms": (spec, spec.model_copy(update={"name": f"{spec.name} (A/A)"})),
            "drivings": None,
            "recovery": False,
            "vacuum_after": False,
            "blocks_max": None,
            "aa": False,
            "seed": int.from_bytes(digest, "big"),
        }
    )


def _stream(study: Study, what: str, number: int) -> random.Random:
    return random.Random(f"{study.seed}:aa {what}:{number}")
