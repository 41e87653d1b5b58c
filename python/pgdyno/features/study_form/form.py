"""The form for a new study: a comparison of versions and settings, its plan, and its start.

A page reaches only what is here: versions, profiles of pgdyno, settings whose values are numbers or known
words, a workload, minutes, clients. So it starts no build, script or program of its own, connects to no
running server, and writes to the directory of the pages only. The parser of the command line validates
the result.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import join
from typing import get_args
from urllib.parse import parse_qsl

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pgdyno.cli import options
from pgdyno.cli.compare import DesignOptions, describe_sizes, study_of
from pgdyno.cli.error_reporting import as_pgdyno_error
from pgdyno.cli.options import Added, ClientOptions, added_to, built, shortage
from pgdyno.cli.workload_options import DEFAULT_WORKLOAD, Kind, WorkloadOptions
from pgdyno.errors import PgdynoError, UsageError
from pgdyno.features.planning.cost import costs_of, disk_bytes, driven_s, load_s
from pgdyno.features.serve.filing import new_path
from pgdyno.features.serve.forms import Form, sent, shown, then
from pgdyno.features.serve.index import Index
from pgdyno.features.serve.pages import FurtherPages, rendered
from pgdyno.features.serve.studies import PROGRAMS, Studies, parsed
from pgdyno.server.cache_directory import Cache
from pgdyno.server.directories import free_bytes
from pgdyno.server.settings import PROFILES, refuse_reserved
from pgdyno.study.arm_spec import OF_ARM, ArmSpec, parse_arm, parse_arms
from pgdyno.study.cases import only_case
from pgdyno.study.plan import Study
from pgdyno.units import format_duration, format_size

ARMS_MAX = 8

VERSION = re.compile(r"\d{1,2}(\.\d{1,2})?")

VALUE = re.compile(r"[+-]?\d+(\.\d+)? ?(B|kB|MB|GB|TB|us|ms|s|min|h|d)?|on|off|true|false|yes|no")
"""Values of any setting: no command, library or path has such a name."""

WORDS: Mapping[str, Sequence[str]] = {
    "compute_query_id": ("auto",),
    "constraint_exclusion": ("partition",),
    "default_toast_compression": ("pglz", "lz4"),
    "file_copy_method": ("copy", "clone"),
    "huge_pages": ("try",),
    "io_method": ("sync", "worker", "io_uring"),
    "plan_cache_mode": ("auto", "force_generic_plan", "force_custom_plan"),
    "recovery_prefetch": ("try",),
    "synchronous_commit": ("local", "remote_write", "remote_apply"),
    "track_functions": ("none", "pl", "all"),
    "wal_compression": ("pglz", "lz4", "zstd"),
    "wal_level": ("minimal", "replica", "logical"),
    "wal_sync_method": ("fsync", "fdatasync", "open_sync", "open_datasync"),
}
"""Further values of settings."""

PAGES = FurtherPages(__package__, "New study", "new", in_navigation=True)


def routes(index: Index, studies: Studies) -> list[Route]:
    """Return the routes of the form."""
    return [shown("/new", new_page, index), sent("/new", partial(start_study, studies), index)]


def require_harmless(arm: ArmSpec) -> None:
    """Raise UsageError unless a page may start the arm."""
    if arm.is_dsn or not VERSION.fullmatch(arm.server):
        raise UsageError(f"an arm of this form begins with a version, such as 18 (got {arm.server!r})")
    if arm.load or any(getattr(arm, name) for name in OF_ARM):
        raise UsageError(f"an arm of this form has settings only (got {arm.name!r}): use pgdyno compare")
    for profile in arm.profiles:
        if profile not in PROFILES:
            raise UsageError(f"@{profile} is no profile; this form has {', '.join(PROFILES)}")
    refuse_reserved(arm.settings)
    for name, value in arm.settings.items():
        is_known = VALUE.fullmatch(value) or value in WORDS.get(name.lower(), ())
        if PROGRAMS.fullmatch(name.lower()) or not is_known:
            raise UsageError(
                f"this form accepts numbers, on, off and the words of some settings (got {name}={value}): "
                "use pgdyno compare"
            )


def words_of(form: Form, path: Path) -> list[str]:
    """Return the command line of a form. Raises UsageError."""
    arms = [line.strip() for line in form.get("arms", "").splitlines() if line.strip()]
    if not 2 <= len(arms) <= ARMS_MAX:
        raise UsageError(f"a comparison has 2 to {ARMS_MAX} arms, one per line (got {len(arms)})")
    for arm in arms:
        require_harmless(parse_arm(arm))
    words = ["compare", *arms]
    for name in ("workload", "minutes", "clients"):
        if value := form.get(name, "").strip():
            words.append(f"--{name}={value}")
    return [*words, f"--evidence={path}"]


def planned(words: Sequence[str]) -> Study:
    """Return the study of a command line, without starting it. Raises PgdynoError."""
    given = parsed(words)
    added = Added(built(kind, given) for kind in added_to("compare"))
    design, load, workload = (built(of, given) for of in (DesignOptions, ClientOptions, WorkloadOptions))
    arms = tuple(parse_arms(given["arms"]))
    try:
        return study_of(arms, given["clients"], given["minutes"], design, load, workload, added)
    except ValidationError as error:
        raise as_pgdyno_error(error) or error from None


def plan_lines(study: Study) -> list[str]:
    """Return the sizes of a study, and whether it fits this machine."""
    machine, costs = options.machine_size(), costs_of([only_case(study, None)])
    needed, free = disk_bytes(costs, driven_s(study, machine), machine.cores), free_bytes(Cache.open().root)
    lines = describe_sizes(study).splitlines()
    lines.append(
        f"disk: {format_size(needed)} at most; {format_size(free)} free"
        f"{'' if needed <= free else ', which is too little'}"
    )
    lines.append(f"loading the data once: about {format_duration(math.ceil(load_s(costs)))} more")
    return [*lines, *filter(None, [shortage(study, machine)])]


def new_page(index: Index, request: Request) -> Response:
    """Return the form; with values, also the command and the plan, or the error."""
    given = dict(parse_qsl(request.url.query, keep_blank_values=True))
    given = {name: "\n".join(value.splitlines()) for name, value in given.items()}  # browsers send CR LF
    plan: Sequence[str] = ()
    command, error = "", ""
    path = index.directory / time.strftime("pgdyno-%Y%m%d-%H%M%S.sqlite")
    if "arms" in given:
        try:
            words = words_of(given, path)
            plan, command = plan_lines(planned(words)), join(["pgdyno", *words])
        except PgdynoError as refused:
            error = str(refused)
    form = {"arms": "17\n18", "workload": DEFAULT_WORKLOAD, "minutes": "5", "clients": "", **given}
    return rendered(
        "new.html.j2",
        title="New study",
        form=form,
        workloads=get_args(Kind),
        plan=plan,
        command=command,
        error=error,
        name=path.name,
    )


def start_study(studies: Studies, index: Index, _request: Request, form: Form) -> Response:
    """Start the study of a form, and show its page."""
    path = new_path(index.directory / "new", form.get("name", ""))
    if path.exists():
        raise UsageError(f"{path.name} exists: show the plan again, for another name")
    words = words_of(form, path)
    planned(words)
    studies.start(path, words)
    return then(f"/live/{index.expect(path)}")
