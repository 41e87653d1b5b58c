"""Mounts and shared memory are recognized in the kernel's tables."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pgdyno.errors import ServerError
from pgdyno.server.disk_release import Mount, mounts_in, run_step
from pgdyno.server.server_crash import _segments_of

MOUNTINFO = r"""
22 1 254:0 / / rw,relatime - ext4 /dev/root rw
41 22 0:37 / /runs/run-a\040b/fuse rw,nosuid shared:5 - fuse.pgdyno pgdyno rw,user_id=0
42 22 7:3 / /runs/run-a\040b/disk rw,nosuid - ext4 /dev/loop3 rw
43 22 7:4 / /runs/run-ab/disk rw,nosuid - ext4 /dev/loop4 rw
""".strip()


def test_only_mounts_below_the_directory_are_found_the_latest_first() -> None:
    own = Path("/runs/run-a b")
    assert mounts_in(MOUNTINFO, own) == [
        Mount(own / "disk", "ext4", 3),
        Mount(own / "fuse", "fuse.pgdyno", 37),
    ]
    assert mounts_in(MOUNTINFO, own / "disk") == []  # the directory itself is not below


def test_a_tool_that_fails_hangs_or_is_missing_is_an_error() -> None:
    assert run_step(["echo", "x"]) == "x\n"
    with pytest.raises(ServerError, match="broken"):
        run_step([sys.executable, "-c", "import sys; sys.exit('broken')"])
    with pytest.raises(ServerError, match="did not end within"):
        run_step([sys.executable, "-c", "input_ = __import__('signal').pause()"], timeout_s=0.1)
    with pytest.raises(ServerError, match="not installed"):
        run_step(["pgdyno-no-such-tool"])


SHM = """       key      shmid perms                  size  cpid  lpid nattch   uid
   1234          7   600                    56   100   101      0   999
   1235          8   600                    56   100   101      2   999
   1236          9   600                    56   200   201      0   999
"""


def test_segments_are_those_of_the_creator_that_nobody_uses() -> None:
    assert _segments_of(SHM, 100) == [7]
