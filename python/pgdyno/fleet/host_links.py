"""Interface of a cluster for the coordinator of a fleet study: agents on hosts, and their answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pgdyno.fleet.host_messages import HostMessage, HostTask


@dataclass(frozen=True)
class Answer:
    """Answer to the last request to a host: the message of a poll; None for another request.

    ``error``: why the request failed; empty if it did not. ``is_lost``: the agent has ended.
    """

    host: str
    message: HostMessage | None = None
    error: str = ""
    is_lost: bool = False


class HostLinks(Protocol):
    """Requests to the agents of hosts, one at a time for each host, and their answers in any order."""

    def begin(self, host: str, task: HostTask, evidence: Path | None) -> None:
        """Request the start of a task. ``evidence``: results file to resume, sent if the host lacks it."""

    def poll(self, host: str, acknowledged: int, wait_s: float, again: bool) -> None:
        """Request a message, as ``HostAgent.poll``."""

    def stop(self, host: str) -> None:
        """Stop the study of a host gracefully, without an answer."""

    def end(self, host: str, *, remove_files: bool) -> None:
        """End the agent, without an answer. ``remove_files``: its results file was collected."""

    def answers(self, timeout_s: float) -> Sequence[Answer]:
        """Return the answers since the last call; wait for the first one up to ``timeout_s``."""
