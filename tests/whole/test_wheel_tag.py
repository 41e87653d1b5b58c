"""The tag of the wheel: the machine and the C library that its programs require."""

from __future__ import annotations

import runpy
import sysconfig
from pathlib import Path

import pytest

from pgdyno.server.engine import PGBENCH, PROGRAM, SYSBENCH, find_engine
from required_tag import required_tag

BUILD = runpy.run_path(str(Path(__file__).parents[2] / "hatch_build.py"))
platform_tag = BUILD["platform_tag"]


def test_the_tag_has_the_highest_version_of_the_c_library_that_a_program_requires() -> None:
    programs = [find_engine().with_name(name) for name in (PROGRAM, PGBENCH, SYSBENCH)]
    assert platform_tag(programs) == required_tag(programs)


def elf(path: Path, machine: int, names: bytes) -> Path:
    path.write_bytes(b"\x7fELF".ljust(18, b"\0") + machine.to_bytes(2, "little") + b"\0" + names)
    return path


OTHER = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


@pytest.mark.parametrize(
    ("machines", "names", "tag"),
    [
        ((0xB7, 0xB7), (b"GLIBC_2.17\0", b"GLIBC_2.9\0GLIBC_2.2.5\0"), "py3-none-manylinux_2_17_aarch64"),
        ((0x3E, 0x3E), (b"musl\0", b"no GLIBC_2.40"), OTHER),
        ((0x3E, 0xB7), (b"GLIBC_2.17\0", b"GLIBC_2.17\0"), OTHER),
        ((0x08, 0x08), (b"GLIBC_2.17\0", b"GLIBC_2.17\0"), OTHER),
        ((), (), OTHER),
    ],
    ids=["cross-compiled", "another C library", "two machines", "an unknown machine", "none"],
)
def test_programs_without_a_common_machine_and_library_are_for_this_machine(
    tmp_path: Path, machines: tuple[int, ...], names: tuple[bytes, ...], tag: str
) -> None:
    programs = zip(machines, names, strict=True)
    assert platform_tag([elf(tmp_path / str(n), *one) for n, one in enumerate(programs)]) == tag


@pytest.mark.parametrize(
    ("target", "command"),
    [("", ["build", "--profile"]), ("aarch64-unknown-linux-gnu.2.28", ["zigbuild", "--target"])],
)
def test_zig_links_for_the_target_that_is_asked_for(target: str, command: list[str]) -> None:
    found = BUILD["cargo_build"](target)
    assert list(found[:3]) == ["cargo", *command] and (not target or found[3] == target)
