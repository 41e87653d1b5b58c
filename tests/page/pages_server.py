"""A server of pages in a process of its own, and a browser's way in."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import BrowserContext

PROGRAM = (
    "from pgdyno.cli.main import main; from pgdyno.features.serve import live; "
    "live.CPU_SHARE_MAX = float('inf'); main()"
)
"""Tests write blocks within milliseconds, and expect the comparisons of each."""


@dataclass
class Served:
    """``pgdyno serve`` of a directory. ``url``: of the first page, with the token."""

    directory: Path
    process: subprocess.Popen[str]
    url: str

    @classmethod
    def of(cls, directory: Path, port: int = 0) -> Served:
        """Start a server, and return when it has printed its address."""
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "serve", str(directory), "--port", str(port)],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr
        line = process.stderr.readline()
        assert line.startswith("http://127.0.0.1:"), line + process.stderr.read()
        return cls(directory, process, line.split()[0])

    @property
    def origin(self) -> str:
        return self.url[: self.url.index("/", len("http://"))]

    @property
    def port(self) -> int:
        return int(self.origin.rpartition(":")[2])

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stderr
        self.process.stderr.close()


def let_in(context: BrowserContext, served: Served) -> None:
    """Ask for the address with the token; its cookie is that of all pages of the context."""
    assert context.request.get(served.url).ok
