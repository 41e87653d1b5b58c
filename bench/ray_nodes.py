"""Ray nodes on this machine, for tests and benchmarks. All have the address of loopback."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import psutil

RAY = [sys.executable, "-m", "ray.scripts.scripts"]
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
"""Each process has clusters with a token of its own: neither they nor the user's clusters see the other's."""

JOIN_TIMEOUT_S = 300.0
JOIN_PAUSE_S = 0.02


class Caller(Protocol):
    """The cache of the nodes' caches, and the environment of their processes."""

    @property
    def cache(self) -> Path:
        """Directory that the user of servers can enter."""

    def environment(self) -> dict[str, str]:
        """Return the environment. It has PYTHONPATH."""


class LocalCluster:
    """Nodes on this machine, each with its own cache. They end with ``end``, by their process groups.

    ``nodes``: the process of each node. ``head``: the first one.
    """

    def __init__(self, program: Caller, folder: Path) -> None:
        self.program, self.folder = program, folder
        self.port = free_port()
        self.head = ""
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *names: str) -> None:
        """Start nodes. The first one of all is the head."""
        for name in names:
            self.head = self.head or name
            command = [*self.prefix(name), *RAY, "start", "--block", "--node-name", name, "--num-cpus=2"]
            command += [f"--node-ip-address={self.ip(name)}", "--object-store-memory=80000000"]
            command += ["--include-log-monitor=false", *self._place(name)]
            cache = self.program.cache / name
            cache.mkdir(exist_ok=True)
            cache.chmod(0o755)
            own = {"PGDYNO_CACHE": str(cache), "XDG_STATE_HOME": str(cache / "state")}
            self.nodes[name] = subprocess.Popen(
                command,
                env={**self.program.environment(), **self.environment(), **own},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._wait_for_node(len(self.nodes))

    def _place(self, name: str) -> list[str]:
        if name != self.head:
            return [f"--address={self.address}", *self.own_directory(name)]
        directory = self.own_directory(name) or [f"--temp-dir={self.folder}"]
        return ["--head", f"--port={self.port}", "--include-dashboard=false", *directory]

    def prefix(self, name: str) -> list[str]:
        """Return the start of a command that runs where the node is."""
        del name
        return []

    def ip(self, name: str) -> str:
        """Return the address of a node."""
        del name
        return "127.0.0.1"

    def own_directory(self, name: str) -> list[str]:
        """Return the option of a directory for the node; empty: the one of the head."""
        del name
        return []

    def environment(self) -> Mapping[str, str]:
        """Return the variables of commands that use the cluster."""
        import ray  # noqa: PLC0415 - the optional dependency

        package = [self.program.environment()["PYTHONPATH"], str(Path(ray.__file__).parents[1])]
        return {**TOKEN, "PYTHONPATH": os.pathsep.join(package), "RAY_USAGE_STATS_ENABLED": "0"}

    @property
    def address(self) -> str:
        """Address of the head."""
        return f"127.0.0.1:{self.port}"

    def process(self, name: str, part: str) -> psutil.Process:
        """Return the process of a node whose command line contains ``part``. Raises LookupError."""
        for process in self.members(name):
            with contextlib.suppress(psutil.Error):
                if part in " ".join(process.cmdline()):
                    return process
        raise LookupError(f"{name} has no process {part}")

    def drives(self, name: str) -> bool:
        """Return whether an engine runs on a node."""
        with contextlib.suppress(LookupError):
            return bool(self.process(name, "pgdyno-engine"))
        return False

    def members(self, name: str) -> list[psutil.Process]:
        """Return the processes of a node."""
        with contextlib.suppress(psutil.Error):
            return psutil.Process(self.nodes[name].pid).children(recursive=True)
        return []

    def stop(self, name: str) -> None:
        """Kill all processes of a node."""
        members = self.members(name)
        node = self.nodes.pop(name)
        node.kill()
        node.wait()
        for member in members:
            with contextlib.suppress(psutil.Error):
                member.kill()

    def restart(self) -> None:
        """Stop all nodes, and start them again."""
        names = sorted(self.nodes, key=lambda name: name != self.head)
        for name in names:
            self.stop(name)
        self.start(*names)

    def end(self) -> None:
        """Kill all nodes."""
        for name in list(self.nodes):
            self.stop(name)

    def _wait_for_node(self, n: int) -> None:
        command = [*RAY, "status", f"--address={self.address}"]
        deadline_s = time.monotonic() + JOIN_TIMEOUT_S
        environ = {**self.program.environment(), **self.environment()}
        while time.monotonic() < deadline_s:
            found = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
            if found.stdout.count("node_") >= n:
                return
            time.sleep(JOIN_PAUSE_S)
        raise TimeoutError("the node never joined")


def free_port() -> int:
    """Return a port that no process listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
