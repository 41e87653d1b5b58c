"""Client of a package manager: runs it without prompts, in its own directory, with a time limit."""

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

LIST_TIMEOUT_S = 240.0  # without a local repository Maven downloads its plugins first
DOWNLOAD_TIMEOUT_S = 900.0  # 30 MB at 300 kbit/s
WORDS_MAX = 300  # characters of the client's output in an error message
UNPACKED_BYTES_MAX = 2**30  # a build has 20 to 120 MB

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


class PackageSource(Protocol):
    """A package registry with embedded builds, accessed through one client.

    ``unlisted`` has the major versions whose minor versions it does not list.
    """

    name: str
    unlisted: frozenset[int]

    @property
    def package(self) -> str:
        """Name of the package for the client."""
        ...

    def versions(self, work_dir: Path) -> dict[Version, str]:
        """Return the available PostgreSQL versions, each with its package version. Raises FetchError."""
        ...

    def download(self, package_version: str, work_dir: Path) -> Download:
        """Return a verified, unpacked package. Raises FetchError."""
        ...


@dataclass(frozen=True)
class Download:
    """An unpacked package: its directory with one or several servers, and the verified checksum."""

    tree: Path
    checksum: str


def package_architecture() -> str:
    """Return ``amd64`` or ``arm64``. Raises FetchError on other machines, for which no builds exist."""
    try:
        return MACHINES[platform.machine()]
    except KeyError:
        raise FetchError(
            f"no builds are available for this machine ({platform.machine()}): install PostgreSQL"
        ) from None


def run_client(command: Sequence[str], work_dir: Path, timeout_s: float) -> str:
    """Run the client and return its output. Raises FetchError with its error message.

    After a timeout or an interrupt the client is killed with all its children.
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
            raise FetchError(f"{name} timed out after {timeout_s:g} s") from None
        except BaseException:
            _kill_session(process)
            raise
    if process.returncode != 0:
        raise FetchError(f"{name} failed: {_words(complaint or output)}")
    return output


def _kill_session(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _words(text: str) -> str:
    lines = (line.strip() for line in text.splitlines())
    telling = [line for line in lines if line and " warn " not in line.lower()]
    return " / ".join(telling)[:WORDS_MAX] or "no output"


def unpack(archive: Path, into: Path) -> None:
    """Unpack a tar file of any compression, with no file outside ``into``. Raises FetchError.

    Builds contain files, directories, and links to a file in the same directory. Anything else is rejected.
    This rule is stricter than the filter of the standard library and works in every Python from 3.11.0 on.
    """
    # "fully_trusted" because `_refuse_unusual` checks every member; without it Python 3.12 and 3.13 warn.
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
        raise FetchError(f"{archive} cannot be unpacked: its contents are larger than any server")
    for member in members:
        inside = not member.name.startswith("/") and ".." not in Path(member.name).parts
        plain = member.isreg() or member.isdir() or (member.issym() and "/" not in member.linkname)
        if not inside or not plain or member.linkname == "..":
            raise FetchError(
                f"{archive} cannot be unpacked: it contains {member.name!r}, which is not a plain file"
            )
