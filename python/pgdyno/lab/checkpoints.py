"""A checkpoint right before a window that is to hold whole cycles, so that it begins with one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

import psycopg

from pgdyno.caveats import Caveat, Code
from pgdyno.errors import ServerError, in_one_line
from pgdyno.lab.progress import Step, Warned
from pgdyno.lab.trial import Lab, Trial


def order_checkpoints(lab: Lab, trials: Sequence[Trial]) -> None:
    """At the barrier before the measured part, when no transaction runs. Where the user may not, a caveat; a
    server that is gone the driver finds out about.
    """
    for trial in trials:
        lab.watch(Step(f"forced checkpoint of {trial.arm.name}"))
        begun_s = time.monotonic()
        try:
            with contextlib.closing(trial.arm.connect()) as connection:
                connection.execute("CHECKPOINT")
        except (psycopg.Error, ServerError) as error:
            names = {"arm": trial.arm.name, "reason": in_one_line(error)}
            caveat = Caveat(Code.CHECKPOINT_NOT_FORCED, names)
            lab.watch(Warned(caveat.text))
            lab.writer.add_caveat(caveat, lab.case)
        else:
            trial.ordered_checkpoint_s = time.monotonic() - begun_s
