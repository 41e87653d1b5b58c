"""Places of a cluster that is to crash: a directory, or a disk whose power can be cut.

A place has a template for each build, a stopped cluster with empty tables, from which each crash starts.
A life lasts from one start of the cluster to its crash or stop.
"""

from __future__ import annotations

import contextlib
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pgdyno.errors import DiskFullError
from pgdyno.interruption import Interruption
from pgdyno.lab.dataset_loading import WAL_RESERVE_BYTES, Place, load_data
from pgdyno.server.build import Build
from pgdyno.server.cluster import Cluster, InitOptions
from pgdyno.server.disk_release import run_step
from pgdyno.server.faulty_disk import FaultyDisk, create_image
from pgdyno.server.file_system import sync_file_system
from pgdyno.server.live_directories import LiveDirectory
from pgdyno.server.server_account import Account
from pgdyno.study.crash_plan import CrashKind, CrashPlan, DiskBehavior
from pgdyno.units import format_size
from pgdyno.workload.ledger.ledger_tables import create_ledger

COPY_TIMEOUT_S = 120.0
"""Timeout of the copy of a template of about 100 MB."""


@dataclass
class Life:
    """One life of a cluster. ``disk`` is None without a simulated disk."""

    cluster: Cluster
    disk: FaultyDisk | None = None


@dataclass
class CrashSite(ABC):
    """A place in a live directory, for one cluster at a time."""

    run: LiveDirectory
    account: Account
    plan: CrashPlan
    templates: dict[str, Path] = field(default_factory=dict)

    @abstractmethod
    def prepare(self, build: Build, interruption: Interruption) -> None:
        """Create the template of a build. Raises ServerError, DatasetError, DiskFullError, Interrupted."""

    @abstractmethod
    def restore(self, build: Build) -> None:
        """Replace the cluster by the template."""

    @abstractmethod
    def live(self, build: Build) -> contextlib.AbstractContextManager[Life]:
        """Begin a life. Raises ServerError if the disk cannot be mounted."""

    def _fill(self, cluster: Cluster, interruption: Interruption) -> None:
        cluster.initdb(InitOptions(checksums=self.plan.checksums, wal_segment_mb=self.plan.wal_segment_mb))
        with cluster.start() as server:
            if (parameters := self.plan.parameters) is not None:
                place = Place(server.conninfo(), server.connect)
                load_data(place, parameters, interruption, lambda *_: None, self._require_space)
            with contextlib.closing(server.connect()) as connection:
                create_ledger(connection, self.plan.clients, self.plan.slots)
                connection.execute("vacuum analyze")

    def _require_space(self, bytes_expected: int) -> None:
        """Raise DiskFullError if the data, and as much again, do not fit on the simulated disk."""
        needed = 2 * bytes_expected + WAL_RESERVE_BYTES
        if self.plan.kind is CrashKind.POWER and needed > self.plan.disk_bytes:
            raise DiskFullError(
                f"the data need a simulated disk of {format_size(needed)}, and it has "
                f"{format_size(self.plan.disk_bytes)}: use a larger --disk-size, or a smaller --scale"
            )

    def _template(self, build: Build) -> Path:
        return self.templates.setdefault(build.build_id, self.run.path / f"template-{len(self.templates)}")

    def _cluster(self, build: Build, data_dir: Path) -> Cluster:
        return Cluster(build, data_dir, self.account, self.run.log_path)


class DirectorySite(CrashSite):
    """A data directory on the file system of the cache."""

    def prepare(self, build: Build, interruption: Interruption) -> None:
        """Create the template of a build."""
        template = self._template(build)
        template.mkdir(mode=0o711)
        cluster = Cluster(build, template / "data", self.account, self.run.path / "preparation.log")
        self._fill(cluster, interruption)

    def restore(self, build: Build) -> None:
        """Replace the data directory by the template."""
        shutil.rmtree(self.run.data_dir, ignore_errors=True)
        source = self._template(build) / "data"
        run_step(["cp", "-a", "--reflink=auto", str(source), str(self.run.data_dir)], COPY_TIMEOUT_S)

    @contextlib.contextmanager
    def live(self, build: Build) -> Iterator[Life]:
        """Begin a life."""
        yield Life(self._cluster(build, self.run.data_dir))


class DiskSite(CrashSite):
    """A data directory on a simulated disk, whose image is copied from the template."""

    @property
    def _image(self) -> Path:
        return self.run.path / "disk.img"

    def prepare(self, build: Build, interruption: Interruption) -> None:
        """Create the template of a build."""
        self._link_data()
        template = self._template(build)
        create_image(template, self.plan.disk_bytes)
        with FaultyDisk.attach(self.run.path, template, self.plan.file_system) as disk:
            disk.format()
            disk.mount()
            self._fill(self._cluster(build, disk.root / "data"), interruption)

    def _link_data(self) -> None:
        """Create the name under which cleanup after a kill looks for the server."""
        if not self.run.data_dir.is_symlink():
            self.run.data_dir.symlink_to(Path("disk", "data"))

    def restore(self, build: Build) -> None:
        """Replace the image by the template."""
        self._link_data()
        self._image.unlink(missing_ok=True)
        copy = ["cp", "--reflink=auto", "--sparse=always", str(self._template(build)), str(self._image)]
        run_step(copy, COPY_TIMEOUT_S)

    @contextlib.contextmanager
    def live(self, build: Build) -> Iterator[Life]:
        """Begin a life of the disk. Raises ServerError if it cannot be mounted."""
        lies = self.plan.disk is DiskBehavior.LYING
        with FaultyDisk.attach(self.run.path, self._image, self.plan.file_system, lies=lies) as disk:
            disk.mount()
            yield Life(self._cluster(build, disk.root / "data"), disk)


def settle(life: Life) -> None:
    """Write back everything, so that a crash finds a machine that has run for a while. From then on the disk
    counts the requests of the load.
    """
    if life.disk is not None:
        sync_file_system(life.disk.root)
        life.disk.restart_counts()
