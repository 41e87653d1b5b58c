"""History of measurement noise: A/A blocks and between-block SDs of studies, in one file of JSON Lines.

It is in the state directory of the user and not in the cache, because it cannot be recreated. An entry is one
line, appended under a lock. A line truncated by a power loss is ignored. The last entry with the same ``id``
is valid. Entries of another kind are the calibrations of earlier versions (ADR 27): they stay in the file and
are not used.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pgdyno.analysis.measurement_noise import FLOOR_BLOCKS_MIN, aa_log_ratios, interim_result
from pgdyno.features.noise_history.resolution import BlockNoise, expected, noise_of, notes
from pgdyno.measure.aa_blocks import Described, NoiseHistory
from pgdyno.measure.arms import Prepared
from pgdyno.measure.progress import Noted, Warned, Watch
from pgdyno.results.reader import Evidence
from pgdyno.server.directories import locked, state_directory
from pgdyno.study.plan import VERDICT_BLOCKS_MIN, Study
from pgdyno.units import counted

Entry = Mapping[str, Any]

ENTRIES_MAX = 1000
"""Number of entries kept: a study per day for years. A file with twice as many lines is shortened."""

MACHINE_FACTS = ("machine", "processor", "cores", "memory_bytes", "kernel", "architecture")
"""Facts of the host that must be equal to reuse its noise."""

BLOCKS_BEFORE_MAX = 40
"""Maximum number of A/A blocks of earlier studies to pool with, the latest ones. The SD of 40 blocks is known
to within about 22%, and the machine may have changed since older ones."""


BLOCKS = "blocks"
"""Kind of an entry with the SD between the blocks of a study."""

STUDIES_MAX = 5
"""Number of the latest studies whose noise is used: the machine may have changed since older ones."""


def history_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the file, which may not exist."""
    return state_directory(environ) / "noise.jsonl"


@dataclass(frozen=True)
class HistoryFile:
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

    def block_noise(self, host: Mapping[str, Any], study: Study) -> tuple[BlockNoise, int] | None:
        """Return the median between-block noise of the latest studies of this machine with that load, and
        their number; None if there is none. One study beside other programs does not change it much.
        """
        machine, load = machine_of(host), load_of_any_layout(study)
        own = [
            BlockNoise(entry["sd"], entry["block_s"], entry["within"], entry["window_s"])
            for entry in self.entries()
            if entry["kind"] == BLOCKS and (entry.get("machine"), entry.get("load")) == (machine, load)
        ]
        scaled = (of.in_window(study.window_s, study.turns) for of in reversed(own))
        found = [of for of in scaled if of is not None][:STUDIES_MAX]
        if not found:
            return None
        sds, lengths = [of.sd for of in found], [of.block_s for of in found]
        return BlockNoise(statistics.median(sds), statistics.median(lengths)), len(found)

    def forecast(self, cases: Sequence[tuple[Mapping[str, Any], Study]]) -> str:
        """Return what a study is likely to resolve, by its case with the largest noise, as one sentence."""
        found = []
        for host, study in cases:
            known = self.block_noise(host, study)
            if known and (resolution := expected(study, known[0])):
                found.append((resolution.log_ratio, resolution.text(study, len(cases)), known[1]))
        if not found:
            study = cases[0][1]
            after = (
                f"after block {VERDICT_BLOCKS_MIN}" if study.can_have_interim_analyses else "in the report"
            )
            return f"smallest detectable effect: not known for this load on this machine; stated {after}"
        _, text, studies = max(found)
        of = f", in the case with the largest noise of {len(found)}" if len(cases) > 1 else ""
        if unknown := len(cases) - len(found):
            of += f"; not known for {counted(unknown, 'case')}"
        return f"smallest detectable effect, from {_earlier(studies)}: {text}{of}"


def _earlier(studies: int) -> str:
    return "an earlier study" if studies == 1 else f"{studies} earlier studies"


