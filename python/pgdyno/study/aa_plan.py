"""Hidden A/A blocks: which arm gets a twin, and after which block. Pure in the seed of the study.

Of every BLOCKS_PER_AA blocks of a case one is followed by an A/A block: an arm against a twin of its own, a
second server of the same build and settings on a restore of the same data, under the same schedule, and
nothing else. It is a block of two arms like any other, so what it shows is the noise of such blocks
(docs/adr/0011-hidden-aa.md).
"""

from __future__ import annotations

import hashlib
import random

from pgdyno.study.plan import Study

BLOCKS_PER_AA = 5
"""So a study of two arms gives a sixth of its time to its A/A blocks, and one of more arms less."""


def doubled_arms(study: Study) -> list[int]:
    """The arms that can have a twin: of a server that runs already there is only one."""
    return [index for index, arm in enumerate(study.arms) if not arm.is_dsn]


def why_none(study: Study) -> str:
    """Why a study has no A/A blocks, in words; empty where it has."""
    if not study.aa:
        return f"refused by {study.aa_refused_by}" if study.aa_refused_by else "it was refused"
    if study.schedule == "sequential":
        return "all blocks of one arm run before the next arm's, so none is close in time to a twin's"
    if not doubled_arms(study):
        return "no arm is a server that pgdyno starts, so none has a twin"
    return ""


def doubled_after(study: Study, block: int) -> int | None:
    """The arm that meets its twin in an A/A block beside this one; None beside most.

    Where among the five it is, is drawn, so that nothing that comes round by the clock is always met; never
    beside the first, for a single block has no spread to be held against. The arms take turns in a random
    order: the noise of A against B is the mean of that of A against A and that of B against B.
    """
    arms = [] if why_none(study) else doubled_arms(study)
    if not arms:
        return None
    group, place = divmod(block, BLOCKS_PER_AA)
    if place != _stream(study, "place", group).randrange(1, BLOCKS_PER_AA):
        return None
    cycle, turn = divmod(group, len(arms))
    return _stream(study, "turns", cycle).sample(arms, len(arms))[turn]


def share_of_time(study: Study) -> float:
    """What A/A blocks take beside the others, as a share of the others: of two arms a fifth."""
    return 0.0 if why_none(study) else 2 / (BLOCKS_PER_AA * len(study.arms))


def aa_study(study: Study, arm: int) -> Study:
    """The comparison of an arm with its twin: the same in everything that is driven and measured.

    What is tried after the measured part (a crash, a VACUUM) tells nothing of noise, and is left away.
    """
    spec, driving = study.arms[arm], study.driving(arm)
    digest = hashlib.blake2b(f"{study.seed}:aa:{arm}".encode(), digest_size=6).digest()
    return study.model_copy(
        update={
            **dict(driving),
            "title": f"A/A of {spec.name}",
            "arms": (spec, spec.model_copy(update={"name": f"{spec.name} (twin)"})),
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
