"""Loss of a load generator on another node: its block is void and is repeated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from pgdyno.caveats import Caveat, Code, Parameter
from pgdyno.errors import FleetError, in_one_line
from pgdyno.features.drivers.pool import DriverPool, open_pool
from pgdyno.measure.progress import Warned
from pgdyno.measure.trial import MeasuredCase, Session
from pgdyno.study.plan import Study
from pgdyno.units import counted


@contextlib.contextmanager
def open_session(study: Study) -> Iterator[Session | None]:
    """Connect to the load generators of a study, if it has any. Raises UsageError, FleetError."""
    with open_pool(study) as pool:
        yield session_of(pool) if pool else None


def session_of(pool: DriverPool) -> Session:
    """Return the session with these load generators."""
    return Session(lambda seed: partial(pool.start, seed), partial(repeat_void_block, pool))


def repeat_void_block(
    pool: DriverPool, case: MeasuredCase, cases: Sequence[MeasuredCase], block: str
) -> bool:
    """Return whether to repeat a block that ended because a load generator was lost or lagged.

    ``block`` is its name in the warning.

    With fewer nodes than drivers, and if the plan says so, all cases start again with the nodes that are
    left: blocks with different numbers of load generators are never compared. Otherwise the study ends, and
    a resume repeats the block.
    """
    lab = case.lab
    if lab.interruption.requested:
        return False
    try:
        gone = pool.note_loss()
    except FleetError as error:
        lab.watch(Warned(f"{in_one_line(error)}: start the cluster again and resume the study"))
        return False
    if case.given_up:
        return False
    lost = f"lost {', '.join(gone)}; " if gone else ""
    if pool.n_left >= pool.n:
        lab.watch(Warned(f"{lost}{block} is void and is repeated"))
        return True
    left = f"{counted(pool.n_left, 'node')} of {pool.n} left"
    if pool.plan.on_node_loss == "stop" or not pool.n_left:
        lab.watch(
            Warned(
                f"{lost}{left}: start nodes again and resume the study, or use --on-node-loss continue "
                "in a new one"
            )
        )
        return False
    if problem := next(filter(None, (one.lab.study.generators_problem(pool.n_left) for one in cases)), ""):
        lab.watch(Warned(f"{lost}{left}, but {problem}. Start nodes again and resume the study"))
        return False
    lab.watch(Warned(f"{lost}{left}: the study starts again with {counted(pool.n_left, 'load generator')}"))
    pool.n = pool.n_left
    for one in cases:
        _start_again(one, pool.n)
        names: dict[str, Parameter] = {"nodes": ", ".join(pool.lost), "left": pool.n}
        one.lab.writer.add_caveat(Caveat(Code.DRIVER_NODE_LOST, names), one.lab.case)
    return True


def _start_again(case: MeasuredCase, drivers: int) -> None:
    lab = case.lab
    aa = {arm: replace(of, study=_with_drivers(of.study, drivers)) for arm, of in lab.aa.items()}
    # Warm-up rates of another number of load generators have other values.
    case.lab = replace(lab, study=_with_drivers(lab.study, drivers), aa=aa, rates={})
    for of in (case.lab, *aa.values()):
        of.writer.repeat_with(of.study, of.case)
    case.next_block, case.decided = 0, False


def _with_drivers(study: Study, drivers: int) -> Study:
    assert study.drivers is not None
    left = study.drivers.model_copy(update={"n": drivers})
    return study.model_copy(update={"drivers": left})
