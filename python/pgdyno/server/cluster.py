"""A cluster: one data directory and the server that runs on it.

    cluster = Cluster(build, data_dir, account)
    cluster.initdb()
    with cluster.start({"shared_buffers": "2GB"}) as server:
        server.connect("postgres").execute("select 1")

The server listens only on a Unix socket in a directory that only its user (and root) can enter, so ``trust``
authentication is safe. It ends with pgdyno, whatever ends pgdyno (see ``child``).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pgdyno.errors import StartError, UsageError
from pgdyno.server.build import Build
from pgdyno.server.live_directories import SocketDirectory
from pgdyno.server.running import SUPERUSER, Server, last_messages
from pgdyno.server.server_account import Account
from pgdyno.server.server_process import READY_TIMEOUT_S, forget_program, launch, note_program, run_tool
from pgdyno.server.settings.reserved_settings import (
    BASE,
    base_settings,
    config_text,
    refuse_reserved,
)
from pgdyno.server.settings.setting_definition import verify

INITDB_TIMEOUT_S = 300.0  # it takes seconds on any disk that is suitable for a benchmark

CONFIG_FILE = "pgdyno.conf"


@dataclass(frozen=True)
class InitOptions:
    """Options of initdb, part of the key of a dataset. All arms have the same, as defaults vary by
    version."""

    checksums: bool = True  # the default from PostgreSQL 18 on
    wal_segment_mb: int | None = None  # from PostgreSQL 11 on
    sync: bool = True

    def arguments(self, build: Build) -> list[str]:
        """Return the arguments of initdb, without program and directory. Raises UsageError."""
        arguments = ["--username", SUPERUSER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C"]
        if build.version.major >= 15:
            arguments += ["--locale-provider", "libc"]
        if self.checksums:
            arguments.append("--data-checksums")
        elif build.version.major >= 18:
            arguments.append("--no-data-checksums")
        if self.wal_segment_mb is not None:
            if build.version.major < 11:
                raise UsageError("initdb.wal_segment requires PostgreSQL 11 or newer (got 10)")
            arguments.append(f"--wal-segsize={self.wal_segment_mb}")
        return arguments if self.sync else [*arguments, "--no-sync"]


@dataclass
class Cluster:
    """One data directory of one build. The output of the server is appended to ``log_path``."""

    build: Build
    data_dir: Path
    account: Account
    log_path: Path = field(default=Path())

    def __post_init__(self) -> None:
        if self.log_path == Path():
            self.log_path = self.data_dir.with_name(f"{self.data_dir.name}.log")

    def initdb(self, options: InitOptions | None = None, more: Sequence[str] = ()) -> None:
        """Create the data directory, which must be missing or empty. ``more``: arguments that override those
        of the options. Raises StartError, UsageError.
        """
        arguments = [*(options or InitOptions()).arguments(self.build), *more]
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.account.own(self.data_dir)
        # --no-clean: after a crash of initdb, the files that it would remove identify its shared memory.
        program = [str(self.build.program("initdb")), "--no-clean"]
        command = [*program, "--pgdata", str(self.data_dir), *arguments]
        note_program(self.data_dir, self.build.program("postgres"))
        done = run_tool(command, self.account, INITDB_TIMEOUT_S)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).splitlines(keepends=True)
            why = last_messages("".join(line for line in said if "not removed at user's request" not in line))
            raise StartError(f"initdb of {self.build.label} failed: {why}")
        forget_program(self.data_dir)
        with (self.data_dir / "postgresql.conf").open("a") as config:
            config.write(f"\ninclude_if_exists = '{CONFIG_FILE}'\n")

    def start(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        optional: Collection[str] = (),
        ready_timeout_s: float = READY_TIMEOUT_S,
    ) -> Server:
        """Start the server and wait until it accepts connections.

        Compares every setting with the value in effect. A setting that is unknown to this version or not in
        effect is an error, unless its name is in ``optional``: ``Server.dropped`` lists those. Raises
        UsageError (a reserved setting), StartError.
        """
        requested = dict(settings or {})
        refuse_reserved(requested)
        base = base_settings(self.build.version.major)
        # Snapshots of a version in development may lack a setting of it.
        unknown = self._unknown({*optional, *(base.keys() - BASE.keys())})
        self._write_config({n: value for n, value in {**base, **requested}.items() if n not in unknown})
        socket = SocketDirectory.create(self.account)
        log_start_bytes = self.log_path.stat().st_size if self.log_path.exists() else 0
        begun_s = time.monotonic()
        try:
            process = launch(self._command(socket), self.account, self.log_path)
        except BaseException:
            socket.remove()
            raise
        server = Server(self.build, self.data_dir, self.log_path, socket, process, log_start_bytes)
        try:
            server.wait_ready(ready_timeout_s)
            server.ready_s = time.monotonic() - begun_s
            server.effective, server.dropped = verify(server.connect(), requested, optional)
        except BaseException:
            server.abandon()
            raise
        return server

    def _unknown(self, optional: Collection[str]) -> set[str]:
        """Return the optional settings that this version does not know."""
        if not optional:
            return set()
        listed = run_tool([str(self.build.program("postgres")), "--describe-config"], self.account, 60.0)
        names = {line.split("\t", 1)[0].lower() for line in listed.stdout.splitlines()}
        return {name for name in optional if "." not in name and name.lower() not in names}

    def _write_config(self, settings: Mapping[str, str]) -> None:
        path = self.data_dir / CONFIG_FILE
        path.write_text(config_text(settings))
        path.chmod(0o600)
        self.account.own(path)

    def _command(self, socket: SocketDirectory) -> list[str]:
        return [
            str(self.build.program("postgres")),
            "-D",
            str(self.data_dir),
            *(part for name, value in socket.settings().items() for part in ("-c", f"{name}={value}")),
        ]
