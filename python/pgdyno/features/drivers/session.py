"""Session with load generators on other nodes: their caveats, and the repetition of a block after a loss."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial

from pgdyno.caveats import Caveat
from pgdyno.errors import FleetError, in_one_line
from pgdyno.features.drivers.nodes import DriverNodes, open_nodes
from pgdyno.measure.progress import Warned
from pgdyno.measure.trial import MeasuredCase, Session, start_again
from pgdyno.results.records import DriverFacts
from pgdyno.study.plan import Study
from pgdyno.units import counted, given_percent, percent_text

CLOCK_SPREAD_S_MAX = 0.005
"""Maximum error of the common start of slices on several nodes."""

RETRANSMITTED_SHARE_MAX = 0.001
"""Maximum share of TCP segments that a node sends again. Each may delay a transaction by 200 ms or more."""

NODE_CPU_SHARE_MAX = 0.7
"""Maximum CPU of a load generator as a share of its node, which runs nothing else."""

CEILING_SHARE_MAX = 0.5
"""Maximum rate of a node as a share of its rate of SELECT 1. Other transactions take more of its CPU."""


@contextlib.contextmanager
def open_session(study: Study) -> Iterator[Session | None]:
    """Connect to the load generators of a study, if it has any. Raises UsageError, FleetError."""
    with open_nodes(study) as drivers:
        yield session_of(drivers) if drivers else None


def session_of(drivers: DriverNodes) -> Session:
    """Return the session with these load generators."""
    return Session(
        lambda seed: partial(drivers.start, seed), partial(repeat_void_block, drivers), node_caveats
    )


def node_caveats(trial: int, arm: str, driver: DriverFacts) -> Iterator[Caveat]:
    """Yield the caveats of load generators on nodes: inexact clocks, lost packets, and nodes that may be
    the limit.
    """
    for node in driver.nodes or ():
        names = {"arm": arm, "node": node.name}
        if node.clock_spread_s > CLOCK_SPREAD_S_MAX:
            spread_ms, limit_ms = round(node.clock_spread_s * 1e3, 1), CLOCK_SPREAD_S_MAX * 1e3
            yield Caveat.of("driver-clocks", trial, **names, spread_ms=spread_ms, limit_ms=limit_ms)
        used = node.executed_per_s / node.ceiling_per_s if node.ceiling_per_s else None
        for kind, share, most, decimals in (
            ("driver-network", node.retransmitted_share, RETRANSMITTED_SHARE_MAX, 1),
            ("driver-node-busy", node.driver_cpu_share, NODE_CPU_SHARE_MAX, 0),
            ("driver-near-ceiling", used, CEILING_SHARE_MAX, 0),
        ):
            if share is not None and share > most:
                shares = {"share": percent_text(share, decimals), "limit": given_percent(most)}
                yield Caveat.of(kind, trial, **names, **shares)
        if used is None:
            yield Caveat.of("driver-ceiling-unknown", trial, **names)


def repeat_void_block(
    drivers: DriverNodes, case: MeasuredCase, cases: Sequence[MeasuredCase], block: str
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
        gone = drivers.note_loss()
    except FleetError as error:
        lab.watch(Warned(f"{in_one_line(error)}: start the cluster again and resume the study"))
        return False
    if case.given_up:
        return False
    lost = f"lost {', '.join(gone)}; " if gone else ""
    if drivers.n_left >= drivers.n:
        lab.watch(Warned(f"{lost}{block} is void and is repeated"))
        return True
    left = f"{counted(drivers.n_left, 'node')} of {drivers.n} left"
    if drivers.plan.on_node_loss == "stop" or not drivers.n_left:
        lab.watch(
            Warned(
                f"{lost}{left}: start nodes again and resume the study, or start a new one with pgdyno run "
                "--on-node-loss continue"
            )
        )
        return False
    if problem := next(filter(None, (one.lab.study.generators_problem(drivers.n_left) for one in cases)), ""):
        lab.watch(Warned(f"{lost}{left}, but {problem}. Start nodes again and resume the study"))
        return False
    lab.watch(
        Warned(f"{lost}{left}: the study starts again with {counted(drivers.n_left, 'load generator')}")
    )
    drivers.n = drivers.n_left
    for one in cases:
        start_again(one, partial(_with_drivers, drivers=drivers.n))
        one.decided = False
        caveat = Caveat.of("driver-node-lost", nodes=", ".join(drivers.lost), left=drivers.n)
        one.lab.writer.add_caveat(caveat, one.lab.case)
    return True


def _with_drivers(study: Study, drivers: int) -> Study:
    assert study.drivers is not None
    left = study.drivers.model_copy(update={"n": drivers})
    return study.model_copy(update={"drivers": left})
