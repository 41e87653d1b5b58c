"""Results files are named, tagged and deleted; the page with these forms, and that of a study's history.

Tags are lines of a file beside the results file, which is evidence and never changed. Files that are written
at that moment are left alone: renaming and deletion take the lock of their writer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pgdyno.analysis.study_findings import StudyFindings
from pgdyno.cli.report import read_findings
from pgdyno.errors import EvidenceError, PgdynoError, UsageError
from pgdyno.features.history.changes import group_files, histories
from pgdyno.features.history.report import HistoryReport, history_document
from pgdyno.features.serve.forms import Form, sent, shown, then
from pgdyno.features.serve.index import Entry, Index, identifier
from pgdyno.features.serve.pages import entry_of, main_of, rendered
from pgdyno.features.serve.studies import Studies
from pgdyno.features.serve.tags import parsed_tags, store_tags, tags_of
from pgdyno.results.results_file import WriterLock

OF_SQLITE, OWN = ("-wal", "-shm"), (".log", ".stop", ".tags")
"""Ends of the names of files beside a results file."""

NAME_BYTES_MAX = 200
"""Maximum length of a name: file systems have 255 bytes, of which temporary files need some."""

SUFFIX = ".sqlite"


def routes(index: Index, studies: Studies) -> list[Route]:
    """Return the routes of these pages and forms."""
    return [
        shown("/run/{id}/manage", manage_page, index),
        shown("/run/{id}/history", history_page, index),
        sent("/run/{id}/tags", tag_run, index),
        sent("/run/{id}/rename", partial(rename_run, studies), index),
        sent("/run/{id}/delete", partial(delete_run, studies), index),
    ]


# ----------------------------------------------------------------------
# Files
# ----------------------------------------------------------------------


def companions(path: Path) -> list[Path]:
    """Return the files that belong to a results file, those that exist."""
    named = (path.with_name(f"{path.name}{end}") for end in (*OF_SQLITE, *OWN))
    return [one for one in named if os.path.lexists(one)]


@contextmanager
def _unwritten(studies: Studies, path: Path) -> Iterator[None]:
    """Keep every writer from a file. Raises PgdynoError, EvidenceError if one has it."""
    if studies.pid_of(path) is not None:
        raise PgdynoError(f"{path.name} is being written: wait for the end of its study, or stop it")
    with _locked(path):
        if path.is_symlink() or not path.is_file():
            raise PgdynoError(f"{path.name} is no regular file any more: reload the list of runs")
        yield


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with ExitStack() as stack:
        stack.callback(WriterLock(path).release)
        yield


def delete(path: Path) -> None:
    """Delete a results file, then what belongs to it: what is left after a crash is no results file."""
    belonging = companions(path)
    path.unlink()
    for one in belonging:
        one.unlink(missing_ok=True)


def new_path(path: Path, name: str) -> Path:
    """Return the path of a file with another name, in the same directory. Raises UsageError."""
    name = name.strip()
    name = name if name.endswith(SUFFIX) else f"{name}{SUFFIX}"
    if "/" in name or name.startswith((".", "-")) or not name.isprintable():
        raise UsageError(f"a name has no slash or invisible character, and no . or - first (got {name!r})")
    if len(name.encode(errors="replace")) > NAME_BYTES_MAX:
        raise UsageError(f"the name has more than {NAME_BYTES_MAX} bytes: shorten it")
    return path.with_name(name)


def rename(path: Path, to: Path) -> None:
    """Give a results file another name, with its WAL and what else belongs to it.

    At every moment one of both names has the file and its WAL. No other file is replaced. Raises UsageError.
    """
    others = companions(path)
    linked: list[Path] = []
    try:
        for one in [*(one for one in others if not one.name.endswith("-shm")), path]:
            target = to.with_name(to.name + one.name[len(path.name) :])
            os.link(one, target, follow_symlinks=False)
            linked.append(target)
    except FileExistsError:
        for target in linked:
            target.unlink()
        raise UsageError(f"{to.name} or a file that would belong to it exists: choose another name") from None
    for one in [path, *others]:
        one.unlink()


# ----------------------------------------------------------------------
# Pages and forms
# ----------------------------------------------------------------------


def manage_page(index: Index, request: Request) -> Response:
    """Return the page with the forms of a file."""
    entry = entry_of(index, request.path_params["id"])
    return rendered(
        "manage.html.j2",
        title=f"Manage {entry.path.name}",
        entry=entry,
        tags=", ".join(tags_of(entry.path)),
        stem=entry.path.name.removesuffix(SUFFIX),
        files=[entry.path.name, *(one.name for one in companions(entry.path))],
    )


def tag_run(index: Index, request: Request, form: Form) -> Response:
    """Store the tags of a file."""
    entry = entry_of(index, request.path_params["id"])
    store_tags(entry.path, parsed_tags(form.get("tags", "")))
    return then(f"/run/{entry.id}/manage")


def rename_run(studies: Studies, index: Index, request: Request, form: Form) -> Response:
    """Give a file another name."""
    path = entry_of(index, request.path_params["id"]).path
    to = new_path(path, form.get("name", ""))
    if to != path:
        with _unwritten(studies, path), _locked(to):
            rename(path, to)
    index.refresh()
    return then(f"/run/{identifier(index.directory, to)}/manage")


def delete_run(studies: Studies, index: Index, request: Request, form: Form) -> Response:
    """Delete a file, if the form confirms it."""
    entry = entry_of(index, request.path_params["id"])
    if form.get("confirm") != entry.id:
        raise UsageError("a file is deleted only if the box above the button is ticked: go back, and tick it")
    with _unwritten(studies, entry.path):
        delete(entry.path)
    index.refresh()
    return then("/")


HISTORY_FILES_MAX = 60
"""Maximum number of files of a history, the newest ones: each is analyzed. ``pgdyno history`` reads all."""


def history_page(index: Index, request: Request) -> Response:
    """Return the history of a study: that of the files with the same title, as ``pgdyno history``."""
    entry = entry_of(index, request.path_params["id"])
    same = sorted((one for one in index.entries() if one.title == entry.title), key=lambda one: one.created)
    skipped: dict[str, str] = {}
    found = histories(group_files(_findings(same[-HISTORY_FILES_MAX:], skipped), (), skipped))
    own = [history for history in found if entry.name in history.files] or found
    document = history_document(HistoryReport(own, skipped))
    omitted = max(0, len(same) - HISTORY_FILES_MAX)
    return rendered("history.html.j2", title="History", entry=entry, main=main_of(document), omitted=omitted)


def _findings(entries: Sequence[Entry], skipped: dict[str, str]) -> Iterator[tuple[str, StudyFindings]]:
    for one in entries:
        try:
            yield one.name, read_findings(one.path)
        except EvidenceError as error:
            skipped[one.name] = str(error)
