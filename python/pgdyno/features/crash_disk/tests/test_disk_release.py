"""Mounts and loop devices are recognized in the tables of the kernel."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pgdyno.errors import ServerError
from pgdyno.features.crash_disk import disk
from pgdyno.features.crash_disk.disk import loops_below, mounts_below, run_step
from pgdyno.server import directories
from pgdyno.server.directories import Mount, mount_of, mounts_of

MOUNTINFO = rb"""
22 1 254:0 / / rw,relatime - ext4 /dev/root rw
41 22 0:37 / /runs/run-a\040b/fuse rw,nosuid shared:5 - fuse.pgdyno pgdyno rw,user_id=0
42 22 7:3 / /runs/run-a\040b/disk rw,nosuid - ext4 /dev/loop3 rw
43 22 7:4 / /runs/run-ab/disk rw,nosuid - ext4 /dev/loop4 rw
44 22 0:38 / /empty rw - tmpfs  rw
""".lstrip()


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(directories, "TABLE", tmp_path / "mountinfo")
    (tmp_path / "mountinfo").write_bytes(MOUNTINFO)
    return tmp_path / "mountinfo"


def test_only_mounts_below_the_directory_are_found_the_latest_first(table: Path) -> None:
    own = Path("/runs/run-a b")
    assert mounts_below(own) == [
        Mount(own / "disk", "ext4", "rw,nosuid", "/dev/loop3", os.makedev(7, 3)),
        Mount(own / "fuse", "fuse.pgdyno", "rw,nosuid,user_id=0", "pgdyno", os.makedev(0, 37)),
    ]
    assert mounts_below(own / "disk") == []  # the directory itself is not below
    assert mounts_of(table.read_bytes())[-1].source == ""


# The kernel escapes these four, and "#" in some fields.
ESCAPED = {byte: b"\\%03o" % byte for byte in b" \t\n\\#"}
NAMES = st.binary(min_size=1, max_size=30).filter(lambda name: not {0, 47} & set(name) and name.strip(b"."))


@given(st.lists(NAMES, min_size=1, max_size=3))
@example(["cäche".encode()])
@example([b"\xff\xfe", "\u2028\x85".encode(), b"\\040"])
def test_any_path_is_decoded_as_the_kernel_writes_it(names: list[bytes]) -> None:
    path = b"/" + b"/".join(names)
    written = b"".join(ESCAPED.get(byte, bytes([byte])) for byte in path)
    lines = b"41 22 0:37 / %b rw shared:5 - ext4 %b rw\n" % (written, written)
    [mount] = mounts_of(lines)
    assert os.fsencode(mount.point) == os.fsencode(mount.source) == path


def test_a_path_is_on_the_latest_of_the_deepest_mounts_above_it() -> None:
    def point(where: str, number: int) -> Mount:
        return Mount(Path(where), "ext4", "rw", "", number)

    mounts = [point("/", 1), point("/nonesuch/ab", 2), point("/nonesuch/a", 3), point("/nonesuch/a", 4)]
    assert mount_of(Path("/nonesuch/a/b"), mounts) == mounts[3]
    assert mount_of(Path("/nonesuch/b"), mounts) == mounts[0]
    assert mount_of(Path("/nonesuch"), mounts[1:]) is None


@pytest.mark.parametrize("name", [b"c\xc3\xa4che", b"\xff", b"two words ", b"new\nline"])
def test_a_loop_device_is_found_by_any_path_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    monkeypatch.setattr(disk, "LOOPS", tmp_path)
    (tmp_path / "loop7" / "loop").mkdir(parents=True)
    (tmp_path / "loop7" / "loop" / "backing_file").write_bytes(b"/nonesuch/%b/%b\n" % (name, name))
    (tmp_path / "loop8").mkdir()  # a device without a file
    directory = Path("/nonesuch", os.fsdecode(name))
    assert loops_below(directory) == [Path("/dev/loop7")]
    assert loops_below(directory / "deeper") == []


def test_a_tool_that_fails_hangs_or_is_missing_is_an_error() -> None:
    assert run_step(["echo", "x"]) == "x\n"
    with pytest.raises(ServerError, match="broken"):
        run_step([sys.executable, "-c", "import sys; sys.exit('broken')"])
    with pytest.raises(ServerError, match="did not end within"):
        run_step([sys.executable, "-c", "input_ = __import__('signal').pause()"], timeout_s=0.1)
    with pytest.raises(ServerError, match="not installed"):
        run_step(["pgdyno-no-such-tool"])
