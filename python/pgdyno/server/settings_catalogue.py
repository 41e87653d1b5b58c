"""Catalogue of a build: its settings and compile options, read once from an empty cluster."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from pgdyno.server.builds import Build
from pgdyno.server.cache_directory import Cache
from pgdyno.server.directories import locked, renew
from pgdyno.server.processes import Cluster, Connection, InitOptions
from pgdyno.server.settings import COLUMNS, Definition, definition, parse_bool
from pgdyno.server.snapshots import DatasetKey, restore


@contextlib.contextmanager
def empty_cluster(
    build: Build, cache: Cache, name: str, init: InitOptions | None = None
) -> Iterator[Cluster]:
    """Provide a live directory ``name`` with the files of initdb (without sync), removed at the end of the
    block. Raises StartError, DatasetError.

    It is a copy of a template, which takes less than half of the CPU time of initdb. Copies have the system
    identifier of their template, like the data of two arms, which are copies of a dataset.
    """
    init = init or InitOptions()

    def make(data_dir: Path) -> None:
        Cluster(build, data_dir, cache.account).initdb(replace(init, sync=False))

    key = DatasetKey(build.build_id, init, "initdb", {}, seed=0, format="1")
    with cache.live_runs().open(name) as run:
        with cache.templates().hold(key, make) as template:
            restore(template.snapshot, run.data_dir, cache.account, sync=False)
        cache.templates().keep_newest(TEMPLATES_MAX)
        yield Cluster(build, run.data_dir, cache.account, run.log_path)


TEMPLATES_MAX = 8
"""Number of templates kept, of about 40 MB each. A bisection measures many builds, each for some minutes."""

LAYOUT = 2
COSTLY_OPTIONS = frozenset(
    {"llvm", "lz4", "zstd", "icu", "liburing", "cassert", "debug", "dtrace", "profiling"}
)


@dataclass(frozen=True)
class Catalogue:
    """``definitions`` by lower-case name. ``initial``: the values in a new cluster, as ``SHOW`` prints them.

    ``compiled`` is the ``pg_config`` view: CONFIGURE, CC, CFLAGS …; ``version_text`` is ``version()``.
    """

    version_text: str
    compiled: Mapping[str, str]
    definitions: Mapping[str, Definition]
    initial: Mapping[str, str]

    @property
    def library_dir(self) -> Path | None:
        """The directory of its libraries on this machine; None if unknown."""
        path = Path(self.compiled.get("PKGLIBDIR", ""))
        return path if path.is_absolute() and path.is_dir() else None


def catalogue(build: Build, cache: Cache) -> Catalogue:
    """Return the catalogue of the build from the cache, or from a temporary cluster. Raises StartError."""
    path = _place(build, cache)
    known = _read(path)
    if known is not None:
        return known
    with locked(path.with_suffix(".lock")):
        known = _read(path)
        if known is None:
            known = _ask(build, cache)
            renew(path, _codec().dump_json(known).decode())
    return known


def known_catalogue(build: Build, cache: Cache) -> Catalogue | None:
    """Return the catalogue if it is cached, without starting a server."""
    return _read(_place(build, cache))


def _place(build: Build, cache: Cache) -> Path:
    where = hashlib.sha256(os.fsencode(build.bin_dir)).hexdigest()[:8]  # of its libraries
    return cache.catalogues / f"{build.build_id}-{where}-{LAYOUT}.json"


def read_catalogue(connection: Connection) -> Catalogue:
    """Return the catalogue of a running server; ``compiled`` is empty without permission to read the view."""
    rows = connection.execute(f"select current_setting(name, true), {COLUMNS} from pg_settings").fetchall()
    may = connection.execute("select has_function_privilege('pg_config()', 'execute')").fetchone() == (True,)
    compiled = connection.execute("select name, setting from pg_config").fetchall() if may else []
    text = connection.execute("select version()").fetchone()
    found = {row[1].lower(): definition(row[1:]) for row in rows}
    return Catalogue(
        str(text[0]) if text else "", dict(compiled), found, {row[1]: row[0] or "" for row in rows}
    )


def lacks_jit(settings: Mapping[str, str], known: Catalogue) -> bool:
    """Return whether the settings request ``jit`` of a build without its library, which then ignores it."""
    libraries = known.library_dir if parse_bool(settings.get("jit", "off")) else None
    provider = settings.get("jit_provider") or known.initial.get("jit_provider") or "llvmjit"
    return libraries is not None and not Path(libraries, f"{provider}.so").is_file()


def compiled_differences(catalogues: Mapping[str, Catalogue]) -> list[str]:
    """Return sentences about builds (by label) with different compilers or different relevant options."""
    sentences = []
    for what, trait in (("compilers", _compiler), ("compiler flags", _flags), ("build options", _options)):
        values = {label: trait(known) for label, known in catalogues.items()}
        common = frozenset.intersection(*values.values()) if values else frozenset()
        own = {label: ", ".join(sorted(value - common)) or "none of these" for label, value in values.items()}
        if any(value - common for value in values.values()):
            sentences.append(
                f"the {what} differ: " + "; ".join(f"{label} has {text}" for label, text in own.items())
            )
    return sentences


def _compiler(known: Catalogue) -> frozenset[str]:
    found = re.search(r"compiled by (.+), \d+-bit", known.version_text)
    return frozenset({found[1] if found else "an unknown compiler"})


def _flags(known: Catalogue) -> frozenset[str]:
    """Return the flags for optimization, code generation and machine, without warnings and paths."""
    words = known.compiled.get("CFLAGS", "").split()
    return frozenset(w for w in words if re.match(r"-(O|m|f|D)", w) and "prefix-map" not in w)


def _options(known: Catalogue) -> frozenset[str]:
    """Return the options that change the cost of the server, without languages and paths."""
    given = known.compiled.get("CONFIGURE", "")
    if not given:  # meson does not record its options there
        return frozenset({"unknown options"})
    return COSTLY_OPTIONS.intersection(re.findall(r"--[a-z]+-([a-z0-9]+)", given))


def _ask(build: Build, cache: Cache) -> Catalogue:
    with (
        empty_cluster(build, cache, "catalogue") as cluster,
        cluster.start() as server,
        server.connect() as connection,
    ):
        return read_catalogue(connection)


@functools.cache
def _codec() -> TypeAdapter[Catalogue]:
    return TypeAdapter(Catalogue)


def _read(path: Path) -> Catalogue | None:
    try:
        return _codec().validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None
