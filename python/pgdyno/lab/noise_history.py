"""History of measurement noise: A/A blocks of studies, in one file of JSON Lines.

It is in the state directory of the user and not in the cache, because it cannot be recreated:
``$XDG_STATE_HOME/pgdyno`` or ``~/.local/state/pgdyno``. An entry is one line, appended under a lock. A line
truncated by a power loss is ignored. The last entry with the same ``id`` is valid. Entries of another kind
are the calibrations of earlier versions (ADR 27): they stay in the file and are not used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgdyno.server.file_system import locked

Entry = Mapping[str, Any]

ENTRIES_MAX = 1000
"""Number of entries kept: a study per day for years. A file with twice as many lines is shortened."""

MACHINE_FACTS = ("machine", "processor", "cores", "memory_bytes", "kernel", "architecture")
"""Facts of the host that must be equal to reuse its noise."""

BLOCKS_BEFORE_MAX = 40
"""Maximum number of A/A blocks of earlier studies to pool with, the latest ones. The SD of 40 blocks is known
to within about 22%, and the machine may have changed since older ones."""


def history_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the file, which may not exist."""
    home = environ.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    return Path(home) / "pgdyno" / "noise.jsonl"


@dataclass(frozen=True)
class NoiseHistory:
    """The file at ``path``."""

    path: Path

    def entries(self) -> list[Entry]:
        """Return the entries, oldest first."""
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
        """Append an entry under a lock. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.path.with_suffix(".lock")):
            self._mend()
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
                file.flush()
                os.fsync(file.fileno())
            self._cut()

    def _mend(self) -> None:
        """Terminate a truncated last line, so that it does not damage the next one."""
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

    def aa_before(self, host: Mapping[str, Any], load: Mapping[str, Any]) -> list[float]:
        """Return log ratios of the latest A/A blocks of this machine with that load and schedule."""
        machine = machine_of(host)
        found = [
            d
            for entry in self.entries()
            if entry["kind"] == "aa" and entry.get("machine") == machine and entry.get("load") == load
            for d in entry["log_ratios"]
        ]
        return [float(d) for d in found[-BLOCKS_BEFORE_MAX:]]


def machine_of(host: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a machine for an entry."""
    return {name: host.get(name) for name in MACHINE_FACTS}
