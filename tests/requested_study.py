"""The study that a command requests."""

from __future__ import annotations

import sys

import pytest

from pgdyno.cli.main import run_command
from pgdyno.measure import study_runner
from pgdyno.study.cases import Request


def requested_by(words: str, monkeypatch: pytest.MonkeyPatch) -> Request:
    """Return the request of a command, which runs up to its measurement."""
    found: list[Request] = []

    def start(_: object, request: Request, *_more: object) -> None:
        found.append(request)
        raise KeyboardInterrupt

    monkeypatch.setattr(study_runner, "start_study", start)
    monkeypatch.setattr(sys, "argv", ["pgdyno", *words.split()])
    assert run_command(words.split()) == 130
    return found[0]
