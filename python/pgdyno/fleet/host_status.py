"""The current status of a host, made from the progress events of the lab."""

from __future__ import annotations

from pgdyno.cli.live_view import standing_lines
from pgdyno.fleet.host_messages import HostStatus
from pgdyno.lab.progress import (
    BlockEnded,
    BlockStarted,
    InterimVerdicts,
    LoadProgress,
    PreparationStep,
    Progress,
    Running,
)


class StatusOfProgress:
    """Keeps the status after each event, so that a message has the same size for any number of events."""

    def __init__(self) -> None:
        self.status = HostStatus()
        self._arms: tuple[str, ...] = ()

    def note(self, progress: Progress) -> None:
        """Update the status."""
        match progress:
            case PreparationStep(text):
                self._change(step=text, rate=None)
            case LoadProgress(dataset, phase, share):
                self._change(step=f"loading {dataset}: {phase} {share:.0%}")
            case BlockStarted(block, _, elapsed_s, total_s, _, case, arms):
                self._arms = arms
                self._change(block=block, case=case, elapsed_s=elapsed_s, total_s=total_s, rate=None)
            case Running(arm, role, rate):
                doing = "measuring" if role == "measure" else "warming up"
                name = self._arms[arm] if arm < len(self._arms) else f"arm {arm + 1}"
                self._change(step=f"{doing} {name}", rate=rate)
            case BlockEnded():
                self._change(blocks=self.status.blocks + 1)
            case InterimVerdicts(standings, block_s):
                lines = {self.status.case: standing_lines(standings, block_s)}
                self._change(standings={**self.status.standings, **lines})
            case _:
                pass

    def _change(self, **fields: object) -> None:
        self.status = self.status.model_copy(update=fields)
