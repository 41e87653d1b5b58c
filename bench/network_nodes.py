"""Ray nodes in network namespaces, with addresses of their own, and links that can be disturbed.

The kernel's netem is missing on some machines. A forwarder of layer 2 works on all of them: two TAP devices,
and a thread that passes their frames with a delay and a loss rate.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import select
import signal
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import psutil

from bench.ray_nodes import Caller, LocalCluster
from pgdyno.server.builds import Build
from pgdyno.server.directories import server_account
from pgdyno.server.processes import SUPERUSER, Cluster, InitOptions, launch

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
FRAME_BYTES_MAX = 65536
TICK_S = 0.2
"""Maximum time until a forwarder notices its end."""

START_TIMEOUT_S = 60.0
PAUSE_S = 0.02
ISOLATED = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
INIT = "sleep infinity & wait"
"""The first process of a namespace of processes. A shell that waits also takes the status of orphans."""


def unavailable() -> str:
    """Return the reason for which this machine cannot have network namespaces; empty if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not Path("/dev/net/tun").exists():
        return "the kernel has no TAP devices (/dev/net/tun)"
    probe = subprocess.run([*ISOLATED, "true"], capture_output=True, text=True, check=False)
    return "" if probe.returncode == 0 else f"no network namespaces: {probe.stderr.strip()}"


def ip(*arguments: str | int) -> None:
    """Run ``ip``. Raises CalledProcessError."""
    subprocess.run(["ip", *map(str, arguments)], check=True, capture_output=True)


class Link:
    """The link of a node to the bridge. Subclasses create its two devices ``near`` and ``far``."""

    def __init__(self, name: str) -> None:
        self.near, self.far = f"{name}n", f"{name}f"

    def take_down(self) -> None:
        """Drop all frames, as a cable that is pulled."""
        ip("link", "set", self.near, "down")

    def bring_up(self) -> None:
        """Pass frames again."""
        ip("link", "set", self.near, "up")

    def close(self) -> None:
        """Remove the devices. The end in a namespace that has ended is gone, and of a veth both are."""
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("link", "del", self.near)


