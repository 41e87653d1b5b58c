"""What is remembered of machines' noise: calibrations and the A/A blocks of studies, one file of JSON Lines.

It lies with the user's state and not in the cache, for it cannot be made again: ``$XDG_STATE_HOME/pgdyno`` or
``~/.local/state/pgdyno``. An entry is one line, appended under a lock; a line that was cut short by a power
cut is passed over. Of entries with the same ``id`` the last counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgdyno.server.file_system import locked

Entry = Mapping[str, Any]

ENTRIES_MAX = 1000
"""Kept: a calibration a day for years. A file of twice as many lines is cut to the last of them."""

MACHINE_FACTS = ("machine", "processor", "cores", "memory_bytes", "kernel", "architecture")
"""Of the host: where one of them is another, noise may be another, and nothing is carried over."""

LATEST_COMPARED = 10
"""Earlier calibrations that the newest is held against."""

BLOCKS_BEFORE_MAX = 40
"""A/A blocks of earlier studies that a study's are pooled with, the latest ones: the spread of 40 is known to
within some 22 %, and older ones are of another machine in all but name."""


def history_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Where it lies; it need not be there."""
    home = environ.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    return Path(home) / "pgdyno" / "noise.jsonl"


@dataclass(frozen=True)
class History:
    """The file at ``path``."""

    path: Path

    def entries(self) -> list[Entry]:
        """The oldest first."""
        try:
            lines = self.path.read_text("utf-8", "replace").splitlines()
        except FileNotFoundError:
            return []
        found: dict[object, Entry] = {}
        for number, line in enumerate(lines):
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and "kind" in entry:
                found[entry.get("id", number)] = entry
        return sorted(found.values(), key=lambda entry: float(entry.get("at_unix_s", 0.0)))

    def append(self, entry: Entry) -> None:
        """At the end; two writers wait for each other. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.path.with_suffix(".lock")):
            self._mend()
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
                file.flush()
                os.fsync(file.fileno())
            self._cut()

    def _mend(self) -> None:
        """A last line without an end would swallow the next one."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return
        if text and not text.endswith(b"\n"):
            with self.path.open("ab") as file:
                file.write(b"\n")

    def _cut(self) -> None:
        lines = self.path.read_text("utf-8", "replace").splitlines(keepends=True)
        if len(lines) > 2 * ENTRIES_MAX:
            shorter = self.path.with_suffix(".new")
            shorter.write_text("".join(lines[-ENTRIES_MAX:]), "utf-8")
            shorter.rename(self.path)

    def calibrations(self, host: Mapping[str, Any] | None = None) -> list[Entry]:
        """Of all machines, or of one."""
        return [
            entry
            for entry in self.entries()
            if entry["kind"] == "calibration" and (host is None or is_of(entry, host))
        ]

    def aa_before(self, host: Mapping[str, Any], load: Mapping[str, Any]) -> list[float]:
        """Log ratios of the latest A/A blocks of this machine under that load and layout."""
        found = [
            d
            for entry in self.entries()
            if entry["kind"] == "aa" and is_of(entry, host) and entry.get("load") == load
            for d in entry["log_ratios"]
        ]
        return [float(d) for d in found[-BLOCKS_BEFORE_MAX:]]


def machine_of(host: Mapping[str, Any]) -> dict[str, Any]:
    """What an entry says of its machine."""
    return {name: host.get(name) for name in MACHINE_FACTS}


def is_of(entry: Entry, host: Mapping[str, Any]) -> bool:
    """Whether an entry is of that machine as it is now."""
    return bool(entry.get("machine") == machine_of(host))


def is_like(one: Entry, other: Entry) -> bool:
    """Whether two calibrations measured the same thing."""
    return all(one.get(name) == other.get(name) for name in ("machine", "server", "workload", "clients"))


def merit_of(entry: Entry, schedule: str, slice_s: float) -> float | None:
    """The figure of merit of one schedule and length."""
    for row in entry["results"]:
        if (row["schedule"], row["slice_s"]) == (schedule, slice_s):
            return None if row["sd_root_min"] is None else float(row["sd_root_min"])
    return None


def drift_of(newest: Entry, calibrations: Sequence[Entry]) -> tuple[float, int] | None:
    """The newest noise by the median of the latest like it before, and how many these are: the geometric mean
    of the ratios of the lengths that both have. None where there is none before.
    """
    before = [
        entry for entry in calibrations if is_like(entry, newest) and entry["at_unix_s"] < newest["at_unix_s"]
    ][-LATEST_COMPARED:]
    ratios = []
    for row in newest["results"]:
        place, now = (row["schedule"], row["slice_s"]), row["sd_root_min"]
        known = sorted(merit for entry in before if (merit := merit_of(entry, *place)))
        if now and known:
            middle = len(known) // 2
            median = known[middle] if len(known) % 2 else (known[middle - 1] * known[middle]) ** 0.5
            ratios.append(now / median)
    if not ratios:
        return None
    product = 1.0
    for ratio in ratios:
        product *= ratio
    return product ** (1 / len(ratios)), len(before)
