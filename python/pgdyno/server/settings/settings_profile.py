"""Settings profiles: named sets of settings with their source, and all settings requested by an arm.

A settings file of the user takes the place of a profile.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pgdyno.errors import UsageError
from pgdyno.server.settings.machine_resources import MachineResources
from pgdyno.server.settings.reserved_settings import refuse_reserved, refused_from_file
from pgdyno.server.settings.setting_definition import Definition, validate
from pgdyno.server.version import Version
from pgdyno.units import format_setting_size

MB, GB = 2**20, 2**30
BLOCK_BYTES = 8192
LIBRARY_LISTS = ("shared_preload_libraries", "session_preload_libraries", "local_preload_libraries")

LACKS_LIBRARY = "this server lacks the library"


@dataclass(frozen=True)
class ProfileInput:
    """Input of a profile: resources and version.

    If several servers run at the same time, each gets its share of the memory, so that they do not swap.
    Cores are not divided, because only one server is driven at a time. In a duet, where two are, ``machine``
    is the CPU partition of one server.
    """

    machine: MachineResources
    version: Version
    definitions: Mapping[str, Definition]
    servers_at_once: int = 1
    connections: int = 100
    library_dir: Path | None = None  # of the server; None if unknown

    def has_library(self, name: str) -> bool:
        """Return whether the server can preload a library; True if its files are unknown."""
        if self.library_dir is None:
            return True
        path = self.library_dir / name.replace("$libdir", str(self.library_dir))
        return path.is_file() or path.with_name(f"{path.name}.so").is_file()

    @property
    def memory_bytes(self) -> int:
        """Memory for one server."""
        return self.machine.memory_bytes // self.servers_at_once


@dataclass(frozen=True)
class SettingsProfile:
    """A named set of settings. ``optional`` has those that a version may lack without invalidating the
    arm."""

    name: str
    title: str
    source: str
    settings: Callable[[ProfileInput], dict[str, str]]
    optional: frozenset[str] = frozenset()


def _default(_: ProfileInput) -> dict[str, str]:
    return {}


def _starter(fit: ProfileInput) -> dict[str, str]:
    """Return settings by the rules of PGTune for OLTP (web application, November 2026), for
    ``Fit.memory_bytes``."""
    memory, cores, disk = fit.memory_bytes, fit.machine.cores, fit.machine.disk
    shared_buffers = _whole_mb(memory // 4)
    parallel = cores >= 4
    workers = cores if parallel else 8  # 8 is the default of max_worker_processes
    work_mem = max(4 * MB, (memory - shared_buffers) // ((fit.connections + workers) * 3))
    settings = {
        "max_connections": str(fit.connections),
        "shared_buffers": format_setting_size(shared_buffers),
        "effective_cache_size": format_setting_size(_whole_mb(memory * 3 // 4)),
        "maintenance_work_mem": format_setting_size(_whole_mb(min(memory // 16, 8 * GB))),
        "checkpoint_completion_target": "0.9",
        "wal_buffers": format_setting_size(_wal_buffers(shared_buffers)),
        "default_statistics_target": "100",
        "random_page_cost": "4" if disk == "rotational" else "1.1",
        "effective_io_concurrency": {"rotational": "2", "ssd": "200", "nvme": "1000"}[disk],
        "work_mem": format_setting_size(_whole_kb(work_mem)),
        "huge_pages": "try" if shared_buffers >= 2 * GB else "off",
        "min_wal_size": "2GB",
        "max_wal_size": "8GB",
    }
    if _has_lz4(fit):
        settings["wal_compression"] = "lz4"
    if fit.version.major >= 12:
        settings["jit"] = "off"
    if parallel:
        half = (cores + 1) // 2
        settings["max_worker_processes"] = str(cores)
        settings["max_parallel_workers"] = str(cores)
        settings["max_parallel_workers_per_gather"] = str(min(4, half))
        settings["max_parallel_maintenance_workers"] = str(min(4, half))
    return settings


def _has_lz4(fit: ProfileInput) -> bool:
    """Return whether the build supports lz4: from 15 on, and not in embedded builds.

    Without lz4, WAL is not compressed: pglz took 44% (34% to 54%) more server CPU per transaction of tpcc
    just after a checkpoint (18.4, 2 cores, 5 blocks).
    """
    known = fit.definitions.get("wal_compression")
    return known is not None and "lz4" in known.enumvals


def _wal_buffers(shared_buffers: int) -> int:
    """Return 3% of shared_buffers, 32 kB to 16 MB, in whole blocks."""
    return min(max(shared_buffers * 3 // 100, 32 * 1024), 16 * MB) // BLOCK_BYTES * BLOCK_BYTES


def _whole_mb(size_bytes: int) -> int:
    return max(size_bytes // MB, 1) * MB


def _whole_kb(size_bytes: int) -> int:
    return max(size_bytes // 1024, 1) * 1024


PROFILES: Mapping[str, SettingsProfile] = {
    profile.name: profile
    for profile in (
        SettingsProfile("default", "the defaults of initdb", "PostgreSQL", _default),
        SettingsProfile(
            "starter",
            "a starting point for OLTP, for the memory, cores and disk of this machine",
            "rules of PGTune, type OLTP, November 2026",
            _starter,
            optional=frozenset({"max_parallel_maintenance_workers"}),
        ),
    )
}


def profile_named(name: str) -> SettingsProfile:
    """Return the profile of that name. Raises UsageError if it is unknown."""
    if name not in PROFILES:
        close = difflib.get_close_matches(name, PROFILES, n=1)
        known = f"available: {', '.join(PROFILES)}; a settings file has a dot or a slash, as in @./{name}"
        raise UsageError(
            f"unknown profile {name!r}" + (f": did you mean {close[0]}?" if close else f"; {known}")
        )
    return PROFILES[name]


@dataclass(frozen=True)
class Requested:
    """Requested settings of an arm, for ``Cluster.start``.

    ``skipped``: by settings file, the settings that the arm does not have, each with the reason.
    """

    settings: Mapping[str, str]
    optional: frozenset[str]
    skipped: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """A sentence for each settings file of which something is skipped."""
        return [f"{file}: skipped {_with_reasons(skipped)}" for file, skipped in self.skipped.items()]


def _with_reasons(skipped: Mapping[str, str]) -> str:
    """Return ``a, b (reason); c (reason)``."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in skipped.items():
        by_reason.setdefault(reason, []).append(name)
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in by_reason.items())


