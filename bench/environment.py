"""Environment of the benchmarks: sizes, and a server of the distribution with synchronous_commit off."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pgdyno.errors import UsageError
from pgdyno.server.build_store import system_builds
from pgdyno.server.builds import Build
from pgdyno.server.directories import Account, server_account
from pgdyno.server.processes import Cluster, InitOptions, Server


@dataclass(frozen=True)
class Sizes:
    """Size of each benchmark.

    ``SMOKE`` only shows within seconds that every benchmark runs; its figures are meaningless.
    """

    warehouses: int
    pgbench_scale: int
    init_scale: int
    clients: tuple[int, ...]
    clients_many: int
    duration_s: float
    pairs: int
    settings: Mapping[str, str]
    analysis_trials: int = 200
    analysis_window_s: int = 3600
    slice_lengths_s: tuple[float, ...] = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
    piece_s: float = 8.0  # of measurement, for each of these lengths
    pieces: int = 16
    recording_s: float = 1200.0
    disk_bytes: int = 256 << 20  # of the file on the simulated disk


# Minimal WAL, as in the lab: COPY into a table created in the same transaction then skips WAL, on both sides.
_COMMON = {
    "synchronous_commit": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_connections": "1100",
}
FULL = Sizes(
    10, 50, 100, (1, 8, 64, 256), 1000, 3.0, 3, {**_COMMON, "shared_buffers": "4GB", "max_wal_size": "16GB"}
)
SMOKE = Sizes(
    *(1, 1, 1, (2,), 16, 0.3, 1, {**_COMMON, "shared_buffers": "64MB"}, 4, 700, (0.1,), 0.4, 2, 4.5),
    disk_bytes=4 << 20,
)


@dataclass(frozen=True)
class Environment:
    """A running server, and a directory on the same disk that its user can access."""

    server: Server
    cluster: Cluster
    account: Account
    directory: Path

    def program(self, name: str) -> str | None:
        """Return the path of a program of this PostgreSQL or on PATH, None if it is not installed."""
        build = self.cluster.build
        return str(build.program(name)) if build.has(name) else shutil.which(name)

    @contextmanager
    def database(self, name: str) -> Iterator[str]:
        """Create a database, yield its name, and drop it afterwards."""
        with closing(self.server.connect()) as conn:
            conn.execute(f"CREATE DATABASE {name}")
            try:
                yield name
            finally:
                conn.execute(f"DROP DATABASE {name}")


@contextmanager
def benchmark_environment(sizes: Sizes) -> Iterator[Environment]:
    """Start a server in a temporary directory, which is deleted afterwards."""
    account, build = server_account(), installed_build()
    directory = Path(tempfile.mkdtemp(prefix="pgdyno-bench-", dir="/var/tmp"))
    directory.chmod(0o755)
    try:
        cluster = Cluster(build, directory / "data", account)
        cluster.initdb(InitOptions(sync=False))
        with cluster.start(sizes.settings) as server:
            yield Environment(server, cluster, account, directory)
    finally:
        subprocess.run(["rm", "-rf", str(directory)], check=True)


def installed_build() -> Build:
    builds = [build for build in system_builds() if build.has("pgbench")] or system_builds()
    if not builds:
        raise UsageError("make bench needs an installed PostgreSQL with pgbench; install your distribution's")
    return builds[0]
