"""Sources that are built in a moment: their programs print a version, or run installed ones."""

from __future__ import annotations

import subprocess
from pathlib import Path

CONFIGURE = """#!/bin/sh
prefix=/nowhere
for option; do
  case "$option" in
    --prefix=*) prefix="${option#--prefix=}" ;;
    --with-missing) echo "configure: error: library 'missing' is required"; exit 1 ;;
    --with-delay) echo $$ > pid; exec sleep 600 ;;
  esac
done
echo configured >> "%(runs)s"
printf 'prefix = %%s\\n' "$prefix" | cat - Makefile.in > Makefile
"""

MAKEFILE = """
all:
\t@echo compiling
install:
\tmkdir -p $(DESTDIR)$(prefix)/bin
\tcp programs/* $(DESTDIR)$(prefix)/bin
"""

PROGRAM = """#!/bin/sh
case "$1" in --version|-V) echo "{name} (PostgreSQL) {version}" ;; *) exec "{real}" "$@" ;; esac
"""


def write_sources(tree: Path, version: str, real_bin_dir: Path | None = None) -> Path:
    """Write sources of that version, whose programs run those in ``real_bin_dir``, if given.

    Every configure adds a line to the file ``runs`` beside the tree.
    """
    programs = tree / "programs"
    programs.mkdir(parents=True, exist_ok=True)
    (tree / "Makefile.in").write_text(MAKEFILE)
    configure = tree / "configure"
    configure.write_text(CONFIGURE % {"runs": tree.parent / "runs"})
    configure.chmod(0o755)
    real = {path.name: path for path in real_bin_dir.iterdir()} if real_bin_dir else {}
    for name in real or ("postgres", "initdb"):
        program = programs / name
        program.write_text(PROGRAM.format(name=name, version=version, real=real.get(name, "false")))
        program.chmod(0o700)
    return tree


def configured(tree: Path) -> int:
    """Return how often sources beside this tree were configured."""
    runs = tree.parent / "runs"
    return len(runs.read_text().splitlines()) if runs.exists() else 0


def git(clone: Path, *arguments: str) -> str:
    """Return the output of git in the clone, as a user who has no configuration."""
    who = ["-c", "user.name=Test", "-c", "user.email=test@example.invalid"]
    command = ["git", "-C", str(clone), *who, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def write_clone(clone: Path, versions: tuple[str, ...], real_bin_dir: Path | None = None) -> Path:
    """Write a clone with a commit and a tag (``v18.1``) for each version."""
    clone.mkdir(parents=True)
    git(clone, "init", "--quiet", "--initial-branch", "master")
    for version in versions:
        write_sources(clone, version, real_bin_dir)
        (clone / "VERSION").write_text(version)
        git(clone, "add", "--all")
        git(clone, "commit", "--quiet", "--message", version)
        git(clone, "tag", f"v{version}")
    return clone
