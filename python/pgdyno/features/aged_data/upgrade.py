"""pg_upgrade: the builds that it needs, and its run on a copy of a data directory.

It needs programs of both versions, which most embedded builds lack. Builds of one major version share data
directories, so that another build of the same version can run pg_upgrade for that of an arm.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgdyno.errors import DatasetError, FetchError, UsageError, in_one_line
from pgdyno.server.build_store import Store, resolve_build
from pgdyno.server.builds import Build, VersionSpec, is_version, parse_version_spec
from pgdyno.server.directories import Account
from pgdyno.server.processes import (
    SUPERUSER,
    Cluster,
    Connection,
    InitOptions,
    SocketDirectory,
    clear_after_kill,
    end_postmaster,
    run_tool,
)

OLD_PROGRAMS = ("postgres", "pg_ctl", "pg_controldata", "pg_resetwal")
NEW_PROGRAMS = (
    *OLD_PROGRAMS,
    *("pg_upgrade", "initdb", "pg_dump", "pg_dumpall", "pg_restore", "psql", "vacuumdb"),
)

UPGRADE_TIMEOUT_S = 6 * 3600.0
"""Maximum time of pg_upgrade: it dumps and restores the schema, and links the files of tables."""

SOCKET_OPTION_FROM = 12
"""First major version with ``--socketdir``. Before, pg_upgrade has its socket in the current directory."""

LOG_CHARACTERS_MAX = 900
"""Characters of pg_upgrade's output and logs in an error message."""

LINES_MAX = 3
"""Lines of one log in an error message."""

LOG_BYTES_MAX = 1 << 20
"""Bytes at the end of a log that are searched for errors: a failed statement can be long."""


@dataclass(frozen=True)
class UpgradeBuilds:
    """Builds of an upgrade: ``old`` loads the data, ``new`` has pg_upgrade and the version of the arm."""

    old: Build
    new: Build


def upgrade_builds(
    origin: str, arm: str, arm_build: Build, there: Sequence[Build], store: Store
) -> UpgradeBuilds:
    """Return the builds that upgrade data of the server ``origin`` for an arm.

    ``there``: builds on this machine, in order of preference. Raises UsageError: no older version, or no
    build with the programs.
    """
    major = arm_build.version.major
    if is_version(origin):
        wanted = parse_version_spec(origin)
        if wanted.major is None or wanted.major >= major:
            raise UsageError(_not_older(origin, arm, major))
        old = _with(OLD_PROGRAMS, wanted, there, store)
    else:
        old = resolve_build(origin, store=store)
        _require(OLD_PROGRAMS, old)
    if old.version.major >= major:
        raise UsageError(_not_older(origin, arm, major))
    if arm_build.version.stage:  # the catalogs of pre-releases differ from build to build
        _require(NEW_PROGRAMS, arm_build)
        return UpgradeBuilds(old, arm_build)
    return UpgradeBuilds(old, _with(NEW_PROGRAMS, VersionSpec(major, None), [arm_build, *there], store))


def _not_older(origin: str, arm: str, major: int) -> str:
    return (
        f"pg_upgrade:{origin} requires an arm of a newer version (got {arm}, version {major}): give the "
        "upgraded data to the newer arm only, as in 18,data=pg_upgrade:17"
    )


def _with(programs: Sequence[str], wanted: VersionSpec, there: Sequence[Build], store: Store) -> Build:
    for build in there:
        if wanted.matches(build.version) and not _missing(programs, build):
            return build
    try:
        if wanted.minor is not None:
            raise FetchError("downloads with all programs have no choice of the minor version")
        found = store.with_programs(wanted)
    except FetchError as error:
        raise UsageError(
            f"pg_upgrade needs the programs {', '.join(programs)} of PostgreSQL {wanted}: {error}: install "
            f"the packages of PostgreSQL {wanted}, or build it (pgdyno servers build {wanted} --source …)"
        ) from error
    _require(programs, found)
    return found


def _missing(programs: Sequence[str], build: Build) -> list[str]:
    return [name for name in programs if not build.has(name)]


def _require(programs: Sequence[str], build: Build) -> None:
    if missing := _missing(programs, build):
        raise UsageError(
            f"pg_upgrade needs {', '.join(missing)}, which {build.label} in {build.bin_dir} lacks: install "
            f"the packages of PostgreSQL {build.version.major}, or build it from source"
        )