def request(
    profiles: Sequence[str],
    free: Mapping[str, str],
    fit: ProfileInput,
    may_lack: Collection[str] = (),
    files: Mapping[str, Mapping[str, str]] | None = None,
) -> Requested:
    """Combine the settings of the profiles and files in their order, overridden by the ``free`` ones, and
    validate them.

    The version may lack the settings in ``may_lack``, and those of extensions in files, which PostgreSQL
    accepts without the extension. Raises UsageError for an unknown profile or setting, a value out of range,
    or a reserved setting.
    """
    refuse_reserved(free)
    own = {name.lower(): value for name, value in free.items()}
    settings: dict[str, str] = {}
    optional: set[str] = set()
    skipped: dict[str, Mapping[str, str]] = {}
    for name in profiles:
        if files is not None and name in files:
            kept, left = _of_file(name, files[name], own, fit, may_lack)
            settings |= kept
            optional |= {one for one in kept if "." in one}
            if left:
                skipped[name] = left
        else:
            profile = profile_named(name)
            settings |= profile.settings(fit)
            optional |= profile.optional
    settings |= own
    optional = optional - own.keys() | set(may_lack)
    validate(settings, fit.definitions, fit.version, optional)
    return Requested(settings, frozenset(optional & settings.keys()), skipped)


def _of_file(
    file: str,
    given: Mapping[str, str],
    own: Mapping[str, str],
    fit: ProfileInput,
    may_lack: Collection[str],
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings that an arm has from a file, and those that it has not, each with the reason.

    ``own``: the settings of the command line, which override them. Raises UsageError with the file.
    """
    kept, skipped = {}, {}
    listed = {name: _items(given[name]) for name in LIBRARY_LISTS if name in given}
    lacking = {one for libraries in listed.values() for one in libraries if not fit.has_library(one)}
    for name, value in given.items():
        if name in own:
            continue
        if reason := refused_from_file(name, own):
            skipped[name] = reason
        elif name in listed:
            kept[name] = ",".join(one for one in listed[name] if one not in lacking)
            skipped |= {f"{one} of {name}": LACKS_LIBRARY for one in listed[name] if one in lacking}
        elif name.partition(".")[0] in lacking:
            skipped[name] = LACKS_LIBRARY
        else:
            kept[name] = value
    try:
        validate(kept, fit.definitions, fit.version, may_lack)
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from None
    return kept, skipped


def _items(text: str) -> list[str]:
    """Return the items of a list of libraries."""
    return [one for item in text.split(",") if (one := item.strip().strip('"'))]
