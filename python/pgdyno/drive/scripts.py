"""Are the scripts of a workload sound? The engine reads them before any server is started."""

from __future__ import annotations

from pgdyno.caveats import Caveat, Code
from pgdyno.engine import Engine
from pgdyno.errors import UsageError
from pgdyno.study.pgbench_parameters import PgbenchParameters
from pgdyno.study.workload_parameters import WorkloadParameters


def examine(parameters: WorkloadParameters) -> list[Caveat]:
    """Raises UsageError with the line and the caret of pgbench's own message; gives what is to be told of
    sound ones.
    """
    if not isinstance(parameters, PgbenchParameters):
        return []
    with Engine("check", {"workload": parameters.to_drive()}) as engine:
        answer = list(engine.events())[-1]
    if answer["event"] == "failed":
        raise UsageError(answer["message"].removeprefix("workload: "))
    own_only = all(script.text is not None for script in parameters.scripts)
    if own_only and answer["reads_scale"] and parameters.scale > 1 and "scale" not in parameters.define:
        return [Caveat(Code.SCALE_OF_THE_DATA, {"scale": parameters.scale})]
    return []