@dataclass(frozen=True)
class OldCluster:
    """Options of initdb that the new cluster shares with the old one. ``user``: the role that ran initdb."""

    user: str = SUPERUSER
    locale: tuple[str, ...] = ()

    @classmethod
    def read(cls, connection: Connection) -> OldCluster:
        """Read it from the running old server."""
        (row,) = connection.execute(
            "SELECT rolname, pg_encoding_to_char(encoding), datcollate, datctype FROM pg_database, pg_roles "
            "WHERE datname = 'template0' AND pg_roles.oid = 10"
        ).fetchall()
        user, encoding, collate, ctype = map(str, row)
        return cls(user, ("--encoding", encoding, "--lc-collate", collate, "--lc-ctype", ctype))


def upgrade(
    builds: UpgradeBuilds,
    old: OldCluster,
    old_dir: Path,
    data_dir: Path,
    account: Account,
    check: Callable[[], None],
) -> None:
    """Upgrade a stopped copy of a data directory. ``old_dir`` is gone afterwards, because the files of its
    tables are linked.

    ``check`` is called while pg_upgrade runs and may raise. Raises DatasetError with the end of its log,
    StartError.
    """
    options = _init_options(builds.old, old_dir, account)
    Cluster(builds.new, data_dir, account).initdb(options, ("--username", old.user, *old.locale))
    socket, work_dir = SocketDirectory.create(account), data_dir.with_name("upgrade")
    command = [str(builds.new.program("pg_upgrade")), "--link", "--username", old.user]
    for which, build, place in (("old", builds.old, old_dir), ("new", builds.new, data_dir)):
        command += [f"--{which}-bindir", str(build.bin_dir), f"--{which}-datadir", str(place)]
    try:
        if builds.new.version.major >= SOCKET_OPTION_FROM:
            command += ["--socketdir", str(socket.path)]
            work_dir.mkdir()
            account.own(work_dir)
        else:
            work_dir = socket.path
        # It writes into the current directory.
        there = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(work_dir), *command]
        done = run_tool(there, account, UPGRADE_TIMEOUT_S, check=check)
        if done.returncode != 0:
            raise DatasetError(
                f"pg_upgrade from {builds.old.label} to {builds.new.label} failed: "
                f"{_last_words(done.stdout + done.stderr, (work_dir, data_dir / OUTPUT))}: install what the "
                "new server lacks, or use a newer minor version of it"
            )
    except subprocess.TimeoutExpired:
        raise DatasetError("pg_upgrade took longer than 6 h: use smaller data") from None
    finally:
        for place in (old_dir, data_dir):  # pg_upgrade leaves its server if it is ended
            end_postmaster(place)
            clear_after_kill(place, account)
        socket.remove()
    for place in (old_dir, work_dir, data_dir / OUTPUT):
        shutil.rmtree(place, ignore_errors=True)


OUTPUT = "pg_upgrade_output.d"
"""Directory of the logs inside the new data directory, from PostgreSQL 15 on."""

_PASSED = re.compile(r"(ok|^-+|^Performing .*|^Checking .*)\s*$")
_TELLING = re.compile(r"(error|fatal|panic|detail): |could not load|\$libdir", re.IGNORECASE)


def _init_options(build: Build, data_dir: Path, account: Account) -> InitOptions:
    """Return checksums and WAL segments of the old cluster, which the new one must share."""
    shown = run_tool([str(build.program("pg_controldata")), str(data_dir)], account, 60.0).stdout
    facts = dict(line.split(":", 1) for line in shown.splitlines() if ":" in line)
    try:
        checksums = int(facts["Data page checksum version"]) > 0
        segment_mb = int(facts["Bytes per WAL segment"]) >> 20
    except (KeyError, ValueError):
        raise DatasetError(f"pg_controldata of {build.label} cannot read {data_dir}") from None
    return InitOptions(checksums=checksums, wal_segment_mb=segment_mb, sync=False)


def _last_words(output: str, places: Sequence[Path]) -> str:
    """Return the end of the output, then the telling lines at the end of the newest logs, as one line."""
    told = [line.strip() for line in output.splitlines() if line.strip() and not _PASSED.search(line)]
    files = [path for place in places for path in place.rglob("*.[lt][ox][gt]")]
    for path in sorted(files, key=lambda path: path.stat().st_mtime)[-3:]:
        lines = path.read_text(errors="replace")[-LOG_BYTES_MAX:].splitlines()
        told += [f"{path.name}: {line.strip()}" for line in lines if _TELLING.search(line)][-LINES_MAX:]
    return in_one_line(" / ".join(dict.fromkeys(told)))[-LOG_CHARACTERS_MAX:] or "it printed no reason"
