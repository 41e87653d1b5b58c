"""Runs the ordinary client of a package manager, quietly, in its own directory, with a time limit."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pgdyno.errors import FetchError
from pgdyno.server.version import Version

LIST_TIMEOUT_S = 240.0  # a cold Maven fetches its own plugins first
DOWNLOAD_TIMEOUT_S = 900.0  # 30 MB at 300 kbit/s
WORDS_MAX = 300  # characters of what a client said that go into an error message
UNPACKED_BYTES_MAX = 2**30  # a build is 20 to 120 MB; more is not what we asked for

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


class Source(Protocol):
    """A place that has embedded builds, reached through one client.

    ``unlisted`` has the major versions that it holds without telling their minor versions.
    """

    name: str
    unlisted: frozenset[int]

    @property
    def package(self) -> str:
        """What the client calls the package."""
        ...

    def versions(self, work_dir: Path) -> dict[Version, str]:
        """PostgreSQL's versions there, each with the package's own. Raises FetchError."""
        ...

    def download(self, package_version: str, work_dir: Path) -> Download:
        """A verified tree. Raises FetchError."""
        ...


@dataclass(frozen=True)
class Download:
    """An unpacked package: the directory to keep, with one or several servers in it, and how it was
    verified.
    """

    tree: Path
    checksum: str


def machine() -> str:
    """``amd64`` or ``arm64``. Raises FetchError for others: nobody publishes builds for them."""
    try:
        return MACHINES[platform.machine()]
    except KeyError:
        raise FetchError(
            f"there are no embedded builds for this machine ({platform.machine()}): install PostgreSQL"
        ) from None


def run_client(command: Sequence[str], work_dir: Path, timeout_s: float) -> str:
    """What the client prints. Raises FetchError with the client's own words; kills it with all its
    children.
    """
    name = Path(command[0]).name
    program = shutil.which(command[0])
    if program is None:
        raise FetchError(f"{name} is not installed")
    with subprocess.Popen(
        [program, *command[1:]],
        cwd=work_dir,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, complaint = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _kill_session(process)
            raise FetchError(f"{name} gave no answer within {timeout_s:g} s") from None
        except BaseException:
            _kill_session(process)
            raise
    if process.returncode != 0:
        raise FetchError(f"{name} said: {_words(complaint or output)}")
    return output


def _kill_session(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _words(text: str) -> str:
    lines = (line.strip() for line in text.splitlines())
    telling = [line for line in lines if line and " warn " not in line.lower()]
    return " / ".join(telling)[:WORDS_MAX] or "nothing"


def unpack(archive: Path, into: Path) -> None:
    """Unpack a tar file of any compression, nothing outside ``into``. Raises FetchError.

    Builds hold files, directories, and links to a file beside them: anything else is refused, which is
    stricter than the standard library's filter and works in every Python from 3.11.0 on.
    """
    # "fully_trusted" because `_refuse_unusual` has looked at every member; without it Python 3.12 and 3.13
    # warn.
    trusted = {"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}
    try:
        with tarfile.open(archive) as tar:
            members = tar.getmembers()
            _refuse_unusual(archive.name, members)
            for member in members:
                member.uid, member.gid = os.geteuid(), os.getegid()
                member.uname = member.gname = ""
            tar.extractall(into, members, **trusted)  # type: ignore[arg-type]
    except (tarfile.TarError, EOFError, OSError) as error:
        raise FetchError(f"{archive.name} cannot be unpacked: {error}") from error


def _refuse_unusual(archive: str, members: Sequence[tarfile.TarInfo]) -> None:
    if sum(member.size for member in members) > UNPACKED_BYTES_MAX:
        raise FetchError(f"{archive} unpacks to more than a server can be")
    for member in members:
        inside = not member.name.startswith("/") and ".." not in Path(member.name).parts
        plain = member.isreg() or member.isdir() or (member.issym() and "/" not in member.linkname)
        if not inside or not plain or member.linkname == "..":
            raise FetchError(f"{archive} cannot be unpacked: it holds {member.name!r}, which no server needs")
