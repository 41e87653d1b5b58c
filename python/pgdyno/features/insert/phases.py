"""The state in which a phase begins: made from that of the phase before by its inserts and deletes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from psycopg import sql

from pgdyno.errors import DatasetError, in_one_line
from pgdyno.features.insert.data import COMMENT, tables_of
from pgdyno.features.insert.parameters import InsertParameters
from pgdyno.measure.dataset_loading import BY_ENGINE, DATASET_SEED, DataKind, Maker, load_settings
from pgdyno.measure.engine_runs import drive_specification, run_drive
from pgdyno.server.builds import Build
from pgdyno.server.connections import cancel
from pgdyno.server.engine import Event
from pgdyno.server.processes import Cluster, Connection
from pgdyno.server.snapshots import Make, restore
from pgdyno.study.plan import Driving
from pgdyno.study.schedule import TRANSACTIONS_LIMIT_S, PlannedSlice, Role
from pgdyno.study.workload_parameters import WorkloadParameters

STEPS = ("l.i1", "l.i2")
"""Last steps before the snapshot that are phases, whose operations they run."""

OUTCOMES = ("ok", "rolled_back", "failed")


def is_made_by_steps(parameters: WorkloadParameters) -> bool:
    """Return whether the data need more than a load: l.i1, or l.i1 and l.i2."""
    return isinstance(parameters, InsertParameters) and parameters.begins_after in STEPS


def make(maker: Maker, build: Build, parameters: WorkloadParameters, _: Sequence[Build]) -> Make:
    """Return the function that creates the data directory."""
    assert isinstance(parameters, InsertParameters)
    return partial(_run_step, maker, build, parameters)


def _run_step(maker: Maker, build: Build, parameters: InsertParameters, data_dir: Path) -> None:
    """Copy the data with which the step begins, and run it. Raises DatasetError, Interrupted."""
    step = parameters.model_copy(update={"phase": parameters.begins_after})
    progress = maker.progress_of(parameters, build)
    with maker.hold(build, step) as dataset:
        maker.require_room(parameters, dataset.snapshot.size_bytes)
        restore(dataset.snapshot, data_dir, maker.cache.account)
    # The settings of the load, with autovacuum as it is by default: arms share the dataset.
    settings = {**load_settings(build), "autovacuum": "on"}
    with Cluster(build, data_dir, maker.cache.account).start(settings) as server:
        _insert_and_delete(maker, build, step, parameters, server.conninfo(step.kind))
        with (
            closing(server.connect(step.kind)) as connection,
            maker.interruption.tell(lambda: cancel(connection)),
        ):
            if step.phase == "l.i2":
                progress("vacuum", 0.0)
                _vacuum(connection, build.version.major)
            _mark(connection, step.phase)
        maker.interruption.check()
        progress("checkpoint", 0.0)


def _insert_and_delete(
    maker: Maker, build: Build, step: InsertParameters, parameters: InsertParameters, conninfo: str
) -> None:
    """Run the operations of a step, without a limit of its rate."""
    progress = maker.progress_of(parameters, build)
    clients, each = step.does.clients * step.queues, step.statements_of(step.phase)
    done = 0

    def on_event(event: Event) -> None:
        nonlocal done
        if event["event"] == "interval":
            done += sum(counts[name] for counts in event["kinds"].values() for name in OUTCOMES)
            progress(step.phase, min(1.0, done / (each * clients)))

    progress(step.phase, 0.0)
    slices = [PlannedSlice(0, Role.MEASURE, TRANSACTIONS_LIMIT_S, 0, transactions=each)]
    target = (f"PostgreSQL {build.version}", conninfo)
    specification = drive_specification(
        Driving(workload=step, clients=clients), DATASET_SEED, slices, [target]
    )
    run = run_drive(specification, maker.interruption, on_event)
    maker.interruption.check()
    if not run.complete or run.result is None:
        why = run.failure.message if run.failure is not None else "the engine stopped"
        raise DatasetError(f"step {step.phase} ended early: {in_one_line(why)}")
    failed = sum(counts["failed"] for counts in run.result.targets[0].totals.values())
    if failed:
        first = "".join(f": {in_one_line(error['message'])}" for error in run.errors[:1])
        raise DatasetError(f"{failed} statements of step {step.phase} failed{first}")


def _vacuum(connection: Connection, major: int) -> None:
    """Vacuum as the benchmark does before its queries. Also old index entries are removed."""
    options = "ANALYZE, INDEX_CLEANUP ON" if major >= 12 else "ANALYZE"
    for table in tables_of(connection):
        statement = sql.SQL("VACUUM ({}) {}").format(sql.SQL(options), sql.Identifier(table))
        connection.execute(statement)


def _mark(connection: Connection, done: str) -> None:
    """Write in the comment that the step is done."""
    ((comment,),) = connection.execute(COMMENT).fetchall()
    words = [f"done={done}" if word.startswith("done=") else word for word in str(comment).split(" ")]
    connection.execute(sql.SQL("COMMENT ON TABLE pi1 IS {}").format(sql.Literal(" ".join(words))))


DATA = DataKind(is_made_by_steps, BY_ENGINE.key, make)