def machine_of(host: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a machine for an entry."""
    return {name: host.get(name) for name in MACHINE_FACTS}


def load_of(study: Study) -> dict[str, Any]:
    """Return the parameters of an A/A comparison that must be equal to pool its noise with that of other
    studies.

    The server version is not among them: another release does not change the noise of the machine.
    """
    fields = (
        "workload",
        "clients",
        "threads",
        "pacing",
        "rate",
        "capacity",
        "schedule",
        "slice_s",
        "rounds",
        "warmup_s",
        "warmup_min_s",
        "warmup_workload",
        "cache_state",
        "probes",
        "checkpoints",
    )
    dumped, arm = study.model_dump(mode="json"), study.arms[0]
    further = {
        "transactions": study.transactions,
        "settings": arm.known_settings,
        "profiles": list(arm.profiles),
        **({"capacity_by": study.capacity_by} if study.searches_clients else {}),
        **{name: dumped[name] for name in ("memory_limit_bytes", "beside", "drivers") if dumped[name]},
    }
    return {**{name: dumped[name] for name in fields}, **further}


def with_earlier_noise(
    described: Described, ready: Sequence[Prepared], watch: Watch
) -> tuple[Described, list[Prepared]]:
    """Add A/A results of earlier studies to each case, because reports use the results file alone. Tell what
    the study is likely to resolve.

    A case has the latest results for each of its loads. Loads differ if settings or clients of its arms do.
    If enough are known for each, the case needs no A/A blocks of its own.
    """
    history = HistoryFile(history_path())
    watch(Noted(history.forecast([(study.host, study.plan) for study, _ in described])))
    found, needed = [], []
    for (study, arms), prepared in zip(described, ready, strict=True):
        loads: list[dict[str, Any]] = []
        for doubled in prepared.aa.values():
            if (load := load_of(doubled.study)) not in loads:
                loads.append(load)
        by_load = [history.aa_before(study.host, load) for load in loads]
        before = [d for of_load in by_load for d in of_load]
        if by_load and all(len(of_load) >= FLOOR_BLOCKS_MIN for of_load in by_load):
            why_none = f"{len(before)} blocks of earlier studies are known"
            found.append((replace(study, aa_before=before, why_no_aa=why_none), arms))
            needed.append(replace(prepared, aa={}, why_no_aa=why_none))
        else:
            found.append((replace(study, aa_before=before), arms))
            needed.append(prepared)
    return found, needed


def store_noise(path: Path, watch: Watch) -> None:
    """Store the results of this study's A/A blocks for later studies. A resumed study replaces its entry."""
    with Evidence(path, verify=False) as evidence:  # this process has written it
        entries = [_entry(evidence, number) for number in evidence.aa_cases() if evidence.blocks(number)]
        of_blocks = [one for case in evidence.cases() if (one := _entry_of_blocks(evidence, case))]
    history = HistoryFile(history_path())
    try:
        for entry in entries:
            if entry["log_ratios"]:
                history.append(entry)
        for entry in of_blocks:
            history.append(entry)
    except OSError as error:
        watch(Warned(f"cannot store the measurement noise in {history.path}: {error.strerror}"))


def load_of_any_layout(study: Study) -> dict[str, Any]:
    """Return the parameters of a load without the lengths in a block, which follow from ``--minutes``."""
    lengths = {"slice_s", "rounds", "warmup_s", "warmup_min_s"}
    return {name: of for name, of in load_of(study).items() if name not in lengths}


def _entry_of_blocks(evidence: Evidence, case: int) -> dict[str, Any] | None:
    """Return the noise of the blocks of a case; None with too few blocks."""
    lengths = [(of.ended_unix_s or of.started_unix_s) - of.started_unix_s for of in evidence.blocks(case)]
    block_s = statistics.median(lengths or [0.0])
    if (found := noise_of(evidence, case, interim_result(evidence, case), block_s)) is None:
        return None
    study = evidence.study(case)
    return {
        "kind": BLOCKS,
        "id": f"{BLOCKS} {study.created_unix_s} {case}",
        "at_unix_s": study.created_unix_s,
        "machine": machine_of(study.host),
        "load": load_of_any_layout(study.plan),
        **asdict(found[0]),
    }


def _entry(evidence: Evidence, number: int) -> dict[str, Any]:
    study = evidence.study(number)
    return {
        "kind": "aa",
        "id": f"aa {study.created_unix_s} {number}",
        "at_unix_s": study.created_unix_s,
        "machine": machine_of(study.host),
        "load": load_of(study.plan),
        "log_ratios": aa_log_ratios(evidence, number),
    }


NOISE_HISTORY = NoiseHistory(with_earlier_noise, store_noise, notes)
