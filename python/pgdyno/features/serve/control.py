"""The page of a running study: its events, and the forms to stop, continue and extend it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from shlex import join

from sse_starlette import EventSourceResponse
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pgdyno.errors import EvidenceError, PgdynoError
from pgdyno.features.serve import stop
from pgdyno.features.serve.forms import Form, sent, shown, then
from pgdyno.features.serve.index import Index
from pgdyno.features.serve.live import PERIOD_S, Follower, state_after
from pgdyno.features.serve.pages import NotFoundError, path_of, rendered
from pgdyno.features.serve.studies import PROGRAMS, Studies, end_of_log
from pgdyno.results.reader import Evidence
from pgdyno.results.records import StudyRecord
from pgdyno.study.arm_spec import GIT_PREFIX, OF_ARM
from pgdyno.study.plan import Study

MORE_MINUTES = 5
"""Default of the form to extend a study, in minutes."""

USER_FIELDS = frozenset({"allow_os", "checks", "data", "modules", "text"})
"""Parameters of a workload and of its scripts that come from files of a user."""


def routes(index: Index, studies: Studies) -> list[Route]:
    """Return the routes of the page and its forms."""
    return [
        shown("/live/{id}", partial(live_page, studies), index),
        Route("/live/{id}/events", partial(live_events, studies, index), methods=["GET"]),
        sent("/live/{id}/stop", partial(stop_study, studies), index),
        sent("/live/{id}/continue", partial(continue_study, studies), index),
    ]


def live_page(studies: Studies, index: Index, request: Request) -> Response:
    """Return the page of a study that runs, is about to begin, or has ended; its script asks for events."""
    of = request.path_params["id"]
    path = path_of(index, of)
    study, pid = _study(path), studies.pid_of(path)
    state = "waiting"
    if pid is not None:
        state = "stopping" if stop.request_of(path).exists() else "running"
    elif study is not None:
        state = state_after(study.ended_because)
    return rendered(
        "live.html.j2",
        title=path.name,
        id=of,
        state=state,
        heading=study.title if study else "",
        has_study=study is not None,
        resume=join(["pgdyno", *_words(path, study)]) if study else "",
        minutes=MORE_MINUTES,
        log=end_of_log(path),
    )


def stop_study(studies: Studies, index: Index, request: Request, _form: Form) -> Response:
    """Ask the process of a study to stop after its block."""
    path = path_of(index, request.path_params["id"])
    pid = studies.pid_of(path)
    if pid is None:
        raise PgdynoError(f"no process runs the study of {path.name}: it has ended")
    stop.ask(path, pid)
    return then(f"/live/{request.path_params['id']}")


def continue_study(studies: Studies, index: Index, request: Request, form: Form) -> Response:
    """Continue a study as its command does, for more minutes if the form has them."""
    path = path_of(index, request.path_params["id"])
    study = _study(path)
    if study is None:
        raise PgdynoError(f"{path.name} has no study that can be continued")
    with Evidence(path, verify=False) as evidence:
        plans = [evidence.study(case).plan for case in evidence.cases()]
    if any(map(_may_start_programs, plans)):
        command = join(["pgdyno", *_words(path, study)])
        raise PgdynoError(
            f"pages do not start programs, builds, servers or scripts of a study: run {command}"
        )
    minutes = form.get("minutes", "").strip()
    studies.start(path, [*_words(path, study), *([f"--minutes={minutes}"] if minutes else [])])
    return then(f"/live/{request.path_params['id']}")


def _may_start_programs(plan: Study) -> bool:
    """Return whether a study, whose file may be from others, can start more than installed servers.

    Clients are superusers of the servers that pgdyno starts, so that SQL can start programs, too.
    """
    loads = [plan.workload, *(of.workload for of in plan.drivings or ())]
    loads += filter(None, [plan.warmup_workload])
    servers = [*(arm.server for arm in plan.arms), *(load.upgrade_from for load in loads)]
    given = [name for arm in plan.arms for name in arm.known_settings]
    return bool(
        plan.beside
        or plan.drivers
        or plan.into_existing
        or any(_has_user_fields(load.model_dump()) for load in loads)
        or any(server.startswith(GIT_PREFIX) or "," in server for server in servers)  # ,extension=…
        or any(arm.is_dsn or any(getattr(arm, name) for name in OF_ARM) for arm in plan.arms)
        or any(PROGRAMS.fullmatch(name.lower()) for name in given)
    )


def _has_user_fields(parameters: object) -> bool:
    """Return whether parameters of a workload have scripts, queries or data that are not those of pgdyno."""
    match parameters:
        case dict():
            named = any(of and name in USER_FIELDS for name, of in parameters.items())
            return named or any(map(_has_user_fields, parameters.values()))
        case list() | tuple():
            return any(map(_has_user_fields, parameters))
    return False


def _study(path: Path) -> StudyRecord | None:
    with suppress(EvidenceError), Evidence(path, verify=False) as evidence:
        return evidence.study()
    return None


def _words(path: Path, study: StudyRecord) -> Sequence[str]:
    command = "run" if study.command.split()[1:2] == ["run"] else "compare"
    return [command, "--resume", str(path)]


async def live_events(studies: Studies, index: Index, request: Request) -> Response:
    """Return the events of a running study, at most one per second, until its end."""
    of = request.path_params["id"]
    try:
        path = await run_in_threadpool(path_of, index, of)
    except NotFoundError as error:
        return PlainTextResponse(str(error), 404)
    return EventSourceResponse(events_of(Follower(path, studies.is_beginning)))


async def events_of(follower: Follower) -> AsyncIterator[dict[str, str]]:
    """Yield the data of each change of a study, until its end."""
    while True:
        update = await run_in_threadpool(follower.update)
        if update is not None:
            yield {"data": update.json()}
            if update.state == "ended":
                return
        await asyncio.sleep(PERIOD_S)
