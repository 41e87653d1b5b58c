"""Completion of arguments in bash, zsh and fish: studies, arms with their profiles and settings files.

Commands name these functions, so each imports what it reads when a shell calls it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from pgdyno.errors import PgdynoError

FILE_ENDS = (".conf", ".sql")
"""Usual ends of the names of settings files."""


def complete_study(incomplete: str) -> list[str]:
    """Return the bundled studies, and study files below the current directory."""
    from pgdyno.study.study_file_reader import bundled_studies  # noqa: PLC0415

    bundled = sorted(path.stem for path in bundled_studies().rglob("*.toml"))
    return [*_starting(bundled, incomplete), *_files(incomplete, (".toml",))]


def complete_server(incomplete: str) -> list[str]:
    """Return the versions of installed and cached servers, and words for a server."""
    from pgdyno.server.build_store import system_builds  # noqa: PLC0415
    from pgdyno.server.cache_directory import Cache  # noqa: PLC0415

    try:
        builds = [*system_builds(), *Cache.open().store().cached()]
    except PgdynoError:
        builds = []
    versions = sorted({text for one in builds for text in (str(one.version.major), str(one.version))})
    return _starting([*versions, "system", "devel", "git:"], incomplete)


def complete_arm(incomplete: str) -> list[str]:
    """Return servers, and after a comma the profiles and settings files of an arm.

    bash splits words at @: the word is then a part of the arm.
    """
    head, comma, part = incomplete.rpartition(",")
    if comma or part.startswith("@"):
        names = complete_profile(part.removeprefix("@")) if part[:1] in ("", "@") else []
        return [f"{head}{comma}@{name}" for name in names]
    words = os.environ.get("COMP_WORDS", "").split()
    before = words[:-1] if incomplete else words
    return complete_profile(incomplete) if before[-1:] == ["@"] else complete_server(incomplete)


def complete_profile(incomplete: str) -> list[str]:
    """Return the profiles, and settings files below the current directory."""
    from pgdyno.server.settings import PROFILES  # noqa: PLC0415

    return [*_starting(PROFILES, incomplete), *_files(incomplete, FILE_ENDS)]


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _files(incomplete: str, ends: tuple[str, ...]) -> Iterator[str]:
    """Yield the files with these ends, and the directories, whose paths start like the incomplete one."""
    directory, _, _ = incomplete.rpartition("/")
    place = Path(directory or ("/" if incomplete.startswith("/") else ".")).expanduser()
    try:
        entries = sorted(place.iterdir())
    except OSError:
        return
    for entry in entries:
        shown = f"{directory}/{entry.name}" if "/" in incomplete else entry.name
        if shown.startswith(incomplete) and not entry.name.startswith("."):
            if entry.is_dir():
                yield f"{shown}/"
            elif entry.name.endswith(ends):
                yield shown