class FastLink(Link):
    """A pair of virtual Ethernet devices."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        ip("link", "add", self.near, "type", "veth", "peer", "name", self.far)


class ForwardedLink(Link):
    """Two TAP devices. ``delay_s``: in each direction. ``loss``: share of the frames that are dropped."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.delay_s = self.loss = 0.0
        self._ends = [_open_tap(self.near), _open_tap(self.far)]
        self._is_closed = False
        self._thread = threading.Thread(target=self._forward, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Remove the devices, which exist while they are open."""
        self._is_closed = True
        self._thread.join()
        for end in self._ends:
            os.close(end)

    def _forward(self) -> None:
        """Pass frames until ``close``, or until a device is removed with its namespace."""
        other = dict(zip(self._ends, reversed(self._ends), strict=True))
        waiting: deque[tuple[float, int, bytes]] = deque()
        chance = random.Random(1)
        while not self._is_closed:
            wait_s = min(TICK_S, max(0.0, waiting[0][0] - time.monotonic())) if waiting else TICK_S
            for end in select.select(self._ends, (), (), wait_s)[0]:
                try:
                    frame = os.read(end, FRAME_BYTES_MAX)
                except OSError:
                    return
                if chance.random() >= self.loss:
                    waiting.append((time.monotonic() + self.delay_s, other[end], frame))
            while waiting and waiting[0][0] <= time.monotonic():
                _, end, frame = waiting.popleft()
                with contextlib.suppress(OSError):  # the device is down
                    os.write(end, frame)


def _open_tap(name: str) -> int:
    """Create a TAP device that exists while the descriptor is open."""
    found = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(found, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return found


class NetworkCluster(LocalCluster):
    """Nodes that have their own addresses, devices and process IDs, as machines on one switch.

    ``gateway``: address of this machine on the bridge, where servers listen. ``link``: class of the links.
    """

    def __init__(self, program: Caller, folder: Path, link: type[Link] = ForwardedLink) -> None:
        super().__init__(program, folder)
        self._link, self._net = link, f"10.77.{os.getpid() % 256}"
        self.bridge, self.gateway = f"pgd{os.getpid() % 10_000}", f"{self._net}.1"
        self.links: dict[str, Link] = {}
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._ips: dict[str, str] = {}
        ip("link", "add", self.bridge, "type", "bridge")
        ip("address", "add", f"{self.gateway}/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")

    def start(self, *names: str) -> None:
        """Start nodes, each in new namespaces. The first one of all is the head."""
        for name in names:
            self._ips.setdefault(name, f"{self._net}.{len(self._ips) + 2}")
            self._holders[name] = subprocess.Popen([*ISOLATED, "bash", "-c", INIT], start_new_session=True)
            link = self.links[name] = self._link(f"{self.bridge}-{self._ips[name].rpartition('.')[2]}")
            ip("link", "set", link.far, "netns", self._init_of(name), "name", "eth0")
            ip("link", "set", link.near, "master", self.bridge, "up")
            own = f"ip link set lo up && ip address add {self._ips[name]}/24 dev eth0 && ip link set eth0 up"
            subprocess.run([*self.prefix(name), "sh", "-c", own], check=True)
            super().start(name)

    def prefix(self, name: str) -> list[str]:
        """Return the start of a command in the namespaces of a node."""
        return ["nsenter", f"--target={self._init_of(name)}", "--net", "--mount", "--pid", "--"]

    def ip(self, name: str) -> str:
        """Return the address of a node."""
        return self._ips[name]

    def own_directory(self, name: str) -> list[str]:
        """Return the option of a directory for the node."""
        return [f"--temp-dir={self.folder / name}"]

    @property
    def address(self) -> str:
        """Address of the head."""
        return f"{self._ips[self.head]}:{self.port}"

    def members(self, name: str) -> list[psutil.Process]:
        """Return the processes of a node."""
        space = Path(f"/proc/{self._init_of(name)}/ns/pid").readlink()
        return [process for process in psutil.process_iter() if _pid_space(process.pid) == space]

    def stop(self, name: str) -> None:
        """Kill all processes of a node and remove its link, as a power cut."""
        holder = self._holders.pop(name)
        holder.kill()
        holder.wait()
        if (node := self.nodes.pop(name, None)) is not None:
            node.wait()
        self.links.pop(name).close()

    def end(self) -> None:
        """Kill all nodes and remove the bridge."""
        for name in list(self._holders):
            self.stop(name)
        ip("link", "del", self.bridge)

    def _init_of(self, name: str) -> int:
        """Return the first process of the namespaces of a node."""
        holder = psutil.Process(self._holders[name].pid)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not (found := holder.children()):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"the namespaces of {name} never started")
            time.sleep(PAUSE_S)
        return found[0].pid

    @contextlib.contextmanager
    def server(self, build: Build, folder: Path, **settings: str) -> Iterator[str]:
        """Start a server that listens on the bridge only. Yield its connection string."""
        account = server_account()
        cluster = Cluster(build, folder, account)
        cluster.initdb(InitOptions(sync=False))
        with (folder / "pg_hba.conf").open("a") as access:
            access.write(f"host all all {self._net}.0/24 trust\n")
        settings |= {"listen_addresses": self.gateway, "port": str(self.port), "unix_socket_directories": ""}
        more = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = [str(build.program("postgres")), "-D", str(folder), *more]
        process = launch(command, account, cluster.log_path)
        try:
            deadline_s = time.monotonic() + START_TIMEOUT_S
            while "ready to accept connections" not in cluster.log_path.read_text():
                if process.poll() is not None or time.monotonic() > deadline_s:
                    raise TimeoutError(f"the server never started: {cluster.log_path.read_text()}")
                time.sleep(PAUSE_S)
            yield f"host={self.gateway} port={self.port} user={SUPERUSER} dbname=postgres"
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


def _pid_space(pid: int) -> Path | None:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/ns/pid").readlink()
    return None
