"""Build hook of the wheel: compile the engine, add its programs, man pages and the commit, set the tag."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

OPTIONS = ("--profile", "dist", "--locked", "--bins", "--message-format=json-render-diagnostics")


OF_LUAJIT = {"TARGET_LIBS": "-lunwind", "TARGET_STRIP": "true"}
"""For its build with zig: a library that other linkers imply, and no strip of this machine."""


def cargo_build(zig_target: str) -> tuple[str, ...]:
    """Return the command that compiles the engine, with zig as the linker if it has a target."""
    return ("cargo", *(("zigbuild", "--target", zig_target) if zig_target else ("build",)), *OPTIONS)


class EngineBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Add the engine's programs and the man pages to a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile unless the installation is editable: there `make` puts the programs beside the Python."""
        if version == "editable":
            return
        programs = self._programs()
        build_data["shared_scripts"].update({str(path): path.name for path in programs})
        build_data["shared_data"].update(
            {str(page): f"share/man/man1/{page.name}" for page in self._man_pages()}
        )
        build_data["force_include"].update({str(path): "pgdyno/commit" for path in self._commit()})
        build_data["pure_python"] = False
        build_data["tag"] = platform_tag(programs)

    def _commit(self) -> list[Path]:
        """Write the commit for `pgdyno --version`. It is unknown outside a checkout, or without Git."""
        if shutil.which("git") is None or not Path(self.root, ".git").exists():
            return []
        describe = ("git", "-C", self.root, "describe", "--always", "--dirty", "--exclude=*")
        done = subprocess.run(describe, capture_output=True, text=True, check=False)
        path = Path(self.root, "target", "commit")
        path.parent.mkdir(exist_ok=True)
        path.write_text(done.stdout.strip())
        return [path] if done.returncode == 0 else []

    def _man_pages(self) -> list[Path]:
        """Write the man pages. They are made of the program, so this needs the packages that it imports."""
        directory = Path(self.root, "target", "man")
        shutil.rmtree(directory, ignore_errors=True)
        paths = [str(Path(self.root, "python")), os.environ.get("PYTHONPATH", "")]
        command = (sys.executable, str(Path(self.root, "docs", "man_pages.py")), str(directory))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        done = subprocess.run(command, cwd=self.root, env=environment, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} failed with status {done.returncode}: see above")
        return sorted(directory.iterdir())

    def _programs(self) -> list[Path]:
        """Return the compiled programs. Cargo reports where they are, whatever its target directory."""
        if shutil.which("cargo") is None:
            raise SystemExit(
                "pgdyno needs Rust (cargo 1.85 or newer) to build its engine; install it with rustup "
                "or your distribution's package (Debian 12: cargo-web), or install a wheel that was built "
                "elsewhere"
            )
        zig_target = os.environ.get("PGDYNO_ZIG_TARGET", "")
        command = cargo_build(zig_target)
        environment = {**os.environ, **(OF_LUAJIT if zig_target else {})}
        done = subprocess.run(
            command, cwd=self.root, stdout=subprocess.PIPE, text=True, check=False, env=environment
        )
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} failed with status {done.returncode}: see above")
        built = [json.loads(line).get("executable") for line in done.stdout.splitlines()]
        return [Path(path) for path in built if path]


MACHINES = {0x3E: "x86_64", 0xB7: "aarch64"}
"""Machines of ELF programs (e_machine), by the name in tags."""


def platform_tag(programs: Sequence[Path]) -> str:
    """Return the tag: any Python 3, and the machine and the oldest C library for which the programs are.

    That is the highest version of the GNU C library of which they require a symbol (PEP 600). An ELF file has
    the names of such versions as strings. Programs of another kind are for machines like this one.
    """
    contents = [path.read_bytes() for path in programs]
    machines = {MACHINES.get(int.from_bytes(content[18:20], "little")) for content in contents}
    minors = [int(minor) for of in contents for minor in re.findall(rb"\0GLIBC_2\.(\d+)(?=[.\0])", of)]
    if minors and len(machines) == 1 and (machine := machines.pop()):
        return f"py3-none-manylinux_2_{max(minors)}_{machine}"
    return f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
